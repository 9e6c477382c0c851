"""FlatQuant: exact without rounding, folded as trained, any width, and better for having been trained."""

from __future__ import annotations

import math
import time

import pytest
import torch
from architectures import build, tokens

from burnish.compress import flatquant
from burnish.compress.flatquant import FlatQuant, _maxima
from burnish.compress.gptq import GPTQ
from burnish.core.errors import BadInput, Unsupported
from burnish.core.run import Run
from burnish.models import Model, Walk
from burnish.models.flat_block import FlatBits, FlatBlock, attach_stages, switch
from burnish.nn.attention import use
from burnish.nn.flat import Clip, LearnedGrid, TokenClip, round_weight
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


def test_clips_start_near_the_whole_range() -> None:
    for clip in (Clip(3), Clip(), TokenClip(4, True)):
        for fraction in clip.fractions():
            assert torch.allclose(fraction, torch.tensor(1 / (1 + math.exp(-4))))


def test_the_end_of_a_grid_moves_what_lies_beyond_it() -> None:
    """Gradients pass through the rounding of the zero point too: without, the lower end would move it by z / 15 only."""
    low, high = torch.tensor(-3.0, requires_grad=True), torch.tensor(12.0, requires_grad=True)  # step 1, zero 3
    for value, wanted in ((-10.0, (1.0, 0.0)), (20.0, (0.0, 1.0)), (5.0, (0.0, 0.0))):
        found = torch.autograd.grad(asymmetric(torch.tensor(value), low, high, 4), (low, high))
        assert [float(g) for g in found] == pytest.approx(wanted, abs=1e-6)


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


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("name", ["llama", "gemma3_text"])
def test_diagonals_start_between_the_sizes_of_weights_and_of_inputs(name: str, alpha: float) -> None:
    bits = FlatBits(4, 4, 16)
    model = build(name).fork()
    use(model.net)
    for block in model.blocks():
        attach_stages(block, bits)
    block = next(iter(Walk(model, tokens())))
    maxima = _maxima(block)
    flat = FlatBlock(block, bits, maxima, alpha, "svd", torch.Generator().manual_seed(0))
    linears = {site.role: site.linear for site in block.sites()}
    for role, readers in (("q", "q k v"), ("gate", "gate up"), ("down", "down")):
        seen = []
        handle = linears[role].register_forward_pre_hook(lambda _, args, seen=seen: seen.append(args[0].flatten(0, -2)))
        for hidden in block.inputs:
            block.forward(hidden)
        handle.remove()
        inputs = torch.cat(seen).abs().amax(0)
        assert torch.allclose(maxima[role], inputs)
        weights = torch.cat([linears[reader].weight for reader in readers.split()]).abs().amax(0)
        expected = weights ** (1 - alpha) / inputs**alpha
        assert torch.allclose(flat.transforms[role].diagonal, expected, rtol=1e-4), role


def test_values_are_clipped_before_they_are_turned() -> None:
    flat, _ = flat_block("llama", FlatBits(4, 4, 4))
    with torch.no_grad():
        flat.weight_clips["v"].logits.fill_(0.0)  # half of each row's range
        plain = flat.transforms["q"].weight(flat.masters["v"])
        cut = torch.minimum(torch.maximum(plain, plain.amin(1, keepdim=True) / 2), plain.amax(1, keepdim=True) / 2)
        turn = flat.transforms["v"].matrices()[0].right
        expected = torch.cat([turn.T @ head for head in cut.chunk(flat.heads.kv)])
        found, _ = flat.transformed("v")
        assert torch.allclose(found, expected, atol=1e-5)
        turned = torch.cat([turn.T @ head for head in plain.chunk(flat.heads.kv)])
        assert not torch.allclose(flat.weight_clips["v"].clamp(turned), expected, atol=1e-2)


@pytest.mark.parametrize("matrices", ["svd", "free"])
def test_what_is_learned_is_where_the_block_is(matrices: str) -> None:
    """On a device without values, every product of tensors that are on two devices is an error."""
    model = build("qwen2").fork()
    use(model.net)
    bits = FlatBits(4, 4, 4)
    for block in Walk(model, tokens()):
        inputs, context = torch.cat(block.inputs), block.context
        break
    model.net.to("meta")
    block.context = {key: _on_meta(value) for key, value in context.items()}
    attach_stages(block, bits)
    assert {p.device.type for p in block.module.parameters()} == {"meta"}
    maxima = {role: torch.ones(n, device="meta") for role, n in (("q", 32), ("gate", 32), ("down", 48))}
    flat = FlatBlock(block, bits, maxima, 0.3, matrices, torch.Generator().manual_seed(0))
    assert flat(inputs.to("meta")).shape == inputs.shape
    flat.fold()
    switch(block, on=True)
    assert block.forward(inputs.to("meta")).shape == inputs.shape
    assert {p.device.type for p in (*flat.parameters(), *block.module.parameters())} == {"meta"}


def _on_meta(value):
    if isinstance(value, torch.Tensor):
        return value.to("meta")
    return tuple(map(_on_meta, value)) if isinstance(value, tuple) else value


def test_a_step_inverts_each_free_matrix_once(monkeypatch) -> None:
    flat, hidden = flat_block("llama", FlatBits(4, 4, 4), matrices="free")
    count, inv = 0, torch.linalg.inv

    def counting(matrix):
        nonlocal count
        count += 1
        return inv(matrix)

    monkeypatch.setattr(torch.linalg, "inv", counting)
    flat(hidden[:1])
    assert count == sum(isinstance(module, FreeFactor) for module in flat.modules()) == 9
    flat.fold()
    assert count == 2 * 9


def test_going_to_double_precision_copies_only_what_is_learned() -> None:
    class Shared(dict):
        def __deepcopy__(self, memo):
            raise AssertionError("the block's own weights are copied")

    flat, _ = flat_block("llama", FlatBits(4, 4, 4))
    flat.masters, flat.linears, flat.norms = Shared(flat.masters), Shared(flat.linears), Shared(flat.norms)
    wide = flat.double()
    assert wide.masters is flat.masters
    assert wide.block is flat.block
    assert {p.dtype for p in wide.parameters()} == {torch.float64}
    assert {p.dtype for p in flat.parameters()} == {torch.float32}


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


# -- training ---------------------------------------------------------------------------------------------------------


class Recorder(torch.optim.AdamW):
    """AdamW that keeps the settings, and the gradients of its first step."""

    made: list[Recorder]

    def __init__(self, groups) -> None:
        super().__init__(groups)
        self.rates: list[tuple[float, ...]] = []
        self.first: list[torch.Tensor | None] = []
        self.made.append(self)

    def step(self) -> None:
        if not self.rates:
            self.first = [None if p.grad is None else p.grad.clone() for g in self.param_groups for p in g["params"]]
        self.rates.append(tuple(group["lr"] for group in self.param_groups))
        super().step()


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> list[Recorder]:
    Recorder.made = []
    monkeypatch.setattr(torch.optim, "AdamW", Recorder)
    return Recorder.made


def test_learning_rates_fall_along_half_a_cosine(recorder) -> None:
    quick(epochs=4, rate=4e-3, clip_rate=5e-2)(build("llama"), None)
    for optimizer in recorder:
        steps = 4 * 3  # six windows, two in a step
        assert len(optimizer.rates) == steps
        for t, rates in enumerate(optimizer.rates):
            fall = (1 + math.cos(math.pi * t / steps)) / 2
            for rate, first in zip(rates, (4e-3, 5e-2), strict=True):
                assert rate == pytest.approx(4e-6 + (first - 4e-6) * fall, rel=1e-6)
        assert [group["weight_decay"] for group in optimizer.param_groups] == [0.01, 0.01]
        assert optimizer.param_groups[0]["lr"] == pytest.approx(4e-6)


def test_gradients_are_those_of_the_logarithm_of_the_error(recorder, monkeypatch) -> None:
    """The loss is divided by its own value, so that they have one size, whatever the block's output is like."""
    made, expected = [], []
    real = flatquant._loss

    def looking(flat, parts):
        if not made or made[-1] is not flat:  # before training
            made.append(flat)
            entering, leaving = parts[0]
            error = (flat(torch.cat(entering)) - leaving).square().mean()
            wanted = [p for group in flat.groups(1.0, 1.0) for p in group["params"]]
            expected.append(torch.autograd.grad(error.log(), wanted, allow_unused=True))
        return real(flat, parts)

    monkeypatch.setattr(flatquant, "_loss", torch.enable_grad()(looking))
    quick(epochs=1)(build("llama"), None)
    for optimizer, wanted in zip(recorder, expected, strict=True):
        assert sum(g is not None for g in wanted) > 20
        for found, gradient in zip(optimizer.first, wanted, strict=True):
            assert (found is None) == (gradient is None)
            if gradient is not None:
                assert torch.allclose(found, gradient, rtol=1e-3, atol=1e-6)


def test_a_block_learns_from_what_the_unrounded_model_does(monkeypatch) -> None:
    seen = []
    real = flatquant._loss

    def looking(flat, parts):
        seen.append((torch.cat([row for rows, _ in parts for row in rows]), torch.cat([out for _, out in parts])))
        return real(flat, parts)

    monkeypatch.setattr(flatquant, "_loss", looking)
    model = build("llama")
    quick(bits=2, a_bits=2, epochs=1)(model, None)
    walk = iter(Walk(model.fork(), tokens()))
    for number in range(2):
        block = next(walk)
        entering = torch.cat(block.inputs)
        leaving = block.forward(entering)
        for inputs, targets in seen[2 * number : 2 * number + 2]:  # before and after training
            assert torch.equal(inputs, entering)
            assert torch.allclose(targets, leaving, atol=1e-5)


def test_an_error_that_is_no_number_is_refused_by_block() -> None:
    with pytest.raises(BadInput, match=r"the error of model\.layers\.0 is .* after it"):
        quick(rate=1e30, clip_rate=1e30)(build("llama"), None)


# -- GPTQ on the folded model -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_rounding_by_gptq_is_gptq_on_the_folded_model(name: str, tmp_path) -> None:
    """Moments are of inputs that the rounded blocks before give, after transforms and grids."""
    model = build(name)
    with Run(tmp_path / "ours") as run:
        ours = quick(weights="gptq")(model, None, run)
    with Run(tmp_path / "folded") as run:
        folded = quick(weights="later")(model, None, run)
    theirs = GPTQ(bits=4, group=-1, sym=True, act_order=False)(folded, None)
    for one, other in zip(ours.sites(), theirs.sites(), strict=True):
        assert torch.equal(one.quantized.codes, other.quantized.codes), one.name
    assert torch.equal(logits(ours), logits(theirs))
    recorded = (tmp_path / "ours" / "layers.json").read_text()
    assert recorded.count('"block_error"') == recorded.count('"error"') == len(list(model.sites()))


def test_a_second_walk_that_was_stopped_goes_on(tmp_path, monkeypatch) -> None:
    model = build("llama")
    with Run(tmp_path / "whole") as run:
        whole = quick(weights="gptq")(model, None, run)
    real = flatquant.compensate
    count = 0

    def stopping(*given, **settings):
        nonlocal count
        count += 1
        if count == 9:  # in the second block
            raise KeyboardInterrupt
        return real(*given, **settings)

    monkeypatch.setattr(flatquant, "compensate", stopping)
    with pytest.raises(KeyboardInterrupt), Run(tmp_path / "r") as run:
        quick(weights="gptq")(model, None, run)
    monkeypatch.setattr(flatquant, "compensate", real)
    with Run(tmp_path / "r") as run:
        again = quick(weights="gptq")(model, None, run)
    assert torch.equal(logits(whole), logits(again))


def test_a_model_in_half_the_precision_keeps_its_dtype() -> None:
    model: Model = build("qwen3")
    model.net.to(torch.bfloat16)
    found = quick(bits=16, a_bits=16, kv_bits=16)(model, None)
    assert {site.weight.dtype for site in found.sites()} == {torch.bfloat16}
    exact = logits(model).float()
    assert (logits(found).float() - exact).abs().max() < 0.1 * exact.abs().max()
