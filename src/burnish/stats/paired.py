"""Two models on the same items, right or wrong: how much better is one, and how sure is that?

The items make a 2 x 2 table: both right, only A right, only B right, neither. The Bayesian model is the paper's (arXiv
2503.01747): an item is a pair of standard normals of correlation rho, and each model is right where its own lies below
its own threshold; theta_A, theta_B ~ U(0, 1); rho = 2 Beta(4, 2) - 1.

The paper's code draws 10,000 times from the prior and weighs the draws by the likelihood. From about 100 items on only
a few draws carry all the weight (1 to 3 of them at 1000 items), so that its interval is a few random points. Here the
posterior is summed on a lattice in (difference and mean of the two thresholds, atanh rho): no draws, as exact for 3
items as for 20,000, and the same for A against B as for B against A.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from scipy import special
from scipy.interpolate import CubicSpline
from scipy.optimize import brentq

from burnish.core.errors import BadInput, UnknownName
from burnish.stats import binormal
from burnish.stats.checks import count_faults, level_faults
from burnish.stats.interval import Interval
from burnish.stats.items import FloatArray
from burnish.stats.lattice import fill

Method = Literal["probit", "tango", "wald", "bootstrap"]
Table = tuple[int, int, int, int]
"""Both right, only A right, only B right, neither."""

_POINTS = (40, 28, 32)
"""Lattice points in difference of thresholds, mean of thresholds, and atanh of the correlation."""
_REACH = 6.0
"""Half the width of the first box, in rough standard errors."""
_DRAWS = 10_000
_TINY = 1e-300
_FAR = 1e9
"""A score that no quantile reaches."""


@dataclass(frozen=True)
class PairedResult:
    """A comparison of two models A and B."""

    interval: Interval
    """Of the measure named in `measure`, A against B."""
    p_better: float
    """P(A > B) given the data. Methods without a prior give the share of their confidence distribution above 0: one
    minus the one-sided p-value against "A is not better"."""
    mean: float
    """Posterior mean of the measure; the estimate, for methods without a prior."""
    measure: Literal["difference", "odds-ratio"] = "difference"

    def mirrored(self) -> PairedResult:
        """The same comparison, B against A; of a difference."""
        found = self.interval
        flipped = replace(found, estimate=0.0 - found.estimate, low=0.0 - found.high, high=0.0 - found.low)
        return replace(self, interval=flipped, p_better=1 - self.p_better, mean=0.0 - self.mean)


def paired_binary(
    both: int, only_a: int, only_b: int, neither: int, method: str = "probit", level: float = 0.95, seed: int = 0
) -> PairedResult:
    """theta_A - theta_B from paired right or wrong answers to the same items.

    * probit: equal-tailed quantiles of the posterior of the model above; deterministic, whatever the seed
    * tango: Tango's score interval (1998, Stat. Med. 17:891), the frequentist twin
    * wald: the central limit theorem on the differences of items; a baseline
    * bootstrap: percentile bootstrap over items, 10,000 draws; a baseline

    The estimate is the observed difference.

    Raises:
        BadInput: Counts that are no counts, no items, a level out of (0, 1), a seed that is none.
        UnknownName: No such method.
    """
    if method not in get_args(Method):
        raise UnknownName("interval of paired answers", method, get_args(Method))
    table = _checked(both, only_a, only_b, neither, level_faults(level) + count_faults("seed", seed, 0))
    if only_b > only_a:
        # One side is computed and the other mirrored, so that they agree to the last bit.
        return paired_binary(both, only_b, only_a, neither, method, level, seed).mirrored()
    n = sum(table)
    estimate = (only_a - only_b) / n
    ways: dict[str, Callable[[], tuple[float, float, float, float]]] = {
        "probit": lambda: _probit(table, level),
        "tango": lambda: _tango(only_a, only_b, n, level),
        "wald": lambda: _wald(only_a, only_b, n, level),
        "bootstrap": lambda: _bootstrap(table, level, seed),
    }
    low, high, better, mean = ways[method]()
    if only_a == only_b:
        low, high = _symmetric(low, high)
        better, mean = 0.5, 0.0
    notes = []
    if low < -1 or high > 1:
        notes.append(f"{method} reached beyond the scale: [{low:.3g}, {high:.3g}] before it was cut to [-1, 1]")
        low, high = max(low, -1.0), min(high, 1.0)
    if low == high:
        notes.append("zero width: equal differences are not certainty; use probit or tango")
    return PairedResult(Interval(estimate, low, high, level, n, None, method, "; ".join(notes)), better, mean)


def mcnemar(only_a: int, only_b: int, mid: bool = True) -> float:
    """Two-sided p-value of "both are right equally often", from the items on which they differ.

    The exact binomial test, or with `mid` its mid-p form (half the probability of the observed table counts), which is
    less conservative and still holds its level in practice (Fagerland et al. 2013, BMC Med. Res. Methodol. 13:91).

    Raises:
        BadInput: Counts that are no counts.
    """
    faults = count_faults("only_a", only_a, 0) + count_faults("only_b", only_b, 0)
    if faults:
        raise BadInput.of("no McNemar test", faults)
    n, least = only_a + only_b, min(only_a, only_b)
    if not n:
        return 1.0
    up_to = float(special.bdtr(least, n, 0.5))
    observed = up_to - (float(special.bdtr(least - 1, n, 0.5)) if least else 0.0)
    # With equal counts the two tails overlap in the observed table, and mid-p takes its probability off the whole.
    return min((1.0 if only_a == only_b else 2 * up_to) - (observed if mid else 0.0), 1.0)


def _probit(table: Table, level: float) -> tuple[float, float, float, float]:
    """Lower bound, upper bound, P(A > B) and mean of the posterior of theta_A - theta_B."""
    lattice = fill(lambda axes: _log_posterior(table, axes), _first_box(table), _POINTS)
    gaps, means = lattice.axes[0], lattice.axes[1]
    # Summed over the correlation; then, for each mean, a spline of the probability of at most each gap.
    mass = lattice.mass.sum(axis=2)
    cumulative = CubicSpline(gaps, mass / (gaps[1] - gaps[0])).antiderivative()
    total = float(cumulative(gaps[-1]).sum())
    columns = np.arange(len(means))
    # Where each mean's gap was last found: the next one is near.
    at = np.full(len(means), (gaps[0] + gaps[-1]) / 2)

    def below(delta: float) -> float:
        """Posterior probability of theta_A - theta_B <= delta."""
        at[:] = _gap(delta, means, at, gaps[0], gaps[-1])
        piece = np.clip(((at - gaps[0]) / (gaps[1] - gaps[0])).astype(int), 0, len(gaps) - 2)
        x = at - gaps[piece]
        values = np.zeros(len(means))
        for coefficient in cumulative.c:
            values = values * x + coefficient[piece, columns]
        return float(values.sum()) / total

    up, down = means + gaps[:, None] / 2, means - gaps[:, None] / 2
    differences = special.ndtr(up) - special.ndtr(down)
    mean = float((differences * mass).sum())
    bounds = [_root(below, share, differences, mass) for share in ((1 - level) / 2, (1 + level) / 2)]
    return bounds[0], bounds[1], min(max(1 - below(0.0), 0.0), 1.0), mean


def _root(below: Callable[[float], float], share: float, values: FloatArray, mass: FloatArray) -> float:
    """Where the rising function `below` reaches `share`, looked for about that quantile of the lattice points."""
    order = np.argsort(values, axis=None)
    ranked = np.cumsum(mass.ravel()[order])
    near = [np.searchsorted(ranked, share * shrink) for shrink in (0.8, 1.0)] + [
        np.searchsorted(ranked, 1 - (1 - share) * 0.8)
    ]
    low, _, high = (float(values.ravel()[order[min(int(k), len(order) - 1)]]) for k in near)
    width = max(high - low, 1e-9)
    while below(low) > share and low > -1:
        low -= width
    while below(high) < share and high < 1:
        high += width
    return float(brentq(lambda x: below(x) - share, low, high, xtol=1e-3 * width, rtol=1e-10))


def _log_posterior(table: Table, axes: Sequence[FloatArray]) -> FloatArray:
    """Log posterior density, up to a constant, on the lattice of (mu_A - mu_B, their mean, atanh rho)."""
    gap, mean, fisher = axes
    a, b = mean + gap[:, None] / 2, mean - gap[:, None] / 2
    log_cosh = np.abs(fisher) + np.log1p(np.exp(-2 * np.abs(fisher))) - np.log(2)
    # 3 log(1 + rho) + log(1 - rho) + log(1 - rho^2), with rho = tanh(fisher).
    found = (-(a**2) / 2 - b**2 / 2)[..., None] + (2 * fisher - 6 * log_cosh)
    for count, cell in zip(table, binormal.cells_over(a, b, fisher), strict=True):
        if count:
            found += count * np.log(np.maximum(cell, _TINY))
    return found


def _first_box(table: Table) -> list[tuple[float, float]]:
    """A box about the maximum of the likelihood, which fits the table exactly; each cell is given a little."""
    n = sum(table)
    both, only_a, only_b, neither = (np.array(table) + 0.5) / (n + 2)
    a, b = float(special.ndtri(both + only_a)), float(special.ndtri(both + only_b))
    fisher = float(
        brentq(lambda z: float(binormal.cdf(-a, -b, np.tanh(z))) - neither, -6, 6, xtol=1e-3)
        if _brackets(a, b, neither)
        else 0.0
    )
    errors = [
        np.sqrt(theta * (1 - theta) / (n + 2)) / (np.exp(-(mu**2) / 2) / np.sqrt(2 * np.pi))
        for theta, mu in ((both + only_a, a), (both + only_b, b))
    ]
    spread = float(np.hypot(*errors))
    width = 4 / np.sqrt((n + 2) * min(both, neither) + (n + 2) * min(only_a, only_b) + 1)
    return [
        (a - b - _REACH * spread, a - b + _REACH * spread),
        ((a + b) / 2 - _REACH * spread / 2, (a + b) / 2 + _REACH * spread / 2),
        (fisher - width, fisher + width),
    ]


def _brackets(a: float, b: float, neither: float) -> bool:
    ends = [float(binormal.cdf(-a, -b, np.tanh(z))) - neither for z in (-6, 6)]
    return ends[0] * ends[1] < 0


def _gap(delta: float, mean: FloatArray, start: FloatArray, least: float, most: float) -> FloatArray:
    """The g in [least, most] with Phi(mean + g/2) - Phi(mean - g/2) = delta, or the end nearest to it, for each mean.

    Newton's steps, and halving where they leave the bracket.
    """
    gap = start
    low, high = np.full_like(mean, least), np.full_like(mean, most)
    for _ in range(60):
        upper, lower = mean + gap / 2, mean - gap / 2
        miss = special.ndtr(upper) - special.ndtr(lower) - delta
        high, low = np.where(miss > 0, gap, high), np.where(miss > 0, low, gap)
        slope = (np.exp(-(upper**2) / 2) + np.exp(-(lower**2) / 2)) / (2 * np.sqrt(2 * np.pi))
        step = gap - miss / np.maximum(slope, _TINY)
        new = np.where((step >= low) & (step <= high), step, (low + high) / 2)
        if np.abs(new - gap).max() < 1e-7 * (most - least):
            return new
        gap = new
    return gap


def tango_bounds(only_a: float, only_b: float, n: float, quantile: float) -> tuple[float, float, float]:
    """Tango's bounds of the difference, and his z of no difference.

    Args:
        only_a: Items, not necessarily a whole number, that only A has right.
        only_b: The same of B.
        n: All items.
        quantile: How far out the bounds are: the normal quantile, or one of Student's t.
    """

    def score(delta: float) -> float:
        """Tango's z of the difference `delta`; falls as `delta` rises."""
        a = 2 * n
        b = -only_a - only_b + (2 * n - only_a + only_b) * delta
        c = -only_b * delta * (1 - delta)
        cell = (math.sqrt(max(b * b - 4 * a * c, 0.0)) - b) / (2 * a)
        variance = n * (2 * cell + delta * (1 - delta))
        miss = only_a - only_b - n * delta
        if variance <= 0:
            return math.copysign(_FAR, miss) if miss else 0.0
        return min(max(miss / math.sqrt(variance), -_FAR), _FAR)

    def root(target: float, low: float, high: float) -> float | None:
        if low >= high or (score(low) - target) * (score(high) - target) > 0:
            return None
        return float(brentq(lambda x: score(x) - target, low, high, xtol=1e-12))

    estimate, edge = (only_a - only_b) / n, 1 - 1e-12
    low, high = root(quantile, -edge, estimate), root(-quantile, estimate, edge)
    at_zero = (only_a - only_b) / math.sqrt(only_a + only_b) if only_a + only_b else 0.0
    return -1.0 if low is None else low, 1.0 if high is None else high, at_zero


def _tango(only_a: int, only_b: int, n: int, level: float) -> tuple[float, float, float, float]:
    low, high, z = tango_bounds(only_a, only_b, n, -float(special.ndtri((1 - level) / 2)))
    return low, high, float(special.ndtr(z)), (only_a - only_b) / n


def _wald(only_a: int, only_b: int, n: int, level: float) -> tuple[float, float, float, float]:
    estimate = (only_a - only_b) / n
    error = float(np.sqrt(max(only_a + only_b - n * estimate**2, 0.0))) / n
    half = -float(special.ndtri((1 - level) / 2)) * error
    better = special.ndtr(estimate / error) if error > 0 else (np.sign(estimate) + 1) / 2
    return estimate - half, estimate + half, float(better), estimate


def _bootstrap(table: Table, level: float, seed: int) -> tuple[float, float, float, float]:
    n = sum(table)
    rng = np.random.Generator(np.random.PCG64(seed))
    drawn = rng.multinomial(n, np.array(table) / n, size=_DRAWS)
    difference = (drawn[:, 1] - drawn[:, 2]) / n
    low, high = np.quantile(difference, [(1 - level) / 2, (1 + level) / 2])
    better = np.mean(difference > 0) + np.mean(difference == 0) / 2
    return float(low), float(high), float(better), (table[1] - table[2]) / n


def _symmetric(low: float, high: float) -> tuple[float, float]:
    """Bounds of a table that A and B share alike: only rounding or draws can make them uneven."""
    half = (high - low) / 2
    return -half, half


def _checked(both: int, only_a: int, only_b: int, neither: int, faults: list[str]) -> Table:
    named = {"both": both, "only_a": only_a, "only_b": only_b, "neither": neither}
    found = list(faults)
    for name, value in named.items():
        found += count_faults(name, value, 0)
    if not found and sum(named.values()) == 0:
        found.append("the table is empty: no items")
    if found:
        raise BadInput.of("no paired comparison", found)
    return (int(both), int(only_a), int(only_b), int(neither))
