"""The two baselines that look at more than one layer's own rounding: AWQ's scales and GPTAQ's drift."""

from __future__ import annotations

import json

import pytest
import torch
from architectures import CONFIGS, build, tokens

from burnish.compress.awq import AWQ
from burnish.compress.gptaq import GPTAQ, drift
from burnish.compress.gptq import GPTQ
from burnish.compress.rtn import RTN
from burnish.core.run import Run
from burnish.models.fold import junctions
from burnish.models.twins import OriginalWalk, TwinWalk
from burnish.models.walk import Walk
from burnish.nn import asymmetric, rounding
from burnish.nn.clip import clipped_grid
from burnish.nn.grid import GridSpec, find_grid
from burnish.nn.hessian import factor
from burnish.nn.site import output_error

NAMES = list(CONFIGS)


@pytest.fixture(autouse=True)
def calibration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("burnish.data.windows.windows", lambda *args, **kwargs: tokens())


def logits(model) -> torch.Tensor:
    return model.net(tokens(2, seed=5)).logits


def problem(columns: int = 12, rows: int = 5, count: int = 400):
    """A weight, inputs of the rounded model and of the original one, (count, columns)."""
    generator = torch.Generator().manual_seed(3)
    mix = torch.randn(columns, columns, generator=generator, dtype=torch.float64)
    now = torch.randn(count, columns, generator=generator, dtype=torch.float64) @ mix
    before = now + 0.3 * torch.randn(count, columns, generator=generator, dtype=torch.float64) @ mix
    return torch.randn(rows, columns, generator=generator, dtype=torch.float64).float(), now, before


# -- GPTAQ ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_without_drift_gptaq_is_gptq_to_the_bit(name: str) -> None:
    model = build(name)
    ours, theirs = GPTAQ(bits=3, alpha=0.0)(model, None), GPTQ(bits=3)(model, None)
    for a, b in zip(ours.sites(), theirs.sites(), strict=True):
        assert torch.equal(a.quantized.codes, b.quantized.codes), a.name


def test_what_is_pulled_is_the_least_squares_answer_of_the_later_columns() -> None:
    _, now, before = problem()
    moments = now.T @ now / len(now)
    upper = factor(moments, 1e-9).upper
    pulled = asymmetric.pull(upper, (before - now).T @ now / len(now))
    for column in range(11):
        later = now[:, column + 1 :]
        answer = torch.linalg.lstsq(later, (before - now)[:, column : column + 1]).solution[:, 0]
        assert torch.allclose(pulled[column, column + 1 :], answer, atol=1e-5)
        assert not pulled[column, : column + 1].any()


def test_the_loop_in_blocks_is_the_loop_column_by_column(monkeypatch) -> None:
    weight, now, before = problem(columns=40)
    upper = factor(now.T @ now / len(now)).upper
    pulled = asymmetric.pull(upper, (before - now).T @ now / len(now), 0.5)
    grid = find_grid(weight, GridSpec(3))
    scale, zero = grid.spread(40)
    left, codes = weight.double(), torch.zeros(5, 40)
    for c in range(40):
        codes[:, c] = (left[:, c] / scale[:, c]).round().add(zero[:, c]).clamp(0, 7)
        error = (left[:, c] - (codes[:, c] - zero[:, c]) * scale[:, c]) / upper[c, c]
        left = left - torch.outer(error, upper[c]) * (torch.arange(40) > c) + torch.outer(left[:, c], pulled[c])
    for size in (7, 32):
        monkeypatch.setattr(asymmetric, "BLOCK", size)
        assert torch.equal(asymmetric.round_rows(weight, upper, pulled, grid).float(), codes)


def test_making_up_for_drift_brings_the_output_nearer_to_the_original() -> None:
    weight, now, before = problem(columns=24, rows=16)
    upper = factor(now.T @ now / len(now)).upper
    grid = find_grid(weight, GridSpec(4))

    def lost(codes: torch.Tensor) -> float:
        return float((now @ grid.decode(codes).double().T - before @ weight.double().T).square().mean())

    pulled = asymmetric.pull(upper, (before - now).T @ now / len(now))
    assert lost(asymmetric.round_rows(weight, upper, pulled, grid)) < 0.97 * lost(
        rounding.round_rows(weight, upper, grid)
    )


@pytest.mark.parametrize("name", NAMES)
def test_drift_is_what_the_inputs_have_moved_by(name: str) -> None:
    model = build(name)
    fork = model.fork()
    walk = TwinWalk(model, fork, tokens())
    for block in walk:
        roles = [site.role for site in block.sites()]
        found = drift(walk.original, block, roles)
        if block.number == 0:
            assert all(not found[role].any() for role in roles)  # nothing is rounded yet
            for site in block.sites():
                site.round(GridSpec(2))
            continue
        theirs, ours = ([], [])
        for source, into in ((walk.original, theirs), (block, ours)):
            norm = source.at(next(iter(model.adapter.feeds)))
            into.extend(norm(hidden).flatten(0, 1) for hidden in source.inputs)
        x, moved = torch.cat(ours), torch.cat(theirs) - torch.cat(ours)
        assert torch.allclose(found["q"].float(), moved.T @ x / len(x), atol=1e-4)
        assert found["q"].abs().max() > 1e-3
        assert found["q"] is found["k"] or torch.equal(found["q"], found["k"])


def test_twins_stay_in_step_through_a_stop(tmp_path, monkeypatch) -> None:
    model = build("llama")
    whole = GPTAQ(bits=2)(model, None, Run(tmp_path / "whole"))
    real = GPTAQ._round
    count = 0

    def stopping(self, *given):
        nonlocal count
        count += 1
        if count == 9:  # in the second block
            raise KeyboardInterrupt
        return real(self, *given)

    monkeypatch.setattr(GPTAQ, "_round", stopping)
    with pytest.raises(KeyboardInterrupt), Run(tmp_path / "r") as run:
        GPTAQ(bits=2)(model, None, run)
    monkeypatch.setattr(GPTAQ, "_round", real)
    with Run(tmp_path / "r") as run:
        again = GPTAQ(bits=2)(model, None, run)
    assert torch.equal(logits(whole), logits(again))


# -- AWQ ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_scales_pass_through_every_junction_without_a_trace(name: str) -> None:
    model = build(name).fork()
    exact = logits(model)
    generator = torch.Generator().manual_seed(1)
    for block in model.blocks():
        for junction in junctions(block):
            inputs = torch.rand(junction.linears[0].in_features, generator=generator) + 0.5
            junction.apply(junction.narrow(inputs, lambda t: t.mean(1)))
    assert torch.allclose(logits(model), exact, atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_the_original_walk_gives_what_the_original_model_gives(name: str) -> None:
    model = build(name)
    fork = model.fork()
    expected = [[hidden.clone() for hidden in block.inputs] for block in Walk(model.fork(), tokens())]
    for block, inputs in zip(OriginalWalk(model, fork, tokens()), expected, strict=True):
        assert all(map(torch.equal, block.inputs, inputs))
        for site in block.sites():
            site.round(GridSpec(2))
    assert not torch.equal(logits(fork), logits(model))


def test_a_range_is_shrunk_only_where_that_loses_less() -> None:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(24, 64, generator=generator)
    weight[:, 5] *= 6  # an outlier ...
    inputs = torch.randn(300, 64, generator=generator)
    inputs[:, 5] *= 0.01  # ... that hardly meets an input
    moments = inputs.T @ inputs / 300
    spec = GridSpec(3, group=32)
    plain, clipped = find_grid(weight, spec), clipped_grid(weight, spec, moments)
    errors = [output_error(weight, grid.decode(grid.encode(weight)), moments)["error"] for grid in (plain, clipped)]
    assert errors[1] < 0.6 * errors[0]
    assert bool((clipped.scale <= plain.scale).all())
    assert float((clipped.scale / plain.scale)[:, 0].mean()) < 0.8
    # With inputs that are all alike and independent, no group loses more than with its whole range.
    own = clipped_grid(weight, spec, torch.eye(64))
    for span in (slice(0, 32), slice(32, 64)):
        change = [(g.decode(g.encode(weight)) - weight)[:, span].square().sum(1) for g in (own, plain)]
        assert bool((change[0] <= change[1] + 1e-6).all())


def test_awq_scales_up_what_meets_large_inputs_and_loses_less_than_rounding_to_nearest(tmp_path) -> None:
    model = build("llama").fork()
    with torch.no_grad():
        for block in model.blocks():
            for path in model.adapter.feeds:
                block.at(path).weight[3] *= 30  # one feature of every norm is an outlier
    exact = logits(model)
    with Run(tmp_path / "r") as run:
        scaled = AWQ(bits=3, group=16)(model, None, run)
    near = RTN(bits=3, group=16)(model)
    ours, theirs = (float((logits(m) - exact).square().mean()) for m in (scaled, near))
    assert ours < 0.5 * theirs
    rows = json.loads((tmp_path / "r" / "layers.json").read_text())
    alphas = {row["site"]: row["alpha"] for row in rows}
    assert all(0 <= alpha < 1 for alpha in alphas.values())
    assert max(alphas.values()) > 0
    q = [row["alpha"] for row in rows if row["role"] in "qkv"]
    assert q[0] == q[1] == q[2]  # they share a norm


def test_each_option_of_awq_does_what_it_is_for() -> None:
    model = build("llama")
    base = AWQ(bits=3, group=16)(model, None)
    unscaled = AWQ(bits=3, group=16, grid=1)(model, None)
    whole = AWQ(bits=3, group=16, clip=False)(model, None)
    assert not torch.equal(logits(base), logits(unscaled))
    assert not torch.equal(logits(base), logits(whole))
    plain = AWQ(bits=3, group=16, grid=1, clip=False)(model, None)
    assert torch.equal(logits(plain), logits(RTN(bits=3, group=16)(model)))  # no scale and no clip: nothing is left
    only = AWQ(bits=3, group=16, layers=("down",))(model, None)
    assert [site.role for site in only.sites() if site.quantized is not None] == ["down", "down"]
