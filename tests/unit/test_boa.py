"""BoA on real blocks against its definition, option by option."""

from __future__ import annotations

import pytest
import torch
from architectures import build, tokens
from test_rounding import dense_gptq
from torch import Tensor

from burnish.compress.boa import BoA, _output_metric
from burnish.compress.gptq import GPTQ
from burnish.models import Walk, weight_hash
from burnish.models.attention_statistics import AttentionStatistics, collect
from burnish.nn.hessian import damp


@pytest.fixture(autouse=True)
def calibration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("burnish.data.windows.windows", lambda *args, **kwargs: tokens())


def states(block) -> dict[str, Tensor]:
    """Queries and keys as attention uses them, (heads, all tokens, width), float64."""
    kept: dict[str, list[Tensor]] = {"q": [], "k": []}
    attention = block.at(block.model.adapter.attention)

    def tap(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        kept["q"].append(query)
        kept["k"].append(key)
        return query, key, value

    attention.tap = tap
    for hidden in block.inputs:
        block.forward(hidden)
    del attention.tap
    return {name: torch.cat(parts).double().transpose(0, 1).flatten(1, 2) for name, parts in kept.items()}


def rotations(cos: Tensor, sin: Tensor) -> list[Tensor]:
    """RoPE's matrix at each position, by applying it to unit vectors."""
    width = cos.shape[1]
    half = width // 2
    found = []
    for t in range(len(cos)):
        columns = []
        for unit in torch.eye(width, dtype=torch.float64):
            turned = torch.cat([-unit[half:], unit[:half]])
            columns.append(unit * cos[t].double() + turned * sin[t].double())
        found.append(torch.stack(columns, 1))
    return found


@pytest.mark.parametrize("name", ["llama", "mistral", "qwen2", "qwen3", "gemma3_text"])
def test_row_hessians_are_the_definition(name: str) -> None:
    """Position by position and head by head, with the rotation, the norms' gains and the groups written out."""
    model = build(name)
    walk = iter(Walk(model.fork(), tokens()))
    block = next(walk)
    seen = collect(block, ("q", "k", "o"), values=False)
    used, shape, adapter = states(block), model.heads, model.adapter
    turns = rotations(*(t[0] for t in block.context["position_embeddings"]))
    count = used["q"].shape[1]
    for role, heads in (("q", shape.query), ("k", shape.kv)):
        gain = torch.ones(shape.width, dtype=torch.float64)
        if adapter.head_norms is not None:
            norm = block.at(adapter.head_norms[("q", "k").index(role)])
            gain = adapter.norm_offset + norm.weight.double()
        found = seen.rows(role)
        for head in range(heads):
            if role == "q":
                others = [used["k"][head // shape.group]]
            else:
                others = [used["q"][h] for h in range(shape.query) if h // shape.group == head]
            moments = sum(o.T @ o for o in others) / len(others) / count
            pulled = sum((r * gain).T @ moments @ (r * gain) for r in turns) / len(turns)
            assert torch.allclose(found[head], pulled, rtol=1e-4, atol=1e-6), (role, head)


@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_codes_are_dense_gptq_on_the_blocks_own_kronecker_hessian(name: str) -> None:
    model = build(name)
    rounded = BoA(bits=3, layers=("q", "k"), act_order_col=False, act_order_row=False, qparam="minmax")(model, "text")
    walk = iter(Walk(model.fork(), tokens()))
    block = next(walk)
    seen = collect(block, ("q", "k"), values=False)
    width = model.heads.width
    for role in ("q", "k"):
        site = rounded.blocks()[0].sites((role,))[0]
        original = block.sites((role,))[0].weight
        columns, rows = damp(seen.columns(role), 0.01), damp(seen.rows(role), 0.01)
        for head in range(len(rows)):
            span = slice(head * width, (head + 1) * width)
            grid = site.quantized.grid
            own = type(grid)(grid.spec, grid.scale[span], grid.zero[span])
            expected = dense_gptq(original[span], torch.kron(rows[head], columns), own)
            assert torch.equal(site.quantized.codes[span], expected), (role, head)


def test_the_output_metric_is_that_of_each_group() -> None:
    model = build("qwen2")
    block = model.blocks()[0]
    shape, weight = model.heads, block.sites(("o",))[0].weight.double()
    found = _output_metric(block)
    for kv in range(shape.kv):
        heads = [
            weight[:, h * shape.width : (h + 1) * shape.width] for h in range(shape.query) if h // shape.group == kv
        ]
        assert torch.allclose(found[kv], sum(w.T @ w for w in heads))


@pytest.mark.parametrize(
    ("option", "role"),
    [
        ({"block_v": False}, "v"),
        ({"v_row_metric": True}, "v"),
        ({"act_order_col": False}, "o"),
        ({"act_order_row": False}, "q"),
        ({"qparam": "minmax"}, "q"),
        ({"qparam": "mmse"}, "down"),
        ({"rows_per_step": 4}, "k"),
        ({"refine_scales": True}, "q"),
        ({"refine_scales": True}, "down"),
        ({"damping": 0.2}, "gate"),
    ],
    ids=str,
)
def test_each_option_changes_what_it_is_for(option: dict, role: str) -> None:
    model = build("llama")
    plain, changed = (BoA(bits=3, **more)(model, "text").blocks()[0].sites((role,))[0] for more in ({}, option))
    assert not torch.equal(plain.weight, changed.weight)


def test_q_and_k_feel_the_row_metric() -> None:
    model = build("llama")
    boa = BoA(bits=3, act_order_row=False)(model, "text").blocks()[0]
    gptq = GPTQ(bits=3, group=-1, qparam="hessian")(model, "text").blocks()[0]
    for role, same in (("q", False), ("k", False), ("v", False), ("o", True), ("gate", True), ("down", True)):
        equal = torch.equal(boa.sites((role,))[0].weight, gptq.sites((role,))[0].weight)
        assert equal == same, role


@pytest.mark.parametrize("method", [GPTQ(bits=2), BoA(bits=2)], ids=["gptq", "boa"])
def test_each_block_sees_what_the_rounded_blocks_before_it_give(method, monkeypatch: pytest.MonkeyPatch) -> None:
    entered: list[list[Tensor]] = []
    inner = Walk.__iter__

    def spied(self):
        for block in inner(self):
            entered.append([hidden.clone() for hidden in block.inputs])
            yield block

    monkeypatch.setattr(Walk, "__iter__", spied)
    model = build("llama")
    rounded = method(model, "text")
    taken = [list(parts) for parts in entered]
    quantized = [torch.cat(block.inputs) for block in inner(Walk(rounded.fork(), tokens()))]
    exact = [torch.cat(block.inputs) for block in inner(Walk(model.fork(), tokens()))]
    assert torch.equal(torch.cat(taken[0]), exact[0])
    assert torch.allclose(torch.cat(taken[1]), quantized[1], atol=1e-5)
    assert not torch.allclose(torch.cat(taken[1]), exact[1], atol=1e-2)


def test_the_hessians_that_boa_used_are_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The row metric is really asked for, once for q and once for k in every block."""
    asked: list[str] = []
    inner = AttentionStatistics.rows
    monkeypatch.setattr(AttentionStatistics, "rows", lambda self, role: asked.append(role) or inner(self, role))
    assert weight_hash(BoA(bits=3)(build("opt"), "text"))
    assert asked == ["q", "k", "q", "k"]
