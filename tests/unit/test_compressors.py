"""Rounding, smoothing and rotation on every supported architecture."""

from __future__ import annotations

import json

import pytest
import torch
from architectures import CONFIGS, ROTATABLE, build, tokens

from burnish.compress.awq import AWQ
from burnish.compress.boa import BoA
from burnish.compress.gptaq import GPTAQ
from burnish.compress.gptq import GPTQ
from burnish.compress.quarot import QuaRot
from burnish.compress.rtn import RTN
from burnish.compress.smoothquant import SmoothQuant, smooth
from burnish.core.errors import BadInput, Unsupported
from burnish.core.run import Run
from burnish.models import Walk, weight_hash
from burnish.nn.grid import GridSpec, find_grid

NAMES = list(CONFIGS)


@pytest.fixture(autouse=True)
def calibration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random token ids instead of text: these models have no tokenizer."""
    monkeypatch.setattr("burnish.data.windows.windows", lambda *args, **kwargs: tokens())


def logits(model) -> torch.Tensor:
    return model.net(tokens(2, seed=5)).logits


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "method",
    [
        RTN(bits=3),
        GPTQ(bits=3),
        GPTAQ(bits=3),
        AWQ(bits=3, group=16),
        BoA(bits=3),
        BoA(bits=3, v_row_metric=True, rows_per_step=4, refine_scales=True, group=16),
    ],
    ids=["rtn", "gptq", "gptaq", "awq", "boa", "boa-all-options"],
)
def test_weights_are_what_their_codes_say(name: str, method) -> None:
    model = build(name)
    rounded = method(model, None) if not isinstance(method, RTN) else method(model)
    for site in rounded.sites():
        assert torch.equal(site.quantized.weight(), site.weight), site.name
        assert site.quantized.codes.max() < 2**method.bits
    assert logits(rounded).isfinite().all()
    assert rounded.lineage.steps


@pytest.mark.parametrize("name", NAMES)
def test_more_bits_lose_less(name: str) -> None:
    model = build(name)
    exact = logits(model)
    losses = [float((logits(RTN(bits=bits)(model)) - exact).square().mean()) for bits in (8, 4, 2)]
    assert losses == sorted(losses)


@pytest.mark.parametrize("name", NAMES)
def test_compensation_lowers_the_output_error_on_calibration_text(name: str, tmp_path) -> None:
    """In the first block both see the same inputs, so that layer by layer the comparison is exact."""
    model = build(name)
    errors = []
    for method in (GPTQ(bits=3), RTN(bits=3)):
        with Run(tmp_path / type(method).__name__) as run:
            method(model, "text", run=run)
        rows = json.loads((run.folder / "layers.json").read_text())
        errors.append({row["role"]: row["error"] for row in rows if row["block"] == 0})
    assert all(errors[0][role] < errors[1][role] for role in errors[0]), errors


@pytest.mark.parametrize("name", NAMES)
def test_only_the_chosen_layers_are_rounded(name: str) -> None:
    rounded = BoA(bits=2, layers=("q", "v"))(build(name), None)
    assert {site.role for site in rounded.sites() if site.quantized} == {"q", "v"}


def test_boa_without_row_metric_and_block_v_is_gptq(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build("qwen2")
    shape = model.heads

    def identity(self, role: str) -> torch.Tensor:
        count = shape.query if role == "q" else shape.kv
        return torch.eye(shape.width, dtype=torch.float64).expand(count, -1, -1)

    monkeypatch.setattr("burnish.models.attention_statistics.AttentionStatistics.rows", identity)
    boa = BoA(bits=3, block_v=False, act_order_row=False)(model, None)
    gptq = GPTQ(bits=3, group=-1, qparam="hessian")(model, None)
    assert weight_hash(boa) == weight_hash(gptq)


def test_refining_scales_lowers_the_output_error() -> None:
    from burnish.nn.compensate import refined
    from burnish.nn.site import Site, output_error

    generator = torch.Generator().manual_seed(0)
    x = torch.randn(300, 32, generator=generator) @ torch.randn(32, 32, generator=generator)
    hessian = (x.T @ x).double() / 300
    for spec in (GridSpec(2), GridSpec(3, group=8), GridSpec(3, group=8, zero="float"), GridSpec(2, sym=True)):
        linear = torch.nn.Linear(32, 16, bias=False).requires_grad_(False)
        linear.weight.copy_(torch.randn(16, 32, generator=generator))
        site, before = Site("model.layers.0.x", "q", linear), linear.weight.clone()
        site.set_codes(find_grid(before, spec).encode(before), find_grid(before, spec))
        coarse = output_error(before, site.weight, hessian)["error"]
        refined(site, before, hessian)
        assert output_error(before, site.weight, hessian)["error"] < coarse


@pytest.mark.parametrize("name", NAMES)
def test_smoothing_changes_nothing_but_the_balance(name: str) -> None:
    model = build(name)
    fork = model.fork()
    for block in Walk(fork, tokens()):
        assert smooth(block, 0.5) == ""
    assert torch.allclose(logits(fork), logits(model), atol=1e-4)
    assert weight_hash(fork) != weight_hash(model)


@pytest.mark.parametrize("name", NAMES)
def test_smoothquant_is_close_at_eight_bits(name: str) -> None:
    model = build(name)
    changed = SmoothQuant()(model, None)
    exact = logits(model)
    assert (logits(changed) - exact).abs().max() < 0.1 * exact.abs().max()
    assert changed.online


@pytest.mark.parametrize("name", ROTATABLE)
def test_rotation_without_rounding_changes_nothing(name: str) -> None:
    model = build(name)
    rotated = QuaRot(bits=16, a_bits=16, kv_bits=16)(model)
    assert (logits(rotated) - logits(model)).abs().max() < 1e-4
    assert not model.config.tie_word_embeddings or rotated.config.tie_word_embeddings is False


@pytest.mark.parametrize("name", ROTATABLE)
@pytest.mark.parametrize("weights", ["rtn", "gptq"])
def test_quarot_rounds_everything(name: str, weights: str) -> None:
    model = build(name)
    exact = logits(model)

    def loss(bits: int) -> float:
        changed = QuaRot(bits=bits, a_bits=bits, kv_bits=bits, weights=weights)(model, "text")
        return float((logits(changed) - exact).square().mean())

    assert 0 < loss(8) < loss(4) < loss(2)


def test_generation_with_a_cache_matches_the_full_forward_under_quarot() -> None:
    changed = QuaRot(bits=8, a_bits=8, kv_bits=4, weights="rtn")(build("llama"))
    ids = tokens(1, 8)
    full = changed.net(ids).logits[:, -1]
    first = changed.net(ids[:, :-1], use_cache=True)
    step = changed.net(ids[:, -1:], cache=first.cache, use_cache=True).logits[:, -1]
    assert torch.allclose(step, full, atol=1e-4)


@pytest.mark.parametrize(("name", "reason"), [("gemma3_text", "normalizes the outputs"), ("opt", "LayerNorm")])
def test_quarot_refuses_norms_that_do_not_commute(name: str, reason: str) -> None:
    with pytest.raises(Unsupported, match=reason):
        QuaRot(weights="rtn")(build(name))


def test_weights_that_are_not_finite_are_refused_by_layer() -> None:
    model = build("llama").fork()
    site = next(iter(model.sites()))
    broken = site.weight.clone()
    broken[0, 0] = float("nan")
    site.replace(broken)
    with pytest.raises(BadInput, match=r"model\.layers\.0\.self_attn\.q_proj holds 1 values"):
        RTN(bits=3)(model)


def test_a_constant_input_is_reported_and_survived(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setattr("burnish.data.windows.windows", lambda *args, **kwargs: torch.zeros(2, 16, dtype=torch.long))
    model = build("llama")
    with Run(tmp_path / "run") as run:
        rounded = GPTQ(bits=3)(model, None, run=run)
        noted = {event["site"] for event in run.events("layer-note")}
    assert logits(rounded).isfinite().all()
    assert noted == {site.name for site in model.sites() if site.linear.in_features > 32}  # there are 32 tokens


def test_dead_inputs_are_named(tmp_path) -> None:
    model = build("llama").fork()
    block = model.blocks()[0]
    norm = block.at("input_layernorm")
    weight = norm.weight.clone()
    weight[3] = 0
    norm.weight = torch.nn.Parameter(weight, requires_grad=False)
    with Run(tmp_path / "run") as run:
        GPTQ(bits=3)(model, None, run=run)
        notes = [event for event in run.events("layer-note") if "q_proj" in event["site"]]
    assert "1 of 32 inputs are always zero" in notes[0]["note"]


def test_the_default_number_of_windows_is_a_wish_and_a_given_one_a_demand(
    monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    def short(tokenizer, calib, samples, length, **kwargs) -> torch.Tensor:
        if samples > 6:
            raise BadInput("the text is too short")
        return tokens()

    monkeypatch.setattr("burnish.data.windows.windows", short)
    with Run(tmp_path / "run") as run:
        GPTQ(bits=3)(build("llama"), "text", run=run)
    assert run.metrics["calibration_windows"] == 6
    assert run.events("calibration")[0]["instead_of"] == 128
    for method in (GPTQ(samples=128), BoA(samples=128), SmoothQuant(samples=512), QuaRot(samples=128)):
        with pytest.raises(BadInput, match="too short"):
            method(build("llama"), "text")


@pytest.mark.parametrize("name", NAMES)
def test_round_to_nearest_takes_the_grid_of_least_output_error(name: str, tmp_path) -> None:
    model = build(name)
    errors = []
    for qparam in ("hessian", "mmse"):
        with Run(tmp_path / qparam) as run:
            RTN(bits=2, group=-1, qparam=qparam)(model, "text", run=run)
        rows = json.loads((run.folder / "layers.json").read_text())
        errors.append(sum(row["error"] for row in rows if row["block"] == 0))
    assert errors[0] < errors[1]
    with pytest.raises(BadInput, match="needs calibration text"):
        RTN(qparam="hessian")(model)


@pytest.mark.parametrize("spec", [GridSpec(2), GridSpec(3), GridSpec(3, group=8), GridSpec(2, sym=True)], ids=str)
def test_refining_with_a_row_metric_lowers_the_error_in_that_metric(spec: GridSpec) -> None:
    """Not in the plain one: the row loop moved each row on purpose."""
    from burnish.nn.compensate import refined
    from burnish.nn.hessian import factor
    from burnish.nn.rounding import round_heads
    from burnish.nn.site import Site

    generator = torch.Generator().manual_seed(0)

    def covariance(*shape: int) -> torch.Tensor:
        x = torch.randn(*shape[:-1], 5 * shape[-1], shape[-1], generator=generator, dtype=torch.float64)
        x = x @ torch.randn(shape[-1], shape[-1], generator=generator, dtype=torch.float64)
        return x.transpose(-1, -2) @ x / x.shape[-2]

    rows, columns = covariance(2, 8), covariance(32)
    linear = torch.nn.Linear(32, 16, bias=False).requires_grad_(False)
    linear.weight.copy_(torch.randn(16, 32, generator=generator))
    site, before = Site("model.layers.0.x", "q", linear), linear.weight.clone()
    grid = find_grid(before, spec, "hessian", columns)
    site.set_codes(round_heads(before, factor(columns).upper, factor(rows).upper, grid), grid)

    def joint() -> float:
        change = (site.weight - before).double().view(2, 8, 32)
        return float(torch.einsum("hrs,hsc,cd,hrd->", rows, change, columns, change))

    coarse = joint()
    refined(site, before, columns, rows)
    assert joint() < coarse


def test_settings_that_would_do_nothing_are_refused() -> None:
    with pytest.raises(BadInput, match="needs block_v"):
        BoA.build({"v_row_metric": True, "block_v": False})
    with pytest.raises(BadInput, match="group"):
        BoA.build({"group": 0})
