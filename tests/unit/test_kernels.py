"""Compiled products against plain torch: Kronecker-sparse matrices, and Kronecker products with a grid after them."""

from __future__ import annotations

import pytest
import torch

from burnish.nn import kernels
from burnish.nn.flat import LearnedGrid
from burnish.nn.kronecker import Kronecker

pytestmark = pytest.mark.skipif(kernels.native() is None, reason="burnish-kernels is not installed")


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_the_build_for_this_processor_runs() -> None:
    assert kernels.path_taken().startswith("compiled kernels (")


@pytest.mark.parametrize("seed", range(40))
def test_kronecker_sparse_products(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    a, b, c, d = (int(torch.randint(1, top, (), generator=generator)) for top in (5, 18, 18, 40))
    batch = int(torch.randint(1, 80, (), generator=generator))
    x, weight = random(batch, a * c * d, seed=seed), random(a, b, c, d, seed=seed + 1)
    for given in (weight, weight.permute(0, 3, 1, 2).contiguous().permute(0, 2, 3, 1)):
        expected = torch.einsum("abcd,nacd->nabd", given.double(), x.double().view(batch, a, c, d))
        found = kernels.kronecker_sparse(x, given)
        assert (found - expected.reshape(batch, -1)).abs().max() <= 1e-5 * expected.abs().max()
    assert kernels.kronecker_sparse(x[:0], weight).shape == (0, a * b * d)


@pytest.mark.parametrize(("left", "right"), [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("size", [(24, 24), (32, 48), (7, 5), (1, 13), (64, 76)])
@pytest.mark.parametrize("bits", [4, 8, 16])
def test_kronecker_turns(size: tuple[int, int], left: bool, right: bool, bits: int) -> None:
    factors = (random(size[0], size[0], seed=1) if left else None, random(size[1], size[1], seed=2) if right else None)
    x = random(9, size[0] * size[1])
    plain = Kronecker(*factors, size)(x.double())
    high, low = torch.tensor(0.9), torch.tensor(0.7)
    found = kernels.kronecker_turn(x, *factors, list(size), bits, float(high), float(low)).double()
    if bits == 16:
        assert (found - plain).abs().max() <= 1e-5 * plain.abs().max()
        return
    expected = LearnedGrid(bits, True, high, low)(Kronecker(*factors, size)(x)).double()
    step = plain.abs().amax(1, keepdim=True) / (2 ** (bits - 1) - 1)
    # A number that lies between two levels to rounding may fall on either.
    off = (found - expected).abs() > 1e-4 * step
    assert off.float().mean() < 0.005
    assert ((found - expected).abs() <= 1.01 * step).all()


def test_operators_pass_torchs_own_checks() -> None:
    torch.library.opcheck(torch.ops.burnish.kronecker_sparse.default, (random(5, 24), random(2, 3, 4, 3)))
    given = (random(4, 6), random(2, 2), random(3, 3), [2, 3], 4, 0.9, 0.9)
    torch.library.opcheck(torch.ops.burnish.kronecker_turn.default, given)


def test_tensors_that_the_library_does_not_take_are_known() -> None:
    x = random(2, 2)
    assert kernels.runs_here(x, None)
    assert not kernels.runs_here(x.double())
    assert not kernels.runs_here(x.clone().requires_grad_())
    with torch.no_grad():
        assert kernels.runs_here(x.clone().requires_grad_())
