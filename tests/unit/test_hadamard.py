"""Hadamard matrices of the widths that occur."""

from __future__ import annotations

import pytest
import torch

from burnish.core.errors import Unsupported
from burnish.nn import hadamard

WIDTHS = [1, 2, 12, 20, 32, 64, 128, 576, 896, 1536, 4864]


@pytest.mark.parametrize("width", WIDTHS)
def test_orthogonal_with_entries_of_one_size(width: int) -> None:
    left, right = hadamard.factors(width)
    assert len(left) * len(right) == width
    for part in (left, right):
        assert torch.allclose(part @ part.T, torch.eye(len(part), dtype=torch.float64))
        assert torch.allclose(part.abs(), torch.full_like(part, len(part) ** -0.5))


@pytest.mark.parametrize("width", [12, 64, 576])
def test_fast_application_is_the_matrix_product(width: int) -> None:
    x = torch.randn(2, 5, width, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(hadamard.apply(x), x @ hadamard.hadamard(width))


def test_randomized_is_orthogonal_and_seeded() -> None:
    one, same, other = hadamard.randomized(36, 0), hadamard.randomized(36, 0), hadamard.randomized(36, 1)
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert torch.allclose(one.T @ one, torch.eye(36, dtype=torch.float64))


def test_an_odd_width_is_refused() -> None:
    with pytest.raises(Unsupported, match="width 7"):
        hadamard.factors(7)
