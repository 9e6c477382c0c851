"""Grids: their range, their search, their codes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from burnish.nn.grid import GridSpec, find_grid


def weights(rows: int = 16, columns: int = 96, seed: int = 0) -> Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


SPECS = [
    GridSpec(bits, sym, group, zero)
    for bits in (2, 3, 4, 8)
    for sym in (False, True)
    for group in (-1, 32, 40)
    for zero in ("integer", "float")
]


@pytest.mark.parametrize("spec", SPECS)
def test_rounding_is_to_the_nearest_point(spec: GridSpec) -> None:
    weight = weights()
    grid = find_grid(weight, spec)
    codes = grid.encode(weight)
    assert codes.dtype is torch.uint8
    assert codes.max() <= spec.top
    error = (grid.decode(codes) - weight).abs()
    for step in (-1, 1):
        other = codes.int() + step
        inside = (other >= 0) & (other <= spec.top)
        further = (grid.decode(other.clamp(0, spec.top)) - weight).abs()
        assert (further[inside] >= error[inside] - 1e-6).all()


@pytest.mark.parametrize("spec", SPECS)
def test_scales_survive_half_precision(spec: GridSpec) -> None:
    grid = find_grid(weights(), spec)
    assert torch.equal(grid.scale, grid.scale.half().float())
    assert (grid.scale > 0).all()
    assert torch.equal(grid.zero, grid.zero.half().float())


@pytest.mark.parametrize("spec", [s for s in SPECS if not s.float_zero])
def test_zero_is_on_the_grid(spec: GridSpec) -> None:
    weight = weights()
    weight[:, ::3] = 0.0
    grid = find_grid(weight, spec)
    assert (grid.decode(grid.encode(weight))[:, ::3] == 0).all()


def test_the_last_group_of_a_row_may_be_short() -> None:
    weight = weights(columns=100)
    grid = find_grid(weight, GridSpec(4, group=32))
    assert grid.scale.shape == (16, 4)
    tail = find_grid(weight[:, 96:], GridSpec(4))
    assert torch.equal(grid.scale[:, 3:], tail.scale)
    assert grid.decode(grid.encode(weight)).shape == weight.shape


def test_rows_of_zeros_and_tiny_rows_stay_finite() -> None:
    weight = torch.zeros(3, 8)
    weight[1] = 1e-12
    for spec in (GridSpec(4), GridSpec(4, sym=True), GridSpec(4, zero="float")):
        decoded = find_grid(weight, spec).decode(find_grid(weight, spec).encode(weight))
        assert decoded.isfinite().all()
        assert (decoded.abs() <= 1e-6).all()


def quadratic(weight: Tensor, spec: GridSpec, search: str, hessian: Tensor) -> Tensor:
    grid = find_grid(weight, spec, search, hessian)  # type: ignore[arg-type]
    error = (grid.decode(grid.encode(weight)) - weight).double()
    return ((error @ hessian) * error).sum(1)


@pytest.mark.parametrize("bits", [2, 3, 4])
@pytest.mark.parametrize("group", [-1, 24])
def test_searches_order_as_they_should(bits: int, group: int) -> None:
    x = torch.randn(400, 96, generator=torch.Generator().manual_seed(1)) @ weights(96, 96, 2)
    hessian = (x.T @ x).double() / 400
    weight, spec = weights(64), GridSpec(bits, group=group)
    whole, error, output = (quadratic(weight, spec, s, hessian).mean() for s in ("minmax", "mmse", "hessian"))
    assert output < error < whole


@pytest.mark.parametrize("bits", [2, 3, 4])
@pytest.mark.parametrize("mean", [0.0, 3.0])
def test_the_shortlist_loses_nearly_nothing(bits: int, mean: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where inputs share a large mean, so that one direction carries most of the Hessian."""
    x = torch.randn(400, 96, generator=torch.Generator().manual_seed(1)) @ weights(96, 96, 2) / 10
    x += mean * weights(1, 96, 3)
    hessian = (x.T @ x).double() / 400
    weight = weights(64)
    short = quadratic(weight, GridSpec(bits), "hessian", hessian).mean()
    monkeypatch.setattr("burnish.nn.grid.SHORTLIST", 60)
    assert short <= 1.02 * quadratic(weight, GridSpec(bits), "hessian", hessian).mean()


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000), st.sampled_from([2, 3, 4, 8]), st.booleans())
def test_decoding_and_encoding_again_changes_nothing(seed: int, bits: int, sym: bool) -> None:
    weight = weights(4, 32, seed)
    grid = find_grid(weight, GridSpec(bits, sym))
    codes = grid.encode(weight)
    assert torch.equal(grid.encode(grid.decode(codes)), codes)
