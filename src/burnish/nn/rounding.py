"""The error-compensating rounding loops of GPTQ and BoA.

Both walk over the weights in a fixed order, round one, and move the others against the error. GPTQ walks along the
columns of a matrix whose rows are independent. BoA adds a metric between the rows of a head; its loop is sequential in
rows *and* columns, but weight (r, c) needs only what lies left of it in its row and above it in its column. All weights
on one anti-diagonal r + c are therefore rounded at once: rows + columns steps instead of rows times columns.

Everything is in float64: sequential rounding amplifies the last bit, and the same weights and factors should give the
same codes on every machine. (Hessians are summed from float32 products, which differ between machines in the last bits.)
"""

from __future__ import annotations

import torch
from torch import Tensor

from burnish.nn.grid import Grid, GridSpec, decode, encode

BLOCK = 32
"""Columns (or anti-diagonals) whose compensation is applied one by one; the rest is caught up by one product."""


def round_rows(weight: Tensor, upper: Tensor, grid: Grid, order: Tensor | None = None) -> Tensor:
    """GPTQ (Frantar et al. 2023): round column after column, compensating in the columns to come.

    Args:
        weight: (rows, columns).
        upper: U with H⁻¹ = U'U, (columns, columns), in the order of the walk.
        grid: Static: it does not follow the compensated weights.
        order: A permutation of the columns (act-order).

    Returns:
        Codes, (rows, columns) uint8, in the weight's own column order.
    """
    columns = weight.shape[1]
    scale, zero = grid.spread(columns)
    order = torch.arange(columns, device=weight.device) if order is None else order
    # (columns, rows): a column of the matrix is contiguous.
    left, scale, zero = (t.double().T[order].contiguous() for t in (weight, scale, zero))
    codes = torch.empty_like(left)
    for begin in range(0, columns, BLOCK):
        end = min(begin + BLOCK, columns)
        errors = left.new_empty(end - begin, left.shape[1])
        for c in range(begin, end):
            value = left[c]
            codes[c] = encode(value, scale[c], zero[c], grid.spec)
            error = (value - decode(codes[c], scale[c], zero[c], grid.spec)) / upper[c, c]
            errors[c - begin] = error
            left[c + 1 : end].addr_(upper[c, c + 1 : end], error, alpha=-1)
        left[end:].addmm_(upper[begin:end, end:].T, errors, alpha=-1)
    back = torch.empty_like(codes)
    back[order] = codes
    return back.T.to(torch.uint8)


def round_heads(
    weight: Tensor,
    upper: Tensor,
    row_upper: Tensor,
    grid: Grid,
    order: Tensor | None = None,
    row_order: Tensor | None = None,
    rows_per_step: int = 1,
) -> Tensor:
    """BoA's row loop: exactly GPTQ on the Kronecker product of a row and a column Hessian, for many heads at once.

    After row r is rounded, D = (row r as its column loop found it) - (row r rounded), and every later row r' of the
    head gets ``W[r'] -= U_row[r, r'] / U_row[r, r] * D``.

    Args:
        weight: (heads * rows, columns), head after head.
        upper: U_col, (columns, columns), in the order of the walk.
        row_upper: U_row, (heads, rows, rows), in the order of the walk.
        grid: Static.
        order: A permutation of the columns.
        row_order: A permutation of each head's rows, (heads, rows).
        rows_per_step: Rows that are rounded without compensating one another (TurboBoA); their joint error then moves
            the later rows by the closed form ``U_BR' U_BB⁻'``.

    Returns:
        Codes, (heads * rows, columns) uint8, in the weight's own order.
    """
    heads, rows, _ = row_upper.shape
    columns = weight.shape[1]
    device = weight.device
    column_index = torch.arange(columns, device=device) if order is None else order
    row_index = torch.arange(rows, device=device).expand(heads, rows) if row_order is None else row_order
    scale, zero = grid.spread(columns)

    def walk(t: Tensor) -> Tensor:
        shaped = t.double().view(heads, rows, columns)
        return shaped.gather(1, row_index[:, :, None].expand(-1, -1, columns))[:, :, column_index]

    codes = _wavefront(walk(weight), walk(scale), walk(zero), upper, _influence(row_upper, rows_per_step), grid.spec)
    back = torch.empty_like(codes)
    back[:, :, column_index] = codes
    back = torch.empty_like(codes).scatter_(1, row_index[:, :, None].expand(-1, -1, columns), back)
    return back.view(heads * rows, columns).to(torch.uint8)


def _influence(upper: Tensor, rows_per_step: int) -> Tensor:
    """(heads, rows, rows): [h, r, r'] is how much of row r's error D is taken from the later row r'."""
    rows = upper.shape[1]
    influence = torch.zeros_like(upper)
    for begin in range(0, rows, rows_per_step):
        end = min(begin + rows_per_step, rows)
        block = upper[:, begin:end, begin:end]
        influence[:, begin:end, end:] = torch.linalg.solve_triangular(block, upper[:, begin:end, end:], upper=True)
    return influence


def _wavefront(weight: Tensor, scale: Tensor, zero: Tensor, upper: Tensor, influence: Tensor, spec: GridSpec) -> Tensor:
    """Round (heads, rows, columns) along anti-diagonals; all arguments are in the order of the walk.

    Rows are kept in reverse (index j = rows - 1 - r), and columns padded by rows - 1 on both sides, so that step t
    works on the padded columns t + j: a diagonal, which a strided view reaches without copying.
    """
    heads, rows, columns = weight.shape
    pad = rows - 1
    steps, padded = columns + pad, columns + 2 * pad

    def skew(t: Tensor, fill: float) -> Tensor:
        """(steps, rows, heads): the weights of each step side by side."""
        wide = torch.full((heads, rows, padded), fill, dtype=t.dtype, device=t.device)
        wide[:, :, pad : pad + columns] = t.flip(1)
        return wide.as_strided((steps, rows, heads), (1, padded + 1, rows * padded)).contiguous()

    weight, scale, zero = skew(weight, 0.0), skew(scale, 1.0), skew(zero, 0.0)
    chain = torch.eye(padded, dtype=upper.dtype, device=upper.device)
    chain[pad : pad + columns, pad : pad + columns] = upper
    pivot = chain.diagonal()
    pull = influence.flip(2).permute(1, 2, 0).contiguous()  # (source row r, reversed target row j, head)
    ahead = weight.new_zeros(rows, heads, steps)  # compensation from the columns of finished blocks
    moved = weight.new_zeros(rows, padded, heads)  # D of each source row at each padded column
    codes = torch.empty_like(weight)
    target = torch.arange(rows, device=weight.device)
    source = target.flip(0)
    for begin in range(0, steps, BLOCK):
        end = min(begin + BLOCK, steps)
        near = chain.as_strided(
            (rows, end - begin, end - begin), (padded + 1, padded, 1), begin * (padded + 1)
        ).contiguous()
        errors = weight.new_zeros(rows, heads, end - begin)
        for t in range(begin, end):
            k = t - begin
            row = weight[t] - torch.einsum("rjh,rjh->jh", pull, moved[:, t : t + rows])
            value = row - ahead[:, :, t]
            if k:
                value = value - torch.bmm(errors[:, :, :k], near[:, :k, k : k + 1])[:, :, 0]
            code = encode(value, scale[t], zero[t], spec)
            rounded = decode(code, scale[t], zero[t], spec)
            errors[:, :, k] = (value - rounded) / pivot[t : t + rows, None]
            moved[source, target + t] = row - rounded
            codes[t] = code
        if end < steps:
            far = chain.as_strided((rows, end - begin, steps - end), (padded + 1, padded, 1), begin * padded + end)
            ahead[:, :, end:].baddbmm_(errors, far)
    wide = torch.zeros(heads, rows, padded, dtype=codes.dtype, device=codes.device)
    wide.as_strided((steps, rows, heads), (1, padded + 1, rows * padded)).copy_(codes)
    return wide[:, :, pad : pad + columns].flip(1)
