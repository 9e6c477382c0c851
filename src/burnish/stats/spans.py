"""Precision, recall and F1 of marked spans, character by character, with intervals over whole segments."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from burnish.core.errors import BadInput
from burnish.stats.bootstrap import bootstrap
from burnish.stats.interval import Interval
from burnish.stats.items import Labels


def character_counts(gold: NDArray[np.integer], predicted: NDArray[np.integer]) -> tuple[float, int, int]:
    """Credit, predicted characters and gold characters of one text.

    A character that both mark earns 1 when the severities are equal and 1/2 when they differ, the convention of WMT's
    quality-estimation task.

    Args:
        gold: The severity of each character, (characters,): 0 for none.
        predicted: The same for the prediction.
    """
    if gold.shape != predicted.shape:
        raise BadInput(f"gold has {gold.shape} characters and the prediction {predicted.shape}", "mark one text")
    both = (gold > 0) & (predicted > 0)
    same = int((both & (gold == predicted)).sum())
    return (same + int(both.sum())) / 2, int((predicted > 0).sum()), int((gold > 0).sum())


def f1(credit: Any, predicted: Any, gold: Any) -> Any:
    """The harmonic mean of credit/predicted and credit/gold; 0 where nothing is right, NaN where nothing is marked.

    Args:
        credit: Sums or means, a number or an array.
        predicted: The same.
        gold: The same.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.divide(2.0 * np.asarray(credit), np.add(predicted, gold))


def span_f1(counts: ArrayLike, clusters: Labels, level: float = 0.95, seed: int = 0) -> Interval:
    """Micro-averaged F1 with a bootstrap interval over whole clusters.

    Args:
        counts: (ratings, 3): credit, predicted, gold, as `character_counts` gives them.
        clusters: The segment of each rating: ratings of one source are not independent.
        level: Nominal coverage.
        seed: Of the resamples.

    Raises:
        BadInput: fewer than two clusters, or nothing is marked at all.
    """
    return bootstrap(counts, lambda m: f1(m[0], m[1], m[2]), clusters=clusters, level=level, seed=seed)


def span_f1_difference(
    counts: ArrayLike, against: ArrayLike, clusters: Labels, level: float = 0.95, seed: int = 0
) -> Interval:
    """F1 of one prediction minus that of another on the same ratings, (ratings, 3) each; the rest as in `span_f1`."""
    both = np.column_stack([counts, against])
    return bootstrap(
        both, lambda m: f1(m[0], m[1], m[2]) - f1(m[3], m[4], m[5]), clusters=clusters, level=level, seed=seed
    )


def linear_f1(counts: ArrayLike, clusters: Labels) -> dict[str, float]:
    """Each cluster's share in a micro-averaged F1: numbers whose mean is that F1 and whose spread is its own.

    F1 is a ratio of sums, 2 sum(c) / sum(p + g), which no mean over ratings is. With C and D the sums of 2c and of p + g in a
    cluster, and M clusters, F1 + M (C - F1 D) / sum(D) is what the delta method makes of it: the mean over clusters is F1
    exactly, and its standard error is that of F1 to first order. Differences of two F1 on the same clusters are then mean
    differences.

    Args:
        counts: (ratings, 3): credit, predicted, gold, as `character_counts` gives them.
        clusters: The segment of each rating.

    Returns:
        Cluster, as text, to its number, in order of first appearance.

    Raises:
        BadInput: nothing is marked at all.
    """
    rows = np.asarray(counts, dtype=float)
    names = [str(name) for name in clusters]
    places = {name: place for place, name in enumerate(dict.fromkeys(names))}
    sums = np.zeros((len(places), 2))
    np.add.at(sums, [places[name] for name in names], np.column_stack([2 * rows[:, 0], rows[:, 1] + rows[:, 2]]))
    above, below = sums.T
    if below.sum() <= 0:
        raise BadInput("neither the ratings nor the predictions mark anything", "F1 is not defined there")
    whole = above.sum() / below.sum()
    values = whole + len(places) * (above - whole * below) / below.sum()
    return dict(zip(places, values.tolist(), strict=True))
