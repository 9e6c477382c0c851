"""Rounding one site against a Hessian: grid, order, factor, loop, and what it cost. Shared by GPTQ and BoA."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from burnish.core.errors import BadInput
from burnish.nn.grid import Grid, GridSpec, Search, find_grid
from burnish.nn.hessian import Factor, damp, factor
from burnish.nn.rounding import round_heads, round_rows
from burnish.nn.site import Site


@dataclass(frozen=True)
class RowMetric:
    """What BoA knows about the rows of a head.

    Attributes:
        moments: The row Hessian of each head, (heads, rows, rows).
        act_order: Walk from the largest diagonal to the smallest.
        rows_per_step: Rows that are rounded without compensating one another (TurboBoA).
    """

    moments: Tensor
    act_order: bool = True
    rows_per_step: int = 1


def compensate(
    site: Site,
    hessian: Tensor,
    spec: GridSpec,
    *,
    search: Search,
    act_order: bool,
    damping: float,
    rows: RowMetric | None = None,
) -> dict[str, Any]:
    """Round a site by GPTQ or, with a row metric, by BoA.

    Args:
        site: The layer; its weight is replaced.
        hessian: Mean second moments of its input, (inputs, inputs); or (heads, inputs, inputs), one for each equal
            share of its output rows. Shares are rounded one by one, so that only one of them is copied at a time.
        spec: The kind of grid, which is fixed before the walk (static groups).
        search: How the grid is chosen.
        act_order: Walk from the largest diagonal of the Hessian to the smallest.
        damping: Fraction of the mean diagonal that is added to each Hessian.
        rows: Metric between the rows of a head; without it rows are independent.

    Returns:
        Figures for the layer's report: the damping that was needed, and a note on what was unusual.
    """
    shares = hessian if hessian.dim() == 3 else hessian[None]
    weights = site.checked().chunk(len(shares))
    metrics = [None] * len(shares) if rows is None else rows.moments.chunk(len(shares))
    grids, codes, notes, most = [], [], [], 0.0
    for weight, share, metric in zip(weights, shares, metrics, strict=True):
        weight = zero_dead(weight, share)
        grid = find_grid(weight, spec, search, damp(share, damping) if search == "hessian" else None)
        order, columns = ordered_factor(site.name, share, act_order, damping)
        notes.append(columns.note)
        if rows is None or metric is None:
            codes.append(round_rows(weight, columns.upper, grid, order))
        else:
            row_order, across = ordered_factor(site.name, metric, rows.act_order, damping)
            notes.append(across.note and f"rows: {across.note}")
            codes.append(round_heads(weight, columns.upper, across.upper, grid, order, row_order, rows.rows_per_step))
        grids.append(grid)
        most = max(most, columns.damping)
    site.set_codes(
        torch.cat(codes), Grid(spec, *(torch.cat([getattr(g, n) for g in grids]) for n in ("scale", "zero")))
    )
    return {"damping": most, "note": "; ".join(note for note in dict.fromkeys(notes) if note)}


def ordered_factor(name: str, hessian: Tensor, act_order: bool, damping: float) -> tuple[Tensor | None, Factor]:
    """The order of the walk, (n,) or (heads, n) or None, and the factor of the reordered Hessian.

    Raises:
        BadInput: naming the layer whose Hessian is not finite or cannot be factorized.
    """
    order = None
    if act_order:
        order = hessian.diagonal(dim1=-2, dim2=-1).argsort(dim=-1, descending=True, stable=True)
        rows = torch.take_along_dim(hessian, order[..., :, None], -2)
        hessian = torch.take_along_dim(rows, order[..., None, :], -1)
    try:
        return order, factor(hessian, damping)
    except BadInput as error:
        raise BadInput(f"{name}: {error.problem}", error.fix) from None


def zero_dead(weight: Tensor, hessian: Tensor) -> Tensor:
    """`weight` with zeros in the columns whose input was always zero in calibration (GPTQ's released code does so)."""
    return weight.masked_fill(hessian.diagonal() <= 0, 0.0)


def refined(site: Site, target: Tensor, hessian: Tensor, rows: Tensor | None = None) -> None:
    """Refit a rounded site's scales to its codes, one after another, by least squares in the metric it was rounded in.

    With p = code - zero (or the code itself, the offset being taken off the target), the best scale of one group of one
    row is s = p H r' / p H p'. Here r is what the row's other groups leave of the target and, with a row metric R, what
    the errors d of the head's other rows ask of this one: r = w_r - sum over r' of R_rr'/R_rr d_r' (TurboBoA's
    coordinate descent). Without the last term a refit would undo what the row loop did on purpose.

    Args:
        site: A rounded layer.
        target: The weight before it was rounded, (outputs, inputs).
        hessian: (inputs, inputs), or (heads, inputs, inputs), one for each equal share of the rows.
        rows: Row metric of each head, (heads, rows, rows); None for rows that are independent.
    """
    quantized = site.quantized
    assert quantized is not None
    grid, (outputs, inputs) = quantized.grid, quantized.codes.shape
    width = grid.spec.width(inputs)
    heads = len(rows) if rows is not None else len(hessian) if hessian.dim() == 3 else 1
    many = hessian.double().expand(heads, inputs, inputs)
    codes, zero = quantized.codes.double(), grid.spread(inputs)[1].double()
    point = codes if grid.spec.float_zero else codes - zero
    goal = target.double() - zero if grid.spec.float_zero else target.double()
    point, goal = (t.view(heads, outputs // heads, inputs) for t in (point, goal))
    scale = grid.scale.double().view(heads, outputs // heads, -1).clone()

    def fit(share: slice, wanted: Tensor) -> None:
        """Refit the rows of `share` in every head to (heads, rows, inputs) of wanted weights."""
        for group in range(scale.shape[2]):
            span = slice(group * width, min((group + 1) * width, inputs))
            spread = scale[:, share].repeat_interleave(width, 2)[:, :, :inputs]
            along = point[:, share, span]
            rest = wanted - point[:, share] * spread
            rest[:, :, span] += along * spread[:, :, span]
            above = ((along @ many[:, span]) * rest).sum(2)
            below = ((along @ many[:, span, span]) * along).sum(2)
            old = scale[:, share, group]
            best = torch.where(below > 0, above / below.clamp(min=1e-30), old)
            scale[:, share, group] = torch.where(best > 0, best, old).half().double()

    if rows is None:
        fit(slice(None), goal)
    else:
        for r in range(goal.shape[1]):
            error = point * scale.repeat_interleave(width, 2)[:, :, :inputs] - goal
            pull = rows[:, r].double() / rows[:, r, r, None].double()
            pull[:, r] = 0.0
            fit(slice(r, r + 1), goal[:, r : r + 1] - torch.bmm(pull[:, None], error))
    site.set_codes(quantized.codes, Grid(grid.spec, scale.view(outputs, -1).float(), grid.zero))
