"""Corrections for asking several questions of one set of results."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from burnish.core.errors import BadInput
from burnish.stats.checks import count_faults, level_faults
from burnish.stats.interval import Interval
from burnish.stats.items import Items, Labels

_AT_ONCE = 1000
"""Draws made at once."""


def holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """Holm's step-down adjusted p-values, (m,), in the order given (Holm 1979, Scand. J. Statist. 6:65-70).

    Rejecting where the adjusted value is at most alpha keeps the chance of any false rejection at most alpha,
    however the tests depend on one another.

    Raises:
        BadInput: Not a flat list of numbers in [0, 1].
    """
    p = _flat(p_values)
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), 1.0)
    return adjusted


def bonferroni_level(level: float, m: int) -> float:
    """The level that each of `m` intervals needs so that all hold together with probability at least `level`.

    Raises:
        BadInput: `level` is not in (0, 1) or `m` is not a whole number of at least 1.
    """
    faults = level_faults(level) + count_faults("m", m, 1)
    if faults:
        raise BadInput.of("no Bonferroni level", faults)
    return 1 - (1 - level) / m


def benjamini_hochberg(p_values: ArrayLike) -> NDArray[np.float64]:
    """Benjamini and Hochberg's adjusted p-values, (m,), in the order given (1995, J. R. Statist. Soc. B 57:289-300).

    Rejecting where the adjusted value is at most q keeps the expected share of false ones among the rejected at most q,
    for independent or positively dependent tests.

    Raises:
        BadInput: Not a flat list of numbers in [0, 1].
    """
    from scipy.stats import false_discovery_control

    p = _flat(p_values)
    return np.asarray(false_discovery_control(p)) if len(p) else p


def max_t(
    columns: ArrayLike,
    *,
    clusters: Labels | None = None,
    level: float = 0.95,
    draws: int = 10_000,
    seed: int = 0,
) -> list[Interval]:
    """Intervals of the mean of each column that hold all together with probability `level`.

    The columns are measurements of the same items, such as differences of several models from a baseline. Because they
    depend on one another, the quantile of the largest |t| among them is smaller than Bonferroni's. It comes from
    multiplying each unit's deviation by a random normal number (the multiplier bootstrap), and is then carried to the
    tails of Student's t by matching probabilities.

    Args:
        columns: (n, m).
        clusters: n labels; items of one label are one unit.
        level: Nominal coverage of all intervals together.
        draws: Draws of the largest |t|.
        seed: Seed of the draws.

    Raises:
        BadInput: Values or labels that cannot be used.
    """
    faults = level_faults(level) + count_faults("draws", draws, 100) + count_faults("seed", seed, 0)
    items = Items.of(columns, clusters, faults=faults)
    means = items.values.mean(axis=0)
    deviations = items.sums() - means[:, None] * items.sizes()
    spread = np.sqrt((deviations**2).sum(axis=1))
    moving = spread > 1e-12 * (np.abs(means) + np.abs(items.values).max(axis=0)) * items.n
    errors = np.where(moving, spread * np.sqrt(items.units / (items.units - 1)) / items.n, 0.0)
    quantile = 0.0
    if moving.any():
        rng = np.random.Generator(np.random.PCG64(seed))
        standard = deviations[moving] / spread[moving, None]
        largest = np.concatenate(
            [
                np.abs(rng.standard_normal((min(_AT_ONCE, draws - start), items.units)) @ standard.T).max(axis=1)
                for start in range(0, draws, _AT_ONCE)
            ]
        )
        tail = special.ndtr(-np.quantile(largest, level))
        quantile = -float(special.stdtrit(items.units - 1, tail))
    note = "zero width: equal values are not certainty"
    return [
        Interval(float(m), float(m - quantile * e), float(m + quantile * e), level, items.n, items.n_clusters, "max-t",
                 "" if e > 0 else note)
        for m, e in zip(means, errors, strict=True)
    ]  # fmt: skip


def _flat(p_values: ArrayLike) -> NDArray[np.float64]:
    try:
        p = np.asarray(p_values, dtype=np.float64)
    except (TypeError, ValueError):
        raise BadInput("p_values is not a list of numbers") from None
    if p.ndim != 1:
        raise BadInput(f"p_values has the shape {p.shape}, and (m,) is needed")
    wrong = np.flatnonzero(~((p >= 0) & (p <= 1)))
    if len(wrong):
        raise BadInput.of("p-values must lie in [0, 1]", [f"number {i} (from 0): {p[i]}" for i in wrong])
    return p
