"""One proportion from items in clusters: several questions on one passage, or several runs of one question.

Items of a cluster tend to be right or wrong together, so n of them tell less than n independent ones. The model is the
paper's (arXiv 2503.01747): theta ~ U(0, 1); d ~ Gamma(1, 1); each cluster's own rate theta_t ~ Beta(d theta,
d (1 - theta)); k_t of n_t right ~ Binomial(n_t, theta_t). With theta_t integrated out, two unknowns are left, and their
posterior is summed on a lattice in (logit theta, log d) instead of sampled: no noise, and no more work for more
clusters, because only how many clusters exceed each count matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy import special
from scipy.interpolate import CubicSpline

from burnish.core.errors import BadInput, UnknownName
from burnish.stats.bootstrap import bootstrap
from burnish.stats.checks import count_faults, level_faults
from burnish.stats.interval import Interval
from burnish.stats.items import FloatArray, IntArray
from burnish.stats.lattice import Density, Lattice, fill

Method = Literal[
    "auto", "bayes", "beta-effective", "miller", "inspect-t", "inspect-wilson", "cluster-bootstrap", "within-bootstrap"
]
MANY = 20
"""Clusters from which `auto` takes their spread from the data, and no longer from the posterior; see docs/statistics.md."""

_POINTS = (56, 40)
"""Lattice points in logit theta and log d."""
_BOX = ((-16.0, 16.0), (-12.0, 6.0))
_DRAWS = 10_000
_SUMMED = 64
"""Counts up to which a rising factorial is a sum of logarithms rather than a difference of log-gammas."""
_DISTINCT = 10
"""Distinct large counts up to which each is computed at every point."""
_SPACING = 0.5
"""In log a, at most, where a sum over many distinct counts bends; it is computed there, and interpolated between."""
_NODES = 20
"""At least so many values of log a for each stretch of it."""


def clustered(
    successes: ArrayLike, sizes: ArrayLike, method: str = "bayes", level: float = 0.95, seed: int = 0
) -> Interval:
    """Interval of the probability of success, from `successes` of `sizes` items in each cluster, (clusters,) both.

    * bayes: equal-tailed quantiles of the posterior of theta in the model above; never of zero width. It is exact on
      average over its prior. The prior expects clusters that differ: where they do not and the share is near 0 or 1, its
      bounds are drawn too far to the middle, and at a true share of 0.99 it may hold the truth in only three of four
    * beta-effective: quantiles of Beta(1 + k, 1 + n - k) at the number of independent items that would say as much, with
      Student's t for the spread of few clusters (after Korn and Graubard 1998, Surv. Methodol. 24:193, who take
      Clopper-Pearson's bounds); never of zero width
    * auto: bayes for fewer than 20 clusters, where the others are wide or wrong, then beta-effective
    * miller: the clustered central limit theorem, SE^2 = sum (k_t - n_t X)^2 / N^2, X = sum k / N (Miller 2024)
    * inspect-t: that variance times C / (C - 1), with Student's t of C - 1 degrees of freedom (inspect_ai's `ci`)
    * inspect-wilson: Wilson with that t and the effective size min(N, X (1 - X) / SE^2) (inspect_ai's `ci_wilson`)
    * cluster-bootstrap: whole clusters drawn with replacement
    * within-bootstrap: items redrawn inside each cluster, as the paper's code does; it ignores how clusters differ

    The estimate is the observed share of all items. Bounds are kept on [0, 1].

    Raises:
        BadInput: Counts that are no counts, more successes than items, no clusters, lengths that differ, a level out
            of (0, 1); fewer than two clusters for inspect-t, inspect-wilson and cluster-bootstrap.
        UnknownName: No such method.
    """
    if method not in get_args(Method):
        raise UnknownName("interval of clustered items", method, get_args(Method))
    least = 2 if method in ("inspect-t", "inspect-wilson", "cluster-bootstrap") else 1
    k, n = _checked(successes, sizes, level_faults(level) + count_faults("seed", seed, 0), least)
    total, clusters = int(n.sum()), len(k)
    share = float(k.sum() / total)
    if method == "auto":
        method = "bayes" if clusters < MANY else "beta-effective"
    notes = [] if clusters > 1 else ["one cluster: what other clusters would give is known from the prior alone"]
    if method == "bayes":
        low, high = posterior(k, n).interval(level)
    elif method == "beta-effective":
        low, high = _effective(k, n, level)
    elif method == "cluster-bootstrap":
        found = bootstrap(np.column_stack([k, n]), lambda m: m[0] / m[1], level=level, draws=_DRAWS, seed=seed)
        low, high = found.low, found.high
        notes += [found.note] if found.note else []
    elif method == "within-bootstrap":
        low, high = _within(k, n, level, seed)
    else:
        low, high = _normal(k, n, share, method, level)
    if low < 0 or high > 1:
        notes.append(f"{method} reached beyond the scale: [{low:.3g}, {high:.3g}] before it was cut to [0, 1]")
    low, high = max(low, 0.0), min(high, 1.0)
    if low == high and method != "cluster-bootstrap":
        notes.append("zero width: clusters without spread are not certainty; use bayes")
    return Interval(share, low, high, level, total, clusters, method, "; ".join(notes))


def standard_error(successes: ArrayLike, sizes: ArrayLike, *, finite: bool = False) -> float:
    """Clustered standard error of the overall share (Miller 2024); `finite` multiplies the variance by C / (C - 1).

    Raises:
        BadInput: As in `clustered`; `finite` needs two clusters.
    """
    k, n = _checked(successes, sizes, [], 2 if finite else 1)
    variance = float(((k - n * (k.sum() / n.sum())) ** 2).sum()) / float(n.sum()) ** 2
    return float(np.sqrt(variance * (len(k) / (len(k) - 1) if finite else 1)))


def design_effect(sums: ArrayLike, sizes: ArrayLike, variance: float, least: float = 1.0) -> float:
    """How many items in clusters say as much about their mean as one independent item.

    Args:
        sums: Of the items' values in each cluster, (clusters,).
        sizes: Items of each cluster, (clusters,).
        variance: Of the value of one item.
        least: What it is at least; below 1 where a value is itself the mean of several answers.

    Returns:
        The variance of the mean as clusters show it, against that of independent items; at most what it would be if the
        items of a cluster were always alike, and that where clusters show no spread, which is not certainty.
    """
    s, n = np.asarray(sums, dtype=np.float64), np.asarray(sizes, dtype=np.float64)
    total, clusters = float(n.sum()), len(n)
    # The sizes that items find their clusters to have, on average: a large cluster holds many of them.
    most = float((n**2).sum()) / total
    spread = float(((s - n * (s.sum() / total)) ** 2).sum()) / total * clusters / max(clusters - 1, 1)
    if clusters < 2 or variance <= 0 or spread <= 1e-20 * total:
        return most
    return min(max(least, spread / variance), max(most, least))


@dataclass(frozen=True)
class Posterior:
    """What is known of theta (the rate over clusters) and d (how alike clusters are; large: alike)."""

    lattice: Lattice
    """Over logit theta and log d."""

    def interval(self, level: float) -> tuple[float, float]:
        """Equal-tailed bounds of theta."""
        density = Density.of(self.lattice.axes[0], self.lattice.marginal(0))
        tail = (1 - level) / 2
        return float(special.expit(density.quantile(tail))), float(special.expit(density.quantile(1 - tail)))

    @property
    def mean(self) -> float:
        """Posterior mean of theta."""
        return float(special.expit(self.lattice.axes[0]) @ self.lattice.marginal(0))

    @property
    def mean_d(self) -> float:
        """Posterior mean of d."""
        return float(np.exp(self.lattice.axes[1]) @ self.lattice.marginal(1))


def posterior(successes: ArrayLike, sizes: ArrayLike) -> Posterior:
    """The posterior of theta and d, from `successes` of `sizes` items in each cluster, (clusters,) both.

    Raises:
        BadInput: As in `clustered`.
    """
    k, n = _checked(successes, sizes, [], 1)
    right, wrong, size = _Rising.of(k), _Rising.of(n - k), _Rising.of(n)

    def log_density(axes: Sequence[FloatArray]) -> FloatArray:
        logit, log_d = axes
        log_theta, log_rest = special.log_expit(logit)[:, None], special.log_expit(-logit)[:, None]
        d = np.exp(log_d)
        found = right(np.exp(log_theta + log_d)) + wrong(np.exp(log_rest + log_d)) - size(d)
        # Priors with the Jacobians of the two coordinates: U(0, 1) on theta, Gamma(1, 1) on d.
        return found + log_theta + log_rest + log_d - d

    return Posterior(fill(log_density, _BOX, _POINTS))


@dataclass(frozen=True)
class _Rising:
    """Sum over clusters of log Gamma(a + k_t) - log Gamma(a), for many values of a at once."""

    steps: FloatArray
    """How many clusters have k_t > j, for j = 0, 1, ... up to `_SUMMED`."""
    large: FloatArray
    """Distinct k_t above that."""
    times: FloatArray
    """How many clusters have each of them."""

    @classmethod
    def of(cls, k: IntArray) -> _Rising:
        small = np.minimum(k, _SUMMED)
        steps = (small[:, None] > np.arange(small.max(initial=0))).sum(0).astype(np.float64)
        large, times = np.unique(k[k > _SUMMED], return_counts=True)
        return cls(steps, large.astype(np.float64), times.astype(np.float64))

    def __call__(self, a: FloatArray) -> FloatArray:
        found = np.zeros_like(a)
        for j, count in enumerate(self.steps):
            found += count * np.log(a + j)
        if len(self.large) > _DISTINCT:
            # Many distinct counts: their sum is one smooth function of log a, so it is interpolated.
            log_a = np.log(a)
            nodes = self._nodes(float(log_a.min()), float(log_a.max()))
            found += CubicSpline(nodes, self._beyond(np.exp(nodes)))(log_a)
        elif len(self.large):
            found += self._beyond(a)
        return found

    def _nodes(self, low: float, high: float) -> FloatArray:
        """Values of log a: dense where a is of the size of the counts, for there the sum bends; outside it is straight."""
        start, stop = np.clip([-4.0, np.log(self.large[-1]) + 3], low, high)
        inside = int((stop - start) / _SPACING) + _NODES
        parts = [
            np.linspace(low, start, _NODES, endpoint=False) if start > low else np.empty(0),
            np.linspace(start, stop, inside, endpoint=False) if stop > start else np.empty(0),
            np.linspace(stop, high, _NODES) if high > stop else np.array([high]),
        ]
        return np.concatenate(parts)

    def _beyond(self, a: FloatArray) -> FloatArray:
        """The part of the large counts that lies above `_SUMMED`."""
        above = special.gammaln(a[..., None] + self.large) - special.gammaln(a + _SUMMED)[..., None]
        return np.asarray(above @ self.times)


def _normal(k: IntArray, n: IntArray, share: float, method: str, level: float) -> tuple[float, float]:
    """Bounds from the clustered standard error, not cut to [0, 1]."""
    tail, clusters = (1 - level) / 2, len(k)
    error = standard_error(k, n, finite=method != "miller")
    if method == "miller":
        half = -float(special.ndtri(tail)) * error
        return share - half, share + half
    t = -float(special.stdtrit(clusters - 1, tail))
    if method == "inspect-t":
        return share - t * error, share + t * error
    total = float(n.sum())
    spread = share * (1 - share)
    effective = min(total, spread / error**2) if spread > 0 and error > 0 else total
    centre = (share + t**2 / (2 * effective)) / (1 + t**2 / effective)
    half = t / (1 + t**2 / effective) * float(np.sqrt(spread / effective + t**2 / (4 * effective**2)))
    return (0.0 if share == 0 else centre - half), (1.0 if share == 1 else centre + half)


def _effective(k: IntArray, n: IntArray, level: float) -> tuple[float, float]:
    """Quantiles of a Beta at the effective number of items."""
    tail, total = (1 - level) / 2, float(n.sum())
    share = float(k.sum()) / total
    quantiles = float(special.ndtri(tail)) / float(special.stdtrit(max(len(k) - 1, 1), tail))
    size = total / design_effect(k, n, share * (1 - share)) * quantiles**2
    a, b = 1 + share * size, 1 + (1 - share) * size
    return float(special.betaincinv(a, b, tail)), float(special.betainccinv(a, b, tail))


def _within(k: IntArray, n: IntArray, level: float, seed: int) -> tuple[float, float]:
    rng = np.random.Generator(np.random.PCG64(seed))
    drawn = np.zeros(_DRAWS)
    for right, size in zip(k.tolist(), n.tolist(), strict=True):
        drawn += rng.binomial(size, right / size, _DRAWS)
    low, high = np.quantile(drawn / n.sum(), [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _checked(successes: ArrayLike, sizes: ArrayLike, faults: list[str], least: int) -> tuple[IntArray, IntArray]:
    found = list(faults)
    arrays = []
    for name, values, low in (("successes", successes, 0), ("sizes", sizes, 1)):
        array = np.asarray(values)
        if array.ndim != 1 or array.dtype.kind not in "iub":
            found.append(f"{name}: one whole number a cluster is needed")
            continue
        wrong = np.flatnonzero(array < low)
        if len(wrong):
            found.append(f"{name}: {array[wrong[0]]} in cluster {wrong[0]} (from 0) is below {low}")
        arrays.append(array.astype(np.intp))
    if len(arrays) == 2:
        k, n = arrays
        if len(k) != len(n):
            found.append(f"successes has {len(k)} clusters and sizes {len(n)}")
        elif len(k) < least:
            found.append(f"{len(k)} clusters, fewer than the {least} needed")
        elif (k > n).any():
            worst = int(np.flatnonzero(k > n)[0])
            found.append(f"successes: {k[worst]} of only {n[worst]} items in cluster {worst} (from 0)")
    if found:
        raise BadInput.of("no interval of clustered items", found)
    return arrays[0], arrays[1]
