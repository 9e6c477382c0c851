"""AWQ: scales that leave no trace without rounding, and are chosen by the errors that they are there to lower."""

from __future__ import annotations

import json

import pytest
import torch
from architectures import CONFIGS, build, tokens

from burnish.compress.awq import AWQ
from burnish.compress.rtn import RTN
from burnish.core.run import Run
from burnish.models.fold import junctions
from burnish.models.twins import OriginalWalk
from burnish.models.walk import Walk
from burnish.nn.clip import clipped_grid
from burnish.nn.grid import GridSpec, find_grid
from burnish.nn.site import output_error

NAMES = list(CONFIGS)


@pytest.fixture(autouse=True)
def calibration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("burnish.data.windows.windows", lambda *args, **kwargs: tokens())


def logits(model) -> torch.Tensor:
    return model.net(tokens(2, seed=5)).logits


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
