"""Training on with low bits: the model learns, nothing else changes, integers compute the same, and a stop loses nothing."""

from __future__ import annotations

import pytest
import torch
from architectures import CONFIGS, build, tokens

from burnish.compress.quest import QuEST
from burnish.core.errors import Unsupported
from burnish.core.run import Run
from burnish.models import weight_hash
from burnish.nn.quest import LSQ, QuantizedLinear, Quantizer
from burnish.nn.quest_packed import PackedLinear, integers

NAMES = list(CONFIGS)


@pytest.fixture(autouse=True)
def calibration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("burnish.data.windows.windows", lambda *args, **kwargs: tokens(16))


def quick(**settings) -> QuEST:
    return QuEST(**{"steps": 6, "rate": 1e-3, **settings})


@pytest.mark.parametrize("bits", [1, 2, 4, 7])
@pytest.mark.parametrize("rotation", ["half", "full", "none"])
@pytest.mark.parametrize("width", [128, 100, 36])
def test_integers_compute_the_fake_quantized_product(bits: int, rotation: str, width: int) -> None:
    torch.manual_seed(0)
    layer = QuantizedLinear.of(torch.nn.Linear(width, 24), Quantizer(bits, rotation), Quantizer(bits, rotation))
    packed = PackedLinear.of(layer)
    assert packed.codes.dtype == torch.int8
    assert (packed.codes % 2 != 0).all()  # odd integers only
    assert packed.codes.abs().max() <= 2**bits - 1
    x = torch.randn(3, 5, width)
    expected = layer(x)
    assert torch.allclose(packed(x), expected, atol=1e-5 * float(expected.detach().abs().max()), rtol=1e-5)


def test_what_has_no_odd_integers_is_refused() -> None:
    plain = torch.nn.Linear(64, 8)
    for weights, inputs in ((Quantizer(8), Quantizer(4)), (Quantizer(4, sparse=True), Quantizer(4)), (LSQ(4), LSQ(4))):
        with pytest.raises(Unsupported, match="packing a layer"):
            PackedLinear.of(QuantizedLinear.of(plain, weights, inputs))


def test_a_step_is_twice_what_integers_are_multiplied_by() -> None:
    x = torch.randn(4, 64)
    codes, half = integers(x, Quantizer(3))
    assert torch.allclose(codes * half, Quantizer(3).rounded(x), atol=1e-5)


@torch.no_grad()
def entered(net) -> dict[QuantizedLinear, torch.Tensor]:
    """What enters each rounded layer."""
    seen: dict[QuantizedLinear, torch.Tensor] = {}
    layers = [module for module in net.modules() if isinstance(module, QuantizedLinear)]
    handles = [layer.register_forward_pre_hook(lambda m, args: seen.__setitem__(m, args[0])) for layer in layers]
    net(tokens(2))
    for handle in handles:
        handle.remove()
    return seen


def test_the_released_default_is_used_where_nothing_is_said() -> None:
    found = quick(steps=1)(build("llama"), None)
    layer = next(module for module in found.net.modules() if isinstance(module, QuantizedLinear))
    quantizers = (layer.weight_quantizer, layer.input_quantizer)
    assert {(q.bits, q.rotation, q.rule) for q in quantizers} == {(4, "half", "trust")}
    assert quantizers[0].width == pytest.approx(2.51393058 / 15)


@pytest.mark.parametrize("name", NAMES)
def test_training_lowers_the_loss_of_the_rounded_model_and_packs(name: str, tmp_path) -> None:
    model = build(name)
    before = weight_hash(model)
    with Run(tmp_path / "r") as run:
        found = quick(steps=30)(model, None, run)
        losses = run.metrics
    found.net.requires_grad_(False)
    assert weight_hash(model) == before
    # Query heads that share a key/value head agree at the first token, so that some rotated numbers are 0 but for rounding
    # errors, and 0 lies between two levels: layer by layer the two are equal, over the model they are not to the last bit.
    assert losses["loss_packed"] == pytest.approx(losses["loss_rounded"], abs=0.1)
    for module, entering in entered(found.net).items():
        expected = module(entering)
        assert (PackedLinear.of(module)(entering) - expected).abs().max() <= 1e-5 * expected.abs().max()
    assert losses["loss_rounded"] != losses["loss_rounded_untrained"]
    assert found.net(tokens(2)).logits.isfinite().all()
    assert found.online
    assert sum(isinstance(module, QuantizedLinear) for module in found.net.modules()) == len(list(model.sites()))


def test_it_learns_what_it_reads(monkeypatch, tmp_path) -> None:
    same = tokens(1).expand(16, -1)  # one window again and again, also among those that are held out
    monkeypatch.setattr("burnish.data.windows.windows", lambda *args, **kwargs: same)
    for bits in (1, 2, 4):
        with Run(tmp_path / f"{bits}") as run:
            quick(bits=bits, a_bits=bits, steps=40, rate=1e-2)(build("llama"), None, run)
            assert run.metrics["loss_rounded"] < 0.8 * run.metrics["loss_rounded_untrained"]


def test_a_stopped_run_goes_on_with_the_same_weights(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("burnish.compress.quest.EVERY", 2)
    model = build("llama")
    with Run(tmp_path / "whole") as run:
        whole = quick()(model, None, run)
    steps = 0

    def stopping(self, *args, **kwargs):
        nonlocal steps
        steps += 1
        if steps == 4:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("burnish.core.progress.Progress.advance", stopping)
        with pytest.raises(KeyboardInterrupt), Run(tmp_path / "r") as run:
            quick()(model, None, run)
    with Run(tmp_path / "r") as run:
        again = quick()(model, None, run)
    assert weight_hash(again) == weight_hash(whole)


def test_each_option_changes_what_it_is_for() -> None:
    model = build("llama")
    base = weight_hash(quick()(model, None))
    for option in (
        {"bits": 3},
        {"a_bits": 3},
        {"grid": "lsq"},
        {"grid": "pact"},
        {"rotation": "none"},
        {"gradient": "ste"},
        {"gradient": "clip"},
        {"outer": 1.3},
        {"sparse": True},
        {"steps": 5},
        {"batch": 2},
        {"rate": 1e-4},
        {"calib_seed": 1},
    ):
        assert weight_hash(quick(**option)(model, None)) != base, option
