"""Rounding one site against a Hessian: grid, order, factor, loop, and what it cost. Shared by GPTQ and BoA."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from burnish.nn.grid import Grid, GridSpec, Search, find_grid
from burnish.nn.hessian import damp, factor
from burnish.nn.rounding import round_rows
from burnish.nn.site import Site, output_error


def gptq(
    site: Site, hessian: Tensor, spec: GridSpec, *, search: Search, act_order: bool, damping: float
) -> dict[str, Any]:
    """Round a site by GPTQ.

    Args:
        site: The layer; its weight is replaced.
        hessian: Mean second moments of its input, (inputs, inputs); or (heads, inputs, inputs), one for each equal
            share of its output rows.
        spec: The kind of grid, which is fixed before the walk (static groups).
        search: How the grid is chosen.
        act_order: Walk from the largest diagonal of the Hessian to the smallest.
        damping: Fraction of the mean diagonal that is added to it.

    Returns:
        Figures for the layer's report: errors, damping, and a note on what was unusual.
    """
    weight = zero_dead(site.checked(), hessian)
    grid = find_grid(weight, spec, search, damp(hessian, damping))
    order, factored = ordered_factor(hessian, act_order, damping)
    before = site.weight
    site.set_codes(round_rows(weight, factored.upper, grid, order), grid)
    mean = hessian if hessian.dim() == 2 else hessian.mean(0)
    return {**output_error(before, site.weight, mean), "damping": factored.damping, "note": factored.note}


def ordered_factor(hessian: Tensor, act_order: bool, damping: float) -> Any:
    """(order, factor): the order of the walk, (n,) or (heads, n) or None, and the factor of the reordered Hessian."""
    if not act_order:
        return None, factor(hessian, damping)
    order = hessian.diagonal(dim1=-2, dim2=-1).argsort(dim=-1, descending=True, stable=True)
    rows = torch.take_along_dim(hessian, order[..., :, None], -2)
    return order, factor(torch.take_along_dim(rows, order[..., None, :], -1), damping)


def zero_dead(weight: Tensor, hessian: Tensor) -> Tensor:
    """`weight` with zeros in the columns whose input was always zero in calibration (GPTQ's released code does so)."""
    dead = hessian.diagonal(dim1=-2, dim2=-1) <= 0
    if hessian.dim() == 3:
        dead = dead.repeat_interleave(len(weight) // len(hessian), 0)
    return weight.masked_fill(dead, 0.0)


def refined(site: Site, target: Tensor, hessian: Tensor) -> None:
    """Refit a rounded site's scales to its codes, group after group, by least squares in the Hessian's metric.

    With p = code - zero (or the code itself, the offset being taken off the target), the best scale of a row's group
    is s = p H r / p H p, r being what the row's other groups leave of the target (TurboBoA's coordinate descent).

    Args:
        site: A rounded layer.
        target: The weight before it was rounded, (outputs, inputs).
        hessian: (inputs, inputs), or (heads, inputs, inputs).
    """
    quantized = site.quantized
    assert quantized is not None
    grid, (outputs, inputs) = quantized.grid, quantized.codes.shape
    width = grid.spec.width(inputs)
    many = hessian if hessian.dim() == 3 else hessian[None]
    heads = len(many)
    codes, zero = quantized.codes.double(), grid.spread(inputs)[1].double()
    point = codes if grid.spec.float_zero else codes - zero
    goal = target.double() - zero if grid.spec.float_zero else target.double()
    point, goal = (t.view(heads, outputs // heads, inputs) for t in (point, goal))
    scale = grid.scale.double().view(heads, outputs // heads, -1).clone()
    for group in range(scale.shape[2]):
        span = slice(group * width, min((group + 1) * width, inputs))
        spread = scale.repeat_interleave(width, 2)[:, :, :inputs]
        rest = goal - point * spread
        rest[:, :, span] += point[:, :, span] * spread[:, :, span]
        along = point[:, :, span]
        above = ((along @ many[:, span].double()) * rest).sum(2)
        below = ((along @ many[:, span, span].double()) * along).sum(2)
        fitted = torch.where(below > 0, above / below.clamp(min=1e-30), scale[:, :, group])
        scale[:, :, group] = torch.where(fitted > 0, fitted, scale[:, :, group]).half().double()
    site.set_codes(quantized.codes, Grid(grid.spec, scale.view(outputs, -1).float(), grid.zero))
