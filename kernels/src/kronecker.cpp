#include "kronecker.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tile.h"

namespace burnish {

namespace {

constexpr int BATCH = 32;           // vectors whose inputs and outputs stay in a second-level cache
constexpr int GATHERED = 8192;      // floats of gathered inputs: the size of a first-level cache
constexpr int HIGH = 4, WIDE = 3;   // a register tile: vectors of the batch by outputs

// Where a tile's outputs go: vectors of the batch and outputs lie so far apart, and so many of the LANES are there.
struct Out {
    float* y;
    int64_t row, output;
    int width;
};

// Sums over c for LANES neighbours along d: inputs (n, c), weights (b, c).
template <int N, int B>
void cell(const float* x, const float* w, int c, const Out& out) {
    Floats total[N][B];
    for (int i = 0; i < N; i++)
        for (int j = 0; j < B; j++) total[i][j] = Floats{};
    for (int k = 0; k < c; k++) {
        Floats weight[B];
        for (int j = 0; j < B; j++) weight[j] = load<Floats>(w + ((int64_t)j * c + k) * LANES);
        for (int i = 0; i < N; i++) {
            const Floats in = load<Floats>(x + ((int64_t)i * c + k) * LANES);
            for (int j = 0; j < B; j++) total[i][j] += in * weight[j];
        }
    }
    for (int i = 0; i < N; i++)
        for (int j = 0; j < B; j++) {
            float* to = out.y + i * out.row + j * out.output;
            if (out.width == LANES) store(to, total[i][j]);
            else for (int e = 0; e < out.width; e++) to[e] = total[i][j][e];
        }
}

template <int N, int B>
void cell_of(int n, int b, const float* x, const float* w, int c, const Out& out) {
    if (n == N && b == B) return cell<N, B>(x, w, c, out);
    if constexpr (B > 1) {
        if (b < B) return cell_of<N, B - 1>(n, b, x, w, c, out);
    }
    if constexpr (N > 1) cell_of<N - 1, B>(n, b, x, w, c, out);
}

// A matrix (rows, columns) as panels of 16 columns, each (rows, 16), filled up with zeros.
std::vector<float> panels(const float* m, int rows, int columns) {
    const int count = (columns + PANEL - 1) / PANEL;
    std::vector<float> made((size_t)count * rows * PANEL);
    for (int k = 0; k < rows; k++)
        for (int j = 0; j < columns; j++) made[((size_t)(j / PANEL) * rows + k) * PANEL + j % PANEL] = m[(size_t)k * columns + j];
    return made;
}

// As burnish.nn.ste.symmetric: 2^bits levels around zero, half to even.
void round_row(float* y, int n, const Turn& turn) {
    Floats highest = all(-INFINITY), lowest = all(INFINITY);
    int i = 0;
    for (; i + LANES <= n; i += LANES) {
        const Floats v = load<Floats>(y + i);
        highest = v > highest ? v : highest;
        lowest = v < lowest ? v : lowest;
    }
    float high = -INFINITY, low = INFINITY;
    for (int e = 0; e < LANES; e++) high = std::max(high, highest[e]), low = std::min(low, lowest[e]);
    for (; i < n; i++) high = std::max(high, y[i]), low = std::min(low, y[i]);
    const float top = (float)((1 << (turn.bits - 1)) - 1);
    const float scale = std::max(std::max(std::fabs(high * turn.high), std::fabs(low * turn.low)) / top, 1e-8f);
    // Adding and taking away 1.5 * 2^23 rounds half to even; levels beyond it are cut anyway.
    const Floats magic = all(12582912.0f), last = all(top), first = all(-top - 1), step = all(scale);
    for (i = 0; i + LANES <= n; i += LANES) {
        Floats level = load<Floats>(y + i) / step;
        level = level > last ? last : level;
        level = level < first ? first : level;
        store(y + i, ((level + magic) - magic) * step);
    }
    for (; i < n; i++) y[i] = std::nearbyint(std::min(std::max(y[i] / scale, -top - 1), top)) * scale;
}

}  // namespace

void kronecker_sparse(const float* x, const float* w, const int64_t* ws, float* y, int64_t n, int a, int b, int c, int d, int threads) {
    const int slices = (d + LANES - 1) / LANES;
    const int64_t slab = (int64_t)b * c * LANES, batches = (n + BATCH - 1) / BATCH;
    const int rows = std::min(BATCH, std::max(HIGH, GATHERED / (c * LANES) / HIGH * HIGH));
    // Weights (a, slices, b, c, LANES): what a tile reads is in one piece.
    std::vector<float> weights((size_t)(a * slices * slab));
#pragma omp parallel num_threads(threads)
    {
#pragma omp for schedule(static)
        for (int part = 0; part < a * slices; part++) {
            const int i = part / slices, first = part % slices * LANES, width = std::min(LANES, d - first);
            float* to = weights.data() + part * slab;
            for (int j = 0; j < b; j++)
                for (int k = 0; k < c; k++, to += LANES) {
                    const float* from = w + i * ws[0] + j * ws[1] + k * ws[2] + first * ws[3];
                    for (int e = 0; e < width; e++) to[e] = from[e * ws[3]];
                }
        }
        std::vector<float> inputs((size_t)rows * c * LANES);
#pragma omp for schedule(static)
        for (int64_t job = 0; job < batches * a; job++) {
            const int64_t batch = job / a * BATCH, last = std::min(n, batch + BATCH);
            const int i = (int)(job % a);
            for (int slice = 0; slice < slices; slice++) {
                const int first = slice * LANES, width = std::min(LANES, d - first);
                const float* slab_of = weights.data() + ((int64_t)i * slices + slice) * slab;
                for (int64_t top = batch; top < last; top += rows) {
                    const int count = (int)std::min<int64_t>(rows, last - top);
                    float* to = inputs.data();
                    for (int m = 0; m < count; m++) {
                        const float* from = x + ((top + m) * a + i) * c * d + first;
                        for (int k = 0; k < c; k++, from += d, to += LANES) {
                            if (width == LANES) store(to, load<Floats>(from));
                            else for (int e = 0; e < width; e++) to[e] = from[e];
                        }
                    }
                    for (int j = 0; j < b; j += WIDE)
                        for (int m = 0; m < count; m += HIGH) {
                            const Out out{y + (((top + m) * a + i) * b + j) * d + first, (int64_t)a * b * d, d, width};
                            cell_of<HIGH, WIDE>(std::min(HIGH, count - m), std::min(WIDE, b - j),
                                                inputs.data() + (int64_t)m * c * LANES, slab_of + (int64_t)j * c * LANES, c, out);
                        }
                }
            }
        }
    }
}

void kronecker_turn(const Turn& turn, const float* x, float* y, int64_t rows, int threads) {
    const int l = turn.l, r = turn.r, count = (r + PANEL - 1) / PANEL;
    std::vector<float> right, left((size_t)l * l);
    if (turn.right) right = panels(turn.right, r, r);
    if (turn.left)
        for (int i = 0; i < l; i++)
            for (int j = 0; j < l; j++) left[(size_t)i * l + j] = turn.left[(size_t)j * l + i];
#pragma omp parallel num_threads(threads)
    {
        std::vector<float> between((size_t)l * PANEL), done((size_t)l * PANEL);
#pragma omp for schedule(static)
        for (int64_t row = 0; row < rows; row++) {
            const float* in = x + row * l * r;
            float* out = y + row * l * r;
            for (int p = 0; p < count; p++) {
                const int width = std::min(PANEL, r - p * PANEL);
                if (turn.right) block(l, in, r, right.data() + (size_t)p * r * PANEL, r, between.data(), PANEL, false);
                else
                    for (int i = 0; i < l; i++)
                        for (int j = 0; j < PANEL; j++) between[(size_t)i * PANEL + j] = j < width ? in[i * r + p * PANEL + j] : 0.0f;
                const float* from = between.data();
                if (turn.left) block(l, left.data(), l, between.data(), l, done.data(), PANEL, false), from = done.data();
                for (int i = 0; i < l; i++) std::copy(from + i * PANEL, from + i * PANEL + width, out + (int64_t)i * r + p * PANEL);
            }
            if (turn.bits < 16) round_row(out, l * r, turn);
        }
    }
}

}  // namespace burnish
