"""The posterior of a paired comparison by another road, as a reference for tests.

The density of delta = theta_A - theta_B is integrated by Gauss-Legendre in theta_B and atanh(rho) at Gauss-Legendre
points of delta, with the bivariate normal from Owen's T; a Legendre series gives its distribution function.
"""

from __future__ import annotations

import numpy as np
from scipy import special
from scipy.optimize import brentq

legendre = np.polynomial.legendre


def bivariate_normal(h: np.ndarray, k: np.ndarray, rho: np.ndarray) -> np.ndarray:
    h, k = (np.where(np.abs(v) < 1e-10, 1e-10, v) for v in (h, k))
    root = np.sqrt(1 - rho * rho)
    tails = special.owens_t(h, (k / h - rho) / root) + special.owens_t(k, (h / k - rho) / root)
    return (special.ndtr(h) + special.ndtr(k)) / 2 - tails - np.where(h * k < 0, 0.5, 0)


def log_posterior(table: tuple[int, ...], theta_a: np.ndarray, theta_b: np.ndarray, fisher: np.ndarray) -> np.ndarray:
    rho = np.tanh(fisher)
    neither = bivariate_normal(-special.ndtri(theta_a), -special.ndtri(theta_b), rho)
    cells = (theta_a + theta_b + neither - 1, 1 - theta_b - neither, 1 - theta_a - neither, neither)
    # Beta(4, 2) on (1 + rho) / 2, and the derivative of rho by its atanh.
    found = 3 * np.log1p(rho) + np.log1p(-rho) + np.log1p(-rho * rho)
    for count, cell in zip(table, cells, strict=True):
        if count:
            found = found + count * np.log(np.maximum(cell, 1e-300))
    return found


def reference(table: tuple[int, ...], level: float = 0.95, points: tuple[int, int, int] = (121, 70, 56)):
    """Lower bound, upper bound and P(A > B)."""
    n, cells = sum(table), (np.array(table) + 0.5) / (sum(table) + 2)
    theta_a, theta_b = cells[0] + cells[1], cells[0] + cells[2]
    scan = np.linspace(-6, 9, 3001)
    profile = log_posterior(table, theta_a, theta_b, scan)
    likely = scan[profile > profile.max() - 40]
    wide = (likely[-1] - likely[0]) / 4 + 0.1
    nodes, fisher_weights = legendre.leggauss(points[2])
    fisher = np.interp(nodes, [-1, 1], [max(likely[0] - wide, -7), min(likely[-1] + wide, 10)])
    gap = cells[1] - cells[2]
    reach = 10 * np.sqrt((cells[1] + cells[2] - gap**2) / (n + 2))
    low, high = max(gap - reach, -1), min(gap + reach, 1)
    x, delta_weights = legendre.leggauss(points[0])
    delta = np.interp(x, [-1, 1], [low, high])
    side = 10 * np.sqrt(theta_b * (1 - theta_b) / (n + 2)) + (high - low) / 2
    from_b = np.maximum(np.maximum(0, -delta), theta_b - side)
    to_b = np.minimum(np.minimum(1, 1 - delta), theta_b + side)
    y, b_weights = legendre.leggauss(points[1])
    b = from_b[:, None] + (to_b - from_b)[:, None] * (y + 1) / 2
    with np.errstate(all="ignore"):
        log = log_posterior(table, (b + delta[:, None])[..., None], b[..., None], fisher)
        density = np.exp(log - np.nanmax(log))
    density[~np.isfinite(density)] = 0
    mass = (density @ fisher_weights @ b_weights) * (to_b - from_b) * delta_weights
    order = np.arange(points[0])
    series = (legendre.legvander(x, points[0] - 1) * mass[:, None]).sum(0) * (2 * order + 1) / 2
    integral = legendre.legint(series, lbnd=-1)
    total = legendre.legval(1, integral)

    def below(at: float) -> float:
        return legendre.legval(at, integral) / total

    def quantile(share: float) -> float:
        return float(np.interp(brentq(lambda at: below(at) - share, -1, 1), [-1, 1], [low, high]))

    zero = float(np.interp(0, [low, high], [-1, 1]))
    better = float(1 - below(zero)) if low < 0 < high else float(gap > 0)
    return quantile((1 - level) / 2), quantile((1 + level) / 2), better
