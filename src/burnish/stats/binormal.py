"""The bivariate normal distribution on a lattice of means and correlations."""

from __future__ import annotations

import numpy as np
from scipy import special

from burnish.stats.items import FloatArray

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)
_BETWEEN, _BETWEEN_WEIGHTS = np.polynomial.legendre.leggauss(4)


def cdf(a: FloatArray, b: FloatArray, rho: FloatArray | float) -> FloatArray:
    """P(X <= a, Y <= b) of a standard bivariate normal pair of correlation `rho`; the arguments broadcast.

    Plackett's formula (1954): its derivative by the correlation is the density, here integrated from 0 along
    rho = sin(angle), where the integrand stays smooth up to rho = 1.
    """
    a, b, rho = np.broadcast_arrays(np.asarray(a, float), np.asarray(b, float), np.asarray(rho, float))
    half = np.arcsin(rho) / 2
    total = np.zeros(a.shape)
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        total += weight * _slope(a, b, half * (1 + node))
    return special.ndtr(a) * special.ndtr(b) + half * total / (2 * np.pi)


def cdf_over(a: FloatArray, b: FloatArray, rho: FloatArray) -> FloatArray:
    """`cdf` for every correlation in the rising flat array `rho`, (*a.shape, len(rho)).

    The integral over the correlation is accumulated from one value to the next, so that a whole lattice costs little
    more than its own size.
    """
    angles = np.arcsin(rho)
    start = int(np.argmin(np.abs(angles)))
    found = np.empty((*a.shape, len(rho)))
    found[..., start] = cdf(a, b, rho[start])
    half = np.diff(angles) / 2
    middle = (angles[1:] + angles[:-1]) / 2
    steps = np.zeros((*a.shape, len(half)))
    for node, weight in zip(_BETWEEN, _BETWEEN_WEIGHTS, strict=True):
        steps += weight * _slope(a[..., None], b[..., None], middle + half * node)
    steps *= half / (2 * np.pi)
    found[..., start + 1 :] = found[..., start, None] + np.cumsum(steps[..., start:], axis=-1)
    found[..., :start] = found[..., start, None] - np.cumsum(steps[..., :start][..., ::-1], axis=-1)[..., ::-1]
    return found


def _slope(a: FloatArray, b: FloatArray, angle: FloatArray) -> FloatArray:
    """2 pi times the derivative of the distribution function by the angle."""
    sine, cosine = np.sin(angle), np.cos(angle)
    # (a - b)^2 + 2 a b (1 - sine) is a^2 + b^2 - 2 a b sine without its cancellation near rho = 1.
    scale = -0.5 / np.maximum(cosine**2, 1e-300)
    exponent = (a - b) ** 2 * scale + (a * b) * (2 * (1 - sine) * scale)
    return np.exp(np.minimum(exponent, 0.0))
