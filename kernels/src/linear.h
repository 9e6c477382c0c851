#pragma once
#include "packed.h"

namespace burnish {

// Most rows of input for which weights are decoded as they are used; more share a decoded panel.
constexpr int FEW = 4;

// Input rows made ready for `panel_product`: each plane's factors applied, sums of groups beside.
struct Prepared {
    float* fields;  // (rows, planes, padded columns)
    float* sums;    // (rows, groups)
};

int64_t prepared_floats(const Packed& w, int rows);
Prepared prepare(const Packed& w, const float* x, int64_t stride, int rows, float* space);

// Outputs of one panel for up to FEW prepared rows: y[r * stride + 0..16), without bias.
void panel_product(const Packed& w, int panel, const Prepared& x, int rows, float* y, int64_t stride);

// Weights of one panel: (padded columns, 16), each (code - zero) * scale or code * scale + zero, as burnish.nn.grid decodes them.
void decode_panel(const Packed& w, int panel, float* to);

// y = x Wᵀ + bias for any number of rows, on `threads` threads.
void linear(const Packed& w, const float* x, int64_t x_stride, float* y, int64_t y_stride, int rows, int threads);

}  // namespace burnish
