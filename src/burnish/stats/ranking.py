"""How well one way of scoring ranks systems, and translations of one segment, as another way does.

Scores are matrices (segments, systems), NaN where something was not scored.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import special
from scipy.stats import kendalltau

from burnish.core.errors import BadInput
from burnish.stats.checks import level_faults
from burnish.stats.interval import Interval
from burnish.stats.items import FloatArray, Items

_CHUNK = 2**22
_DIGITS = 9
"""Decimals to which differences of scores are compared: sums of the same weights in another order are equal."""


def kendall(a: ArrayLike, b: ArrayLike) -> float:
    """Kendall's tau-b of two lists of scores; NaN when one of them is constant."""
    left, right = (np.round(np.asarray(values, dtype=float), _DIGITS) for values in (a, b))
    return float(kendalltau(left, right).statistic)


def permutation_p(scores: ArrayLike, draws: int = 1000, seed: int = 0) -> FloatArray:
    """For each pair of systems, the one-sided p-value that the first is better, by a paired permutation test.

    In each draw the two scores of every segment change places or not, one choice of segments for all pairs; the p-value is
    the share of draws whose difference is at least the observed one. Draws that equal it count half, so that p(i, j) and
    p(j, i) sum to 1 and the order of the systems does not matter.

    Args:
        scores: (segments, systems), complete.
        draws: Permutations.
        seed: Of the choices.

    Returns:
        (pairs,), in the order of `itertools.combinations`.
    """
    values = np.asarray(scores, dtype=float)
    first, second = _pairs(values.shape[1])
    observed = (values.sum(axis=0)[first] - values.sum(axis=0)[second])[None]
    rng = np.random.Generator(np.random.PCG64(seed))
    above = np.zeros(len(first))
    step = max(1, _CHUNK // len(values))
    tie = 10.0**-_DIGITS * max(1.0, float(np.abs(values).sum()))
    for start in range(0, draws, step):
        signs = rng.integers(0, 2, size=(min(step, draws - start), len(values)), dtype=np.int8) * 2.0 - 1.0
        sums = signs @ values
        null = sums[:, first] - sums[:, second]
        above += (null > observed + tie).sum(axis=0) + 0.5 * (np.abs(null - observed) <= tie).sum(axis=0)
    return above / draws


def soft_pairwise_accuracy(human: ArrayLike, metric: ArrayLike, draws: int = 1000, seed: int = 0) -> float:
    """1 minus the mean absolute difference, over pairs of systems, of the p-values that humans and the metric give.

    Pairwise accuracy without its cliff: a pair on which humans are unsure costs a sure metric something, and an unsure
    metric little (Thompson et al. 2024). The same permutations serve both.

    Args:
        human: (segments, systems), complete.
        metric: The same.
        draws: Permutations.
        seed: Of the permutations.
    """
    left, right = (permutation_p(scores, draws, seed) for scores in (human, metric))
    return float(1 - np.abs(left - right).mean())


def soft_pairwise_interval(
    human: ArrayLike, metric: ArrayLike, *, level: float = 0.95, draws: int = 1000, resamples: int = 1000, seed: int = 0
) -> Interval:
    """Soft pairwise accuracy with the bounds that other segments could have given.

    The estimate is `soft_pairwise_accuracy`; the bounds are Student's t times the spread of the accuracy over resamples of
    segments. Quantiles of the resamples will not do: p-values of a resample are noisier than those of the segments, so
    all resamples agree less, and BCa, which takes that for a bias, covers 0.72 at 20 segments where this covers 0.95.
    Each resample's p-values are those of the normal law that a sum of differences with random signs tends to,
    P(Z > sum d / sqrt(sum d^2)): a thousand resamples of a thousand permutations would take hours.

    Args:
        human: (segments, systems), complete.
        metric: The same.
        level: Nominal coverage.
        draws: Permutations of the estimate.
        resamples: Resamples of segments behind the bounds.
        seed: Of both.

    Raises:
        BadInput: fewer than two systems or segments, NaN (rows named), or a level out of (0, 1).
    """
    first, second = _pairs(np.asarray(human).shape[1])
    sides = [np.asarray(x, dtype=np.float64) for x in (human, metric)]
    apart = np.concatenate([x[:, first] - x[:, second] for x in sides], axis=1)
    items = Items.of(np.concatenate([apart, apart**2], axis=1), faults=level_faults(level))
    estimate = soft_pairwise_accuracy(human, metric, draws, seed)
    rng = np.random.Generator(np.random.PCG64(seed))
    found = []
    step = max(1, _CHUNK // items.values.size)
    for start in range(0, resamples, step):
        # How often each segment is drawn, (some, segments): the sums over a resample are one product.
        times = rng.multinomial(items.n, np.full(items.n, 1 / items.n), size=min(step, resamples - start))
        sums, squares = np.split(times @ items.values, 2, axis=1)
        p = special.ndtr(-sums / np.sqrt(np.maximum(squares, 1e-300)))
        by_human, by_metric = np.split(p, 2, axis=1)
        found.append(1 - np.abs(by_human - by_metric).mean(axis=1))
    half = -float(special.stdtrit(items.n - 1, (1 - level) / 2)) * float(np.concatenate(found).std())
    return Interval(
        estimate, max(estimate - half, 0.0), min(estimate + half, 1.0), level, items.n, None, "bootstrap-se-t"
    )


def pairwise_accuracy(human: ArrayLike, metric: ArrayLike) -> float:
    """The share of pairs of systems that both order alike; ties in both count, ties in one do not. (systems,) each."""
    left, right = (np.round(np.asarray(values, dtype=float), _DIGITS) for values in (human, metric))
    first, second = _pairs(len(left))
    return float((np.sign(left[first] - left[second]) == np.sign(right[first] - right[second])).mean())


@dataclass(frozen=True)
class TieCalibrated:
    """acc*: the best group-by-item pairwise accuracy with ties, over all thresholds."""

    accuracy: float
    """Mean over segments of the share of pairs that are concordant, or tied in both."""
    threshold: float
    """Pairs whose metric scores differ by no more than this are ties."""
    by_segment: FloatArray
    """The accuracy of each segment at that threshold, (segments,); NaN where no pair was scored by both."""
    thresholds: FloatArray
    """Every threshold that was tried, from 0."""
    accuracies: FloatArray
    """The accuracy at each."""


def tie_calibrated_accuracy(human: ArrayLike, metric: ArrayLike) -> TieCalibrated:
    """Pairwise accuracy within segments, with the threshold for ties that suits the metric best.

    Humans give many ties and most metrics none; a threshold makes them comparable (Deutsch, Foster and Freitag 2023).
    It is chosen on the very scores that are judged, as the WMT metrics task does.

    Args:
        human: (segments, systems), NaN where not scored.
        metric: The same.

    Raises:
        BadInput: the shapes differ, or no segment has two systems scored by both.
    """
    left, right = (np.asarray(scores, dtype=float) for scores in (human, metric))
    if left.shape != right.shape or left.ndim != 2:
        raise BadInput(
            f"human scores have the shape {left.shape} and the metric's {right.shape}", "give matrices alike"
        )
    first, second = _pairs(left.shape[1])
    by_human = np.sign(np.round(left[:, first] - left[:, second], _DIGITS))
    difference = np.round(right[:, first] - right[:, second], _DIGITS)
    scored = np.isfinite(by_human) & np.isfinite(difference)
    counts = scored.sum(axis=1)
    if not counts.any():
        raise BadInput("no segment has two systems that both have scored", "give scores of the same translations")
    # What each pair adds to the mean over segments.
    weight = np.divide(1.0, counts, where=counts > 0, out=np.zeros(len(counts))) / (counts > 0).sum()
    weights = np.broadcast_to(weight[:, None], scored.shape)[scored]
    untied = (np.sign(difference) == by_human)[scored].astype(float)
    tied = (by_human == 0)[scored].astype(float)
    size = np.abs(difference)[scored]
    order = np.argsort(size, kind="stable")
    gains = np.cumsum((weights * (tied - untied))[order])
    ordered = size[order]
    last = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))
    thresholds, accuracies = ordered[last], float((weights * untied).sum()) + gains[last]
    if thresholds[0] > 0:
        thresholds = np.insert(thresholds, 0, 0.0)
        accuracies = np.insert(accuracies, 0, float((weights * untied).sum()))
    # The first of equal accuracies: the smallest threshold. What differs by rounding alone is equal.
    best = int(np.argmax(np.round(accuracies, 12)))
    threshold = float(thresholds[best])
    right_pairs = np.where(np.abs(difference) <= threshold, by_human == 0, np.sign(difference) == by_human) & scored
    by_segment = np.where(counts > 0, right_pairs.sum(axis=1) / np.maximum(counts, 1), np.nan)
    return TieCalibrated(float(accuracies[best]), threshold, by_segment, thresholds, accuracies)


def _pairs(systems: int) -> tuple[np.ndarray, np.ndarray]:
    pairs = np.array(list(itertools.combinations(range(systems), 2)), dtype=np.intp).reshape(-1, 2)
    if not len(pairs):
        raise BadInput(f"a ranking of {systems} systems says nothing", "give two systems or more")
    return pairs[:, 0], pairs[:, 1]
