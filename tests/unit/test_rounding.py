"""The rounding loops against their definitions, in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from burnish.nn.compensate import RowMetric, compensate
from burnish.nn.grid import Grid, GridSpec, decode, encode, find_grid
from burnish.nn.hessian import factor
from burnish.nn.rounding import _influence, round_heads, round_rows
from burnish.nn.site import Site


def covariance(width: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(4 * width, width, generator=generator, dtype=torch.float64)
    x = x @ torch.randn(width, width, generator=generator, dtype=torch.float64)
    return x.T @ x / len(x) + torch.eye(width, dtype=torch.float64)


def dense_gptq(weight: Tensor, hessian: Tensor, grid: Grid) -> Tensor:
    """GPTQ on one long row with a full Hessian, element by element: the definition."""
    upper = torch.linalg.cholesky(torch.linalg.inv(hessian), upper=True)
    left = weight.double().flatten().clone()
    scale, zero = (t.double().flatten() for t in grid.spread(weight.shape[1]))
    codes = torch.empty_like(left)
    for i in range(len(left)):
        codes[i] = encode(left[i], scale[i], zero[i], grid.spec)
        error = (left[i] - decode(codes[i], scale[i], zero[i], grid.spec)) / upper[i, i]
        left[i + 1 :] -= error * upper[i, i + 1 :]
    return codes.view_as(weight).to(torch.uint8)


def weights(rows: int, columns: int, seed: int = 0) -> Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("bits", [2, 3, 4])
@pytest.mark.parametrize(("rows", "columns"), [(8, 24), (5, 40), (16, 7), (1, 9), (9, 1)])
def test_row_loop_is_dense_gptq_on_the_kronecker_hessian(rows: int, columns: int, bits: int) -> None:
    weight = weights(rows, columns)
    row, column = covariance(rows, 1), covariance(columns, 2)
    grid = find_grid(weight, GridSpec(bits))
    expected = dense_gptq(weight, torch.kron(row, column), grid)
    found = round_heads(weight, factor(column, 1e-12).upper, factor(row, 1e-12).upper[None], grid)
    assert (found != expected).sum() == 0


def test_the_kronecker_metric_matters() -> None:
    weight = weights(8, 24)
    grid = find_grid(weight, GridSpec(2))
    column = factor(covariance(24, 2), 1e-12).upper
    with_rows = round_heads(weight, column, factor(covariance(8, 1), 1e-12).upper[None], grid)
    assert (with_rows != round_rows(weight, column, grid)).any()


def test_identity_row_metric_is_gptq_bit_for_bit() -> None:
    weight = weights(3 * 16, 100)
    grid = find_grid(weight, GridSpec(3))
    upper = factor(covariance(100, 3), 1e-12).upper
    eye = torch.eye(16, dtype=torch.float64).expand(3, 16, 16)
    assert torch.equal(round_heads(weight, upper, eye, grid), round_rows(weight, upper, grid))


def test_both_identities_are_round_to_nearest() -> None:
    weight = weights(2 * 8, 70)
    grid = find_grid(weight, GridSpec(3, group=32))
    eye = torch.eye(70, dtype=torch.float64)
    rows = torch.eye(8, dtype=torch.float64).expand(2, 8, 8)
    assert torch.equal(round_heads(weight, eye, rows, grid), grid.encode(weight))
    assert torch.equal(round_rows(weight, eye, grid), grid.encode(weight))


def test_blocks_of_the_lazy_update_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = weights(2 * 6, 90)
    grid = find_grid(weight, GridSpec(3))
    column, row = factor(covariance(90, 3)).upper, factor(torch.stack([covariance(6, s) for s in (4, 5)])).upper
    wide = round_heads(weight, column, row, grid), round_rows(weight, column, grid)
    monkeypatch.setattr("burnish.nn.rounding.BLOCK", 7)
    narrow = round_heads(weight, column, row, grid), round_rows(weight, column, grid)
    assert all(torch.equal(a, b) for a, b in zip(wide, narrow, strict=True))


def test_orders_are_undone() -> None:
    weight = weights(8, 24)
    row, column = covariance(8, 1), covariance(24, 2)
    grid = find_grid(weight, GridSpec(3))
    order, row_order = torch.randperm(24, generator=torch.Generator().manual_seed(5)), torch.arange(8).flip(0)
    found = round_heads(
        weight,
        factor(column[order][:, order], 1e-12).upper,
        factor(row[row_order][:, row_order], 1e-12).upper[None],
        grid,
        order,
        row_order[None],
    )
    moved = Grid(grid.spec, grid.scale[row_order], grid.zero[row_order])
    expected = dense_gptq(
        weight[row_order][:, order],
        torch.kron(row[row_order][:, row_order], column[order][:, order]),
        moved,
    )
    back = torch.empty_like(expected)
    back[row_order[:, None], order[None]] = expected
    assert torch.equal(found, back)


@pytest.mark.parametrize("with_rows", [False, True], ids=["gptq", "boa"])
def test_heads_with_their_own_hessians(with_rows: bool) -> None:
    """One call for a layer is as many calls for its heads: grid, order, factor and loop are each head's own."""
    many = torch.stack([covariance(30, s) for s in (1, 2)])
    rows = torch.stack([covariance(5, s) for s in (3, 4)])

    def round_site(share: slice, columns: Tensor) -> Site:
        linear = torch.nn.Linear(30, share.stop - share.start, bias=False).requires_grad_(False)
        linear.weight.copy_(weights(2 * 5, 30)[share])
        site = Site("x", "v", linear)
        metric = RowMetric(rows[share.start // 5 : share.stop // 5]) if with_rows else None
        compensate(site, columns, GridSpec(3), search="hessian", act_order=True, damping=0.01, rows=metric)
        return site

    together = round_site(slice(0, 10), many)
    for head in range(2):
        span = slice(5 * head, 5 * head + 5)
        assert torch.equal(together.weight[span], round_site(span, many[head]).weight)


def test_rows_per_step_takes_the_closed_form() -> None:
    """The later rows move by -(H⁻¹)_RB (H⁻¹)_BB⁻¹ D, the constrained optimum."""
    row = covariance(6, 7)
    upper = factor(row, 1e-12).upper
    inverse = torch.linalg.inv(row)
    influence = _influence(upper[None], 3)[0]
    expected = torch.linalg.solve(inverse[:3, :3], inverse[:3, 3:])
    assert torch.allclose(influence[:3, 3:], expected, atol=1e-8)
    assert (influence[:3, :3] == 0).all()


def test_compensation_beats_rounding_to_nearest() -> None:
    weight = weights(32, 64)
    hessian = covariance(64, 9)
    grid = find_grid(weight, GridSpec(3))

    def loss(codes: Tensor) -> float:
        change = (grid.decode(codes) - weight).double()
        return float(((change @ hessian) * change).sum())

    assert loss(round_rows(weight, factor(hessian).upper, grid)) < 0.7 * loss(grid.encode(weight))
