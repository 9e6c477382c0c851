"""Kronecker-factored transforms of a layer's inputs: two small matrices that stand for one large one.

A vector of n = l·r features, read as an (l, r) matrix X, becomes LᵀXR: the row-major flattening of that is the vector
times the Kronecker product L ⊗ R. It costs n (l + r) multiplications instead of n².
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations


def balanced(n: int) -> tuple[int, int]:
    """The divisors l ≤ r of n with l·r = n that are nearest to each other; (1, n) for a prime."""
    left = next(d for d in range(math.isqrt(n), 0, -1) if n % d == 0)
    return left, n // left


@dataclass(frozen=True)
class Kronecker:
    """L ⊗ R, either of which may be left out: then it is the identity.

    Attributes:
        left: (l, l), or None.
        right: (r, r), or None.
        size: (l, r).
    """

    left: Tensor | None
    right: Tensor | None
    size: tuple[int, int]

    def __call__(self, x: Tensor) -> Tensor:
        """``x (L ⊗ R)`` over the last dimension; x is (…, l·r) and keeps its dtype."""
        shaped = x.reshape(*x.shape[:-1], *self.size)
        if self.right is not None:
            shaped = shaped @ self.right.to(x.dtype)
        if self.left is not None:
            shaped = self.left.to(x.dtype).T @ shaped
        return shaped.reshape(x.shape)

    def full(self) -> Tensor:
        """The whole matrix, (l·r, l·r)."""
        some = next(t for t in (self.left, self.right) if t is not None)
        left, right = (
            torch.eye(n, dtype=some.dtype, device=some.device) if t is None else t
            for t, n in zip((self.left, self.right), self.size, strict=True)
        )
        return torch.kron(left.contiguous(), right.contiguous())


class SVDFactor(nn.Module):
    """An invertible (n, n) matrix U diag(s) Vᵀ with U and V orthogonal by Cayley's map; it starts at U Vᵀ, random.

    The inverse transpose is U diag(1/s) Vᵀ: no matrix is ever inverted.
    """

    def __init__(self, n: int, generator: torch.Generator) -> None:
        super().__init__()
        self.u, self.v = _orthogonal(n, generator), _orthogonal(n, generator)
        self.scale = nn.Parameter(torch.ones(n))

    def pair(self) -> tuple[Tensor, Tensor]:
        """The matrix and its inverse transpose."""
        u: Tensor = self.u.weight
        v: Tensor = self.v.weight
        return u * self.scale @ v.T, u / self.scale @ v.T


class FreeFactor(nn.Module):
    """An (n, n) matrix without a structure, which starts orthogonal and random; it is inverted in double precision."""

    def __init__(self, n: int, generator: torch.Generator) -> None:
        super().__init__()
        self.matrix = nn.Parameter(_random_rotation(n, generator))

    def pair(self) -> tuple[Tensor, Tensor]:
        """The matrix and its inverse transpose."""
        inverse = torch.linalg.inv(self.matrix.double()).T
        return self.matrix, inverse.to(self.matrix.dtype)


Factor = SVDFactor | FreeFactor


def _orthogonal(n: int, generator: torch.Generator) -> nn.Linear:
    """A module whose weight is orthogonal, (n, n), and starts at a random rotation."""
    holder = nn.Linear(n, n, bias=False)
    holder.weight.data = _random_rotation(n, generator)
    parametrizations.orthogonal(holder, orthogonal_map="cayley")
    return holder


def _random_rotation(n: int, generator: torch.Generator) -> Tensor:
    """A rotation drawn evenly: the Q of a Gaussian matrix, with the signs that make it unique."""
    q, r = torch.linalg.qr(torch.randn(n, n, generator=generator, dtype=torch.float64))
    q = q * r.diagonal().sign()
    # Cayley's map reaches rotations only: determinant 1.
    if torch.linalg.det(q) < 0:
        q[:, 0] = -q[:, 0]
    return q.float()
