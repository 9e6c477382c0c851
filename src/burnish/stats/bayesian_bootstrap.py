"""The Bayesian bootstrap (Rubin 1981, Ann. Statist. 9:130): an interval for any metric of weighted items.

Items are not drawn; they are weighed, by Dirichlet(1, ..., 1) weights, so that no draw loses a class or an item and a
metric such as F1 or a correlation stays defined where the ordinary bootstrap divides by zero.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from burnish.core.errors import BadInput
from burnish.stats.checks import count_faults, level_faults
from burnish.stats.interval import Interval
from burnish.stats.items import FloatArray, Items, Labels

Metric = Callable[[FloatArray, FloatArray], float]
"""Rows (n,) or (n, columns), and weights (n,) that sum to 1, to one number."""

_FEW = 20


def mean(rows: FloatArray, weights: FloatArray) -> float:
    """The weighted mean."""
    return float(weights @ rows)


def bayesian_bootstrap(
    values: ArrayLike,
    metric: Metric = mean,
    *,
    level: float = 0.95,
    draws: int = 4000,
    clusters: Labels | None = None,
    seed: int = 0,
) -> Interval:
    """Equal-tailed interval of a metric of weighted items.

    Args:
        values: (n,) or (n, columns) items.
        metric: Called with the rows and with weights once a draw.
        level: Nominal coverage.
        draws: Sets of weights.
        clusters: n labels; items of one label share their cluster's weight.
        seed: Seed of the weights.

    Raises:
        BadInput: Values or labels that cannot be used; a metric that is undefined on the items or under some weights.
    """
    faults = level_faults(level) + count_faults("draws", draws, 100) + count_faults("seed", seed, 0)
    items = Items.of(values, clusters, faults=faults)
    rows = items.values[:, 0] if items.flat else items.values
    estimate = float(metric(rows, np.full(items.n, 1 / items.n)))
    rng = np.random.Generator(np.random.PCG64(seed))
    found = np.empty(draws)
    for draw in range(draws):
        weights = rng.standard_exponential(items.units)[items.unit]
        found[draw] = metric(rows, weights / weights.sum())
    wrong = int((~np.isfinite(found)).sum())
    if wrong or not np.isfinite(estimate):
        raise BadInput(
            f"the metric is undefined on the items, or under {wrong} of {draws} sets of positive weights",
            "give a metric that is defined for any positive weights",
        )
    low, high = np.quantile(found, [(1 - level) / 2, (1 + level) / 2])
    unit = "clusters" if items.clustered else "items"
    notes = [f"only {items.units} {unit}: their spread is likely to be too small"] if items.units < _FEW else []
    if low == high:
        notes.append("zero width: equal items are not certainty")
    return Interval(
        estimate, float(low), float(high), level, items.n, items.n_clusters, "bayesian-bootstrap", "; ".join(notes)
    )
