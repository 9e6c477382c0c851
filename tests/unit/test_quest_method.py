"""Training on with low bits: the model learns, nothing else changes, integers compute the same, and a stop loses nothing."""

from __future__ import annotations

import pytest
import torch
from architectures import CONFIGS, build, tokens

from burnish.compress.quest import QuEST
from burnish.core.errors import BadInput, Unsupported
from burnish.core.run import Run
from burnish.models import check_export, weight_hash
from burnish.nn.gaussian import TERNARY
from burnish.nn.pretrain import pretrain
from burnish.nn.quest import LSQ, QuantizedLinear, Quantizer
from burnish.nn.quest_layers import Quantization, bake
from burnish.nn.quest_packed import PackedLinear, integers

NAMES = list(CONFIGS)


@pytest.fixture(autouse=True)
def calibration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("burnish.data.windows.windows", lambda *args, **kwargs: tokens(16))


def quick(**settings) -> QuEST:
    return QuEST(**{"steps": 6, "rate": 1e-3, **settings})


@pytest.mark.parametrize("bits", [1, TERNARY, 2, 4, 7])
@pytest.mark.parametrize("rotation", ["half", "full", "none"])
@pytest.mark.parametrize(("width", "sparse"), [(128, ""), (100, ""), (36, ""), (128, "4:8"), (100, "2:4")])
def test_integers_compute_the_fake_quantized_product(bits: float, rotation: str, width: int, sparse: str) -> None:
    torch.manual_seed(0)
    weights = Quantizer(bits, rotation, sparse=sparse)
    layer = QuantizedLinear.of(torch.nn.Linear(width, 24), weights, Quantizer(bits, rotation))
    packed = PackedLinear.of(layer)
    assert packed.codes.dtype == torch.int8
    odd = packed.codes[packed.codes != 0] % 2 != 0
    assert not odd.any() if bits == TERNARY else odd.all()
    assert packed.codes.abs().max() <= round(2**bits) - 1
    assert (packed.codes == 0).float().mean() == pytest.approx(0.5) if sparse and bits != TERNARY else True
    x = torch.randn(3, 5, width)
    expected = layer(x)
    assert torch.allclose(packed(x), expected, atol=1e-5 * float(expected.detach().abs().max()), rtol=1e-5)


def test_what_has_no_integers_is_refused() -> None:
    plain = torch.nn.Linear(64, 8)
    two_bases = (Quantizer(4, "full"), Quantizer(4, "none"))
    for weights, inputs in ((Quantizer(8), Quantizer(4)), two_bases, two_bases[::-1], (LSQ(4), LSQ(4))):
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


def test_training_goes_as_the_module_says(monkeypatch) -> None:
    seen = {}

    def watching(net, rows, plan, **more):
        seen.update(plan=plan, rows=rows, loss=more["loss"])
        return pretrain(net, rows, plan, **more)

    monkeypatch.setattr("burnish.compress.quest.pretrain", watching)
    quick(steps=20, batch=3)(build("llama"), None)
    plan = seen["plan"]
    assert (plan.betas, plan.weight_decay, plan.clip) == ((0.9, 0.95), 0.1, 1.0)
    assert plan.steps(len(seen["rows"].ids)) == 20
    rates = [plan.rate_at(step, 20) for step in range(20)]
    assert rates[:2] == pytest.approx([0.5e-3, 1e-3])
    assert rates[10] == pytest.approx(1e-3 / 2)
    assert rates[-1] == 0
    held, read = {tuple(row) for row in tokens(16)[::8].tolist()}, {tuple(row) for row in seen["rows"].ids.tolist()}
    assert len(read) == 14
    assert not held & read


def test_each_option_changes_what_it_is_for() -> None:
    model = build("llama")
    seen = {weight_hash(quick()(model, None))}
    for option in (
        {"bits": 3},
        {"a_bits": 3},
        {"grid": "lsq"},
        {"grid": "lsq-row"},
        {"grid": "pact"},
        {"rotation": "none"},
        {"gradient": "ste"},
        {"gradient": "clip"},
        {"outer": 1.3},
        {"sparse": "2:4"},
        {"sparse": "4:8"},
        {"bits": "ternary"},
        {"steps": 5},
        {"batch": 2},
        {"rate": 1e-4},
        {"calib_seed": 1},
    ):
        found = weight_hash(quick(**option)(model, None))
        assert found not in seen, option
        seen.add(found)


@pytest.mark.parametrize("rotation", ["half", "full", "none"])
@pytest.mark.parametrize("grid", ["quest", "lsq", "lsq-row"])
def test_weights_that_are_rounded_alone_become_plain_layers(rotation: str, grid: str) -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(36, 24), torch.nn.Linear(24, 8, bias=False))
    x = torch.randn(5, 36)
    Quantization(bits=2, a_bits=16, grid=grid, rotation=rotation if grid == "quest" else "half").put(net, ["0", "1"])
    expected = net(x)
    bake(net)
    assert [type(layer) for layer in net] == [torch.nn.Linear] * 2
    assert torch.allclose(net(x), expected, atol=1e-5)


def test_a_model_with_whole_activations_is_plain_and_saved(tmp_path) -> None:
    from transformers import AutoModelForCausalLM

    found = quick(a_bits=16)(build("llama"), None)
    assert not found.online
    assert not any(isinstance(module, QuantizedLinear) for module in found.net.modules())
    found.net.save_pretrained(tmp_path / "plain")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "plain")
    assert torch.equal(again(tokens(2)).logits, found.net(tokens(2)).logits)
    check_export(quick(a_bits=16), "hf")
    with pytest.raises(Unsupported, match="rotates and rounds activations"):
        check_export(quick(), "hf")


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", NAMES)
def test_losses_are_those_of_the_model_itself(name: str, attention: str, monkeypatch, tmp_path) -> None:
    text = tokens(16, length=24)  # longer than the window of the models that have one
    monkeypatch.setattr("burnish.data.windows.windows", lambda *args, **kwargs: text)
    model = build(name, attention)
    with Run(tmp_path / "r") as run:
        quick(steps=1)(model, None, run)
        held = text[::8]
        assert run.metrics["loss_full_precision"] == pytest.approx(model.net(held, labels=held).loss.item(), rel=1e-5)


def test_learned_steps_begin_with_text_that_is_trained_on(monkeypatch) -> None:
    seen = []
    real = LSQ.forward

    def watching(self, x):
        if not self.begun:
            seen.append(x)
        return real(self, x)

    monkeypatch.setattr(LSQ, "forward", watching)
    model = build("llama")
    embedded = model.net.get_input_embeddings()(tokens(16))
    quick(grid="lsq", steps=1)(model, None)
    first = model.net.model.layers[0].input_layernorm(embedded)
    assert any(torch.equal(x[0], first[1]) for x in seen if x.ndim == 3)  # the second window: the first is held out


def test_a_model_in_half_precision_is_trained_in_single_precision() -> None:
    half, single = build("llama"), build("llama")
    half.net.bfloat16()
    single.net.bfloat16().float()
    found, expected = (quick(steps=10, rate=2e-5)(model, None).net for model in (half, single))
    weights = dict(expected.named_parameters())
    for name, weight in found.named_parameters():
        assert weight.dtype == torch.bfloat16
        assert torch.equal(weight, weights[name].bfloat16()), name


def test_dropout_is_off_so_that_the_same_seed_gives_the_same_model() -> None:
    model = build("opt")
    assert model.config.dropout > 0
    assert weight_hash(quick(steps=3)(model, None)) == weight_hash(quick(steps=3)(model, None))


def test_settings_that_do_nothing_beside_others_are_refused() -> None:
    for settings, word in (
        ({"grid": "lsq", "sparse": "4:8"}, "sparse"),
        ({"grid": "pact", "rotation": "none"}, "rotation"),
        ({"grid": "lsq", "gradient": "ste", "outer": 1.2}, "gradient.*outer"),
        ({"grid": "lsq", "bits": "ternary"}, "three levels"),
        ({"gradient": "ste", "outer": 1.2}, "outer"),
        ({"bits": 16, "sparse": "2:4"}, "sparse"),
        ({"bits": 16, "a_bits": 16}, "nothing is rounded"),
    ):
        with pytest.raises(BadInput, match=word):
            QuEST.build(settings)


def test_a_width_that_a_pattern_does_not_divide_is_named() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(36, 8))
    with pytest.raises(Unsupported, match="inputs of 0, 36"):
        Quantization(sparse="4:8").put(net, ["0"])


def test_an_estimate_grows_with_what_is_trained() -> None:
    minutes = [float(QuEST(steps=n).estimate({"model": "tiny"})["minutes"].split()[-1]) for n in (100, 10000)]
    assert minutes[1] > 30 * minutes[0] > 0
