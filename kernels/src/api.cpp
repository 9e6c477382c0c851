// What Python calls: plain C functions, so that one build serves every version of Python and of torch.
#include "decoder.h"
#include "kronecker.h"
#include "linear.h"

#define API extern "C" __attribute__((visibility("default")))

using namespace burnish;

API int32_t burnish_lanes() { return LANES; }

API void burnish_linear(const Packed* w, const float* x, int64_t x_stride, float* y, int64_t y_stride, int32_t rows,
                        int32_t threads) {
    linear(*w, x, x_stride, y, y_stride, rows, threads);
}

API void burnish_step(const Decoder* decoder, const Step* s) { step(*decoder, *s); }

API void burnish_rows(const Packed* w, const int64_t* rows, int32_t count, float* to) { decode_rows(*w, rows, count, 1.0f, to); }

API void burnish_kronecker_sparse(const float* x, const float* w, const int64_t* strides, float* y, int64_t n, int32_t a, int32_t b,
                                  int32_t c, int32_t d, int32_t threads) {
    kronecker_sparse(x, w, strides, y, n, a, b, c, d, threads);
}

API void burnish_kronecker_turn(const Turn* turn, const float* x, float* y, int64_t rows, int32_t threads) {
    kronecker_turn(*turn, x, y, rows, threads);
}
