"""Corrections for asking several questions of one set of results."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from burnish.core.errors import BadInput
from burnish.stats.checks import count_faults, level_faults


def holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """Holm's step-down adjusted p-values, (m,), in the order given (Holm 1979, Scand. J. Statist. 6:65-70).

    Rejecting where the adjusted value is at most alpha keeps the chance of any false rejection at most alpha,
    however the tests depend on one another.

    Raises:
        BadInput: Not a flat list of numbers in [0, 1].
    """
    try:
        p = np.asarray(p_values, dtype=np.float64)
    except (TypeError, ValueError):
        raise BadInput("p_values is not a list of numbers") from None
    if p.ndim != 1:
        raise BadInput(f"p_values has the shape {p.shape}, and (m,) is needed")
    wrong = np.flatnonzero(~((p >= 0) & (p <= 1)))
    if len(wrong):
        raise BadInput.of("p-values must lie in [0, 1]", [f"number {i} (from 0): {p[i]}" for i in wrong])
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), 1.0)
    return adjusted


def bonferroni_level(level: float, m: int) -> float:
    """The level that each of `m` intervals needs so that all hold together with probability at least `level`.

    Raises:
        BadInput: `level` is not in (0, 1) or `m` is not a whole number of at least 1.
    """
    faults = level_faults(level) + count_faults("m", m, 1)
    if faults:
        raise BadInput.of("no Bonferroni level", faults)
    return 1 - (1 - level) / m
