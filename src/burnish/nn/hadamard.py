"""Hadamard matrices of any order that occurs as a layer's width, and their fast application.

A width n = odd part times a power of two is split as n = k * 2^m, where k is the smallest order for which a Hadamard
matrix is stored (1, 12, 20, 28, 36, …): H_n = H_k ⊗ H_2^m. The stored matrices come with compressed-tensors.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor

from burnish.core.errors import Unsupported


@cache
def _stored(order: int) -> Tensor | None:
    """The stored ±1 matrix of `order`, or None."""
    from safetensors import safe_open

    found = find_spec("compressed_tensors")
    assert found is not None
    assert found.origin is not None
    table = Path(found.origin).parent / "transform" / "utils" / "hadamards.safetensors"
    with safe_open(str(table), framework="pt") as file:
        return file.get_tensor(str(order)).double() if str(order) in file.keys() else None  # noqa: SIM118


@cache
def _sylvester(order: int) -> Tensor:
    matrix = torch.ones(1, 1, dtype=torch.float64)
    while len(matrix) < order:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return matrix


@cache
def factors(width: int) -> tuple[Tensor, Tensor]:
    """The orthogonal factors (H_k, H_2^m) of the Hadamard matrix of `width`, float64, each with norm-one rows.

    Raises:
        Unsupported: no Hadamard matrix of this order is known here.
    """
    power = width & -width
    while power >= 1:
        odd = width // power
        matrix = torch.ones(1, 1, dtype=torch.float64) if odd == 1 else _stored(odd)
        if matrix is not None:
            return matrix / odd**0.5, _sylvester(power) / power**0.5
        power //= 2
    raise Unsupported(f"a Hadamard transform of width {width}", "no Hadamard matrix of that order is stored")


def hadamard(width: int) -> Tensor:
    """The orthogonal Hadamard matrix of `width`, (width, width) float64."""
    return torch.kron(*factors(width))


def apply(x: Tensor) -> Tensor:
    """x H along the last dimension, without forming H: two small products."""
    left, right = (f.to(x.device, x.dtype) for f in factors(x.shape[-1]))
    shaped = x.reshape(*x.shape[:-1], len(left), len(right))
    return (left.T @ shaped @ right).reshape(x.shape)


def randomized(width: int, seed: int) -> Tensor:
    """A Hadamard matrix whose rows have random signs: orthogonal, (width, width) float64 (QuaRot's R1)."""
    generator = torch.Generator().manual_seed(seed)
    signs = torch.randint(0, 2, (width, 1), generator=generator, dtype=torch.float64) * 2 - 1
    return signs * hadamard(width)
