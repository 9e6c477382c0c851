"""QuEST's grids, masks and rotations against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import norm
from torch import nn

from burnish.core.errors import Unsupported
from burnish.nn.gaussian import TERNARY, best_clip, levels, mean_squared_error
from burnish.nn.quest import LSQ, PACT, RELEASED, QuantizedLinear, Quantizer, block_of, largest, rotate, to_grid

BITS = [1, TERNARY, 2, 3, 4, 5, 6, 7, 8]


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# -- grids ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bits", "error"), [(1, 0.36338), (2, 0.118846), (3, 0.0374397), (4, 0.0115429), (8, 8.782e-5)]
)
def test_released_clips_have_the_error_that_is_known(bits: int, error: float) -> None:
    assert mean_squared_error(bits, RELEASED[bits]) == pytest.approx(error, rel=1e-4)


@pytest.mark.parametrize("bits", BITS)
def test_the_error_in_closed_form_is_the_integral(bits: float) -> None:
    clip = best_clip(bits)
    points = levels(bits, clip)
    borders = [-np.inf, *((points[1:] + points[:-1]) / 2), np.inf]
    total = sum(
        quad(lambda x, p=point: (x - p) ** 2 * norm.pdf(x), low, high)[0]
        for point, low, high in zip(points, borders[:-1], borders[1:], strict=True)
    )
    assert mean_squared_error(bits, clip) == pytest.approx(total, rel=1e-6)
    assert mean_squared_error(bits, clip) <= min(mean_squared_error(bits, clip * by) for by in (0.98, 1.02))


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 5, 6])
def test_released_clips_are_the_best_up_to_6_bits(bits: int) -> None:
    assert best_clip(bits) == pytest.approx(RELEASED[bits], abs=2e-3)


@pytest.mark.parametrize(("bits", "clip"), [(7, 3.6111), (8, 3.9222)])
def test_released_clips_of_7_and_8_bits_are_kept_though_others_are_better(bits: int, clip: float) -> None:
    assert best_clip(bits) == pytest.approx(clip, abs=1e-3)
    assert 1 < mean_squared_error(bits, RELEASED[bits]) / mean_squared_error(bits, clip) < 1.002


def test_the_best_ternary_clip_is_that_of_the_released_code() -> None:
    assert best_clip(TERNARY) == pytest.approx(1.2240, abs=1e-3)


@pytest.mark.parametrize("bits", BITS)
def test_a_grid_gives_the_nearest_of_its_levels(bits: float) -> None:
    x = random(400) * 2
    scale = torch.tensor(1.7)
    points = torch.tensor(levels(bits, 1.7), dtype=torch.float32)
    nearest = points[(x[:, None] - points).abs().argmin(1)]
    assert torch.allclose(to_grid(x, scale, bits), nearest, atol=1e-5)
    assert (0.0 in points.tolist()) == (bits == TERNARY)


# -- rotations --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "block"), [(576, 64), (1536, 128), (896, 128), (100, 4), (97, 1), (128, 128)])
def test_blocks_are_the_largest_power_of_two_that_divides_the_width(width: int, block: int) -> None:
    assert block_of(width) == block
    x = random(3, width)
    assert torch.allclose(rotate(rotate(x)), x, atol=1e-5)
    assert torch.allclose(rotate(x).norm(dim=1), x.norm(dim=1), rtol=1e-4)


@pytest.mark.parametrize("width", [100, 576])
@pytest.mark.parametrize("bias", [True, False])
def test_the_rotations_of_both_factors_cancel(width: int, bias: bool) -> None:
    plain = nn.Linear(width, 32, bias)
    layer = QuantizedLinear.of(plain, Quantizer(16), Quantizer(16))
    x = random(5, 7, width)
    assert torch.allclose(layer(x), plain(x), atol=1e-5)
    full = QuantizedLinear.of(plain, Quantizer(16, "full"), Quantizer(16, "full"))
    assert torch.allclose(full(x), plain(x), atol=1e-5)


def test_a_model_that_was_looked_at_in_inference_mode_can_be_trained() -> None:
    layer = QuantizedLinear.of(nn.Linear(16, 4), Quantizer(4), Quantizer(4))
    with torch.inference_mode():
        layer(random(2, 16))
    layer(random(2, 16)).sum().backward()
    assert layer.weight.grad.norm() > 0


def test_one_rotated_factor_alone_is_refused() -> None:
    with pytest.raises(ValueError, match="their product means nothing"):
        QuantizedLinear.of(nn.Linear(64, 8), Quantizer(4, "half"), Quantizer(4, "none"))


def test_both_forms_of_hadamard_give_one_product() -> None:
    plain = nn.Linear(128, 32)
    x = random(5, 128)
    half, full = (QuantizedLinear.of(plain, Quantizer(4, form), Quantizer(4, form)) for form in ("half", "full"))
    assert torch.allclose(half(x), full(x), atol=1e-5)


# -- gradients --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [1, 2, 4])
@pytest.mark.parametrize("rule", ["trust", "clip", "ste"])
@pytest.mark.parametrize("rotation", ["half", "full", "none"])
def test_a_gradient_is_the_mask_in_the_rotated_domain(bits: int, rule: str, rotation: str) -> None:
    quantizer = Quantizer(bits, rotation, rule, width=1.25 if rule == "clip" else None)
    x = random(6, 128).requires_grad_()
    weights = random(6, 128, seed=1)
    (quantizer(x) * weights).sum().backward()
    turned = x.detach() if rotation == "none" else rotate(x.detach())
    sigma = turned.square().mean(1, keepdim=True).sqrt()
    clip = RELEASED[bits]
    rounded = to_grid(turned, clip * sigma, bits)
    kept = {
        "trust": (rounded - turned).abs() <= sigma * clip / (2**bits - 1),
        "clip": turned.abs() <= 1.25 * clip * sigma,
        "ste": torch.ones_like(turned, dtype=torch.bool),
    }[rule]
    if rotation == "none":
        expected = kept * weights
    else:
        expected = rotate(kept * (weights if rotation == "half" else rotate(weights)))
    assert torch.allclose(x.grad, expected, atol=1e-5)
    assert rule == "ste" or not kept.all()
    plain = rounded if rotation != "full" else rotate(rounded)
    assert torch.allclose(quantizer(x.detach()), plain, atol=1e-5)


def test_evaluation_mode_rounds_too_and_half_precision_works() -> None:
    layer = QuantizedLinear.of(nn.Linear(128, 16), Quantizer(2), Quantizer(2))
    x = random(3, 128)
    assert torch.equal(layer.eval()(x), layer.train()(x))
    assert not torch.allclose(layer(x), nn.functional.linear(x, layer.weight, layer.bias), atol=1e-2)
    assert layer.bfloat16()(x.bfloat16()).dtype == torch.bfloat16


@pytest.mark.parametrize("bits", [4, 8])
def test_half_precision_trusts_what_single_precision_trusts(bits: int) -> None:
    quantizer = Quantizer(bits, "none")
    x = random(64, 128).bfloat16()
    assert torch.equal(quantizer.mask(x).float(), quantizer.mask(x.float()))
    # All that lies inside the grid is within half a step of a level.
    inside = x.float().abs() <= quantizer.scale(x.float())
    assert quantizer.mask(x)[inside].all()


@pytest.mark.parametrize("bits", [1, 2, 3, 4, TERNARY])
def test_a_row_of_zeros_can_learn(bits: float) -> None:
    x = torch.zeros(2, 128, requires_grad=True)
    found = Quantizer(bits)(x)
    assert found.isfinite().all()
    assert found.abs().max() < 1e-6
    found.sum().backward()
    assert x.grad.norm() > 1


@pytest.mark.parametrize(("pattern", "unit"), [("2:4", 1), ("4:8", 2)])
def test_a_sparse_pattern_drops_the_smaller_half_of_each_four_units(pattern: str, unit: int) -> None:
    x = random(3, 128)
    units, kept = x.unflatten(1, (-1, 4, unit)), largest(x, pattern).bool().unflatten(1, (-1, 4, unit))
    assert (kept.all(-1) == kept.any(-1)).all()  # a pair is dropped or kept whole
    for group, mask in zip(units.flatten(0, 1), kept.all(-1).flatten(0, 1), strict=True):
        assert mask.sum() == 2
        assert group.norm(dim=-1)[mask].min() >= group.norm(dim=-1)[~mask].max()
    dense, sparse = Quantizer(4, "none"), Quantizer(4, "none", sparse=pattern)
    assert torch.equal(sparse(x), dense(x) * kept.flatten(1))
    # What was dropped is trusted where it was small: within half a step of 0.
    assert torch.equal(sparse.mask(x).bool(), (sparse(x) - x).abs() <= dense.scale(x) / 15)
    with pytest.raises(Unsupported, match="no multiple"):
        largest(x[:, : 3 * unit], pattern)


def test_a_layer_is_made_without_a_random_draw() -> None:
    plain = nn.Linear(32, 8)
    before = torch.random.get_rng_state()
    layer = QuantizedLinear.of(plain, LSQ(4), LSQ(4))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert layer.weight is plain.weight
    assert layer.bias is plain.bias


# -- baselines --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [0, 32])
def test_a_learned_step_learns(rows: int) -> None:
    layer = LSQ(2, rows)
    x = random(32, 64)
    best = (layer(x) - x).square().mean().item()
    with torch.no_grad():
        layer.step *= 3
    optimizer = torch.optim.SGD(layer.parameters(), lr=1.0 if not rows else 10.0)
    for _ in range(400):
        loss = (layer(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 1.1 * best


@pytest.mark.parametrize("bits", [1, 2, 4])
@pytest.mark.parametrize("rows", [0, 6])
def test_a_learned_step_and_its_gradients_are_those_of_their_definition(bits: int, rows: int) -> None:
    layer, x, weights = LSQ(bits, rows), random(6, 64).requires_grad_(), random(6, 64, seed=1)
    found = layer(x)
    (found * weights).sum().backward()
    top = 2 ** (bits - 1)
    squares = x.detach().square()
    step = 2 * RELEASED[bits] * (squares.mean(1, keepdim=True) if rows else squares.mean()).sqrt() / (2**bits - 1)
    assert torch.allclose(layer.step.detach(), step.flatten() if rows else step, rtol=1e-5)
    levels = torch.floor(x.detach() / step) + 0.5  # half-integers, the nearest to each number
    inside = levels.abs() < top
    levels = levels.clamp(-top + 0.5, top - 0.5)
    assert torch.allclose(found.detach(), levels * step, atol=1e-5)
    within = (x.detach() / step).abs() <= top - 0.5
    assert torch.equal(x.grad != 0, within & (weights != 0))
    moved = torch.where(within, levels - x.detach() / step, levels) * weights
    scale = ((64 if rows else 6 * 64) * max(top - 1, 1)) ** -0.5
    expected = moved.sum(1) * scale if rows else moved.sum() * scale
    assert torch.allclose(layer.step.grad, expected, rtol=1e-3, atol=1e-4)
    assert inside.any()


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 8])
def test_learned_grids_begin_as_good_as_fixed_ones(bits: int) -> None:
    x = random(1, 4096)
    best = (Quantizer(bits, "none")(x) - x).square().mean()
    for layer in (LSQ(bits), LSQ(bits, 1), PACT(bits)):
        assert (layer(x) - x).square().mean().item() == pytest.approx(best.item(), rel=1e-3)


@pytest.mark.parametrize("make", [LSQ, PACT])
def test_learned_grids_have_few_levels_and_remember_that_they_have_begun(make) -> None:
    layer = make(2)
    x = random(32, 64)
    assert len(set(layer(x).detach().flatten().tolist())) <= 4
    again = make(2)
    again.load_state_dict(layer.state_dict())
    again(10 * x)  # would set the step anew, had it not begun
    assert torch.equal(next(again.parameters()), next(layer.parameters()))
