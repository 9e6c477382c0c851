"""Bootstrap intervals: what the estimate would have been on other samples of items, or of whole clusters of items."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from burnish.core.errors import BadInput, UnknownName
from burnish.stats.checks import count_faults, level_faults
from burnish.stats.interval import Interval
from burnish.stats.items import FloatArray, IntArray, Items, Labels

Statistic = Callable[[Any], Any]

_CHUNK = 2**20
"""Indices of resampled units held at once (8 MiB, and as much again for the values they pick)."""
_TAIL_DRAWS = 5
"""Fewest draws that must lie beyond each bound, or the bound is set by chance."""
_FEW = 20
"""Below this many units a bootstrap interval is clearly too narrow, and says so."""
_TIE = 1e-12
"""Relative difference up to which two numbers are equal: they differ only by the order of a sum."""


def bootstrap(
    values: ArrayLike,
    statistic: Literal["mean"] | Statistic = "mean",
    *,
    over: Literal["means", "rows"] = "means",
    level: float = 0.95,
    draws: int = 10_000,
    clusters: Labels | None = None,
    seed: int = 0,
) -> Interval:
    """BCa bootstrap interval over items, or over whole clusters of items (Efron 1987, JASA 82:171-185).

    Units (rows, or clusters with all their rows) are drawn with replacement, and the acceleration comes from the
    jackknife over the same units. Where BCa is not defined the interval is the percentile one, and its note says why.

    Most statistics of an evaluation are functions of column means, and those are fast:

    * accuracy: `bootstrap(correct)`
    * perplexity: `bootstrap(loss, np.exp)`
    * ratio of sums: `bootstrap(np.column_stack([hits, tries]), lambda m: m[0] / m[1])`
    * ratio of two perplexities, items of unequal length:
      `bootstrap(np.column_stack([loss_a, loss_b, tokens]), lambda m: np.exp((m[1] - m[0]) / m[2]))`

    Anything else (a median, a rank correlation) takes `over="rows"`, which calls the statistic once a draw.

    Args:
        values: (n,) one number an item, or (n, columns) a row of them.
        statistic: "mean" of flat values, or a function. With `over="means"` it is given the means over all rows of
            many resamples at once and must give as many numbers: for flat values an array (resamples,), else an array
            (columns, resamples), so that `m[j]` holds the means of column j. Clusters of unequal size weigh by their
            size. With `over="rows"` it is given the rows of one resample, shaped like `values`, and must give one
            number.
        over: What the statistic is a function of.
        level: Nominal coverage in (0, 1).
        draws: Resamples.
        clusters: n labels; items of one label are drawn together. None: items are independent.
        seed: Seed of the resamples; the same seed gives the same interval.

    Raises:
        BadInput: NaN or infinite values (rows named), fewer than two units, labels that do not fit, a level or number
            of draws out of range, a statistic that is undefined on the items or on too many resamples.
    """
    items = Items.of(values, clusters, faults=_faults(level, draws, seed))
    if isinstance(statistic, str):
        if statistic != "mean":
            raise UnknownName("statistic", statistic, ["mean"], "give 'mean' or a function")
        if not items.flat:
            raise BadInput("the mean of rows is not one number", "give one number an item, or a function of the means")
        statistic, over = _identity, "means"
    return _bootstrap(items, statistic, over, level, draws, seed)


def paired(
    a: ArrayLike,
    b: ArrayLike,
    *,
    level: float = 0.95,
    draws: int = 10_000,
    clusters: Labels | None = None,
    seed: int = 0,
) -> Interval:
    """Mean of b - a over the same items, (n,) each in the same order; the rest as in `bootstrap`."""
    items = Items.of_pair(a, b, clusters, faults=_faults(level, draws, seed))
    return _bootstrap(items.difference(), _identity, "means", level, draws, seed)


def ratio(
    a: ArrayLike,
    b: ArrayLike,
    *,
    level: float = 0.95,
    draws: int = 10_000,
    clusters: Labels | None = None,
    seed: int = 0,
) -> Interval:
    """Mean of b over mean of a, of the same items, (n,) each in the same order; the rest as in `bootstrap`."""
    items = Items.of_pair(a, b, clusters, faults=_faults(level, draws, seed))
    return _bootstrap(items, _second_over_first, "means", level, draws, seed)


def _identity(means: FloatArray) -> FloatArray:
    return means


def _second_over_first(means: FloatArray) -> Any:
    return means[1] / means[0]


def _faults(level: float, draws: int, seed: int) -> list[str]:
    faults = level_faults(level) + count_faults("draws", draws, 1) + count_faults("seed", seed, 0)
    if not faults:
        # 1 - 0.8 and its like round down; the small amount taken off keeps them from asking for one draw too many.
        needed = math.ceil(2 * _TAIL_DRAWS / (1 - level) - 1e-6)
        faults += [f"draws: {draws}, and the level {level:g} needs at least {needed}"] if draws < needed else []
    return faults


def _bootstrap(items: Items, statistic: Statistic, over: str, level: float, draws: int, seed: int) -> Interval:
    rng = np.random.Generator(np.random.PCG64(seed))
    evaluators = {"means": _over_means, "rows": _over_rows}
    if over not in evaluators:
        raise UnknownName("kind of statistic", over, evaluators)
    # A ratio may divide by zero in some resamples; what is not finite is looked at below.
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        estimate, drawn, jackknife = evaluators[over](items, statistic, _resamples(rng, items.units, draws))
    if not math.isfinite(estimate):
        raise BadInput(
            f"the statistic is {estimate} on these items", "use a statistic that is defined on them, or other items"
        )
    notes = []
    undefined = draws - int(np.isfinite(drawn).sum())
    if undefined > draws * (1 - level) / 2:
        raise BadInput(
            f"the statistic is undefined on {undefined} of {draws} resamples, more than lie beyond a bound",
            "use a statistic that is defined on nearly all resamples, such as a ratio whose denominator stays above 0",
        )
    if undefined:
        notes.append(f"the statistic was undefined on {undefined} of {draws} resamples, which were left out")
        drawn = drawn[np.isfinite(drawn)]
    unit = "clusters" if items.clustered else "items"
    if items.units < _FEW:
        notes.append(f"only {items.units} {unit}: bootstrap intervals of so few are usually too narrow")
    low, high, method, note = _bounds(estimate, drawn, jackknife, level)
    notes += [note] if note else []
    if low == high:
        notes.append(f"zero width: nearly all resamples of {items.units} {unit} agree, which is not certainty")
    return Interval(estimate, low, high, level, items.n, items.n_clusters, method, "; ".join(notes))


def _resamples(rng: np.random.Generator, units: int, draws: int) -> Iterator[IntArray]:
    """Units drawn with replacement, in pieces (some, units) of bounded memory."""
    step = max(1, _CHUNK // units)
    for start in range(0, draws, step):
        yield rng.integers(0, units, size=(min(step, draws - start), units))


def _over_means(
    items: Items, statistic: Statistic, resamples: Iterator[IntArray]
) -> tuple[float, FloatArray, FloatArray]:
    """The statistic of the column means of all items, of each resample (draws,), and without each unit (units,)."""

    def at(sums: FloatArray, sizes: FloatArray) -> FloatArray:
        means = sums / sizes
        fix = 'write it with numpy functions of m, or of its columns m[0], m[1] ..., or pass over="rows"'
        try:
            found = np.asarray(statistic(means[0] if items.flat else means), dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise BadInput(f"the statistic cannot take arrays of means: {error}", fix) from error
        if found.shape != means.shape[1:]:
            raise BadInput(f"the statistic gave the shape {found.shape} for {means.shape[1]} resamples", fix)
        return found

    sums, sizes = items.sums(), items.sizes()
    total, size = sums.sum(axis=1, keepdims=True), sizes.sum(keepdims=True)
    drawn = []
    for chosen in resamples:
        drawn_sums = np.stack([np.take(column, chosen).sum(axis=1) for column in sums])
        drawn.append(at(drawn_sums, np.take(sizes, chosen).sum(axis=1)))
    return float(at(total, size)[0]), np.concatenate(drawn), at(total - sums, size - sizes)


def _over_rows(
    items: Items, statistic: Statistic, resamples: Iterator[IntArray]
) -> tuple[float, FloatArray, FloatArray]:
    """The statistic of all rows, of the rows of each resample (draws,), and of the rows without each unit (units,)."""
    values = items.values[:, 0] if items.flat else items.values
    members = items.members()

    def at(rows: FloatArray) -> float:
        found = np.asarray(statistic(rows), dtype=np.float64)
        if found.shape != ():
            raise BadInput(f"the statistic gave the shape {found.shape} for one resample, and one number is needed")
        return float(found)

    drawn = [
        at(values[np.concatenate([members[unit] for unit in chosen])] if items.clustered else values[chosen])
        for piece in resamples
        for chosen in piece
    ]
    jackknife = [at(np.delete(values, rows, axis=0)) for rows in members]
    return at(values), np.array(drawn), np.array(jackknife)


def _bounds(estimate: float, drawn: FloatArray, jackknife: FloatArray, level: float) -> tuple[float, float, str, str]:
    """Lower bound, upper bound, method and note."""
    tie = _TIE * max(abs(estimate), float(np.median(np.abs(drawn))))
    if np.abs(drawn - estimate).max() <= tie:
        return estimate, estimate, "percentile", ""
    tails, problem = _bca_tails(estimate, drawn, jackknife, level, tie)
    method, note = "bca", ""
    if problem:
        tails, method, note = ((1 - level) / 2, (1 + level) / 2), "percentile", f"percentile instead of BCa: {problem}"
    elif min(tails[0], 1 - tails[1]) * len(drawn) < 1:
        note = "a bound is the most extreme resample: more draws may move it"
    low, high = np.quantile(drawn, tails)
    return float(low), float(high), method, note


def _bca_tails(
    estimate: float, drawn: FloatArray, jackknife: FloatArray, level: float, tie: float
) -> tuple[tuple[float, float], str]:
    """Shares of the draws below each BCa bound, or what keeps them from being defined.

    Draws within `tie` of the estimate count half on each side: scores are often few-valued.
    """
    undefined = (math.nan, math.nan)
    if not np.isfinite(jackknife).all():
        return undefined, "the statistic is undefined without some unit"
    spread = jackknife.mean() - jackknife
    scale = np.abs(spread).max()
    if scale <= _TIE * np.abs(jackknife).max():
        return undefined, "the jackknife shows no spread"
    spread = spread / scale
    acceleration = (spread**3).sum() / (6 * (spread**2).sum() ** 1.5)
    bias = ndtri((np.mean(drawn < estimate - tie) + np.mean(drawn <= estimate + tie)) / 2)
    if not math.isfinite(bias):
        return undefined, "all resamples lie on one side of the estimate"
    shifted = bias + ndtri([(1 - level) / 2, (1 + level) / 2])
    shrink = 1 - acceleration * shifted
    if shrink.min() <= 0:
        return undefined, "the acceleration is too large for this level"
    low, high = ndtr(bias + shifted / shrink)
    return (float(low), float(high)), ""
