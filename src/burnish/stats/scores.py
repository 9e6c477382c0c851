"""The mean of scores that need not be 0 or 1, and the mean difference of two models' scores on the same items.

What repeats (runs of one question) or belongs together (questions on one passage) is a cluster, and the interval is then
over clusters. Runs of an item are reduced to one score an item first (`burnish.stats.epochs`): the spread of item means
already holds the noise of single runs, and to add it again would count it twice.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from burnish.core.errors import BadInput, UnknownName, Unsupported
from burnish.stats.bootstrap import bootstrap
from burnish.stats.checks import count_faults, level_faults
from burnish.stats.clustered import clustered, design_effect
from burnish.stats.interval import Interval
from burnish.stats.items import FloatArray, Items, Labels
from burnish.stats.paired import PairedResult, paired_binary, tango_bounds
from burnish.stats.proportion import bounds, proportion
from burnish.stats.unpaired import unpaired_binary, unpaired_clustered

Method = Literal["auto", "student-t", "logit-t", "bootstrap"]
PairedMethod = Literal["auto", "student-t", "bootstrap", "probit", "tango"]

_DRAWS = 10_000


def mean_score(
    values: ArrayLike,
    clusters: Labels | None = None,
    weights: ArrayLike | None = None,
    level: float = 0.95,
    method: str = "auto",
    *,
    scale: tuple[float, float] = (0.0, 1.0),
    seed: int = 0,
) -> Interval:
    """Interval of the mean of real scores.

    * student-t: on items, or on clusters through the linearised ratio of sums, with one degree of freedom less than
      there are units
    * logit-t: the same, carried to the logit of the mean by the delta method and back; for scores on a bounded scale,
      whose bounds then stay on it
    * bootstrap: BCa over items or whole clusters
    * auto: scores that are all 0 or 1 take the posterior of a proportion (of clustered ones, with clusters); other
      scores inside `scale` take logit-t, and scores beyond it student-t

    Scores on the scale that are all alike have no spread, which is not certainty: their interval is that of a
    proportion with the same mean, whose variance no score on the scale can exceed.

    Args:
        values: (n,) scores; leave out what could not be scored.
        clusters: n labels.
        weights: n non-negative weights of the items.
        level: Nominal coverage.
        method: One of the above.
        scale: Least and greatest possible score.
        seed: Seed of the bootstrap.

    Raises:
        BadInput: NaN or infinite scores (rows named), labels or weights that do not fit, fewer than two units (unless
            the scores are 0 or 1), a scale that the scores leave for logit-t.
        UnknownName: No such method.
    """
    if method not in get_args(Method):
        raise UnknownName("interval of a mean score", method, get_args(Method))
    faults = level_faults(level) + count_faults("seed", seed, 0)
    low, high = scale
    if not low < high:
        faults.append(f"scale: {scale!r} does not rise")
    items = Items.of(values, clusters, least=1, faults=faults)
    x, w = items.values[:, 0], _weights(weights, items.n)
    inside = bool(((x >= low) & (x <= high)).all())
    if method == "auto" and weights is None and bool(np.isin(x, (0.0, 1.0)).all()) and scale == (0.0, 1.0):
        hits, sizes = items.sums()[0].astype(int), items.sizes().astype(int)
        return (
            clustered(hits, sizes, "auto", level) if items.clustered else proportion(int(x.sum()), items.n, level=level)
        )
    if method == "bootstrap":
        return bootstrap(np.column_stack([w * x, w]), lambda m: m[0] / m[1], level=level, clusters=clusters, seed=seed)
    if method == "auto":
        method = "logit-t" if inside else "student-t"
    if items.units < 2 and not inside:
        raise BadInput(f"one {'cluster' if items.clustered else 'item'} has no spread", "give at least two")
    if method == "logit-t" and not inside:
        raise BadInput(f"logit-t: scores leave the scale [{low:g}, {high:g}]", "give the scale, or use student-t")
    mean = float(w @ x / w.sum())
    error = _error(items, w, mean) if items.units > 1 else 0.0
    if error == 0:
        return _alike(items, mean, scale, level, method, inside)
    half = -float(special.stdtrit(items.units - 1, (1 - level) / 2)) * error
    if method == "student-t":
        return _cut(items, mean, mean - half, mean + half, scale if inside else None, level, method)
    share, width = (mean - low) / (high - low), high - low
    spread = half / width / (share * (1 - share))
    ends = [low + width * float(special.expit(special.logit(share) + sign * spread)) for sign in (-1, 1)]
    return Interval(mean, ends[0], ends[1], level, items.n, items.n_clusters, method)


def paired_scores(
    a: ArrayLike,
    b: ArrayLike,
    clusters: Labels | None = None,
    level: float = 0.95,
    method: str = "auto",
    *,
    runs: ArrayLike | None = None,
    seed: int = 0,
) -> PairedResult:
    """Mean of a - b, two models' scores of the same items in the same order, (n,) each.

    * probit: of independent 0/1 scores, see `burnish.stats.paired`
    * tango: of 0/1 scores, or of the means of several 0/1 runs; the table counts for as many items as hold the same
      information (by the variance over items or clusters against that of single answers), and Student's t replaces the
      normal quantile where there are clusters or runs
    * student-t: on differences of items, or of clusters
    * bootstrap: BCa over items or whole clusters
    * auto: probit for independent 0/1 scores, tango for those in clusters or of several runs, student-t otherwise

    Args:
        a: Scores of one model.
        b: Scores of the other.
        clusters: n labels.
        level: Nominal coverage.
        method: One of the above.
        runs: (n,) How many 0/1 runs each score is the mean of (the fewer of both models' runs, where they differ); None
            where scores are no such means.
        seed: Of the bootstrap.

    Raises:
        BadInput: Scores that are NaN, infinite or of unequal length, labels or runs that do not fit, fewer than two
            units; probit and tango of other scores.
        Unsupported: probit of clustered items or of several runs.
        UnknownName: No such method.
    """
    if method not in get_args(PairedMethod):
        raise UnknownName("interval of paired scores", method, get_args(PairedMethod))
    pair = Items.of_pair(a, b, clusters, least=1, faults=level_faults(level) + count_faults("seed", seed, 0))
    times = _runs(runs, pair)
    binary = times is not None or bool(np.isin(pair.values, (0.0, 1.0)).all())
    grouped = pair.clustered or times is not None
    if method == "auto":
        method = ("tango" if grouped else "probit") if binary else "student-t"
    if method in ("probit", "tango"):
        if not binary:
            raise BadInput(f"{method} is for scores of 0 and 1", "use student-t or bootstrap")
        if method == "probit" and grouped:
            what = "clustered items" if pair.clustered else "several runs of an item"
            raise Unsupported(f"probit of {what}", "its model takes every answer as independent", "use tango")
        return _tables(pair, level, method, seed, times)
    if pair.units < 2:
        raise BadInput(f"one {'cluster' if pair.clustered else 'item'} has no spread", "give at least two")
    # Items.difference is the second column minus the first, and ours is the first minus the second.
    flipped = Items.of_pair(b, a, clusters).difference()
    x = flipped.values[:, 0]
    mean = float(x.mean())
    error = _error(flipped, np.ones(len(x)), mean)
    better = float(special.stdtr(flipped.units - 1, mean / error)) if error > 0 else (np.sign(mean) + 1) / 2
    if method == "bootstrap":
        return PairedResult(bootstrap(x, level=level, clusters=clusters, seed=seed), float(better), mean)
    bounded = bool(((pair.values >= 0) & (pair.values <= 1)).all())
    if error == 0 and bounded:
        # As if each unit were one item that is right or wrong: no scores in [0, 1] vary more.
        z = -float(special.ndtri((1 - level) / 2))
        low, high, _ = tango_bounds(flipped.units * max(mean, 0.0), flipped.units * max(-mean, 0.0), flipped.units, z)
        note = "all differences are alike, so the bounds are those of right and wrong answers with that difference"
        found = Interval(mean, low, high, level, flipped.n, flipped.n_clusters, "tango", note)
        return PairedResult(found, float(better), mean)
    half = -float(special.stdtrit(flipped.units - 1, (1 - level) / 2)) * error
    if error == 0:
        note = "zero width: equal differences are not certainty"
        return PairedResult(
            Interval(mean, mean, mean, level, flipped.n, flipped.n_clusters, method, note), float(better), mean
        )
    found = _cut(flipped, mean, mean - half, mean + half, (-1.0, 1.0) if bounded else None, level, method)
    return PairedResult(found, float(better), mean)


def unpaired_scores(
    a: ArrayLike,
    b: ArrayLike,
    clusters_a: Labels | None = None,
    clusters_b: Labels | None = None,
    level: float = 0.95,
) -> PairedResult:
    """Mean of a minus mean of b, scores of two models on different items, (n_a,) and (n_b,).

    Scores of 0 and 1 take the difference of two posteriors, others Welch's t, on items or on clusters.

    Raises:
        BadInput: Scores or labels that cannot be used; fewer than two units a side, unless scores are 0 or 1.
    """
    sides = [
        Items.of(x, labels, least=1, faults=level_faults(level)) for x, labels in ((a, clusters_a), (b, clusters_b))
    ]
    if all(bool(np.isin(side.values, (0.0, 1.0)).all()) for side in sides):
        (k_a, n_a), (k_b, n_b) = ((side.sums()[0].astype(int), side.sizes().astype(int)) for side in sides)
        if any(side.clustered for side in sides):
            return unpaired_clustered(k_a, n_a, k_b, n_b, level)
        return unpaired_binary(int(k_a.sum()), int(n_a.sum()), int(k_b.sum()), int(n_b.sum()), level=level)
    if min(side.units for side in sides) < 2:
        raise BadInput("one item or cluster has no spread", "give at least two of each model")
    means = [float(side.values.mean()) for side in sides]
    squares = [_error(side, np.ones(side.n), mean) ** 2 for side, mean in zip(sides, means, strict=True)]
    difference, error = means[0] - means[1], math.sqrt(sum(squares))
    clusters = sum(side.units for side in sides) if any(side.clustered for side in sides) else None
    n = sides[0].n + sides[1].n
    bounded = all(bool(((side.values >= 0) & (side.values <= 1)).all()) for side in sides)
    if error == 0:
        low = high = difference
        note, method = "zero width: equal scores are not certainty", "welch-t"
        if bounded:
            ends = [_alike(side, mean, (0.0, 1.0), level, "", True) for side, mean in zip(sides, means, strict=True)]
            low -= math.hypot(max(means[0] - ends[0].low, 0.0), max(ends[1].high - means[1], 0.0))
            high += math.hypot(max(ends[0].high - means[0], 0.0), max(means[1] - ends[1].low, 0.0))
            note, method = "all scores of a model are alike: Newcombe's combination of two proportions", "newcombe"
        found = Interval(difference, max(low, -1.0) if bounded else low, min(high, 1.0) if bounded else high, level, n,
                         clusters, method, note)  # fmt: skip
        return PairedResult(found, (float(np.sign(difference)) + 1) / 2, difference)
    degrees = error**4 / sum(s**2 / (side.units - 1) for s, side in zip(squares, sides, strict=True))
    half = -float(special.stdtrit(degrees, (1 - level) / 2)) * error
    low, high = (max(difference - half, -1.0), min(difference + half, 1.0)) if bounded else (
        difference - half, difference + half)  # fmt: skip
    found = Interval(difference, low, high, level, n, clusters, "welch-t")
    return PairedResult(found, float(special.stdtr(degrees, difference / error)), difference)


def _tables(pair: Items, level: float, method: str, seed: int, runs: FloatArray | None) -> PairedResult:
    """Paired 0/1 scores as a 2 x 2 table; of as many items as say the same thing, with clusters or several runs.

    Runs of the two models are no pairs: of an item, each of one goes with each of the other, in equal shares.
    """
    a, b = pair.values[:, 0], pair.values[:, 1]
    only_a, only_b = float((a * (1 - b)).sum()), float((b * (1 - a)).sum())
    if only_b > only_a:
        # One side is computed and the other mirrored, so that they agree to the last bit.
        turned = replace(pair, values=np.ascontiguousarray(pair.values[:, ::-1]))
        return _tables(turned, level, method, seed, runs).mirrored()
    if not pair.clustered and runs is None:
        both = int((a * b).sum())
        neither = pair.n - both - int(only_a) - int(only_b)
        return paired_binary(both, int(only_a), int(only_b), neither, method, level, seed)
    mean = float((a - b).mean())
    # Answers of one run each differ in this way; means of several runs vary less, down to as if runs were items.
    single = (only_a + only_b) / pair.n - mean**2
    least = 1.0 if runs is None else float((1 / runs).mean())
    effect = design_effect(np.bincount(pair.unit, a - b, pair.units), pair.sizes(), single, least)
    scaled = pair.n / effect
    groups = f" in {pair.units} clusters" if pair.clustered else ""
    several = "" if runs is None else f" with {_span(runs)} runs each"
    note = f"{pair.n} items{several}{groups} count for {scaled:.1f} independent ones"
    degrees = max(pair.units - 1, 1)
    quantile = -float(special.stdtrit(degrees, (1 - level) / 2))
    low, high, z = tango_bounds(only_a / effect, only_b / effect, scaled, quantile)
    return PairedResult(
        Interval(mean, low, high, level, pair.n, pair.n_clusters, method, note), float(special.stdtr(degrees, z)), mean
    )


def _runs(runs: ArrayLike | None, pair: Items) -> FloatArray | None:
    """How many runs each score is the mean of; None where every score is of one run, or no mean of runs."""
    if runs is None:
        return None
    times = np.asarray(runs, dtype=np.float64)
    if times.shape != (pair.n,) or not (times >= 1).all():
        raise BadInput("runs: give one whole number of at least 1 an item")
    if not ((pair.values >= 0) & (pair.values <= 1)).all():
        raise BadInput("runs: the mean of 0/1 runs lies in [0, 1], and some scores do not", "leave runs out")
    return times if bool((times > 1).any()) or not bool(np.isin(pair.values, (0.0, 1.0)).all()) else None


def _span(runs: FloatArray) -> str:
    least, most = (f"{end:g}" for end in (runs.min(), runs.max()))
    return least if least == most else f"{least} to {most}"


def _error(items: Items, w: FloatArray, mean: float) -> float:
    """Standard error of the weighted mean: over units, linearised; 0 where units differ by rounding alone."""
    x = items.values[:, 0]
    sums = np.bincount(items.unit, w * (x - mean), items.units)
    error = math.sqrt(items.units / (items.units - 1) * float((sums**2).sum())) / float(w.sum())
    # Equal decimals differ by rounding once they are summed; that is no spread.
    return error if error > 1e-12 * float(np.abs(x).max()) else 0.0


def _alike(items: Items, mean: float, scale: tuple[float, float], level: float, method: str, inside: bool) -> Interval:
    low, high = scale
    if not inside:
        note = "zero width: equal scores are not certainty"
        return Interval(mean, mean, mean, level, items.n, items.n_clusters, method, note)
    k = np.array([items.units * min(max((mean - low) / (high - low), 0.0), 1.0)])
    bound = [low + (high - low) * float(end[0]) for end in bounds(k, items.units, "beta", level)]
    unit = "clusters" if items.clustered else "items"
    note = f"all {items.units} {unit} score alike, so the bounds are those of a proportion with that mean"
    return Interval(mean, bound[0], bound[1], level, items.n, items.n_clusters, "beta", note)


def _cut(
    items: Items, mean: float, low: float, high: float, scale: tuple[float, float] | None, level: float, method: str
) -> Interval:
    note = ""
    if scale is not None and (low < scale[0] or high > scale[1]):
        note = f"{method} reached beyond the scale: [{low:.3g}, {high:.3g}] before it was cut"
        low, high = max(low, scale[0]), min(high, scale[1])
    return Interval(mean, low, high, level, items.n, items.n_clusters, method, note)


def _weights(weights: ArrayLike | None, n: int) -> FloatArray:
    if weights is None:
        return np.ones(n)
    try:
        w = np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError):
        raise BadInput("weights: not an array of numbers") from None
    if w.shape != (n,) or not np.isfinite(w).all() or (w < 0).any() or w.sum() <= 0:
        raise BadInput(f"weights: {n} finite numbers of at least 0 are needed, not all of them 0")
    return w
