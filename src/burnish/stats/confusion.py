"""Intervals of what is computed from a confusion table: F1, precision, recall, Jaccard and others.

Under the paper's model (arXiv 2503.01747) the four cell probabilities are Dirichlet(1, 1, 1, 1) a priori, and the paper
draws from their posterior. No draws are needed for the common metrics: sums of Dirichlet cells are Beta variables, so
precision and recall are Beta, x = TP / (TP + FP + FN) is Beta(1 + TP, 2 + FP + FN), Jaccard is x, and F1 is
2 x / (1 + x), which rises with x.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import numpy as np
from scipy import special

from burnish.core.errors import BadInput, UnknownName
from burnish.stats.checks import count_faults, level_faults
from burnish.stats.interval import Interval
from burnish.stats.items import FloatArray
from burnish.stats.proportion import bounds

Metric = Literal[
    "f1", "precision", "recall", "specificity", "jaccard", "accuracy", "mcc", "balanced-accuracy", "macro-f1"
]
Method = Literal["auto", "dirichlet", "beta", "jeffreys", "wilson", "clopper-pearson"]

_DRAWS = 40_000


def _f1(x: float) -> float:
    return 2 * x / (1 + x)


def _same(x: float) -> float:
    return x


_SHARES: dict[str, tuple[str, str, Callable[[float], float]]] = {
    "f1": ("tp", "fp fn", _f1),
    "jaccard": ("tp", "fp fn", _same),
    "precision": ("tp", "fp", _same),
    "recall": ("tp", "fn", _same),
    "specificity": ("tn", "fp", _same),
    "accuracy": ("tp tn", "fp fn", _same),
}
"""Metrics that rise with one share of items: which cells count as its successes, which as its failures, and how."""


def confusion_interval(
    tp: int,
    fp: int,
    fn: int,
    tn: int,
    metric: str = "f1",
    level: float = 0.95,
    method: str = "auto",
    seed: int = 0,
) -> Interval:
    """Interval of a metric of the confusion table with these counts.

    Args:
        tp: True positives.
        fp: False positives.
        fn: False negatives.
        tn: True negatives.
        metric: f1, jaccard, precision, recall, specificity, accuracy, mcc (Matthews correlation), balanced-accuracy, or
            macro-f1 (the mean of the F1 of both classes).
        level: Nominal coverage.
        method: "dirichlet" is the paper's posterior: in closed form where there is one, else 40,000 draws. Metrics that
            rise with one share of the items also take "beta", "jeffreys", "wilson" and "clopper-pearson", which treat
            the items that the share is of as a sample of that size. "auto": see `docs/statistics.md`.
        seed: Seed of the draws, where there are any.

    Returns:
        The estimate is the observed metric; where it is 0/0, the value in the middle of the posterior, with a note.

    Raises:
        BadInput: Counts that are no counts, an empty table, a level out of (0, 1).
        UnknownName: No such metric, or no such method for it.
    """
    if metric not in get_args(Metric):
        raise UnknownName("metric of a confusion table", metric, get_args(Metric))
    known = get_args(Method) if metric in _SHARES else ("auto", "dirichlet")
    if method not in known:
        raise UnknownName(f"interval of {metric}", method, known)
    named = {"tp": tp, "fp": fp, "fn": fn, "tn": tn}
    faults = level_faults(level) + count_faults("seed", seed, 0)
    for name, count in named.items():
        faults += count_faults(name, count, 0)
    if not faults and sum(named.values()) == 0:
        faults.append("the table is empty: no items")
    if faults:
        raise BadInput.of("no interval of a confusion table", faults)
    if metric in _SHARES:
        return _share_interval(named, metric, level, "beta" if method == "auto" else method)
    return _drawn_interval(named, metric, level, seed)


def _share_interval(counts: dict[str, int], metric: str, level: float, method: str) -> Interval:
    above, below, rises = _SHARES[metric]
    hits = sum(counts[name] for name in above.split())
    misses = sum(counts[name] for name in below.split())
    tail = (1 - level) / 2
    if method == "dirichlet":
        # Each cell brings its own 1 from the prior.
        a, b = hits + len(above.split()), misses + len(below.split())
        low, middle, high = (float(special.betaincinv(a, b, share)) for share in (tail, 0.5, 1 - tail))
    elif hits + misses:
        low, high = (float(bound[0]) for bound in bounds(np.array([hits]), hits + misses, method, level))
        middle = hits / (hits + misses)
    else:
        low, middle, high = (tail, 0.5, 1 - tail) if method in ("beta", "jeffreys") else (0.0, 0.5, 1.0)
    n = sum(counts.values())
    low, middle, high = min(max(low, 0.0), 1.0), middle, min(max(high, 0.0), 1.0)
    if hits + misses == 0:
        note = f"no item says anything about {metric}: the bounds are those of the prior"
        return Interval(rises(middle), rises(low), rises(high), level, n, None, method, note)
    return Interval(rises(hits / (hits + misses)), rises(low), rises(high), level, n, None, method)


def _drawn_interval(counts: dict[str, int], metric: str, level: float, seed: int) -> Interval:
    observed = np.array([counts[name] for name in ("tp", "fp", "fn", "tn")], dtype=np.float64)
    rng = np.random.Generator(np.random.PCG64(seed))
    function = _FUNCTIONS[metric]
    values = function(*rng.dirichlet(observed + 1, _DRAWS).T)
    low, middle, high = (float(v) for v in np.quantile(values, [(1 - level) / 2, 0.5, (1 + level) / 2]))
    with np.errstate(divide="ignore", invalid="ignore"):
        estimate = float(function(*observed[:, None])[0])
    note = ""
    if not np.isfinite(estimate):
        estimate, note = middle, f"{metric} of this table is 0/0: the estimate is the posterior median"
    return Interval(estimate, low, high, level, int(observed.sum()), None, "dirichlet", note)


def _mcc(tp: FloatArray, fp: FloatArray, fn: FloatArray, tn: FloatArray) -> FloatArray:
    return (tp * tn - fp * fn) / np.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))


def _balanced(tp: FloatArray, fp: FloatArray, fn: FloatArray, tn: FloatArray) -> FloatArray:
    return (tp / (tp + fn) + tn / (tn + fp)) / 2


def _macro_f1(tp: FloatArray, fp: FloatArray, fn: FloatArray, tn: FloatArray) -> FloatArray:
    return tp / (2 * tp + fp + fn) + tn / (2 * tn + fp + fn)


_FUNCTIONS: dict[str, Callable[[FloatArray, FloatArray, FloatArray, FloatArray], FloatArray]] = {
    "mcc": _mcc,
    "balanced-accuracy": _balanced,
    "macro-f1": _macro_f1,
}
