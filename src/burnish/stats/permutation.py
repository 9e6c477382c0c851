"""The sign-flip test: would paired differences this large be usual if the two sides could be swapped?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from burnish.stats.checks import count_faults
from burnish.stats.items import FloatArray, Items, Labels

Alternative = Literal["two-sided", "greater", "less"]

_EXACT = 16
"""Units up to which all 2**units sign patterns are enumerated."""
_CHUNK = 2**20
"""Signs held at once (8 MiB as floats)."""
_TIE = 1e-12
"""Totals closer than this share of the sum of magnitudes are equal: they differ only by rounding."""


@dataclass(frozen=True)
class PermutationResult:
    """What a sign-flip test found."""

    p_value: float
    estimate: float
    """Mean of b - a over the items."""
    alternative: Alternative
    n: int
    """Number of items."""
    n_clusters: int | None
    """Number of clusters that were flipped whole; None where items were."""
    method: Literal["exact", "monte-carlo"]
    draws: int
    """Sign patterns looked at: all of them when the test is exact."""


def paired_permutation(
    a: ArrayLike,
    b: ArrayLike,
    *,
    alternative: Alternative = "two-sided",
    clusters: Labels | None = None,
    draws: int = 10_000,
    seed: int = 0,
) -> PermutationResult:
    """Sign-flip test of the mean of b - a over the same items.

    Under the null hypothesis the two sides of an item (or of a whole cluster) may be swapped, which flips the sign of
    its difference. A difference of zero is unmoved by its flip, so zeros are left out of the patterns; for right/wrong
    scores the test is then the exact McNemar test. All patterns are enumerated for up to 16 units that differ. Beyond
    that `draws` random patterns are taken, and the observed one is counted among them, so that p is never 0 and the
    test stays valid (Phipson and Smyth 2010, Stat. Appl. Genet. Mol. Biol. 9:39).

    Args:
        a: (n,) measurements of one side.
        b: (n,) measurements of the other, same items, same order.
        alternative: "greater" asks whether b exceeds a, "less" whether it falls short, "two-sided" either.
        clusters: n labels; items of one label flip together.
        draws: Random patterns, unless all are enumerated.
        seed: Seed of the random patterns; the same seed gives the same result.

    Raises:
        BadInput: Lengths that differ, NaN or infinite values (rows named), no items, too few draws, an unknown
            alternative.
    """
    faults = count_faults("draws", draws, 99) + count_faults("seed", seed, 0)
    if alternative not in get_args(Alternative):
        faults.append(f"alternative: {alternative!r} is not one of {', '.join(get_args(Alternative))}")
    items = Items.of_pair(a, b, clusters, least=1, faults=faults).difference()
    sums = items.sums()[0]
    observed = float(sums.sum())
    moved = sums[sums != 0]
    exact = len(moved) <= _EXACT
    totals = _all_totals(moved) if exact else _random_totals(moved, draws, seed)
    tie = _TIE * float(np.abs(sums).sum())
    if alternative == "greater":
        extreme = totals >= observed - tie
    elif alternative == "less":
        extreme = totals <= observed + tie
    else:
        extreme = np.abs(totals) >= abs(observed) - tie
    count = int(extreme.sum())
    return PermutationResult(
        p_value=count / len(totals) if exact else (count + 1) / (len(totals) + 1),
        estimate=observed / items.n,
        alternative=alternative,
        n=items.n,
        n_clusters=items.n_clusters,
        method="exact" if exact else "monte-carlo",
        draws=len(totals),
    )


def _all_totals(sums: FloatArray) -> FloatArray:
    """The total under each of the 2**k sign patterns, (2**k,)."""
    bits = (np.arange(2 ** len(sums))[:, None] >> np.arange(len(sums))) & 1
    return (1.0 - 2.0 * bits) @ sums


def _random_totals(sums: FloatArray, draws: int, seed: int) -> FloatArray:
    """The total under each of `draws` random sign patterns, (draws,)."""
    rng = np.random.Generator(np.random.PCG64(seed))
    step = max(1, _CHUNK // len(sums))
    chunks = []
    for start in range(0, draws, step):
        bits = rng.integers(0, 2, size=(min(step, draws - start), len(sums)), dtype=np.int8)
        chunks.append((1.0 - 2.0 * bits) @ sums)
    return np.concatenate(chunks)
