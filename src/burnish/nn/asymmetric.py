"""GPTAQ's rounding loop: GPTQ that also makes up for what rounding the layers before has done to the inputs."""

from __future__ import annotations

import torch
from torch import Tensor

from burnish.nn.grid import Grid, decode, encode
from burnish.nn.rounding import BLOCK


def pull(upper: Tensor, drift: Tensor, alpha: float = 1.0) -> Tensor:
    """How much of column q's weight is added to each later column, so that together they give what the original gave.

    With D_q the drift of input q (original minus present), the least-squares answer of the later columns to w_q D_q is
    ``w_q D_q X' (X X')^-1`` over those columns, whose inverse is U'U of the trailing part of U.

    Args:
        upper: U with H⁻¹ = U'U, (columns, columns).
        drift: E[D x'], (columns, columns), in the same order as `upper`: row q is how input q has drifted.
        alpha: Fraction of the answer that is taken.

    Returns:
        (columns, columns), zero on and below the diagonal.
    """
    return alpha * (drift.double() @ upper.T).triu(1) @ upper


def round_rows(weight: Tensor, upper: Tensor, pulled: Tensor, grid: Grid, order: Tensor | None = None) -> Tensor:
    """Round column after column; each hands both its rounding error and its inputs' drift to the columns to come.

    Args:
        weight: (rows, columns).
        upper: U with H⁻¹ = U'U, (columns, columns), in the order of the walk.
        pulled: What `pull` gives, in the order of the walk.
        grid: Static.
        order: A permutation of the columns (act-order).

    Returns:
        Codes, (rows, columns) uint8, in the weight's own column order.
    """
    columns = weight.shape[1]
    scale, zero = grid.spread(columns)
    order = torch.arange(columns, device=weight.device) if order is None else order
    left, scale, zero = (t.double().T[order].contiguous() for t in (weight, scale, zero))
    codes = torch.empty_like(left)
    # Both kinds of compensation are one product: [errors, weights] times [-U, P].
    both = torch.cat([-upper, pulled])
    for begin in range(0, columns, BLOCK):
        end = min(begin + BLOCK, columns)
        given = left.new_empty(2, end - begin, left.shape[1])
        for c in range(begin, end):
            value = left[c]
            codes[c] = encode(value, scale[c], zero[c], grid.spec)
            given[0, c - begin] = (value - decode(codes[c], scale[c], zero[c], grid.spec)) / upper[c, c]
            given[1, c - begin] = value
            left[c + 1 : end].addmm_(both[[c, columns + c], c + 1 : end].T, given[:, c - begin])
        rows = torch.cat([both[begin:end, end:], both[columns + begin : columns + end, end:]])
        left[end:].addmm_(rows.T, given.flatten(0, 1))
    back = torch.empty_like(codes)
    back[order] = codes
    return back.T.to(torch.uint8)
