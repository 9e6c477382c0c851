"""Integrals of smooth posteriors of few parameters: an even lattice over the box that holds the mass.

On an even lattice the plain sum of a smooth density that has died out at the edges converges faster than any power of
the spacing (the trapezoidal rule on the whole line), so a few dozen points an axis give many digits, and nothing is
random. The box is found by looking: it shrinks around the mass and grows where mass touches an edge.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.interpolate import CubicSpline
from scipy.optimize import brentq

from burnish.stats.items import FloatArray

LogDensity = Callable[[Sequence[FloatArray]], FloatArray]
"""Axes, one flat array each, to the log density on their lattice, (len(axis 0), len(axis 1), ...)."""

_NEGLIGIBLE = 1e-9
"""Marginal density, as a share of its maximum, that is left outside the box."""
_FILLED = 0.5
"""The share of an axis that the mass must fill before the lattice counts as fine enough."""
_GROWTH = 0.3
"""The share of its width by which a box grows where mass touches an edge; small enough to stay filled."""
_COARSE = 14
"""Fewest points an axis while the box is looked for."""
_ROUNDS = 40
"""Boxes looked at before giving up; a handful are enough in practice."""


@dataclass(frozen=True)
class Lattice:
    """A posterior on an even lattice."""

    axes: tuple[FloatArray, ...]
    mass: FloatArray
    """Probability at each point; sums to 1."""

    def marginal(self, axis: int) -> FloatArray:
        """Probability at each point of one axis."""
        return self.mass.sum(axis=tuple(i for i in range(self.mass.ndim) if i != axis))


def fill(log_density: LogDensity, box: Sequence[tuple[float, float]], points: Sequence[int]) -> Lattice:
    """The posterior on a lattice of `points` over the box that holds its mass, looked for from `box` on.

    The density must have one peak, and its axes must not be so strongly correlated that a coarse lattice misses it.
    """
    edges = [(float(low), float(high)) for low, high in box]
    # The box is looked for on a coarse lattice, and then filled with a fine one.
    coarse = [max(_COARSE, count // 2) for count in points]
    for _ in range(_ROUNDS):
        lattice = _evaluate(log_density, edges, coarse)
        better = [_edges(axis, lattice.marginal(i)) for i, axis in enumerate(lattice.axes)]
        if better == edges:
            break
        edges = better
    return _evaluate(log_density, edges, points)


def _evaluate(log_density: LogDensity, edges: Sequence[tuple[float, float]], points: Sequence[int]) -> Lattice:
    axes = tuple(np.linspace(low, high, count) for (low, high), count in zip(edges, points, strict=True))
    log = log_density(axes)
    mass = np.exp(log - log.max())
    return Lattice(axes, mass / mass.sum())


def _edges(axis: FloatArray, marginal: FloatArray) -> tuple[float, float]:
    """Where the axis should begin and end: the same again where the mass fills it and touches no edge."""
    there = np.flatnonzero(marginal > _NEGLIGIBLE * marginal.max())
    first, last, end = int(there[0]), int(there[-1]), len(axis) - 1
    low, high = float(axis[0]), float(axis[-1])
    grow = _GROWTH * (high - low)
    if first == 0 or last == end:
        return low - grow * (first == 0), high + grow * (last == end)
    if last - first < _FILLED * end:
        return float(axis[first - 1]), float(axis[last + 1])
    return low, high


@dataclass(frozen=True)
class Density:
    """A smooth density of one number, known on an even axis."""

    cumulative: CubicSpline
    low: float
    high: float

    @classmethod
    def of(cls, axis: FloatArray, mass: FloatArray) -> Density:
        """From probabilities on an even axis."""
        integral = CubicSpline(axis, mass / (axis[1] - axis[0])).antiderivative()
        return cls(integral, float(axis[0]), float(axis[-1]))

    def cdfs(self, x: FloatArray) -> FloatArray:
        """Probability of at most each `x`."""
        total = float(self.cumulative(self.high))
        return np.clip(self.cumulative(np.clip(x, self.low, self.high)) / total, 0.0, 1.0)

    def cdf(self, x: float) -> float:
        """Probability of at most `x`."""
        return float(self.cdfs(np.asarray(x)))

    def quantile(self, share: float) -> float:
        """Where the cumulative probability is `share`."""
        return float(brentq(lambda x: self.cdf(x) - share, self.low, self.high, xtol=1e-12))
