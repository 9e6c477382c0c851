// The register tile of all dense products here.
#pragma once
#include "vector.h"

namespace burnish {

constexpr int TILE = LANES == 16 ? 12 : 6;  // rows

// y[0..ROWS) x 16 (+)= x[0..ROWS)(columns) times panel (columns, 16).
template <int ROWS>
void tile(const float* x, int64_t x_stride, const float* panel, int columns, float* y, int64_t y_stride, bool add) {
    Floats total[ROWS][VECTORS];
    for (int r = 0; r < ROWS; r++)
        for (int v = 0; v < VECTORS; v++) total[r][v] = add ? load<Floats>(y + r * y_stride + v * LANES) : Floats{};
    for (int k = 0; k < columns; k++) {
        Floats b[VECTORS];
        for (int v = 0; v < VECTORS; v++) b[v] = load<Floats>(panel + k * PANEL + v * LANES);
        for (int r = 0; r < ROWS; r++)
            for (int v = 0; v < VECTORS; v++) total[r][v] += b[v] * x[r * x_stride + k];
    }
    for (int r = 0; r < ROWS; r++)
        for (int v = 0; v < VECTORS; v++) store(y + r * y_stride + v * LANES, total[r][v]);
}

template <int ROWS>
void tile_of(int rows, const float* x, int64_t xs, const float* panel, int columns, float* y, int64_t ys, bool add) {
    if (rows == ROWS) return tile<ROWS>(x, xs, panel, columns, y, ys, add);
    if constexpr (ROWS > 1) tile_of<ROWS - 1>(rows, x, xs, panel, columns, y, ys, add);
}

// y (rows, 16) (+)= x (rows, columns) times panel, in as many tiles as that takes.
inline void block(int rows, const float* x, int64_t xs, const float* panel, int columns, float* y, int64_t ys, bool add) {
    for (int r = 0; r < rows; r += TILE) {
        const int count = rows - r < TILE ? rows - r : TILE;
        tile_of<TILE>(count, x + r * xs, xs, panel, columns, y + r * ys, ys, add);
    }
}

}  // namespace burnish
