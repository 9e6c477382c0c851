"""How well a benchmark tells models apart, and whether a reference agrees: three figures over all pairs of models.

* Separability with confidence: the share of pairs whose intervals do not overlap.
* Agreement with confidence: +1 for a pair that the benchmark and the reference both separate in the same order, -1 in
  opposite orders, 0 where either does not separate it; the mean over all pairs.
* Pair-rank Brier score: the mean of (P(a above b) - 1[the reference has a above b])², each pair once.

Source: Li et al., arXiv 2406.11939, section 3 and appendix A.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.special import ndtr, ndtri

from burnish.core.errors import BadInput
from burnish.stats.checks import is_number, level_faults
from burnish.stats.items import FloatArray


@dataclass(frozen=True)
class Bounds:
    """Scores of models with their intervals; more is better."""

    names: tuple[str, ...]
    scores: FloatArray
    low: FloatArray
    high: FloatArray

    @classmethod
    def of(cls, names: Sequence[str], scores: Sequence[float], low: Sequence[float], high: Sequence[float]) -> Bounds:
        """Check scores and intervals, as many of each as names.

        Raises:
            BadInput: listing all faults.
        """
        faults = [] if len(names) > 1 else [f"{len(names)} model, and a pair needs 2"]
        if len(set(names)) < len(names):
            faults.append("a model occurs twice")
        if not len(names) == len(scores) == len(low) == len(high):
            faults.append(f"{len(names)} names, {len(scores)} scores, {len(low)} and {len(high)} bounds")
        for name, *three in zip(names, scores, low, high, strict=False):
            if not all(map(is_number, three)):
                faults.append(f"{name}: {three} are not three numbers")
            elif three[1] > three[2]:
                faults.append(f"{name}: the bounds {three[1]} and {three[2]} are crossed")
        if faults:
            raise BadInput.of("these standings cannot be used", faults)
        return cls(tuple(names), *(np.array(values, dtype=np.float64) for values in (scores, low, high)))

    def only(self, names: Sequence[str]) -> Bounds:
        """Those models, in that order."""
        place = [self.names.index(name) for name in names]
        return Bounds(tuple(names), self.scores[place], self.low[place], self.high[place])

    def order(self, a: int, b: int) -> int:
        """1 where a is above b with confidence, -1 where below, 0 where their intervals overlap or touch."""
        return int(self.low[a] > self.high[b]) - int(self.low[b] > self.high[a])

    def pairs(self) -> list[tuple[int, int]]:
        """Every pair of models once."""
        return list(combinations(range(len(self.names)), 2))


def separability(bounds: Bounds) -> float:
    """The share of pairs whose intervals do not overlap."""
    return float(np.mean([bounds.order(a, b) != 0 for a, b in bounds.pairs()]))


def agreement(bounds: Bounds, reference: Bounds) -> tuple[float, float | None]:
    """Agreement with confidence: over all pairs, and over those that both separate (None where there are none).

    Args:
        bounds: The benchmark.
        reference: The same models in the same order.
    """
    _same(bounds, reference)
    votes = [bounds.order(a, b) * reference.order(a, b) for a, b in bounds.pairs()]
    both = [vote for vote in votes if vote]
    return float(np.mean(votes)), float(np.mean(both)) if both else None


def pair_brier(above: FloatArray, reference: Bounds) -> float:
    """The pair-rank Brier score; pairs that the reference ties are left out.

    Args:
        above: (models, models); row a, column b holds the benchmark's probability that a is above b.
        reference: The same models in the same order.

    Raises:
        BadInput: a shape that does not fit, values outside [0, 1], or a reference that ties every pair.
    """
    size = len(reference.names)
    if above.shape != (size, size) or not ((above >= 0) & (above <= 1)).all():
        raise BadInput(f"probabilities of shape {above.shape}, or outside [0, 1], for {size} models")
    gaps = [
        (above[a, b] - (reference.scores[a] > reference.scores[b])) ** 2
        for a, b in reference.pairs()
        if reference.scores[a] != reference.scores[b]
    ]
    if not gaps:
        raise BadInput("the reference ties every pair of models", "give scores that differ")
    return float(np.mean(gaps))


def above_from_draws(draws: FloatArray) -> FloatArray:
    """P(a above b), (models, models), from scores in the same resamples, (draws, models); a tie counts half."""
    return np.asarray(
        np.mean(draws[:, :, None] > draws[:, None, :], axis=0)
        + np.mean(draws[:, :, None] == draws[:, None, :], axis=0) / 2
    )


def above_from_bounds(bounds: Bounds, level: float = 0.95) -> FloatArray:
    """P(a above b), (models, models), as if scores were independent and normal with these intervals.

    Scores of models on the same prompts are not independent, so draws are better where there are any.
    """
    if faults := level_faults(level):
        raise BadInput.of("this level cannot be used", faults)
    spread = (bounds.high - bounds.low) / (2 * ndtri((1 + level) / 2))
    scale = np.hypot(spread[:, None], spread[None, :])
    gap = bounds.scores[:, None] - bounds.scores[None, :]
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.where(gap == 0, 0.0, gap / scale)
    return np.asarray(ndtr(z))


def _same(bounds: Bounds, reference: Bounds) -> None:
    if bounds.names != reference.names:
        raise BadInput("the two hold other models, or in another order", "take `only` the common ones of both")
