"""Several runs of each item: the mean, pass@k and pass^k, each with an interval.

Runs of one item are not new items. There are two honest ways with them, and they must not be mixed:

* items: each item's runs are reduced to one number first, and the interval is over items. The spread of those numbers
  already holds the noise of single runs; adding that again would count it twice.
* hierarchical: an item has its own rate, the rates follow a distribution, and both are inferred (the model of
  `burnish.stats.clustered`). Its interval is never of zero width.

pass@k is the chance that at least one of k runs is right, pass^k that all k are. From c right of n runs they are
estimated without bias by 1 - C(n-c, k) / C(n, k) (Chen et al. 2021, arXiv 2107.03374) and C(c, k) / C(n, k).
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy import special
from scipy.interpolate import CubicSpline

from burnish.core.errors import BadInput, UnknownName
from burnish.stats.checks import count_faults, level_faults
from burnish.stats.clustered import posterior
from burnish.stats.interval import Interval
from burnish.stats.items import FloatArray, IntArray
from burnish.stats.scores import mean_score

Reduce = Literal["mean", "pass@k", "pass^k"]
Method = Literal["hierarchical", "items"]


def epochs(
    successes: ArrayLike,
    runs: ArrayLike,
    reduce: str = "mean",
    k: int = 1,
    method: str = "hierarchical",
    level: float = 0.95,
) -> Interval:
    """Interval over items of the mean, pass@k or pass^k, from the right runs and all runs of each item, (items,) both.

    Args:
        successes: Right runs of each item.
        runs: Runs of each item; at least `k` for pass@k and pass^k.
        reduce: What each item is reduced to.
        k: Of pass@k and pass^k.
        method: See above.
        level: Nominal coverage.

    Returns:
        The estimate is the mean over items of the reduced scores, each item weighing the same. `n` is the number of
        runs and `n_clusters` that of items.

    Raises:
        BadInput: Counts that are no counts, more right runs than runs, fewer runs than k.
        UnknownName: No such reduction or method.
    """
    if reduce not in get_args(Reduce):
        raise UnknownName("reduction of epochs", reduce, get_args(Reduce))
    if method not in get_args(Method):
        raise UnknownName("interval over epochs", method, get_args(Method))
    c, n = _checked(successes, runs, 1 if reduce == "mean" else k, level_faults(level) + count_faults("k", k, 1))
    scores = item_scores(c, n, reduce, k)
    estimate = float(scores.mean())
    if method == "items":
        if bool((n == 1).all()) and reduce == "mean":
            found = mean_score(c, level=level)
        else:
            found = mean_score(scores, level=level, method="logit-t")
        return Interval(estimate, found.low, found.high, level, int(n.sum()), len(n), found.method, found.note)
    known = posterior(c, n)
    if reduce == "mean":
        low, high = known.interval(level)
    else:
        low, high = _pass_bounds(known.lattice.axes, known.lattice.mass, k, reduce, level)
    return Interval(estimate, low, high, level, int(n.sum()), len(n), "hierarchical")


def item_scores(successes: ArrayLike, runs: ArrayLike, reduce: str = "mean", k: int = 1) -> FloatArray:
    """Each item's unbiased estimate of its mean, pass@k or pass^k, (items,)."""
    c, n = np.asarray(successes), np.asarray(runs)
    if reduce == "mean":
        return np.asarray(c / n)
    chosen = n - c if reduce == "pass@k" else c
    # Logarithms of binomial coefficients, for n may be in the thousands.
    log = _log_choose(np.maximum(chosen, k), k) - _log_choose(n, k)
    share = np.where(chosen >= k, np.exp(log), 0.0)
    return np.asarray(1 - share if reduce == "pass@k" else share)


def identical_runs(scores: ArrayLike) -> bool:
    """Whether several runs of each item, (items, runs), never differ: real repeats of some item would; a cache was read.

    Always right or always wrong answers do not differ either, so that this is a reason to look and no proof.
    """
    x = np.asarray(scores, dtype=np.float64)
    if x.ndim != 2:
        raise BadInput(f"scores have the shape {x.shape}, and (items, runs) is needed")
    return x.shape[1] > 1 and bool((x == x[:, :1]).all())


def _log_choose(n: ArrayLike, k: int) -> FloatArray:
    n = np.asarray(n, dtype=np.float64)
    return np.asarray(special.gammaln(n + 1) - special.gammaln(k + 1) - special.gammaln(n - k + 1))


def _pass_bounds(
    axes: tuple[FloatArray, ...], mass: FloatArray, k: int, reduce: str, level: float
) -> tuple[float, float]:
    """Quantiles of the mean over a population of items of (1 - rate)^k or rate^k, given theta and d."""
    # Eight times as many points of theta, so that single points do not show in the quantiles.
    fine = np.linspace(axes[0][0], axes[0][-1], 8 * len(axes[0]))
    mass = np.maximum(CubicSpline(axes[0], mass)(fine), 0.0)
    mass /= mass.sum()
    logit, log_d = fine[:, None], axes[1]
    alpha, beta = np.exp(special.log_expit(logit) + log_d), np.exp(special.log_expit(-logit) + log_d)
    own, d = (beta, alpha + beta) if reduce == "pass@k" else (alpha, alpha + beta)
    # E rate^k of a Beta(alpha, beta) rate, as a product of k ratios.
    log = sum((np.log(own + j) - np.log(d + j) for j in range(k)), np.zeros_like(own))
    values = np.exp(log).ravel()
    order = np.argsort(values)
    ranked = np.cumsum(mass.ravel()[order]) - mass.ravel()[order] / 2
    low, high = np.interp([(1 - level) / 2, (1 + level) / 2], ranked, values[order])
    return (1 - float(high), 1 - float(low)) if reduce == "pass@k" else (float(low), float(high))


def _checked(successes: ArrayLike, runs: ArrayLike, least: int, faults: list[str]) -> tuple[IntArray, IntArray]:
    found = list(faults)
    c, n = np.asarray(successes), np.asarray(runs)
    if c.ndim != 1 or c.shape != n.shape or not len(c) or c.dtype.kind not in "iub" or n.dtype.kind not in "iu":
        found.append("successes and runs: one whole number an item is needed of each, in the same order")
    else:
        wrong = np.flatnonzero((c < 0) | (c > n) | (n < 1))
        if len(wrong):
            found.append(f"item {wrong[0]} (from 0): {c[wrong[0]]} right of {n[wrong[0]]} runs")
        short = np.flatnonzero(n < least)
        if len(short) and not len(wrong):
            found.append(f"item {short[0]} (from 0) has {n[short[0]]} runs, fewer than k = {least}")
    if found:
        raise BadInput.of("no interval over epochs", found)
    return c.astype(np.intp), n.astype(np.intp)
