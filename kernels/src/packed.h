// A weight matrix in packed codes: the layout is that of burnish.nn.packed, which writes it.
//
// Rows (outputs) come in panels of 16, columns (inputs) in units of 32; both are padded. A panel is a run of units; a unit is,
// for each plane of the codes' bits (widths 8, 4, 2, 1 that add up to `bits`, the widest first and lowest), `width` words for
// each of the 16 rows: word i of a row holds columns i * 32 / width and on, the first in its lowest bits.
#pragma once
#include <cstdint>

#include "vector.h"

namespace burnish {

constexpr int UNIT = 32;

enum Zero : int32_t { MIDDLE = 0, INTEGER = 1, OFFSET = 2 };

struct Packed {
    const uint32_t* words;
    const uint16_t* scale;  // (panels, groups, 16), half precision
    const uint16_t* zero;   // the same for INTEGER and OFFSET, else null
    const float* bias;      // (rows) or null
    int32_t rows, columns, bits, group;  // columns a group; a multiple of 32, or all of them
    int32_t kind;                        // Zero

    int panels() const { return (rows + PANEL - 1) / PANEL; }
    int units() const { return (columns + UNIT - 1) / UNIT; }
    int groups() const { return (columns + group - 1) / group; }
    int units_a_group() const { return (group + UNIT - 1) / UNIT; }
    const uint32_t* panel(int p) const { return words + (int64_t)p * units() * bits * PANEL; }
    float middle() const { return (float)(1 << (bits - 1)); }
};

// The planes of a code: `f(width, shift)` for each.
template <class F>
inline void planes(int bits, F f) {
    int shift = 0;
    for (int width = 8; width; width /= 2)
        if (bits & width) {
            f(width, shift);
            shift += width;
        }
}

// Field j of a word, times 2^(width * j) but for the last: a mask is cheaper than a shift, and a power of two is exact.
template <int WIDTH>
inline Words field(Words w, int j) {
    constexpr int last = 32 / WIDTH - 1;
    constexpr uint32_t mask = WIDTH == 32 ? ~0u : (1u << WIDTH) - 1;
    return j == last ? w >> (WIDTH * last) : w & (mask << (WIDTH * j));
}

// What the input of field j is to be multiplied with to make up for it.
inline float field_factor(int width, int j) {
    const int shift = j == 32 / width - 1 ? 0 : width * j;
    return 1.0f / (float)(1u << shift);
}

}  // namespace burnish
