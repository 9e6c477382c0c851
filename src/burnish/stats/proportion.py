"""One proportion: how often a model is right, from k right answers of n independent items.

The paper "Position: don't use the CLT in LLM evals with fewer than a few hundred datapoints" (arXiv 2503.01747) asks
for an interval that is right for few items. `exact_coverage` computes, without simulation, how often each method's
interval holds the true proportion; docs/statistics.md shows the table.
"""

from __future__ import annotations

from typing import Literal, cast, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from burnish.core.errors import BadInput, UnknownName
from burnish.stats.checks import count_faults, is_number, level_faults
from burnish.stats.interval import Interval
from burnish.stats.items import FloatArray

Method = Literal["beta", "jeffreys", "wilson", "clopper-pearson", "wald", "student-t", "bootstrap"]

_TIE = 1e-12
"""A bound this close to the true value counts as holding it: the two differ by rounding alone."""


def proportion(successes: int, n: int, method: str = "beta", level: float = 0.95) -> Interval:
    """Interval of the probability of success, from `successes` of `n` independent items.

    * beta: equal-tailed quantiles of the posterior Beta(1 + k, 1 + n - k) under a uniform prior
    * jeffreys: the same under the prior Beta(1/2, 1/2)
    * wilson: inversion of the score test (Wilson 1927)
    * clopper-pearson: inversion of the exact binomial test; never covers less than `level`
    * wald: the central limit theorem, k/n +- z sqrt(k/n (1 - k/n) / n); a baseline, far too narrow for few items
    * student-t: the same with the sample variance and n - 1 degrees of freedom; no better at the edges
    * bootstrap: the percentile bootstrap; of 0/1 scores its distribution is binomial, so no draws are needed

    The estimate is the observed share k/n, whatever the method. Bounds are kept on [0, 1].

    Raises:
        BadInput: Counts that are no counts, more successes than items, a level out of (0, 1); student-t of one item.
        UnknownName: No such method.
    """
    faults = level_faults(level) + count_faults("successes", successes, 0) + count_faults("n", n, 1)
    if not faults and successes > n:
        faults.append(f"successes: {successes} of only {n} items")
    if not faults and method == "student-t" and n < 2:
        faults.append("n: student-t needs at least 2 items")
    if faults:
        raise BadInput.of("no interval of a proportion", faults)
    low, high = (float(bound[0]) for bound in bounds(np.array([successes]), n, method, level))
    notes = []
    if low < 0 or high > 1:
        notes.append(f"{method} reached beyond the scale: [{low:.3g}, {high:.3g}] before it was cut to [0, 1]")
        low, high = max(low, 0.0), min(high, 1.0)
    if low == high:
        notes.append(f"zero width: {n} equal scores have no spread, which is not certainty; use beta or wilson")
    return Interval(successes / n, low, high, level, int(n), None, method, "; ".join(notes))


def bounds(k: ArrayLike, n: int, method: str, level: float) -> tuple[FloatArray, FloatArray]:
    """Lower and upper bounds for each count of successes in `k`, as the formula gives them: not cut to [0, 1].

    Raises:
        UnknownName: No such method.
    """
    if method not in get_args(Method):
        raise UnknownName("interval of a proportion", method, get_args(Method))
    k = np.asarray(k, dtype=np.float64)
    share, tail = k / n, (1 - level) / 2
    if method in ("beta", "jeffreys"):
        prior = 1.0 if method == "beta" else 0.5
        a, b = k + prior, n - k + prior
        return special.betaincinv(a, b, tail), special.betainccinv(a, b, tail)
    if method == "clopper-pearson":
        low = np.where(k > 0, special.betaincinv(np.maximum(k, 1), n - k + 1, tail), 0.0)
        high = np.where(k < n, special.betainccinv(k + 1, np.maximum(n - k, 1), tail), 1.0)
        return low, high
    z = -special.ndtri(tail)
    if method == "wilson":
        centre = (share + z**2 / (2 * n)) / (1 + z**2 / n)
        half = z / (1 + z**2 / n) * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
        # At the edges the bound is 0 or 1 exactly, and the difference of two rounded numbers is not.
        return np.where(k > 0, centre - half, 0.0), np.where(k < n, centre + half, 1.0)
    if method == "bootstrap":
        from scipy import stats

        return stats.binom.ppf(tail, n, share) / n, stats.binom.ppf(1 - tail, n, share) / n
    if method == "student-t":
        half = -special.stdtrit(n - 1, tail) * np.sqrt(share * (1 - share) / (n - 1))
    else:
        half = z * np.sqrt(share * (1 - share) / n)
    return share - half, share + half


def exact_coverage(
    method: str,
    n: int,
    level: float = 0.95,
    *,
    prior: tuple[float, float] = (1.0, 1.0),
    theta: float | None = None,
) -> float:
    """How often the interval of `n` items holds the true proportion; a finite sum, no simulation.

    Args:
        method: As in `proportion`.
        n: Items.
        level: Nominal coverage.
        prior: Average over true proportions from this Beta distribution (the default is uniform).
        theta: One fixed true proportion instead.

    Raises:
        BadInput: A count, level, prior or proportion out of range.
        UnknownName: No such method.
    """
    faults = level_faults(level) + count_faults("n", n, 2 if method == "student-t" else 1)
    if theta is not None and not (is_number(theta) and 0 <= theta <= 1):
        faults.append(f"theta: {theta!r} is not in [0, 1]")
    if not (len(prior) == 2 and all(is_number(part) and 0 < part < np.inf for part in prior)):
        faults.append(f"prior: {prior!r} are not two positive numbers")
    if faults:
        raise BadInput.of("no coverage", faults)
    from scipy import stats

    k = np.arange(n + 1)
    low, high = bounds(k, n, method, level)
    if theta is not None:
        held = (low <= theta + _TIE) & (theta - _TIE <= high)
        return float(stats.binom.pmf(k, n, theta) @ held)
    a, b = prior
    inside = special.betainc(a + k, b + n - k, np.clip(high, 0, 1)) - special.betainc(
        a + k, b + n - k, np.clip(low, 0, 1)
    )
    return float(stats.betabinom.pmf(k, n, a, b) @ inside)


def methods() -> tuple[Method, ...]:
    """Names of the methods of `proportion`."""
    return cast("tuple[Method, ...]", get_args(Method))
