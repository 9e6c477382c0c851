"""Second moments, damping and factors."""

from __future__ import annotations

import pytest
import torch

from burnish.core.errors import BadInput
from burnish.nn.hessian import Gram, damp, factor


def test_gram_is_the_mean_outer_product() -> None:
    x = torch.randn(3, 50, 8, generator=torch.Generator().manual_seed(0))
    gram = Gram(8)
    for part in x:
        gram.add(part)
    flat = x.reshape(-1, 8).double()
    assert torch.allclose(gram.mean(), flat.T @ flat / 150, atol=1e-6)
    assert gram.tokens == 150
    assert torch.equal(gram.mean(), gram.mean().T)


def test_the_factor_inverts_the_damped_hessian() -> None:
    x = torch.randn(100, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    hessian = x.T @ x / 100
    found = factor(hessian, 0.01)
    assert torch.equal(found.upper, found.upper.triu())
    assert torch.allclose(found.upper.T @ found.upper @ damp(hessian, 0.01), torch.eye(12, dtype=torch.float64))
    assert found.damping == 0.01
    assert found.note == ""


def test_features_that_never_occur_stand_alone() -> None:
    hessian = torch.diag(torch.tensor([1.0, 0.0, 2.0], dtype=torch.float64))
    found = factor(hessian)
    assert found.upper[1, 1] == 1
    assert (found.upper[1, 2:] == 0).all()
    assert "1 of 3 inputs are always zero" in found.note


def test_a_rank_one_hessian_is_factorized() -> None:
    ones = torch.ones(64, 64, dtype=torch.float64)
    found = factor(ones)
    assert torch.isfinite(found.upper).all()


def test_an_indefinite_matrix_raises_the_damping_and_says_so() -> None:
    hessian = torch.eye(4, dtype=torch.float64)
    hessian[0, 1] = hessian[1, 0] = 1.055
    found = factor(hessian, 0.01)
    assert 0.05 < found.damping <= 0.07
    assert "damping raised" in found.note


def test_a_hopeless_matrix_and_nan_are_refused() -> None:
    with pytest.raises(BadInput, match="cannot be factorized"):
        factor(torch.tensor([[1.0, 9.0], [9.0, 1.0]], dtype=torch.float64))
    with pytest.raises(BadInput, match="not finite"):
        factor(torch.full((2, 2), float("nan"), dtype=torch.float64))


def test_many_heads_at_once() -> None:
    many = torch.stack([torch.eye(3, dtype=torch.float64) * s for s in (1.0, 4.0)])
    found = factor(many, 1e-9)
    assert torch.allclose(found.upper[1], torch.eye(3, dtype=torch.float64) / 2, atol=1e-6)
