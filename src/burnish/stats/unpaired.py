"""Two models on different items, right or wrong: the difference of two independent proportions, or their odds ratio.

Each model's rate has the posterior Beta(1 + k, 1 + n - k). The distribution of the difference (or of the log odds
ratio) is one integral over B's rate of A's distribution function, done by Gauss-Legendre quadrature; the paper (arXiv
2503.01747) draws from both posteriors instead, with the noise that brings.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy import special
from scipy.optimize import brentq

from burnish.core.errors import BadInput, UnknownName
from burnish.stats.checks import count_faults, level_faults
from burnish.stats.clustered import posterior
from burnish.stats.interval import Interval
from burnish.stats.items import FloatArray
from burnish.stats.lattice import Density
from burnish.stats.paired import PairedResult
from burnish.stats.proportion import bounds

Measure = Literal["difference", "odds-ratio"]
Method = Literal["beta", "newcombe", "wald", "fisher"]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(120)
_OUTSIDE = 1e-14
"""Posterior probability left outside the range of integration, on each side."""


def unpaired_binary(
    k_a: int,
    n_a: int,
    k_b: int,
    n_b: int,
    measure: str = "difference",
    level: float = 0.95,
    method: str = "beta",
) -> PairedResult:
    """Compare k_a right of n_a items with k_b right of n_b other items.

    Args:
        k_a: Right answers of A.
        n_a: Items that A was asked.
        k_b: Right answers of B.
        n_b: Items that B was asked.
        measure: "difference" is theta_A - theta_B, "odds-ratio" the odds of A over those of B.
        level: Nominal coverage.
        method: "beta" for the posterior. Baselines: "newcombe" (Wilson intervals combined, Newcombe 1998) and "wald"
            for a difference, "fisher" (exact conditional interval) for an odds ratio.

    Returns:
        The interval, P(A > B) of the posteriors whatever the method, and the posterior mean (of the odds ratio its
        median, for its mean may be infinite). The estimate is the observed difference; the conditional
        maximum-likelihood odds ratio for "fisher", the posterior median for "beta".

    Raises:
        BadInput: Counts that are no counts, more right answers than items, a level out of (0, 1).
        UnknownName: No such measure, or no such method for it.
    """
    if measure not in get_args(Measure):
        raise UnknownName("measure of two proportions", measure, get_args(Measure))
    known = ("beta", "newcombe", "wald") if measure == "difference" else ("beta", "fisher")
    if method not in known:
        raise UnknownName(
            f"interval of {'a difference' if measure == 'difference' else 'an odds ratio'}", method, known
        )
    _check(k_a, n_a, k_b, n_b, level_faults(level))
    a, b = (1 + k_a, 1 + n_a - k_a), (1 + k_b, 1 + n_b - k_b)
    better = 1 - _below(0.0, a, b, logit=False)
    n = int(n_a + n_b)
    if measure == "odds-ratio":
        median = float(np.exp(_quantile(0.5, a, b, logit=True)))
        if method == "fisher":
            from scipy import stats

            found = stats.contingency.odds_ratio([[k_a, n_a - k_a], [k_b, n_b - k_b]])
            bound = found.confidence_interval(level)
            estimate, low, high = float(found.statistic), float(bound.low), float(bound.high)
            if np.isnan(estimate):
                raise BadInput("both models are all right or all wrong: the odds ratio is undefined", "method 'beta'")
            return PairedResult(Interval(estimate, low, high, level, n, None, method), better, median, "odds-ratio")
        low, high = (float(np.exp(_quantile(share, a, b, logit=True))) for share in _tails(level))
        return PairedResult(Interval(median, low, high, level, n, None, method), better, median, "odds-ratio")
    estimate = k_a / n_a - k_b / n_b
    mean = a[0] / sum(a) - b[0] / sum(b)
    note = ""
    if method == "beta":
        low, high = (_quantile(share, a, b, logit=False) for share in _tails(level))
    else:
        low, high = _newcombe(k_a, n_a, k_b, n_b, level) if method == "newcombe" else _wald(k_a, n_a, k_b, n_b, level)
        if low < -1 or high > 1:
            note = f"{method} reached beyond the scale: [{low:.3g}, {high:.3g}] before it was cut to [-1, 1]"
            low, high = max(low, -1.0), min(high, 1.0)
        if low == high:
            note = "zero width: equal scores are not certainty; use beta or newcombe"
    return PairedResult(Interval(estimate, low, high, level, n, None, method, note), better, mean)


def unpaired_clustered(
    successes_a: ArrayLike, sizes_a: ArrayLike, successes_b: ArrayLike, sizes_b: ArrayLike, level: float = 0.95
) -> PairedResult:
    """theta_A - theta_B of models asked different items in clusters; see `burnish.stats.clustered` for the posterior.

    Raises:
        BadInput: As in `clustered`.
    """
    a, b = posterior(successes_a, sizes_a), posterior(successes_b, sizes_b)
    density = Density.of(a.lattice.axes[0], a.lattice.marginal(0))
    rates, mass = special.expit(b.lattice.axes[0]), b.lattice.marginal(0)

    def below(x: float) -> float:
        at = np.clip(rates + x, 1e-12, 1 - 1e-12)
        held = np.where(rates + x >= 1, 1.0, np.where(rates + x <= 0, 0.0, density.cdfs(special.logit(at))))
        return float(mass @ held)

    low, high = (float(brentq(lambda x, s=share: below(x) - s, -1, 1, xtol=1e-10)) for share in _tails(level))
    (k_a, n_a), (k_b, n_b) = (
        (int(np.sum(k)), int(np.sum(n))) for k, n in ((successes_a, sizes_a), (successes_b, sizes_b))
    )
    clusters = len(np.asarray(sizes_a)) + len(np.asarray(sizes_b))
    found = Interval(k_a / n_a - k_b / n_b, low, high, level, n_a + n_b, clusters, "bayes")
    return PairedResult(found, 1 - below(0.0), a.mean - b.mean)


def _tails(level: float) -> tuple[float, float]:
    return (1 - level) / 2, (1 + level) / 2


Beta = tuple[int, int]


def _quantile(share: float, a: Beta, b: Beta, *, logit: bool) -> float:
    """Where the distribution of A minus B reaches `share`; of their logits, with `logit`."""
    edge = 1.0
    while logit and not (_below(-edge, a, b, logit=True) < share < _below(edge, a, b, logit=True)):
        edge *= 2
    return float(brentq(lambda x: _below(x, a, b, logit=logit) - share, -edge, edge, xtol=1e-11))


def _below(x: float, a: Beta, b: Beta, *, logit: bool) -> float:
    """P(A - B <= x) of two independent Beta variables, or of their logits."""
    (a_low, a_high), (b_low, b_high) = _range(a, logit), _range(b, logit)
    low, high = max(b_low, a_low - x), min(b_high, a_high - x)
    # Where B + x lies above the whole range of A, A is below it for sure.
    surely = _above(max(a_high - x, b_low), b, logit)
    if low >= high:
        return surely
    nodes = low + (high - low) * (_NODES + 1) / 2
    density = _density(nodes, b, logit) * special.betainc(*a, special.expit(nodes + x) if logit else nodes + x)
    return float(min(max(surely + (high - low) / 2 * float(_WEIGHTS @ density), 0.0), 1.0))


def _range(of: Beta, logit: bool) -> tuple[float, float]:
    low, high = special.betaincinv(*of, _OUTSIDE), special.betainccinv(*of, _OUTSIDE)
    if logit:
        # From the other side: 1 - x keeps no digits near 1.
        return float(special.logit(low)), -float(special.logit(special.betaincinv(of[1], of[0], _OUTSIDE)))
    return float(low), float(high)


def _above(x: float, of: Beta, logit: bool) -> float:
    if logit:
        return float(special.betainc(of[1], of[0], special.expit(-x)))
    return float(special.betaincc(*of, min(max(x, 0.0), 1.0)))


def _density(x: FloatArray, of: Beta, logit: bool) -> FloatArray:
    alpha, beta = of
    if logit:
        log = alpha * special.log_expit(x) + beta * special.log_expit(-x) - special.betaln(alpha, beta)
        return np.asarray(np.exp(log))
    inside = np.clip(x, 0.0, 1.0)
    log = special.xlogy(alpha - 1, inside) + special.xlog1py(beta - 1, -inside) - special.betaln(alpha, beta)
    return np.asarray(np.exp(log))


def _newcombe(k_a: int, n_a: int, k_b: int, n_b: int, level: float) -> tuple[float, float]:
    (low_a, high_a), (low_b, high_b) = (
        (float(bound[0]) for bound in bounds(np.array([k]), n, "wilson", level)) for k, n in ((k_a, n_a), (k_b, n_b))
    )
    p_a, p_b = k_a / n_a, k_b / n_b
    return (
        p_a - p_b - float(np.hypot(p_a - low_a, high_b - p_b)),
        p_a - p_b + float(np.hypot(high_a - p_a, p_b - low_b)),
    )


def _wald(k_a: int, n_a: int, k_b: int, n_b: int, level: float) -> tuple[float, float]:
    p_a, p_b = k_a / n_a, k_b / n_b
    half = -float(special.ndtri((1 - level) / 2)) * float(np.sqrt(p_a * (1 - p_a) / n_a + p_b * (1 - p_b) / n_b))
    return p_a - p_b - half, p_a - p_b + half


def _check(k_a: int, n_a: int, k_b: int, n_b: int, faults: list[str]) -> None:
    found = list(faults)
    for side, k, n in (("a", k_a, n_a), ("b", k_b, n_b)):
        wrong = count_faults(f"k_{side}", k, 0) + count_faults(f"n_{side}", n, 1)
        if not wrong and k > n:
            wrong.append(f"k_{side}: {k} of only {n} items")
        found += wrong
    if found:
        raise BadInput.of("no unpaired comparison", found)
