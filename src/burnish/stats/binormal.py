"""The bivariate normal distribution cut into its four quadrants, on a lattice of thresholds and correlations."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from burnish.stats.items import FloatArray

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)
_STEP = 1 / np.sqrt(3)
"""Gauss's two nodes on [-1, 1]."""


class Cells(NamedTuple):
    """Probabilities that X lies below a and Y below b, X alone, Y alone, and neither."""

    both: FloatArray
    only_a: FloatArray
    only_b: FloatArray
    neither: FloatArray


def cdf(a: ArrayLike, b: ArrayLike, rho: ArrayLike) -> FloatArray:
    """P(X <= a, Y <= b) of a standard bivariate normal pair of correlation `rho`; the arguments broadcast.

    Plackett's formula (1954): the derivative by the correlation is the density, here integrated from 0 along
    rho = sin(angle), where the integrand stays smooth up to rho = 1.
    """
    a, b, rho = np.broadcast_arrays(*(np.asarray(v, dtype=np.float64) for v in (a, b, rho)))
    half = np.arcsin(rho) / 2
    total = np.zeros(a.shape)
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        total += weight * _slope(a, b, *_sine(half * (1 + node)))
    return np.asarray(special.ndtr(a) * special.ndtr(b) + half * total / (2 * np.pi))


def cells_over(a: FloatArray, b: FloatArray, fisher: FloatArray) -> Cells:
    """The four cells for every correlation tanh(fisher), `fisher` flat and evenly rising: (*a.shape, len(fisher)).

    At correlation 1 (or -1) the cells are known, and the integral of the density from there only adds to the smaller
    ones: a cell of 1e-9 keeps its digits, which differences of distribution functions would lose.
    """
    right_a, wrong_a, right_b, wrong_b = (special.ndtr(v)[..., None] for v in (a, -a, b, -b))
    below, above = _integrals(a, b, fisher)
    only_a, only_b = np.maximum(wrong_b - wrong_a, 0) + above, np.maximum(wrong_a - wrong_b, 0) + above
    neither, both = np.maximum(wrong_a - right_b, 0) + below, np.maximum(right_a - wrong_b, 0) + below
    # Positive correlations from above, negative ones from below; the rest by subtraction.
    split = int(np.searchsorted(fisher, 0.0))
    both[..., split:], neither[..., split:] = right_a - only_a[..., split:], wrong_b - only_a[..., split:]
    only_a[..., :split], only_b[..., :split] = wrong_b - neither[..., :split], wrong_a - neither[..., :split]
    return Cells(both, only_a, only_b, neither)


def _integrals(a: FloatArray, b: FloatArray, fisher: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The density integrated over correlations from -1 up to each one, and from each one up to 1."""
    step = (fisher[1] - fisher[0]) / 2
    middle = (fisher[1:] + fisher[:-1]) / 2
    pieces = np.zeros((*a.shape, len(middle)))
    for node in (-_STEP, _STEP):
        z = middle + node * step
        # d(angle) = dz / cosh(z)
        pieces += _slope(a[..., None], b[..., None], np.tanh(z), 1 / np.cosh(z)) / np.cosh(z)
    pieces *= step
    ends = [_beyond(a, -b, -fisher[0]), _beyond(a, b, fisher[-1])]
    below = np.cumsum(np.concatenate([ends[0][..., None], pieces], axis=-1), axis=-1)
    above = np.cumsum(np.concatenate([ends[1][..., None], pieces[..., ::-1]], axis=-1), axis=-1)[..., ::-1]
    return below / (2 * np.pi), above / (2 * np.pi)


def _beyond(a: FloatArray, b: FloatArray, fisher: float) -> FloatArray:
    """2 pi times the density integrated over correlations from tanh(fisher) up to 1."""
    # Measured from rho = 1, where sines of small angles keep their digits.
    half = np.arctan2(1 / np.cosh(fisher), np.tanh(fisher)) / 2
    total = np.zeros(a.shape)
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        gap = half * (1 + node)
        total += weight * _slope(a, b, np.cos(gap), np.sin(gap))
    return np.asarray(half * total)


def _sine(angle: FloatArray) -> tuple[FloatArray, FloatArray]:
    return np.sin(angle), np.cos(angle)


def _slope(a: FloatArray, b: FloatArray, sine: ArrayLike, cosine: ArrayLike) -> FloatArray:
    """2 pi times the derivative of the distribution function by the angle whose sine is the correlation."""
    sine, cosine = np.asarray(sine), np.asarray(cosine)
    square = np.maximum(cosine**2, 1e-300)
    # (a^2 + b^2 - 2 a b s) / (2 c^2) is (a - b)^2 / (2 c^2) + a b / (1 + s), without cancellation near s = 1, and
    # (a + b)^2 / (2 c^2) - a b / (1 - s) near s = -1; of the two, the one whose terms stay small.
    near = np.where(sine >= 0, 1.0, -1.0)
    exponent = (a - near * b) ** 2 * (-0.5 / square)
    exponent -= (a * b) * (near / (1 + np.abs(sine)))
    return np.asarray(np.exp(exponent))
