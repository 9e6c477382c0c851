"""Student's t for the mean of a few skewed numbers, and for the ratio of two means of the same items (Fieller 1954).

For some two dozen items whose numbers are skewed or heavy-tailed these cover closer to their level than the bootstrap
(docs/statistics.md): resamples of few items vary by less than samples do, by a factor (n - 1) / n in the variance, and
the corrections of BCa are themselves estimated from those few items.

A ratio is held to a value by the difference: r is inside when the mean of a - r b cannot be told from 0. So a ratio and a
difference never contradict each other, and a ratio below 1 is the same finding as a difference below 0.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from burnish.core.errors import BadInput
from burnish.stats.checks import level_faults
from burnish.stats.interval import Interval
from burnish.stats.items import FloatArray, Items, Labels

_TIE = 1e-12
"""Errors this small against the numbers themselves come from rounding sums alone."""


def student_mean(values: ArrayLike, *, level: float = 0.95, clusters: Labels | None = None) -> Interval:
    """Mean of (n,) numbers, one an item.

    With clusters, the error is that of the linearised ratio of cluster sums to cluster sizes, and there is one degree of
    freedom less than there are clusters.

    Args:
        values: (n,) one number an item.
        level: Nominal coverage in (0, 1).
        clusters: n labels; None where items are independent.

    Raises:
        BadInput: NaN or infinite values (rows named), fewer than two units, labels that do not fit, a level out of (0, 1).
    """
    items = Items.of(values, clusters, faults=level_faults(level))
    if not items.flat:
        raise BadInput("the mean of rows is not one number", "give one number an item")
    (mean,), covariance = _moments(items)
    half = _quantile(items, level) * math.sqrt(covariance[0, 0])
    return _interval(items, float(mean), float(mean) - half, float(mean) + half, level, "student-t")


def student_ratio(a: ArrayLike, b: ArrayLike, *, level: float = 0.95, clusters: Labels | None = None) -> Interval:
    """Mean of a over mean of b, of the same items, (n,) each in the same order; b's mean has to be positive.

    Where b's mean is not clearly above 0 nothing is known of the ratio: the bounds are infinite, and the note says so.

    Args:
        a: What is above the line.
        b: What is below it.
        level: Nominal coverage in (0, 1).
        clusters: n labels; None where items are independent.

    Raises:
        BadInput: As for `student_mean`; b's mean is 0 or below.
    """
    items = Items.of_pair(a, b, clusters, faults=level_faults(level))
    (above, below), covariance = _moments(items)
    if below <= 0:
        raise BadInput(f"the mean below the line is {below:g}", "a ratio needs one above 0")
    t = _quantile(items, level)
    ratio = float(above / below)
    # r with (above - r below)^2 <= t^2 Var(above - r below): between the roots of square r^2 - 2 middle r + rest.
    square = below**2 - t**2 * covariance[1, 1]
    middle = above * below - t**2 * covariance[0, 1]
    rest = above**2 - t**2 * covariance[0, 0]
    if square <= _TIE * below**2:
        note = "no bounds, since what is divided by is not clearly above 0"
        return Interval(ratio, -math.inf, math.inf, level, items.n, items.n_clusters, "fieller-t", note)
    root = math.sqrt(max(middle**2 - square * rest, 0.0))
    return _interval(items, ratio, float((middle - root) / square), float((middle + root) / square), level, "fieller-t")


def _moments(items: Items) -> tuple[FloatArray, FloatArray]:
    """Means of the columns, (columns,), and their covariance over units, (columns, columns)."""
    means = items.values.mean(axis=0)
    sums = items.sums() - np.outer(means, items.sizes())
    scale = np.abs(items.values).max(axis=0)[:, None]
    # What a unit differs by through rounding alone is no spread.
    sums = np.where(np.abs(sums) > _TIE * scale * items.sizes(), sums, 0.0)
    return means, items.units / (items.units - 1) * (sums @ sums.T) / items.n**2


def _quantile(items: Items, level: float) -> float:
    return -float(special.stdtrit(items.units - 1, (1 - level) / 2))


def _interval(items: Items, estimate: float, low: float, high: float, level: float, method: str) -> Interval:
    unit = "clusters" if items.clustered else "items"
    note = f"zero width: all {items.units} {unit} agree, which is not certainty" if low == high else ""
    return Interval(estimate, low, high, level, items.n, items.n_clusters, method, note)
