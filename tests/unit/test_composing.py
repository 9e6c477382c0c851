"""Which methods may follow which: every pair either computes what it says, or is refused by name."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from architectures import build, tokens
from torch import nn

from burnish.compress.awq import AWQ
from burnish.compress.boa import BoA
from burnish.compress.flatquant import FlatQuant
from burnish.compress.gptaq import GPTAQ
from burnish.compress.gptq import GPTQ
from burnish.compress.quarot import QuaRot
from burnish.compress.quest import QuEST
from burnish.compress.rtn import RTN
from burnish.compress.smoothquant import SmoothQuant
from burnish.core.errors import Unsupported
from burnish.models import Model
from burnish.models.flat_block import FlatBits, attach_stages
from burnish.nn.activation import InputStage, TokenGrid, attach
from burnish.nn.cache_stage import attach_cache_stage
from burnish.nn.flat import FlatStage, attach_after, attach_before

EIGHT = {"bits": 8, "group": -1}
ROUNDING = {"rtn": RTN(**EIGHT), "gptq": GPTQ(**EIGHT), "gptaq": GPTAQ(**EIGHT), "boa": BoA(bits=8)}
MOVING = {
    "awq": AWQ(**EIGHT, grid=4),
    "smoothquant": SmoothQuant(),
    "quarot": QuaRot(bits=8, a_bits=8, kv_bits=8),
    "flatquant": FlatQuant(bits=8, a_bits=8, kv_bits=8, epochs=1),
    "quest": QuEST(bits=8, a_bits=8, steps=1, rate=1e-6),
}
ONLINE = {
    "smoothquant": SmoothQuant(),
    "quarot": QuaRot(bits=16, a_bits=8, kv_bits=2),
    "quarot-without-grids": QuaRot(bits=16, a_bits=16, kv_bits=16),
    "flatquant": FlatQuant(bits=8, a_bits=8, kv_bits=2, epochs=1, weights="later"),
    "flatquant-without-grids": FlatQuant(bits=16, a_bits=16, kv_bits=16, epochs=1),
    "quest": QuEST(bits=8, a_bits=8, steps=1, rate=1e-6),
}
PLAIN = {**ROUNDING, "awq": AWQ(**EIGHT, grid=4), "smoothquant": SmoothQuant(a_bits=16)}
"""Methods that leave a model whose activations nothing changes."""


@pytest.fixture(autouse=True)
def calibration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("burnish.data.windows.windows", lambda *args, **kwargs: tokens(16))


@cache
def after(kind: str, name: str) -> Model:
    return {"online": ONLINE, "plain": PLAIN}[kind][name](build("llama"), "text")


def logits(model) -> torch.Tensor:
    with torch.no_grad():
        return model.net(tokens(2, seed=5)).logits


def distance(model: Model, other: Model) -> float:
    exact = logits(other)
    return float((logits(model) - exact).abs().max() / exact.abs().max())


@pytest.mark.parametrize("second", MOVING)
@pytest.mark.parametrize("first", ONLINE)
def test_what_moves_scales_or_layers_cannot_follow_online_steps(first: str, second: str) -> None:
    model = after("online", first)
    with pytest.raises(Unsupported, match="on a model with online steps") as caught:
        MOVING[second](model, "text")
    assert model.online[0] in str(caught.value)
    assert type(MOVING[second]).__name__ in str(caught.value)


@pytest.mark.parametrize("second", ROUNDING)
@pytest.mark.parametrize("first", ONLINE)
def test_what_only_rounds_weights_can(first: str, second: str) -> None:
    model = after("online", first)
    if first == "quest":
        with pytest.raises(Unsupported, match="not a plain linear layer"):
            ROUNDING[second](model, "text")
        return
    found = ROUNDING[second](model, "text")
    assert found.online == model.online
    assert distance(found, model) < 0.1


@pytest.mark.parametrize("second", [*MOVING, *ROUNDING])
@pytest.mark.parametrize("first", PLAIN)
def test_a_plain_result_can_be_followed_by_anything(first: str, second: str) -> None:
    model = after("plain", first)
    found = {**MOVING, **ROUNDING}[second](model, "text")
    assert distance(found, model) < 0.3
    assert distance(model, build("llama")) < 0.1


@pytest.mark.parametrize("name", ["awq", "smoothquant", "flatquant", "quarot"])
def test_codes_of_a_weight_that_was_moved_are_not_kept(name: str) -> None:
    """A scaled or rotated weight no longer lies on its grid: an export would write the old one."""
    method = {
        "awq": AWQ(bits=8, layers=("q", "k", "v")),
        "smoothquant": SmoothQuant(),
        "flatquant": FlatQuant(bits=16, a_bits=16, kv_bits=16, epochs=0),
        "quarot": QuaRot(bits=16, a_bits=16, kv_bits=16),
    }[name]
    for site in method(after("plain", "rtn"), "text").sites():
        if site.quantized is not None:
            assert torch.equal(site.quantized.weight(), site.weight), site.name


def test_a_slot_holds_one_stage() -> None:
    stage = FlatStage((4, 8), left=True, right=True, bits=4)
    norm, linear, staged = nn.LayerNorm(32), nn.Linear(32, 32), nn.Linear(32, 32)
    attach_after(norm, stage)
    attach_before(linear, stage)
    attach(staged, InputStage(TokenGrid(4)))
    with pytest.raises(Unsupported, match="second output stage of one LayerNorm"):
        attach_after(norm, stage)
    for layer in (linear, staged):
        with pytest.raises(Unsupported, match="second input stage of one Linear"):
            attach_before(layer, stage)


def test_attention_takes_one_cache_stage() -> None:
    block = build("llama").fork().blocks()[0]
    attach_stages(block, FlatBits(4, 16, 4))
    with pytest.raises(Unsupported, match="second cache stage of one LlamaAttention"):
        attach_cache_stage(block.at("self_attn"), lambda *given: given)
    tapped = build("llama").fork().blocks()[0].at("self_attn")
    tapped.tap = lambda *given: given
    with pytest.raises(Unsupported, match="second cache stage of one LlamaAttention"):
        attach_cache_stage(tapped, lambda *given: given)


def test_a_passing_tap_sees_what_the_layers_gave_and_leaves_the_stage_in_place() -> None:
    attention = build("llama").fork().blocks()[0].at("self_attn")
    given = tuple(torch.randn(1, 2, 3, 8) for _ in range(3))
    attach_cache_stage(attention, lambda query, key, value: (2 * query, key, value))
    seen = []

    def tap(query, key, value):
        seen.append(query)
        return query, key, 3 * value

    attention.tap = tap
    query, _, value = attention.tap(*given)
    assert torch.equal(seen[0], given[0])
    assert torch.equal(query, 2 * given[0])
    assert torch.equal(value, 3 * given[2])
    del attention.tap
    assert torch.equal(attention.tap(*given)[0], 2 * given[0])
    assert torch.equal(attention.tap(*given)[2], given[2])


@pytest.mark.parametrize("first", ["quarot", "flatquant"])
def test_keys_and_values_are_still_rounded_after_boa(first: str) -> None:
    model = after("online", first)
    found = BoA(bits=8)(model, "text")
    for block in found.blocks():
        _, key, value = block.at("self_attn").tap(*(torch.randn(1, heads, 1, 8) for heads in (4, 2, 2)))
        assert max(len(head.unique()) for head in (*key[0], *value[0])) <= 4  # two bits
