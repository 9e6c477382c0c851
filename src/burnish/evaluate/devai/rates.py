"""Shares of requirements, with tasks as the unit of sampling."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from burnish.stats.clustered import clustered
from burnish.stats.interval import Interval


def rate(
    values: Sequence[int | None], tasks: Sequence[str], level: float, method: str = "inspect-wilson"
) -> Interval | None:
    """The share of ones among what is not None, (requirements,); None when nothing is left.

    Args:
        values: 1, 0, or None for what was not judged.
        tasks: The task of each.
        level: Confidence level.
        method: Of `burnish.stats.clustered`; a single task, which no other can bound, takes bayes.
    """
    names = {name: number for number, name in enumerate(dict.fromkeys(tasks))}
    places = np.array([names[task] for task, value in zip(tasks, values, strict=True) if value is not None], dtype=int)
    kept = np.array([value for value in values if value is not None], dtype=float)
    if not len(kept):
        return None
    sizes = np.bincount(places, minlength=len(names))
    sums = np.bincount(places, kept, minlength=len(names))
    there = sizes > 0
    return clustered(sums[there].astype(int), sizes[there], method=method if there.sum() > 1 else "bayes", level=level)
