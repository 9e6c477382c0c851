"""Triton kernels for Kronecker-sparse products on CUDA: forward, gradient of the input, gradient of the weight.

NOT RUN ON A GPU HERE: the numbers are checked in Triton's interpreter, and Triton 3.9 compiles the kernels for compute
capability 8.0 and 9.0 in float32, float16 and bfloat16; the speed is not known. Nothing chooses these kernels by itself;
``algorithm="triton"`` asks for them.

Each program computes one tile of the output of one small matrix. Inputs and outputs are read and written where they lie, in
either layout and for weights in any arrangement: strides are arguments. The gradient of the input is the forward kernel on
the transposed weight. Sums are in float32, products of float32 are not shortened to TF32.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from burnish.core.errors import Unsupported
from burnish.nn.ks_dispatch import Layout
from burnish.nn.ks_pattern import Pattern, pattern_of

SMALLEST, LARGEST = 16, 64
"""Sides of tiles: below the first there is no matrix instruction."""


@triton.jit
def _product_kernel(  # type: ignore[no-untyped-def]
    x, w, y, batch, B, C, D, x_n, x_f, y_n, y_f, w_a, w_b, w_c, w_d,
    TILE_N: tl.constexpr, TILE_B: tl.constexpr, TILE_C: tl.constexpr,
):  # fmt: skip
    """y[n, a, :, d] = W[a, :, :, d] x[n, a, :, d], for a tile of n and of rows; x_n is the stride of x along n, and so on."""
    tiles = (B + TILE_B - 1) // TILE_B
    matrix = tl.program_id(0) // tiles
    i, j = matrix // D, matrix % D
    n = (tl.program_id(1) * TILE_N + tl.arange(0, TILE_N)).to(tl.int64)
    b = (tl.program_id(0) % tiles) * TILE_B + tl.arange(0, TILE_B)
    total = tl.full((TILE_N, TILE_B), 0.0, dtype=tl.float32)
    for first in range(0, C, TILE_C):
        c = first + tl.arange(0, TILE_C)
        xs = tl.load(
            x + n[:, None] * x_n + ((i * C + c[None, :]) * D + j).to(tl.int64) * x_f,
            mask=(n[:, None] < batch) & (c[None, :] < C),
            other=0.0,
        )
        ws = tl.load(
            w + i * w_a + b[None, :] * w_b + c[:, None] * w_c + j * w_d,
            mask=(b[None, :] < B) & (c[:, None] < C),
            other=0.0,
        )
        total = tl.dot(xs, ws, total, input_precision="ieee")
    tl.store(
        y + n[:, None] * y_n + ((i * B + b[None, :]) * D + j).to(tl.int64) * y_f,
        total.to(y.dtype.element_ty),
        mask=(n[:, None] < batch) & (b[None, :] < B),
    )


@triton.jit
def _outer_kernel(  # type: ignore[no-untyped-def]
    dy, x, dw, batch, B, C, D, y_n, y_f, x_n, x_f, w_a, w_b, w_c, w_d,
    TILE_N: tl.constexpr, TILE_B: tl.constexpr, TILE_C: tl.constexpr,
):  # fmt: skip
    """dW[a, :, :, d] = sum over n of dy[n, a, :, d] x[n, a, :, d], for a tile of rows and of columns."""
    tiles = (B + TILE_B - 1) // TILE_B
    matrix = tl.program_id(0) // tiles
    i, j = matrix // D, matrix % D
    b = (tl.program_id(0) % tiles) * TILE_B + tl.arange(0, TILE_B)
    c = tl.program_id(1) * TILE_C + tl.arange(0, TILE_C)
    total = tl.full((TILE_B, TILE_C), 0.0, dtype=tl.float32)
    for first in range(0, batch, TILE_N):
        n = (first + tl.arange(0, TILE_N)).to(tl.int64)
        dys = tl.load(
            dy + n[None, :] * y_n + ((i * B + b[:, None]) * D + j).to(tl.int64) * y_f,
            mask=(n[None, :] < batch) & (b[:, None] < B),
            other=0.0,
        )
        xs = tl.load(
            x + n[:, None] * x_n + ((i * C + c[None, :]) * D + j).to(tl.int64) * x_f,
            mask=(n[:, None] < batch) & (c[None, :] < C),
            other=0.0,
        )
        total = tl.dot(dys, xs, total, input_precision="ieee")
    tl.store(
        dw + i * w_a + b[:, None] * w_b + c[None, :] * w_c + j * w_d,
        total.to(dw.dtype.element_ty),
        mask=(b[:, None] < B) & (c[None, :] < C),
    )


def product(x: Tensor, weight: Tensor, layout: Layout) -> Tensor:
    """As `burnish.nn.kronecker_sparse.multiply`, without gradients.

    Raises:
        Unsupported: double precision, or tensors on a CPU outside the interpreter.
    """
    _check(x)
    pattern = pattern_of(weight)
    batch = x.shape[0 if layout == "first" else 1]
    y = x.new_empty((batch, pattern.rows) if layout == "first" else (pattern.rows, batch))
    if batch:
        tile_n, tile_b, tile_c = _tile(batch), _tile(pattern.b), _tile(pattern.c)
        grid = (pattern.matrices * triton.cdiv(pattern.b, tile_b), triton.cdiv(batch, tile_n))
        _product_kernel[grid](
            x, weight, y, batch, pattern.b, pattern.c, pattern.d,
            *_strides(x, layout), *_strides(y, layout), *weight.stride(),
            TILE_N=tile_n, TILE_B=tile_b, TILE_C=tile_c,
        )  # fmt: skip
    return y


def outer(dy: Tensor, x: Tensor, pattern: Pattern, layout: Layout) -> Tensor:
    """The weight's gradient, (a, b, c, d), lying in memory as (a, d, b, c).

    Raises:
        Unsupported: as `product`.
    """
    _check(x)
    a, b, c, d = pattern.shape
    batch = x.shape[0 if layout == "first" else 1]
    dw = x.new_empty(a, d, b, c).permute(0, 2, 3, 1)
    tile_n, tile_b, tile_c = _tile(max(batch, 1)), _tile(b), _tile(c)
    grid = (pattern.matrices * triton.cdiv(b, tile_b), triton.cdiv(c, tile_c))
    _outer_kernel[grid](
        dy, x, dw, batch, b, c, d,
        *_strides(dy, layout), *_strides(x, layout), *dw.stride(),
        TILE_N=tile_n, TILE_B=tile_b, TILE_C=tile_c,
    )  # fmt: skip
    return dw


def _check(x: Tensor) -> None:
    if x.dtype == torch.float64:
        raise Unsupported("the Triton kernel in double precision", "its sums are in float32", 'use algorithm="auto"')
    if x.device.type == "cpu" and not _interpreted():
        raise Unsupported("the Triton kernel on a CPU", "it is compiled for CUDA", 'use algorithm="auto"')


def _interpreted() -> bool:
    """Whether the kernels were made for Triton's interpreter, which TRITON_INTERPRET=1 says at import."""
    return not isinstance(_product_kernel, triton.runtime.JITFunction)


def _strides(x: Tensor, layout: Layout) -> tuple[Any, ...]:
    """Along the batch, and along the features."""
    return x.stride() if layout == "first" else x.stride()[::-1]


def _tile(size: int) -> int:
    return min(max(triton.next_power_of_2(size), SMALLEST), LARGEST)
