"""GPTQ against another implementation of it.

``gptq_reference.safetensors`` holds one layer of the tiny model (layer 0, q): its bfloat16 weight, the second moments of
its inputs on 16 windows of 128 tokens, and the scales, zeros and codes that gptqmodel 7.7.0 gave it (4 bits, one grid a
row, no act-order, 1 % damping). It computes in float32, so a few weights near the middle of two points go the other way.
"""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file

from burnish.nn.grid import GridSpec, find_grid
from burnish.nn.hessian import factor
from burnish.nn.rounding import round_rows

REFERENCE = load_file(Path(__file__).with_name("gptq_reference.safetensors"))


def test_the_grid_is_the_same() -> None:
    grid = find_grid(REFERENCE["weight"].float(), GridSpec(4))
    assert torch.equal(grid.scale[:, 0], REFERENCE["scale"])
    assert torch.equal(grid.zero[:, 0], REFERENCE["zero"].float())


def test_the_codes_are_the_same_but_for_rounding_errors() -> None:
    weight = REFERENCE["weight"].float()
    grid = find_grid(weight, GridSpec(4))
    ours = round_rows(weight, factor(REFERENCE["hessian"].double()).upper, grid)
    equal = (ours == REFERENCE["codes"]).float().mean()
    nearest = (grid.encode(weight) == REFERENCE["codes"]).float().mean()
    assert equal > 0.99
    assert nearest < 0.9
    assert (ours.int() - REFERENCE["codes"].int()).abs().max() <= 1
