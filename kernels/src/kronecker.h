#pragma once
#include <cstdint>

namespace burnish {

// y = K(W) x with the batch first: x (n, a, c, d), y (n, a, b, d), both contiguous; W by its four strides, so that a transposed
// weight needs no copy. Vectors run along d; nothing is permuted.
void kronecker_sparse(const float* x, const float* w, const int64_t* w_strides, float* y, int64_t n, int a, int b, int c, int d,
                      int threads);

// Each row of x, (rows, l * r), becomes Lᵀ X R, and then lies on a grid of its own if bits < 16.
// L (l, l) and R (r, r) row-major, either null for the identity. high and low: the fractions of the row's range that the grid keeps.
struct Turn {
    const float* left;
    const float* right;
    int32_t l, r, bits;
    float high, low;
};
void kronecker_turn(const Turn& turn, const float* x, float* y, int64_t rows, int threads);

}  // namespace burnish
