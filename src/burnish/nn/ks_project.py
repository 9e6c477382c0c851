"""The nearest product of Kronecker-sparse factors to a dense matrix, and least squares for its last factor.

Two factors L R, where R is applied first: write the rows of the product's small matrices as (i, q) and their columns as
(p, k), q and p being what the two patterns do not share. For each (p, q) what stands at (i, k) is a product of b_L × r and
r × c_R numbers that occur nowhere else, so that it is any matrix of rank r, and the nearest one is a cut singular value
decomposition. The whole is nearest, in the sum of squares.

More factors: the one that is applied last is split off with orthonormal columns inside each block, and the rest is split
further. Errors then add up as squares, and each cut is the best one given those before it (Zheng, Le, Riccietti, Gribonval,
Butterfly Factorization with Error Guarantees, 2024, who prove a bound on how far that is from the best). A matrix that is
such a product is found exactly.

The library lazylinop does this too, for unweighted errors; tests compare with it. What is here besides: inputs of different
size may count differently, and the last factor can be fitted to the layer's output.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import torch
from torch import Tensor

from burnish.core.errors import BadInput
from burnish.nn.kronecker_sparse import multiply
from burnish.nn.ks_pattern import Pattern, check_chain, pattern_of

DAMPING = 0.01
"""Fraction of the mean diagonal by which least squares hold on to the factor that was there."""
TRIED = 24
"""Pairs of patterns whose error `nearest_pair` computes."""
BLOCKS = 4
"""The fewest blocks along rows, and along columns, of a pair that `pairs` offers: with one it would be plain low rank."""


def merged(first: Pattern, second: Pattern) -> Pattern:
    """The pattern of the product of two factors, of which `first` is applied first.

    Raises:
        BadInput: the product of two such factors is no such pattern, or not block by block of one rank.
    """
    outer, inner = divmod(first.a, second.a), divmod(second.d, first.d)
    fits = first.rows == second.columns and not outer[1] and not inner[1]
    if not fits or second.c % outer[0] or first.b % inner[0]:
        raise BadInput(
            f"the factors ({first}) and ({second}) cannot be found block by block",
            "the first one's a must be a multiple of the second's, the second one's d a multiple of the first's, and "
            "c of the second and b of the first must hold what is in between",
        )
    return Pattern(second.a, second.b * inner[0], outer[0] * first.c, first.d)


def rank(first: Pattern, second: Pattern) -> int:
    """Of the blocks of the product of two factors that `merged` accepts."""
    return second.c // (first.a // second.a)


def project(weight: Tensor, patterns: Sequence[Pattern], scale: Tensor | None = None) -> list[Tensor]:
    """The factors whose product is nearest to a matrix (for three and more: by the best cut after each other).

    Args:
        weight: (outputs, inputs).
        patterns: In the order in which they are applied.
        scale: (inputs,), positive: how much an error in each column counts; all alike by default.

    Returns:
        The factors, each (a, b, c, d), in that order, in double precision; neighbours are of like size.

    Raises:
        BadInput: factors that do not fit together, or cannot be found block by block; a matrix of another size.
    """
    check_chain(patterns)
    sizes = patterns[-1].rows, patterns[0].columns
    if tuple(weight.shape) != sizes:
        raise BadInput(f"the matrix is {tuple(weight.shape)}, and the patterns {_said(patterns)} make {sizes}")
    whole = patterns[0]
    partial = [whole]
    for pattern in patterns[1:]:
        whole = merged(whole, pattern)
        partial.append(whole)
    wide = weight.double()
    rest = _read(wide if scale is None else wide * scale.double(), whole)
    found: list[Tensor] = []
    for number in range(len(patterns) - 1, 0, -1):
        last, rest = _split(rest, partial[number - 1], patterns[number])
        found.insert(0, last)
    found.insert(0, rest)
    if scale is not None:
        a, _, c, d = patterns[0].shape
        found[0] = found[0] / scale.double().view(a, 1, c, d)
    return _balanced(found)


def _said(patterns: Sequence[Pattern]) -> str:
    return " ".join(map(str, patterns))


def _read(matrix: Tensor, pattern: Pattern) -> Tensor:
    """The entries of a matrix that a pattern has, (a, b, c, d)."""
    a, b, c, d = pattern.shape
    found = matrix.reshape(a, b, d, a, c, d).diagonal(0, 0, 3).diagonal(0, 1, 3)
    return found.permute(2, 0, 1, 3)


def _blocks(weight: Tensor, first: Pattern, second: Pattern) -> Tensor:
    """The blocks that two factors approximate, each by itself: (a, p, q, d, rows, columns)."""
    p, q = first.a // second.a, second.d // first.d
    a, _, _, d = weight.shape
    return weight.reshape(a, second.b, q, p, first.c, d).permute(0, 3, 2, 5, 1, 4)


def _split(weight: Tensor, first: Pattern, second: Pattern) -> tuple[Tensor, Tensor]:
    """The second factor, with orthonormal columns in each block, and the first, both (a, b, c, d)."""
    blocks, kept = _blocks(weight, first, second), rank(first, second)
    u, s, v = torch.linalg.svd(blocks, full_matrices=False)
    # Where a block is smaller than the rank that the patterns allow, the rest of the factors is zero.
    room = max(0, kept - s.shape[-1])
    u = torch.nn.functional.pad(u[..., :kept], (0, room))
    v = torch.nn.functional.pad((s[..., None] * v)[..., :kept, :], (0, 0, 0, room))
    last = u.permute(0, 4, 1, 5, 2, 3).reshape(second.shape)
    return last, v.permute(0, 1, 4, 2, 5, 3).reshape(first.shape)


def _balanced(factors: list[Tensor]) -> list[Tensor]:
    """The same product, in which what enters and what leaves a feature between two factors is of one size."""
    found = list(factors)
    for number in range(len(found) - 1):
        first, second = found[number], found[number + 1]
        entering = first.square().sum(2).reshape(-1).sqrt()
        leaving = second.square().sum(1).reshape(-1).sqrt()
        by = torch.where((entering > 0) & (leaving > 0), (leaving / entering).sqrt(), 1.0)
        a, b, _, d = first.shape
        found[number] = first * by.view(a, b, 1, d)
        a, _, c, d = second.shape
        found[number + 1] = second / by.view(a, 1, c, d)
    return found


def refit(weight: Tensor, factors: Sequence[Tensor], hessian: Tensor, damping: float = DAMPING) -> list[Tensor]:
    """Fit the factor that is applied last to what the layer gives, with the others as they are.

    Args:
        weight: (outputs, inputs), what is approximated.
        factors: In the order in which they are applied.
        hessian: (inputs, inputs), second moments of the inputs.
        damping: How hard least squares hold on to the factor that was there, as a fraction of the mean diagonal.

    Returns:
        All factors, in double precision; with a small damping the last one minimizes tr((W - F) H (W - F)ᵀ).
    """
    wide = [factor.double() for factor in factors]

    def through(columns: Tensor) -> Tensor:
        for factor in wide[:-1]:
            columns = multiply(columns, factor, "last")
        return columns

    gram = through(through(hessian.double()).t())
    target = through(hessian.double() @ weight.double().t())
    a, b, c, d = pattern_of(wide[-1]).shape
    # Outputs with one (a, d) read the same c features: one small system for the b of them.
    inner = gram.reshape(a, c, d, a, c, d).diagonal(0, 0, 3).diagonal(0, 1, 3).permute(2, 3, 0, 1)
    cross = target.reshape(a, c, d, a, b, d).diagonal(0, 0, 3).diagonal(0, 1, 3).permute(2, 3, 0, 1)
    held = damping * inner.diagonal(0, -2, -1).mean(-1).clamp(min=1e-30)
    ridge = held[..., None, None] * torch.eye(c, dtype=inner.dtype, device=inner.device)
    before = wide[-1].permute(0, 3, 2, 1)
    found = torch.linalg.solve(inner + ridge, cross + held[..., None, None] * before)
    return [*wide[:-1], found.permute(0, 3, 2, 1)]


# -- which patterns ---------------------------------------------------------------------------------------------------


def pairs(outputs: int, inputs: int, density: float) -> list[tuple[Pattern, Pattern]]:
    """Two-factor patterns of a dense matrix, (p, r q, inputs / p, 1) and then (1, outputs / q, r p, q), within a budget.

    For each number p of blocks along the columns and q along the rows, r is the largest rank of a block for which both
    factors together hold at most `density` of the matrix's entries; r = 1 is the Monarch of the literature.

    Args:
        outputs: Rows.
        inputs: Columns.
        density: What the factors may hold, for one of the matrix.

    Raises:
        BadInput: no pair is within the budget.
    """
    found = []
    for p, q in product(_divisors(inputs), _divisors(outputs)):
        r = min(int(density / (p / inputs + q / outputs)), outputs // q, inputs // p)
        if p >= BLOCKS and q >= BLOCKS and r >= 1:
            found.append((Pattern(p, r * q, inputs // p, 1), Pattern(1, outputs // q, r * p, q)))
    if not found:
        raise BadInput(
            f"no two factors of a {outputs} x {inputs} matrix hold at most {density:g} of its entries",
            "raise the density, leave this layer out, or give its patterns",
        )
    return found


def nearest_pair(weight: Tensor, density: float, scale: Tensor | None = None) -> tuple[Pattern, Pattern]:
    """The pair of patterns within a budget whose product comes nearest to a matrix, of those that use most of it.

    Args:
        weight: (outputs, inputs).
        density: What the factors may hold, for one of the matrix.
        scale: (inputs,), as of `project`.

    Raises:
        BadInput: no pair is within the budget.
    """
    outputs, inputs = weight.shape
    offered = sorted(pairs(outputs, inputs, density), key=lambda pair: (-sum(p.nonzeros for p in pair), pair))
    wide = weight.float() if scale is None else weight.float() * scale.float()

    def kept(pair: tuple[Pattern, Pattern]) -> float:
        blocks = _blocks(_read(wide, merged(*pair)), *pair)
        return float(torch.linalg.svdvals(blocks)[..., : rank(*pair)].double().square().sum())

    return max(offered[:TRIED], key=kept)


def low_rank_error(weight: Tensor, density: float, scale: Tensor | None = None) -> float:
    """The share of a matrix's squares that the best matrix of low rank with as many numbers loses."""
    outputs, inputs = weight.shape
    kept = int(density * outputs * inputs / (outputs + inputs))
    wide = weight.float() if scale is None else weight.float() * scale.float()
    squares = torch.linalg.svdvals(wide).double().square()
    return float(squares[kept:].sum() / squares.sum().clamp(min=1e-30))


def _divisors(n: int) -> list[int]:
    return [k for k in range(1, n + 1) if n % k == 0]
