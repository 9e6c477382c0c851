"""AWQ: scales that leave no trace without rounding, and are chosen by the errors that they are there to lower."""

from __future__ import annotations

import json

import pytest
import torch
from architectures import CONFIGS, build, tokens

from burnish.compress import awq
from burnish.compress.awq import AWQ, Inputs
from burnish.compress.rtn import RTN
from burnish.core.errors import BadInput
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


# -- the search -----------------------------------------------------------------------------------------------------


def first_block(name: str):
    """The first block of a model with what enters it, and a model that it is part of."""
    model = build(name)
    return next(iter(OriginalWalk(model, model.fork(), tokens())))


def entering(block, path_or_linear) -> torch.Tensor:
    """What enters a layer when the block runs plainly, (tokens, features)."""
    seen = []
    handle = path_or_linear.register_forward_pre_hook(lambda _, args: seen.append(args[0].flatten(0, -2)))
    for hidden in block.inputs:
        block.forward(hidden)
    handle.remove()
    return torch.cat(seen)


@pytest.mark.parametrize("name", NAMES)
def test_the_size_of_an_input_is_the_mean_of_its_absolute_values(name: str) -> None:
    block = first_block(name)
    seen = Inputs(block, block.sites())
    for site in block.sites():
        x = entering(block, site.linear)
        assert torch.allclose(seen.sizes[seen.source[site.role]].float(), x.abs().mean(0), rtol=1e-4)
        assert torch.allclose(seen.grams[seen.source[site.role]].mean().float(), x.T @ x / len(x), atol=1e-4)
    assert {seen.source[role] for role in "qkv"} == {"q"}  # they read one tensor


@pytest.mark.parametrize("name", ["llama", "qwen3", "opt"])
def test_a_scale_is_a_power_of_the_sizes_and_a_value_feature_takes_their_mean(name: str, monkeypatch) -> None:
    block = first_block(name)
    seen = Inputs(block, block.sites())
    count = iter(range(1000))
    monkeypatch.setattr(awq, "_error_of", lambda *given: lambda weights, limit: float(next(count)))
    for junction in junctions(block):
        alpha, scale = AWQ(grid=2, group=16)._search(block, junction, seen)
        assert alpha == 0.5  # the first that is tried, and the errors only grow
        size = seen.sizes[seen.source[junction.roles[0]]]
        if junction.roles == ("o",):
            heads = block.model.heads
            size = size.view(heads.kv, heads.group, heads.width).mean(1).flatten()
        expected = size.sqrt().clamp(min=awq.SMALLEST)  # an input of OPT's fc2 may be always zero
        assert torch.allclose(scale.double(), expected / (expected.max() * expected.min()).sqrt(), rtol=1e-5)
        assert float(scale.max() * scale.min()) == pytest.approx(1.0, rel=1e-4)


@pytest.mark.parametrize("name", ["llama", "gemma3_text", "opt"])
def test_a_scale_is_judged_by_what_its_layers_are_there_for(name: str) -> None:
    block = first_block(name)
    seen = Inputs(block, block.sites())
    generator = torch.Generator().manual_seed(0)
    for junction in junctions(block):
        changed = [
            linear.weight + 0.05 * torch.randn(linear.weight.shape, generator=generator) for linear in junction.linears
        ]
        error = awq._error_of(block, junction, seen)
        lost = error(changed, float("inf"))
        if junction.roles in (("o",), ("down",), ("fc1",), ("fc2",)):
            x = entering(block, junction.linears[0])
            direct = float((x @ (changed[0] - junction.linears[0].weight).T).square().mean(0).sum())
        else:
            module = block.at("self_attn" if "q" in junction.roles else "mlp")
            direct = _moved(block, module, junction.linears, changed)
        assert lost == pytest.approx(direct, rel=1e-3), junction.roles
        assert error([linear.weight for linear in junction.linears], float("inf")) == 0.0  # nothing is left behind


def _moved(block, module, linears, weights) -> float:
    """By how much the output of a module moves, squared, when some of its layers have other weights."""
    outputs: list[torch.Tensor] = []
    handle = module.register_forward_hook(
        lambda _, args, out: outputs.append(out[0] if isinstance(out, tuple) else out)
    )
    for changed in (None, weights):
        held = [linear.weight for linear in linears]
        for linear, weight in zip(linears, changed or held, strict=True):
            linear.weight = torch.nn.Parameter(weight, requires_grad=False)
        for hidden in block.inputs:
            block.forward(hidden)
        for linear, weight in zip(linears, held, strict=True):
            linear.weight = weight
    handle.remove()
    half = len(outputs) // 2
    return float((torch.cat(outputs[:half]) - torch.cat(outputs[half:])).square().sum())


@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_giving_up_on_what_is_worse_finds_the_same_scale_with_less_work(name: str, monkeypatch) -> None:
    block = first_block(name)
    seen = Inputs(block, block.sites())
    method = AWQ(bits=2, group=16)
    parts, found = [], []
    for size in (16, 10**6):  # a window at a time, or all at once
        monkeypatch.setattr(awq, "PART", size)
        count = 0

        def counting(*given) -> None:
            nonlocal count
            count += given[1][0].shape[0] if given[1] else 0

        handle = block.at("mlp").register_forward_pre_hook(counting)
        found.append([method._search(block, junction, seen) for junction in junctions(block)])
        handle.remove()
        parts.append(count)
    for one, other in zip(*found, strict=True):
        assert one[0] == other[0]
        assert torch.equal(one[1], other[1])
    assert parts[0] < 0.95 * parts[1]
    # The best of all, by trying each one alone.
    monkeypatch.setattr(awq, "PART", 10**6)
    for junction, (alpha, _) in zip(junctions(block), found[0], strict=True):
        error = awq._error_of(block, junction, seen)
        size = junction.narrow(seen.sizes[seen.source[junction.roles[0]]], lambda t: t.mean(1))

        def lost(step: int, size=size, junction=junction, error=error) -> float:
            made = size.pow(step / 20)  # no size is zero here
            wide = junction.widen((made / (made.max() * made.min()).sqrt()).float())
            return error([awq._rounded(linear.weight, wide, method.spec) for linear in junction.linears], float("inf"))

        assert alpha == min(range(20), key=lost) / 20


def test_a_search_that_finds_no_finite_output_is_refused_by_name() -> None:
    block = first_block("llama")
    seen = Inputs(block, block.sites())
    mlp = next(junction for junction in junctions(block) if "gate" in junction.roles)
    block.inputs[0] = block.inputs[0] * float("nan")
    with pytest.raises(BadInput, match=r"no scale of gate, up in model\.layers\.0 gives a finite output"):
        AWQ(group=16)._search(block, mlp, seen)


# -- the clip -------------------------------------------------------------------------------------------------------


def test_queries_and_keys_are_not_clipped() -> None:
    model = build("llama")
    clipped = AWQ(bits=3, group=16, grid=1)(model, None)
    for ours, theirs in zip(clipped.sites(), RTN(bits=3, group=16)(model).sites(), strict=True):
        assert torch.equal(ours.quantized.grid.scale, theirs.quantized.grid.scale) == (ours.role in "qk"), ours.name


def test_a_clip_is_chosen_by_what_enters_the_scaled_layer(monkeypatch) -> None:
    """Its inputs were divided by the scale: so must their second moments be."""
    model = build("llama").fork()
    with torch.no_grad():
        model.blocks()[0].at("input_layernorm").weight[3] *= 30
    given = []
    real = awq.clipped_grid

    def recording(weight, spec, moments):
        given.append(moments)
        return real(weight, spec, moments)

    monkeypatch.setattr(awq, "clipped_grid", recording)
    found = AWQ(bits=3, group=16)(model, None)
    block = next(iter(Walk(found.fork(), tokens())))
    x = entering(block, block.sites(("v",))[0].linear)  # the first that is clipped, and nothing before it is rounded
    assert torch.allclose(given[0].float(), x.T @ x / len(x), rtol=1e-3, atol=1e-5)
    plain = next(iter(Walk(model.fork(), tokens())))
    unscaled = entering(plain, plain.sites(("v",))[0].linear)
    assert not torch.allclose(given[0].float(), unscaled.T @ unscaled / len(x), rtol=0.1, atol=1e-5)
