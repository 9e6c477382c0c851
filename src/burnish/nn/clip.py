"""AWQ's search for the range of each group: shrink it to where the layer's output loses least."""

from __future__ import annotations

import torch
from torch import Tensor

from burnish.nn.grid import Grid, GridSpec, find_grid

STEP = 0.05
"""By how much of the group's largest weight the range shrinks at a time (AWQ's released code: a grid of 20)."""
TRIES = 10
"""Ranges that are tried: from the whole one down to 55 % of it."""


def clipped_grid(weight: Tensor, spec: GridSpec, moments: Tensor) -> Grid:
    """The grid of a weight clamped, group by group, at the best of some fractions of the group's largest size.

    The error of a group is d H d' with d what its weights change by and H the second moments of its inputs: the groups
    of a row are taken as independent.

    Args:
        weight: (rows, columns).
        spec: The kind of grid.
        moments: Second moments of the layer's input, (columns, columns).
    """
    weight, moments = weight.float(), moments.float()
    columns = weight.shape[1]
    width = spec.width(columns)
    spans = [slice(begin, min(begin + width, columns)) for begin in range(0, columns, width)]
    largest = torch.stack([weight[:, span].abs().amax(1) for span in spans], 1)
    best = torch.full_like(largest, torch.inf)
    scale, zero = torch.empty_like(largest), torch.empty_like(largest)
    for step in range(TRIES):
        bound = (largest * (1 - STEP * step)).repeat_interleave(width, 1)[:, :columns]
        grid = find_grid(weight.clamp(-bound, bound), spec)
        change = grid.decode(grid.encode(weight)) - weight
        lost = torch.stack([((change[:, span] @ moments[span, span]) * change[:, span]).sum(1) for span in spans], 1)
        better = lost < best
        best = torch.where(better, lost, best)
        scale, zero = torch.where(better, grid.scale, scale), torch.where(better, grid.zero, zero)
    return Grid(spec, scale, zero)
