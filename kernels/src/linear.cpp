// Linear layers with packed weights: decode of a few rows straight from the codes, and blocks of many rows from one decoded panel.
#include "linear.h"

#include <omp.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "tile.h"

namespace burnish {

namespace {

constexpr int COLUMNS_AT_ONCE = 256;  // of a decoded panel: 16 KiB, half of a first-level cache
constexpr int ROWS_AT_ONCE = 192;     // of input that share a decoded panel

int padded(const Packed& w) { return w.units() * UNIT; }

// Sums that run side by side, so that no addition waits for the one before: for few rows there would be too few.
template <int ROWS>
constexpr int CHAINS = ROWS == 1 ? 4 : ROWS == 2 ? 2 : 1;

template <int ROWS>
using Sums = Floats[CHAINS<ROWS>][ROWS][VECTORS];

template <int WIDTH, int ROWS>
inline const uint32_t* plane_product(const uint32_t* words, const float* const* x, Sums<ROWS>& part) {
    constexpr int fields = 32 / WIDTH;
    for (int i = 0; i < WIDTH; i++, words += PANEL) {
        Words w[VECTORS];
        for (int v = 0; v < VECTORS; v++) w[v] = load<Words>(words + v * LANES);
#pragma GCC unroll 32
        for (int j = 0; j < fields; j++)
            for (int v = 0; v < VECTORS; v++) {
                const Floats code = to_floats(field<WIDTH>(w[v], j));
                for (int r = 0; r < ROWS; r++) part[j % CHAINS<ROWS>][r][v] += code * x[r][i * fields + j];
            }
    }
    return words;
}

template <int BITS, int ROWS>
void product(const Packed& w, int panel, const Prepared& given, float* y, int64_t stride) {
    const int units = w.units(), groups = w.groups(), each = w.units_a_group(), columns = padded(w);
    constexpr int count = __builtin_popcount(BITS);
    const uint32_t* words = w.panel(panel);
    Floats total[ROWS][VECTORS] = {};
    const Floats middle = all(w.middle());
    for (int g = 0, unit = 0; g < groups; g++) {
        Sums<ROWS> part;
        // One by one: an initializer of the whole becomes a call that is slower than the group's products.
#pragma GCC unroll 4
        for (int chain = 0; chain < CHAINS<ROWS>; chain++)
#pragma GCC unroll 4
            for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 4
                for (int v = 0; v < VECTORS; v++) part[chain][r][v] = Floats{};
        for (int end = std::min(unit + each, units); unit < end; unit++) {
            __builtin_prefetch(words + 1024);
            int plane = 0;
            const float* x[ROWS];
            auto next = [&] {
                for (int r = 0; r < ROWS; r++) x[r] = given.fields + ((int64_t)r * count + plane) * columns + unit * UNIT;
                plane++;
            };
            if constexpr (BITS & 8) next(), words = plane_product<8, ROWS>(words, x, part);
            if constexpr (BITS & 4) next(), words = plane_product<4, ROWS>(words, x, part);
            if constexpr (BITS & 2) next(), words = plane_product<2, ROWS>(words, x, part);
            if constexpr (BITS & 1) next(), words = plane_product<1, ROWS>(words, x, part);
        }
        const int64_t at = ((int64_t)panel * groups + g) * PANEL;
        for (int v = 0; v < VECTORS; v++) {
            const Floats scale = halves(w.scale + at + v * LANES);
            const Floats zero = w.kind == MIDDLE ? middle : halves(w.zero + at + v * LANES);
            for (int r = 0; r < ROWS; r++) {
                const float s = given.sums[r * groups + g];
                Floats sum = part[0][r][v];
                for (int chain = 1; chain < CHAINS<ROWS>; chain++) sum += part[chain][r][v];
                if (w.kind == OFFSET) total[r][v] += sum * scale + zero * s;
                else total[r][v] += (sum - zero * s) * scale;
            }
        }
    }
    for (int r = 0; r < ROWS; r++)
        for (int v = 0; v < VECTORS; v++) store(y + r * stride + v * LANES, total[r][v]);
}

template <int BITS>
void product_of(const Packed& w, int panel, const Prepared& x, int rows, float* y, int64_t stride) {
    switch (rows) {
        case 1: return product<BITS, 1>(w, panel, x, y, stride);
        case 2: return product<BITS, 2>(w, panel, x, y, stride);
        case 3: return product<BITS, 3>(w, panel, x, y, stride);
        default: return product<BITS, 4>(w, panel, x, y, stride);
    }
}

template <int WIDTH>
inline const uint32_t* decode_plane(const uint32_t* words, float weight, bool first, float* to) {
    constexpr int fields = 32 / WIDTH;
    for (int i = 0; i < WIDTH; i++, words += PANEL)
        for (int v = 0; v < VECTORS; v++) {
            const Words w = load<Words>(words + v * LANES);
#pragma GCC unroll 32
            for (int j = 0; j < fields; j++) {
                float* at = to + (i * fields + j) * PANEL + v * LANES;
                const Floats code = to_floats(field<WIDTH>(w, j)) * (weight * field_factor(WIDTH, j));
                store(at, first ? code : load<Floats>(at) + code);
            }
        }
    return words;
}

// A buffer of this thread, kept between calls and aligned to cache lines.
float* scratch(int64_t floats) {
    static thread_local std::vector<float> held;
    if ((int64_t)held.size() < floats + 16) held.resize(floats + 16);
    return (float*)(((uintptr_t)held.data() + 63) / 64 * 64);
}

void finish(const Packed& w, int panel, const float* from, float* y, int64_t stride, int rows) {
    const int first = panel * PANEL, count = std::min(PANEL, w.rows - first);
    for (int r = 0; r < rows; r++)
        for (int n = 0; n < count; n++)
            y[r * stride + first + n] = from[r * PANEL + n] + (w.bias ? w.bias[first + n] : 0.0f);
}

void few(const Packed& w, const float* x, int64_t xs, float* y, int64_t ys, int rows, int threads) {
    std::vector<float> space(prepared_floats(w, rows));
    const Prepared given = prepare(w, x, xs, rows, space.data());
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int p = 0; p < w.panels(); p++) {
        float out[FEW * PANEL];
        panel_product(w, p, given, rows, out, PANEL);
        finish(w, p, out, y, ys, rows);
    }
}

void many(const Packed& w, const float* x, int64_t xs, float* y, int64_t ys, int rows, int threads) {
#pragma omp parallel num_threads(threads)
    {
        float* panel = scratch((int64_t)padded(w) * PANEL + ROWS_AT_ONCE * PANEL);
        float* out = panel + (int64_t)padded(w) * PANEL;
        for (int top = 0; top < rows; top += ROWS_AT_ONCE) {
            const int height = std::min(ROWS_AT_ONCE, rows - top);
#pragma omp for schedule(static) nowait
            for (int p = 0; p < w.panels(); p++) {
                decode_panel(w, p, panel);
                for (int k = 0; k < w.columns; k += COLUMNS_AT_ONCE) {
                    const int width = std::min(COLUMNS_AT_ONCE, w.columns - k);
                    block(height, x + top * xs + k, xs, panel + (int64_t)k * PANEL, width, out, PANEL, k > 0);
                }
                finish(w, p, out, y + top * ys, ys, height);
            }
        }
    }
}

}  // namespace

int64_t prepared_floats(const Packed& w, int rows) {
    return (int64_t)rows * (__builtin_popcount(w.bits) * (int64_t)padded(w) + w.groups());
}

Prepared prepare(const Packed& w, const float* x, int64_t stride, int rows, float* space) {
    const int columns = padded(w), count = __builtin_popcount(w.bits), groups = w.groups();
    const Prepared made{space, space + (int64_t)rows * count * columns};
    for (int r = 0; r < rows; r++) {
        const float* row = x + r * stride;
        int plane = 0;
        planes(w.bits, [&](int width, int shift) {
            float* to = made.fields + ((int64_t)r * count + plane++) * columns;
            const int fields = 32 / width;
            float factor[32];
            for (int j = 0; j < UNIT; j++) factor[j] = (float)(1 << shift) * field_factor(width, j % fields);
            for (int k = 0; k < columns; k++) to[k] = k < w.columns ? row[k] * factor[k % UNIT] : 0.0f;
        });
        for (int g = 0; g < groups; g++) {
            float total = 0;
            for (int k = g * w.group, end = std::min(k + w.group, w.columns); k < end; k++) total += row[k];
            made.sums[r * groups + g] = total;
        }
    }
    return made;
}

void panel_product(const Packed& w, int panel, const Prepared& x, int rows, float* y, int64_t stride) {
    switch (w.bits) {
        case 1: return product_of<1>(w, panel, x, rows, y, stride);
        case 2: return product_of<2>(w, panel, x, rows, y, stride);
        case 3: return product_of<3>(w, panel, x, rows, y, stride);
        case 4: return product_of<4>(w, panel, x, rows, y, stride);
        case 5: return product_of<5>(w, panel, x, rows, y, stride);
        case 6: return product_of<6>(w, panel, x, rows, y, stride);
        case 7: return product_of<7>(w, panel, x, rows, y, stride);
        default: return product_of<8>(w, panel, x, rows, y, stride);
    }
}

void decode_panel(const Packed& w, int panel, float* to) {
    const uint32_t* words = w.panel(panel);
    const int groups = w.groups(), each = w.units_a_group();
    const Floats middle = all(w.middle());
    for (int unit = 0; unit < w.units(); unit++) {
        float* at = to + (int64_t)unit * UNIT * PANEL;
        planes(w.bits, [&](int width, int shift) {
            const float weight = (float)(1 << shift);
            const bool first = shift == 0;
            if (width == 8) words = decode_plane<8>(words, weight, first, at);
            else if (width == 4) words = decode_plane<4>(words, weight, first, at);
            else if (width == 2) words = decode_plane<2>(words, weight, first, at);
            else words = decode_plane<1>(words, weight, first, at);
        });
        const int64_t of = ((int64_t)panel * groups + unit / each) * PANEL;
        for (int v = 0; v < VECTORS; v++) {
            const Floats scale = halves(w.scale + of + v * LANES);
            const Floats zero = w.kind == MIDDLE ? middle : halves(w.zero + of + v * LANES);
            for (int k = 0; k < UNIT; k++) {
                float* here = at + k * PANEL + v * LANES;
                const Floats code = load<Floats>(here);
                store(here, w.kind == OFFSET ? code * scale + zero : (code - zero) * scale);
            }
        }
    }
}

void linear(const Packed& w, const float* x, int64_t xs, float* y, int64_t ys, int rows, int threads) {
    if (rows <= 0) return;
    if (rows <= FEW) few(w, x, xs, y, ys, rows, threads);
    else many(w, x, xs, y, ys, rows, threads);
}

}  // namespace burnish
