"""The best clip of a uniform grid for Gaussian numbers, from first principles."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import ndtr

TERNARY = math.log2(3)
"""Bits of three levels."""


def levels(bits: float, clip: float) -> np.ndarray:
    """The levels of a grid over [-clip, clip]: 2^bits of them, evenly; with an even number of them there is no 0.

    Args:
        bits: 1 to 8, or `TERNARY`.
        clip: Where the outermost levels lie.
    """
    return np.linspace(-clip, clip, round(2**bits))


def mean_squared_error(bits: float, clip: float) -> float:
    """E (q(x) - x)² of a standard Gaussian x rounded to the nearest of `levels`.

    In closed form: with the borders halfway between levels, each cell gives the second moment of a Gaussian about its
    level.
    """
    points = levels(bits, clip)
    borders = np.concatenate([[-np.inf], (points[1:] + points[:-1]) / 2, [np.inf]])
    density = np.exp(-(borders**2) / 2) / math.sqrt(2 * math.pi)
    inner = np.where(np.isfinite(borders), borders, 0.0) * density
    low, high = slice(0, -1), slice(1, None)
    mass = ndtr(borders[high]) - ndtr(borders[low])
    first = density[low] - density[high]  # the integral of x over the cell
    second = mass + inner[low] - inner[high]  # of x²
    return float((second - 2 * points * first + points**2 * mass).sum())


@cache
def best_clip(bits: float) -> float:
    """The clip with the smallest mean squared error."""
    found = minimize_scalar(lambda clip: mean_squared_error(bits, clip), bounds=(0.1, 8.0), method="bounded")
    return float(found.x)
