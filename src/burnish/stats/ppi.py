"""Prediction-powered inference: a mean from few human labels and many labels of a judge model.

The judge's mean over all items is corrected by its mean error on the items that humans labelled as well. PPI++
(Angelopoulos, Duchi and Zrnic 2023, arXiv 2311.01453) weighs the judge by how much it is worth, so that a useless judge
costs nothing. The computation is that of the package ppi-python, `pip install "burnish[ppi]"`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from burnish.core.errors import BadInput
from burnish.core.extras import require
from burnish.stats.checks import is_number, level_faults
from burnish.stats.interval import Interval
from burnish.stats.items import FloatArray

_FEW = 100
"""Labelled items below which the normal approximation is doubtful."""


def prediction_powered_mean(
    labels: ArrayLike,
    judged: ArrayLike,
    judged_only: ArrayLike,
    *,
    level: float = 0.95,
    weight: float | None = None,
    scale: tuple[float, float] | None = (0.0, 1.0),
) -> Interval:
    """Interval of the mean human label.

    Args:
        labels: (n,) human labels.
        judged: (n,) the judge's labels of the same items, in the same order.
        judged_only: (N,) the judge's labels of items without human labels.
        level: Nominal coverage.
        weight: How much the judge counts: 0 not at all, 1 as in the first version of PPI, None for the best.
        scale: Least and greatest possible label, to which bounds are cut; None for labels without bounds.

    Returns:
        `n` is the number of human labels. The interval is asymptotic: with few labels it is too narrow, and says so.

    Raises:
        BadInput: Labels that are NaN, infinite or do not fit together, fewer than two of either kind.
        MissingExtra: ppi-python is not installed.
    """
    y, yhat, rest = _checked(labels, judged, judged_only, level, weight)
    require("prediction-powered inference", "ppi")
    from ppi_py import ppi_mean_ci, ppi_mean_pointestimate

    estimate = float(ppi_mean_pointestimate(y, yhat, rest, lam=weight)[0])
    low, high = (float(v[0]) for v in ppi_mean_ci(y, yhat, rest, alpha=1 - level, lam=weight))
    notes = []
    if len(y) < _FEW:
        notes.append(f"only {len(y)} human labels: the interval rests on the central limit theorem")
    if scale is not None and (low < scale[0] or high > scale[1]):
        notes.append(f"it reached beyond the scale: [{low:.3g}, {high:.3g}] before it was cut")
        low, high = max(low, scale[0]), min(high, scale[1])
    if low == high:
        notes.append("zero width: equal labels are not certainty")
    return Interval(estimate, low, high, level, len(y), None, "ppi++" if weight is None else "ppi", "; ".join(notes))


def _checked(
    labels: ArrayLike, judged: ArrayLike, judged_only: ArrayLike, level: float, weight: float | None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    faults = level_faults(level)
    if weight is not None and not (is_number(weight) and 0 <= weight <= 1):
        faults.append(f"weight: {weight!r} is not in [0, 1]")
    arrays = []
    for name, values in (("labels", labels), ("judged", judged), ("judged_only", judged_only)):
        try:
            array = np.asarray(values, dtype=np.float64)
        except (TypeError, ValueError):
            array = np.empty(0)
        if array.ndim != 1 or len(array) < 2 or not np.isfinite(array).all():
            faults.append(f"{name}: at least two finite numbers are needed, one an item")
        arrays.append(array)
    if not faults and len(arrays[0]) != len(arrays[1]):
        faults.append(f"labels has {len(arrays[0])} items and judged {len(arrays[1])}: they must be the same items")
    if faults:
        raise BadInput.of("no prediction-powered mean", faults)
    return arrays[0], arrays[1], arrays[2]
