"""Standard errors that logs state, and what they should have been."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from burnish.core.errors import BadInput
from burnish.stats.interval import Interval

CLOSE = 0.02
"""Relative difference up to which a stated standard error agrees: n for n - 1 is closer from 26 items on."""


def sample_error(values: ArrayLike, clusters: ArrayLike | None = None) -> float | None:
    """The standard error of the mean, with n - 1; of C clusters, Miller's (2024) with the factor C / (C - 1).

    Args:
        values: A score an item, (n,): runs of an item are averaged first, or their noise is counted twice.
        clusters: A label an item, (n,).

    Returns:
        None for fewer than two items, or clusters.

    Raises:
        BadInput: lengths that differ.
    """
    scores = np.asarray(values, dtype=np.float64)
    if clusters is None:
        return float(scores.std(ddof=1) / math.sqrt(len(scores))) if len(scores) > 1 else None
    labels = np.asarray(clusters)
    if len(labels) != len(scores):
        raise BadInput(f"{len(labels)} clusters for {len(scores)} items")
    _, places = np.unique(labels, return_inverse=True)
    sums = np.bincount(places, scores - scores.mean())
    count = len(sums)
    return float(math.sqrt((sums**2).sum() * count / (count - 1)) / len(scores)) if count > 1 else None


def share_error(share: float, n: int) -> float | None:
    """The standard error of a share of n right answers, with n - 1; None for one item."""
    return math.sqrt(max(share * (1 - share), 0.0) / (n - 1)) if n > 1 else None


def stated_interval(estimate: float, stderr: float, n: int, level: float) -> Interval:
    """The interval that a stated standard error gives by the central limit theorem; nothing better can be said of it."""
    reach = -float(special.ndtri((1 - level) / 2)) * stderr
    return Interval(estimate, estimate - reach, estimate + reach, level, n, None, "stated-stderr")


def doubt(estimate: float, stated: float | None, due: float | None) -> str:
    """What is wrong with a stated standard error; empty when nothing is.

    Args:
        estimate: The figure beside it.
        stated: The standard error that a log states.
        due: The one that its items give.
    """
    if stated is None:
        return ""
    if stated == 0 and 0 < estimate < 1:
        should = f": it should be {due:.3g}" if due else ""
        return f"the stated standard error is exactly 0 beside a score of {estimate:.4g}, which is impossible{should}"
    if stated == 0:
        return f"the stated {estimate:g} ± 0 is no precision: equal scores have no spread, at any number of items"
    if due is not None and due > 0 and abs(stated - due) > CLOSE * due:
        return f"the stated standard error is {stated:.3g}; the items give {due:.3g}"
    return ""
