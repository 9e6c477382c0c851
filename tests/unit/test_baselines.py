"""SmoothQuant and QuaRot against their formulas: what is folded, what happens online, and that it helps."""

from __future__ import annotations

import pytest
import torch
from architectures import CONFIGS, ROTATABLE, build, tokens
from torch import Tensor

from burnish.compress.quarot import QuaRot, rotate
from burnish.compress.smoothquant import SMALLEST, SmoothQuant, smooth
from burnish.core.errors import Unsupported
from burnish.models import Walk
from burnish.nn import hadamard
from burnish.nn.activation import InputStage, KVStage, TokenGrid
from burnish.nn.grid import GridSpec, find_grid

NAMES = list(CONFIGS)


@pytest.fixture(autouse=True)
def calibration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("burnish.data.windows.windows", lambda *args, **kwargs: tokens())


def with_outliers(name: str, factor: float = 60.0):
    """A model whose hidden states have two features much larger than the others: the embedding and o write them."""
    model = build(name)
    net = model.net
    net.get_input_embeddings().weight[:, [3, 17]] *= factor
    for site in model.sites():
        if site.role in ("o", "down"):
            site.linear.weight[[3, 17]] *= factor
    return model


def entering(model, role: str, number: int = 0, text: Tensor | None = None) -> Tensor:
    """What the product of a layer really sees on some text, (tokens, inputs): after its stage, if it has one."""
    site = model.blocks()[number].sites((role,))[0]
    seen: list[Tensor] = []
    hook = site.linear.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    model.net(tokens(2, seed=5) if text is None else text)
    hook.remove()
    return seen[0].flatten(0, -2)


def levels(x: Tensor) -> int:
    """The most distinct values of a row."""
    return max(len(row.unique()) for row in x.flatten(0, -2))


# -- grids of activations -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_a_symmetric_token_grid_is_its_formula(bits: int) -> None:
    x = torch.randn(5, 400, generator=torch.Generator().manual_seed(0))
    found, half = TokenGrid(bits)(x), 2 ** (bits - 1)
    for row, rounded in zip(x, found, strict=True):
        step = row.abs().max() / (half - 0.5)
        expected = (row / step).round().clamp(-half, half - 1) * step
        assert torch.allclose(rounded, expected)
        assert len(rounded.unique()) <= 2**bits
    assert levels(found) > 2 ** (bits - 1)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_an_asymmetric_token_grid_is_its_formula(bits: int) -> None:
    x = torch.rand(5, 400, generator=torch.Generator().manual_seed(0)) * 3 - 0.5
    found, top = TokenGrid(bits, sym=False)(x), 2**bits - 1
    for row, rounded in zip(x, found, strict=True):
        step = (row.max() - row.min()) / top
        zero = (-row.min() / step).round()
        assert torch.allclose(rounded, (((row / step).round() + zero).clamp(0, top) - zero) * step, atol=1e-6)


@pytest.mark.parametrize("sym", [True, False])
def test_a_clipped_token_grid_ends_at_the_fraction_of_the_range(sym: bool) -> None:
    x = torch.linspace(-1, 1, 1001)[None]
    whole, clipped = TokenGrid(4, sym)(x), TokenGrid(4, sym, clip=0.5)(x)
    assert clipped.max() == pytest.approx(0.5, abs=0.07)
    assert clipped.min() == pytest.approx(-0.5, abs=0.07)
    assert whole.max() > 0.9
    inside = x.abs() < 0.45
    assert (clipped - x)[inside].abs().max() < (whole - x)[inside].abs().max()


def test_a_token_of_zeros_stays_zero() -> None:
    for sym in (True, False):
        assert torch.equal(TokenGrid(4, sym)(torch.zeros(2, 8)), torch.zeros(2, 8))


def test_the_stage_of_keys_and_values_rotates_before_it_rounds() -> None:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 2, 6, 16, generator=generator) for _ in range(3))
    grid, plain = TokenGrid(4, sym=False), KVStage(rotate=True)
    turned = plain(q, k, v)
    assert torch.allclose(turned[0] @ turned[1].transpose(-1, -2), q @ k.transpose(-1, -2), atol=1e-5)
    assert not torch.allclose(turned[0], q)
    assert torch.equal(turned[2], v)
    found = KVStage(grid, grid, rotate=True)(q, k, v)
    assert torch.equal(found[0], turned[0])
    assert torch.equal(found[1], grid(turned[1]))
    assert torch.equal(found[2], grid(v))


def test_the_power_of_the_mmse_search_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all candidates, the one with the least sum |error|^2.4: another exponent chooses otherwise."""
    weight = torch.randn(64, 96, generator=torch.Generator().manual_seed(0))
    spec = GridSpec(3)

    def loss(power: float, chosen: float) -> Tensor:
        monkeypatch.setattr("burnish.nn.grid.MMSE_POWER", chosen)
        grid = find_grid(weight, spec, "mmse")
        return (grid.decode(grid.encode(weight)) - weight).abs().pow(power).sum(1)

    assert (loss(2.4, 2.4) <= loss(2.4, 2.0)).all()
    assert (loss(2.4, 2.4) < loss(2.4, 2.0)).any()
    assert (loss(2.4, 2.4) < loss(2.4, 8.0)).any()


def test_the_hessian_search_rounds_zero_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    import burnish.nn.grid as module

    monkeypatch.setattr(module, "SHORTLIST", 60)
    weight = torch.randn(64, 96, generator=torch.Generator().manual_seed(0))
    eye = torch.eye(96, dtype=torch.float64)
    both = find_grid(weight, GridSpec(2), "hessian", eye)
    exact = -(weight.amin(1).clamp(max=0) / (weight.amax(1) - weight.amin(1))) * 3
    assert (both.zero[:, 0] == exact.floor()).any()
    assert (both.zero[:, 0] == exact.ceil()).any()
    inner = module._candidates
    monkeypatch.setattr(module, "_candidates", lambda w, spec, shrinks, both: inner(w, spec, shrinks, False))
    nearest = find_grid(weight, GridSpec(2), "hessian", eye)

    def loss(grid) -> Tensor:
        return (grid.decode(grid.encode(weight)) - weight).square().sum(1)

    assert (loss(both) <= loss(nearest) * 1.0001).all()
    assert (loss(both) < loss(nearest)).any()


# -- SmoothQuant --------------------------------------------------------------------------------------------------


def largest(model, role: str) -> Tensor:
    """max|X_j| of a layer's input in the first block, on the calibration text."""
    return entering(model, role, text=tokens()).abs().amax(0).double()


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.8])
@pytest.mark.parametrize("name", NAMES)
def test_the_scales_are_the_papers(name: str, alpha: float) -> None:
    """s_j = max|X_j|^alpha / max|W_j|^(1 - alpha): read off the weights of q, k, v before and after."""
    model = build(name)
    top = largest(model, "q")
    before = {s.role: s.weight.double() for s in model.blocks()[0].sites()}
    changed = model.fork()
    smooth(next(iter(Walk(changed, tokens()))), alpha)
    after = {s.role: s.weight.double() for s in changed.blocks()[0].sites()}
    weights = torch.stack([before[role].abs().amax(0) for role in "qkv"]).amax(0)
    expected = top.clamp(min=SMALLEST) ** alpha / weights.clamp(min=SMALLEST) ** (1 - alpha)
    for role in "qkv":
        if role == "v":  # its rows are divided for o afterwards: compare directions only
            ratio = (after[role] / before[role]).median(0).values
            assert torch.allclose(ratio / ratio[0], expected / expected[0], rtol=0.2)
            continue
        assert torch.allclose(after[role], before[role] * expected, rtol=1e-4, atol=1e-7), role


@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma3_text"])
def test_smoothing_flattens_what_enters_every_linear_layer(name: str) -> None:
    model = with_outliers(name)

    def peak(of, role: str) -> float:
        x = entering(of, role).abs().amax(0)
        return float(x.max() / x.median())

    flat = model.fork()
    for block in Walk(flat, tokens()):
        smooth(block, 0.8)
    for role in ("q", "gate", "o", "down"):
        assert peak(flat, role) < peak(model, role), role


@pytest.mark.parametrize("a_bits", [4, 8])
def test_smoothquant_puts_inputs_and_weights_on_their_grids(a_bits: int) -> None:
    rounded = SmoothQuant(bits=4, a_bits=a_bits)(build("llama"), "text")
    for role in ("q", "o", "gate", "down"):
        assert levels(entering(rounded, role, 1)) <= 2**a_bits
        site = rounded.blocks()[1].sites((role,))[0]
        assert levels(site.weight) <= 16
        assert site.quantized.grid.spec == GridSpec(4, sym=True)
    free = SmoothQuant(bits=4, a_bits=16)(build("llama"), "text")
    assert levels(entering(free, "down", 1)) > 2**4


@pytest.mark.parametrize("name", ["llama", "qwen2"])
def test_smoothing_helps_where_there_are_outliers(name: str) -> None:
    model = with_outliers(name)
    exact = model.net(tokens(2, seed=5)).logits.log_softmax(-1)

    def loss(alpha: float) -> float:
        found = SmoothQuant(bits=8, a_bits=4, alpha=alpha)(model, "text").net(tokens(2, seed=5)).logits
        return float((exact.exp() * (exact - found.log_softmax(-1))).sum(-1).mean())

    assert loss(0.8) < loss(0.0)


# -- QuaRot -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ROTATABLE)
def test_every_weight_is_rotated_as_the_paper_says(name: str) -> None:
    model = build(name)
    turned = model.fork()
    rotate(turned, seed=3)
    shape = model.heads
    big = hadamard.randomized(model.config.hidden_size, 3)
    small = hadamard.hadamard(shape.width)
    per_head = {"kv": torch.block_diag(*[small] * shape.kv), "query": torch.block_diag(*[small] * shape.query)}
    fed = {role: path for path, roles in model.adapter.feeds.items() for role in roles}
    for block, after in zip(model.blocks(), turned.blocks(), strict=True):
        for site, found in zip(block.sites(), after.sites(), strict=True):
            weight = site.weight.double()
            if site.role in fed:  # reads the residual stream, after a norm
                weight = weight * (block.at(fed[site.role]).weight.double() + model.adapter.norm_offset) @ big
            if site.role == "v":
                weight = per_head["kv"].T @ weight
            if site.role == "o":
                weight = big.T @ weight @ per_head["query"]
            if site.role == "down":
                weight = hadamard.apply(big.T @ weight)
            assert torch.allclose(found.weight.double(), weight, atol=1e-5), site.name
    embedding = model.net.get_input_embeddings().weight.double() @ big
    assert torch.allclose(turned.net.get_input_embeddings().weight.double(), embedding, atol=1e-5)


def test_rotation_spreads_outliers() -> None:
    """The largest feature over the mean one falls in what enters q (R1), o (R2) and down (R4)."""
    model = with_outliers("llama")
    for block in model.blocks():
        sites = {site.role: site.linear for site in block.sites()}
        sites["v"].weight[1::8] *= 40
        sites["up"].weight[7] *= 40
    turned = QuaRot(bits=16, a_bits=16, kv_bits=16)(model)

    def peak(of, role: str) -> float:
        x = entering(of, role)
        return float((x.abs().amax(1) / x.square().mean(1).sqrt()).mean())

    for role in ("q", "gate", "o", "down"):
        assert peak(turned, role) < 0.75 * peak(model, role), role


def test_quarot_really_rounds_activations_keys_and_values(monkeypatch: pytest.MonkeyPatch) -> None:
    rounded = QuaRot(bits=16, a_bits=4, kv_bits=2)(build("llama"))
    for role in ("q", "o", "gate", "down"):
        assert levels(entering(rounded, role, 1)) <= 16
    seen: dict[str, Tensor] = {}
    import transformers.integrations.sdpa_attention as sdpa

    inner = sdpa.sdpa_attention_forward

    def spied(module, query, key, value, *args, **kwargs):
        seen.update(query=query, key=key, value=value)
        return inner(module, query, key, value, *args, **kwargs)

    monkeypatch.setattr(sdpa, "sdpa_attention_forward", spied)
    rounded.net(tokens(2, seed=5))
    assert levels(seen["key"]) <= 4
    assert levels(seen["value"]) <= 4
    assert levels(seen["query"]) > 4


@pytest.mark.parametrize(
    "option",
    [{"a_clip": 0.5}, {"kv_clip": 0.5}, {"kv_bits": 16}, {"a_bits": 16}, {"rotation_seed": 1}, {"weights": "rtn"}],
    ids=str,
)
def test_each_option_of_quarot_changes_its_result(option: dict) -> None:
    model = build("llama")
    plain, changed = (QuaRot(**more)(model, "text").net(tokens(2, seed=5)).logits for more in ({}, option))
    assert not torch.allclose(plain, changed)


def test_rotation_helps_where_there_are_outliers() -> None:
    model = with_outliers("llama")
    exact = model.net(tokens(2, seed=5)).logits.log_softmax(-1)
    bare = model.fork()
    for site in bare.sites():
        site.stage(InputStage(TokenGrid(4)))

    def loss(of) -> float:
        found = of.net(tokens(2, seed=5)).logits.log_softmax(-1)
        return float((exact.exp() * (exact - found)).sum(-1).mean())

    assert loss(QuaRot(bits=16, kv_bits=16, a_clip=1.0)(model)) < loss(bare)


def test_double_precision_is_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    from burnish.models import Model

    monkeypatch.setattr(Model, "device", property(lambda self: torch.device("mps")))
    for method in (QuaRot(), SmoothQuant()):
        with pytest.raises(Unsupported, match="Apple"):
            method(build("llama"), "text")
