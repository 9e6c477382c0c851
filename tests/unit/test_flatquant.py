"""FlatQuant: exact without rounding, folded as trained, any width, and better for having been trained."""

from __future__ import annotations

import time

import pytest
import torch
from architectures import build, tokens

from burnish.compress.flatquant import FlatQuant, _maxima
from burnish.compress.gptq import GPTQ
from burnish.core.errors import Unsupported
from burnish.core.run import Run
from burnish.models import Walk
from burnish.models.flat_block import FlatBits, FlatBlock, attach_stages, switch
from burnish.nn.attention import use
from burnish.nn.flat import Clip, LearnedGrid, round_weight
from burnish.nn.kronecker import FreeFactor, Kronecker, SVDFactor, balanced
from burnish.nn.ste import asymmetric, symmetric

NAMES = ["llama", "mistral", "qwen2", "qwen3", "gemma3_text"]


@pytest.fixture(autouse=True)
def calibration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("burnish.data.windows.windows", lambda *args, **kwargs: tokens())


def logits(model) -> torch.Tensor:
    return model.net(tokens(2, seed=5)).logits


def quick(**settings) -> FlatQuant:
    return FlatQuant(**{"epochs": 2, "batch": 2, **settings})


def flat_block(name: str, bits: FlatBits, number: int = 0, matrices: str = "svd") -> tuple[FlatBlock, torch.Tensor]:
    """A block in training, with parameters moved away from their start, and its inputs."""
    model = build(name).fork()
    use(model.net)
    for block in model.blocks():
        attach_stages(block, bits)
    for block in Walk(model, tokens()):
        if block.number == number:
            inputs, context = torch.cat(block.inputs), block.context
            generator = torch.Generator().manual_seed(4)
            flat = FlatBlock(block, bits, _maxima(block), 0.3, matrices, generator)
            with torch.no_grad():
                for parameter in flat.parameters():
                    parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
            break
    block.context = context
    return flat, inputs


# -- the parts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 3, 6, 10, 97, 576, 896, 1536, 4862, 4864, 7919, 18944])
def test_any_width_has_balanced_factors_at_once(n: int) -> None:
    began = time.perf_counter()
    left, right = balanced(n)
    assert time.perf_counter() - began < 0.01
    assert left <= right
    assert left * right == n
    assert not any(n % d == 0 for d in range(left + 1, int(n**0.5) + 1))


@pytest.mark.parametrize("factor", [SVDFactor, FreeFactor])
def test_a_factor_and_its_inverse_transpose_cancel_wherever_training_takes_them(factor) -> None:
    generator = torch.Generator().manual_seed(0)
    made = factor(12, generator)
    first = made.pair()[0].detach().clone()
    assert torch.allclose(first @ first.T, torch.eye(12), atol=1e-5)  # it starts orthogonal
    with torch.no_grad():
        for parameter in made.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    matrix, inverse = made.pair()
    assert torch.allclose(matrix @ inverse.T, torch.eye(12), atol=1e-4)
    assert not torch.allclose(matrix, first, atol=0.1)


@pytest.mark.parametrize("sides", ["both", "left", "right"])
def test_a_kronecker_product_is_the_whole_matrix(sides: str) -> None:
    generator = torch.Generator().manual_seed(0)
    left = None if sides == "right" else torch.randn(3, 3, generator=generator)
    right = None if sides == "left" else torch.randn(4, 4, generator=generator)
    product = Kronecker(left, right, (3, 4))
    x = torch.randn(2, 5, 12, generator=generator)
    assert torch.allclose(product(x), x @ product.full(), atol=1e-5)


def test_grids_have_the_levels_they_say_and_pass_gradients() -> None:
    x = torch.linspace(-2, 3, 101, requires_grad=True)
    rounded = symmetric(x, torch.tensor(3.0), 3)
    assert sorted(set((rounded / 1.0).round().int().tolist())) == [-2, -1, 0, 1, 2, 3]
    rounded.sum().backward()
    assert torch.equal(x.grad, torch.ones(101))
    wide = asymmetric(x.detach(), torch.tensor(-2.0), torch.tensor(3.0), 2)
    assert len(set(wide.tolist())) == 4
    assert 0.0 in wide.tolist()
    weight = torch.randn(6, 40)
    steps = round_weight(weight, 4) / (weight.abs().amax(1, keepdim=True) / 7).half().float()
    assert torch.allclose(steps, steps.round(), atol=1e-4)
    assert steps.abs().max() <= 8


def test_clips_cut_where_they_say() -> None:
    clip = Clip(3)
    with torch.no_grad():
        clip.logits[0] = 0.0  # half of the highest
        clip.logits[1] = 40.0  # all of the lowest
    weight = torch.randn(3, 50)
    cut = clip.clamp(weight)
    assert torch.allclose(cut.amax(1), weight.amax(1) / 2)
    assert torch.allclose(cut.amin(1), weight.amin(1))
    grid = LearnedGrid(4, True, torch.tensor(0.5), torch.tensor(0.25))
    token = torch.tensor([[4.0, -4.0, 1.0]])
    assert torch.allclose(grid(token)[0, 0], torch.tensor(2.0))  # ends at half of 4


# -- a block ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("matrices", ["svd", "free"])
@pytest.mark.parametrize("name", NAMES)
def test_without_rounding_a_block_gives_what_it_gave(name: str, matrices: str) -> None:
    flat, hidden = flat_block(name, FlatBits(16, 16, 16), matrices=matrices)
    with torch.no_grad():
        exact = flat.block.forward(hidden)
        assert torch.allclose(flat(hidden), exact, atol=1e-4)
        assert torch.equal(flat.block.forward(hidden), exact)  # running it leaves nothing behind
        flat.fold()
        switch(flat.block, on=True)
        assert torch.allclose(flat.block.forward(hidden), exact, atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_the_folded_block_is_the_trained_one(name: str) -> None:
    flat, hidden = flat_block(name, FlatBits(4, 4, 4), number=1)
    with torch.no_grad():
        exact = flat.block.forward(hidden)
        trained = flat.double()
        block = trained.block.module.double()
        trained.masters = {role: weight.double() for role, weight in flat.masters.items()}
        trained.block.context = _wide(flat.block.context)
        expected = trained(hidden.double())
        block.float()
        flat.block.context = _narrow(flat.block.context)
        flat.fold()
        switch(flat.block, on=True)
        flat.block.module.double()
        flat.block.context = _wide(flat.block.context)
        folded = flat.block.forward(hidden.double())
    assert (folded - expected).abs().max() <= 1e-5 * exact.abs().max()
    assert (expected.float() - exact).abs().max() > 1e-3 * exact.abs().max()  # something was rounded


def _wide(context):
    return {key: _cast(value, torch.float64) for key, value in context.items()}


def _narrow(context):
    return {key: _cast(value, torch.float32) for key, value in context.items()}


def _cast(value, dtype):
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.to(dtype)
    return tuple(_cast(one, dtype) for one in value) if isinstance(value, tuple) else value


# -- the method -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_with_every_grid_off_the_model_is_the_model(name: str) -> None:
    model = build(name)
    found = quick(bits=16, a_bits=16, kv_bits=16)(model, None)
    assert (logits(found) - logits(model)).abs().max() <= 1e-4


@pytest.mark.parametrize("name", NAMES)
def test_training_lowers_the_error_of_a_block(name: str, tmp_path) -> None:
    model = build(name)
    with Run(tmp_path / "r") as run:
        found = quick(epochs=8)(model, None, run)
        for event in run.events("flatquant-block"):
            assert event["after"] < event["before"]
    assert logits(found).isfinite().all()
    for site in found.sites():
        assert torch.equal(site.quantized.weight(), site.weight)
        assert site.quantized.codes.max() <= 15


def test_opt_is_refused_by_name() -> None:
    with pytest.raises(Unsupported, match="FlatQuant on opt"):
        quick()(build("opt"), None)


def test_rounding_by_gptq_or_by_a_later_step() -> None:
    model = build("llama")
    near, gptq, later = (quick(weights=kind)(model, None) for kind in ("rtn", "gptq", "later"))
    assert not torch.equal(logits(near), logits(gptq))
    assert all(site.quantized is None for site in later.sites())
    finished = GPTQ(bits=4, group=-1, sym=True)(later, None)
    assert all(site.quantized is not None for site in finished.sites())
    assert (logits(finished) - logits(later)).abs().max() > 0


def test_a_stopped_run_goes_on_with_the_same_result(tmp_path, monkeypatch) -> None:
    model = build("qwen2")
    with Run(tmp_path / "whole") as run:
        whole = quick()(model, None, run)
    real = FlatQuant._fold

    def stopping(self, block, *given):
        if block.number == 1:
            raise KeyboardInterrupt
        return real(self, block, *given)

    monkeypatch.setattr(FlatQuant, "_fold", stopping)
    with pytest.raises(KeyboardInterrupt), Run(tmp_path / "r") as run:
        quick()(model, None, run)
    monkeypatch.setattr(FlatQuant, "_fold", real)
    with Run(tmp_path / "r") as run:
        again = quick()(model, None, run)
    assert torch.equal(logits(whole), logits(again))


def test_each_option_changes_what_it_is_for() -> None:
    model = build("llama")
    base = logits(quick()(model, None))
    for option in (
        {"matrices": "free"},
        {"alpha": 0.6},
        {"epochs": 1},
        {"batch": 1},
        {"rate": 1e-3},
        {"clip_rate": 1e-3},
        {"kv_bits": 16},
        {"a_bits": 8},
        {"bits": 3},
    ):
        assert not torch.equal(logits(quick(**option)(model, None)), base), option
