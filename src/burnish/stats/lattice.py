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
_GROWTH = 0.2
"""The share of its width by which a box grows where mass touches an edge; small enough to stay filled."""
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
    edges = [tuple(map(float, edge)) for edge in box]
    mass = np.empty(0)
    axes: list[FloatArray] = []
    for _ in range(_ROUNDS):
        axes = [np.linspace(low, high, count) for (low, high), count in zip(edges, points, strict=True)]
        log = log_density(axes)
        mass = np.exp(log - log.max())
        settled = True
        for i, axis in enumerate(axes):
            marginal = mass.sum(axis=tuple(j for j in range(mass.ndim) if j != i))
            there = np.flatnonzero(marginal > _NEGLIGIBLE * marginal.max())
            first, last, end = int(there[0]), int(there[-1]), len(axis) - 1
            width = axis[-1] - axis[0]
            if first == 0 or last == end:
                settled = False
                grow = _GROWTH * width
                edges[i] = (
                    axis[0] - grow if first == 0 else axis[max(first - 1, 0)],
                    axis[-1] + grow if last == end else axis[min(last + 1, end)],
                )
            elif last - first < _FILLED * end:
                settled = False
                edges[i] = (axis[first - 1], axis[last + 1])
        if settled:
            break
    return Lattice(tuple(axes), mass / mass.sum())


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

    def cdf(self, x: float) -> float:
        """Probability of at most `x`."""
        total = float(self.cumulative(self.high))
        return min(max(float(self.cumulative(np.clip(x, self.low, self.high))) / total, 0.0), 1.0)

    def quantile(self, share: float) -> float:
        """Where the cumulative probability is `share`."""
        return float(brentq(lambda x: self.cdf(x) - share, self.low, self.high, xtol=1e-12))
