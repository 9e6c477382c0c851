"""How often each interval of burnish.stats holds the truth: the tables of docs/statistics.md.

    python benchmarks/coverage.py [panel ...] [--quick]

Panels: proportion, paired, unpaired, f1 (exact sums over all tables, no simulation but for paired tables of 100 items),
clustered, clustered-paired, runs-paired, windows, scores (simulated, with the Monte Carlo error printed), prior-sampling.
Every panel first says in words how its data arise. Under the prior a Bayesian interval covers its level by construction, so the rows that tell something are
those at fixed parameters.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
from scipy import special, stats

from burnish.stats.binormal import cdf
from burnish.stats.bootstrap import bootstrap
from burnish.stats.clustered import clustered
from burnish.stats.interval import Interval
from burnish.stats.paired import paired_binary
from burnish.stats.proportion import bounds, exact_coverage
from burnish.stats.scores import mean_score, paired_scores
from burnish.stats.student import student_mean, student_ratio
from burnish.stats.unpaired import unpaired_binary

LEVEL = 0.95
RATES = (0.5, 0.8, 0.95)
FAR = (*RATES, 0.99)
SIZES = (5, 10, 30, 100)
Row = tuple[str, list[float]]
Pair = tuple[np.ndarray, np.ndarray]
Law = tuple[Callable[[int], Pair], float, float]
"""How losses of two models on n windows arise, and their two true means."""


def proportion_panel(quick: bool = False) -> tuple[str, list[str], list[Row]]:
    """Coverage of one proportion."""
    words = (
        "One model, n independent items, each right with probability theta. Columns: theta uniform on (0, 1), then fixed. "
        "Exact: sums over the number of right answers."
    )
    sizes = (3, *SIZES) if quick else (3, *SIZES, 300, 1000)
    rows = [
        (
            f"{method:15s} n={n}",
            [exact_coverage(method, n), *(exact_coverage(method, n, theta=theta) for theta in RATES)],
        )
        for method in ("wald", "student-t", "bootstrap", "wilson", "clopper-pearson", "beta", "jeffreys")
        for n in sizes
    ]
    return words, ["uniform", *map(str, RATES)], rows


def f1_panel(quick: bool = False) -> tuple[str, list[str], list[Row]]:
    """Coverage of F1 by four intervals on x = TP / (TP + FP + FN)."""
    words = (
        "n items fall into TP, FP, FN, TN. F1 rises with x = TP / (TP + FP + FN), so its interval covers when that of x "
        "does; the number of items that are no true negatives is binomial, and TP among them is too. Columns: the four "
        "cells from Dirichlet(1, 1, 1, 1), then fixed F1 with 30 % true negatives. Exact sums."
    )
    fixed = (0.5, 0.7, 0.9, 0.97)
    rows = []
    for method in ("dirichlet", "beta", "jeffreys", "wilson", "clopper-pearson"):
        for n in SIZES:
            # x ~ Beta(1, 2) and the share of non-negatives ~ Beta(3, 1), independent under the Dirichlet prior.
            average = sum(stats.betabinom.pmf(m, n, 3, 1) * _x_coverage(method, m, prior=(1, 2)) for m in range(n + 1))
            at = [
                sum(stats.binom.pmf(m, n, 0.7) * _x_coverage(method, m, x=f1 / (2 - f1)) for m in range(n + 1))
                for f1 in fixed
            ]
            rows.append((f"{method:15s} n={n}", [average, *at]))
    return words, ["dirichlet", *(f"F1={f1}" for f1 in fixed)], rows


def _x_coverage(method: str, m: int, *, x: float | None = None, prior: tuple[int, int] = (1, 1)) -> float:
    """Coverage of x given that m items are no true negatives."""
    k = np.arange(m + 1)
    tail = (1 - LEVEL) / 2
    if method == "dirichlet":
        low, high = special.betaincinv(1 + k, 2 + m - k, tail), special.betaincinv(1 + k, 2 + m - k, 1 - tail)
    elif m:
        low, high = bounds(k, m, method, LEVEL)
    else:
        wide = method in ("wilson", "clopper-pearson")
        low, high = np.array([0.0 if wide else tail]), np.array([1.0 if wide else 1 - tail])
    if x is not None:
        return float(stats.binom.pmf(k, m, x) @ ((low <= x) & (x <= high)))
    a, b = prior
    inside = special.betainc(a + k, b + m - k, np.clip(high, 0, 1)) - special.betainc(
        a + k, b + m - k, np.clip(low, 0, 1)
    )
    return float(stats.betabinom.pmf(k, m, a, b) @ inside)


def unpaired_panel(quick: bool = False) -> tuple[str, list[str], list[Row]]:
    """Coverage of the difference of two independent proportions."""
    words = (
        "Two models on n items each, different ones, right with probabilities theta_A and theta_B. Columns: fixed pairs "
        "of them. Exact sums over all pairs of counts. (theta_A, theta_B uniform: 0.95 for beta by construction.)"
    )
    places = [(0.5, 0.5), (0.8, 0.8), (0.95, 0.95), (0.5, 0.8), (0.8, 0.95), (0.5, 0.95)]
    rows = []
    for method in ("beta", "newcombe", "wald"):
        for n in (5, 10) if quick else (5, 10, 30):
            found = {
                (i, j): unpaired_binary(i, n, j, n, method=method).interval
                for i, j in itertools.product(range(n + 1), repeat=2)
            }
            rows.append((f"{method:15s} n={n}", [_unpaired_at(found, n, *place) for place in places]))
    return words, [f"{a},{b}" for a, b in places], rows


def _unpaired_at(found: dict[tuple[int, int], Interval], n: int, a: float, b: float) -> float:
    p, q = (stats.binom.pmf(np.arange(n + 1), n, theta) for theta in (a, b))
    return float(sum(p[i] * q[j] for (i, j), interval in found.items() if _holds(interval, a - b)))


def paired_panel(quick: bool = False) -> tuple[str, list[str], list[Row]]:
    """Coverage of the difference of two models on the same items."""
    words = (
        "Two models on the same n items. An item is a pair of standard normals of correlation rho; a model is right where "
        "its own lies below its threshold. Columns: theta_A, theta_B and rho from the prior (1,000 draws, error 0.007; "
        "probit covers 0.95 of it by construction), then fixed (theta_A, theta_B, rho). Exact sums over "
        "all tables up to 10 items; 30 and 100 items: 150 random tables a cell (error 0.018)."
    )
    places = [
        (0.5, 0.5, 0.3), (0.8, 0.8, 0.3), (0.95, 0.95, 0.3), (0.8, 0.8, 0.9), (0.95, 0.95, 0.9),
        (0.5, 0.8, 0.3), (0.8, 0.95, 0.6), (0.5, 0.95, 0.3),
    ]  # fmt: skip
    rng = np.random.Generator(np.random.PCG64(1))
    rows = []
    for method in ("probit", "tango", "wald"):
        interval = _paired_cache(method)
        for n in (5, 10) if quick else (5, 10, 30, 100):
            draws = [(*rng.random(2), 2 * rng.beta(4, 2) - 1) for _ in range(200 if quick else 1000)]
            held = [_holds(interval(tuple(rng.multinomial(n, _cells(*d)))), d[0] - d[1]) for d in draws]
            average = float(np.mean(held))
            at = []
            for place in places:
                cells = _cells(*place)
                if n <= 10:
                    tables = list(_tables(n))
                    chance = stats.multinomial.pmf(np.array(tables), n, cells)
                    held = [_holds(interval(table), place[0] - place[1]) for table in tables]
                    at.append(float(chance @ np.array(held)))
                else:
                    drawn = rng.multinomial(n, cells, size=150)
                    at.append(float(np.mean([_holds(interval(tuple(t)), place[0] - place[1]) for t in drawn])))
            rows.append((f"{method:15s} n={n}", [average, *at]))
    return words, ["prior", *(f"{a},{b},{rho}" for a, b, rho in places)], rows


def _paired_cache(method: str) -> Callable[[tuple[int, ...]], Interval]:
    @cache
    def one_side(both: int, only_a: int, only_b: int, neither: int) -> Interval:
        return paired_binary(both, only_a, only_b, neither, method).interval

    def interval(table: tuple[int, ...]) -> Interval:
        return one_side(*(int(count) for count in table))

    return interval


def _tables(n: int) -> Iterator[tuple[int, int, int, int]]:
    for s in range(n + 1):
        for t in range(n + 1 - s):
            for u in range(n + 1 - s - t):
                yield s, t, u, n - s - t - u


def _cells(a: float, b: float, rho: float) -> list[float]:
    """Both right, only A, only B, neither."""
    neither = float(cdf(-special.ndtri(a), -special.ndtri(b), rho))
    cells = [a + b + neither - 1, 1 - b - neither, 1 - a - neither, neither]
    total = sum(max(cell, 0.0) for cell in cells)
    return [max(cell, 0.0) / total for cell in cells]


CLUSTERED = (
    "bayes",
    "beta-effective",
    "inspect-wilson",
    "inspect-t",
    "miller",
    "cluster-bootstrap",
    "within-bootstrap",
)


def clustered_panel(quick: bool = False) -> tuple[str, list[str], list[Row]]:
    """Coverage of one proportion from clusters of five."""
    draws = 150 if quick else 600
    words = (
        "One model, T clusters of 5 items. d ~ Gamma(1, 1); a cluster's own rate ~ Beta(d theta, d (1 - theta)). Columns: "
        "theta uniform, then fixed; then fixed with clusters that are all alike, as runs of equally hard items are "
        f"(d infinite). {draws} simulated evaluations a cell (error {0.5 / math.sqrt(draws):.3f} at worst, "
        f"{math.sqrt(0.05 * 0.95 / draws):.3f} at 0.95); the two bootstraps over a tenth of them."
    )
    rng = np.random.Generator(np.random.PCG64(2))
    rows: dict[str, list[float]] = {}

    @cache
    def interval(method: str, k: tuple[int, ...]) -> Interval:
        return clustered(k, [5] * len(k), method)

    for clusters in (2, 6, 20) if quick else (2, 6, 20, 60):
        for place, alike in (("prior", False), *((rate, False) for rate in FAR), *((rate, True) for rate in FAR)):
            held: dict[str, list[bool]] = {method: [] for method in CLUSTERED}
            for draw in range(draws):
                theta = float(rng.random()) if place == "prior" else float(place)
                d = rng.gamma(1.0)
                rates = rng.beta(max(d * theta, 1e-9), max(d * (1 - theta), 1e-9), clusters)
                if alike:
                    rates = np.full(clusters, theta)
                k = rng.binomial(5, rates)
                for method in CLUSTERED:
                    if "bootstrap" in method and draw % 10:
                        continue
                    held[method].append(_holds(interval(method, tuple(sorted(k.tolist()))), theta))
            for method in CLUSTERED:
                rows.setdefault(f"{method:17s} T={clusters}", []).append(float(np.mean(held[method])))
    ordered = sorted(rows.items(), key=lambda row: CLUSTERED.index(row[0].split()[0]))
    return words, ["uniform", *map(str, FAR), *(f"{rate} alike" for rate in FAR)], ordered


def clustered_paired_panel(quick: bool = False) -> tuple[str, list[str], list[Row]]:
    """Coverage of a paired difference from clusters of five."""
    draws = 150 if quick else 400
    words = (
        "Two models on the same T clusters of 5 items. Each model has its own rate in each cluster, Beta(d theta, "
        "d (1 - theta)) with d = 2, from one shared uniform with probability 1/2, else independent; items are then "
        f"independent. Columns: fixed (theta_A, theta_B). {draws} simulated evaluations a cell."
    )
    places = [(0.5, 0.5), (0.8, 0.8), (0.95, 0.95), (0.5, 0.8), (0.8, 0.95)]
    methods = ("tango", "student-t")
    rng = np.random.Generator(np.random.PCG64(3))
    rows: dict[str, list[float]] = {}
    for clusters in (3, 10) if quick else (3, 6, 20, 60):
        labels = np.repeat(np.arange(clusters), 5)
        for a, b in places:
            held: dict[str, list[bool]] = {method: [] for method in methods}
            for _ in range(draws):
                shared, own = rng.random(clusters), rng.random((2, clusters))
                same = rng.random(clusters) < 0.5
                u = np.where(same, shared, own)
                rates = [stats.beta.ppf(u[i], 2 * theta, 2 * (1 - theta)) for i, theta in enumerate((a, b))]
                x, y = ((rng.random(len(labels)) < np.repeat(rate, 5)).astype(float) for rate in rates)
                for method in methods:
                    held[method].append(_holds(paired_scores(x, y, labels, method=method).interval, a - b))
            for method in methods:
                rows.setdefault(f"{method:15s} T={clusters}", []).append(float(np.mean(held[method])))
    return words, [f"{a},{b}" for a, b in places], sorted(rows.items(), key=lambda r: methods.index(r[0].split()[0]))


def runs_paired_panel(quick: bool = False) -> tuple[str, list[str], list[Row]]:
    """Coverage of a paired difference from several runs of each item."""
    draws = 100 if quick else 400
    words = (
        "Two models on the same T items, 4 runs of each. Each model has its own rate on each item, Beta(d theta, "
        "d (1 - theta)), from one shared uniform with probability 1/2, else independent; d = 0.5 (an item's runs mostly "
        "agree) in the first columns, d = 8 (they mostly do not) in the others. Columns: fixed (theta_A, theta_B). "
        f"{draws} simulated evaluations a cell (error {math.sqrt(0.05 * 0.95 / draws):.3f})."
    )
    places = [(d, a, b) for d in (0.5, 8) for a, b in ((0.5, 0.5), (0.95, 0.95), (0.5, 0.8), (0.8, 0.95), (0.9, 0.98))]
    methods = ("tango", "student-t")
    rng = np.random.Generator(np.random.PCG64(6))
    rows: dict[str, list[float]] = {}
    for items in (5, 15) if quick else (5, 15, 30, 100):
        for d, a, b in places:
            held: dict[str, list[bool]] = {method: [] for method in methods}
            for _ in range(draws):
                u = rng.random((2, items))
                u[1] = np.where(rng.random(items) < 0.5, u[0], u[1])
                x, y = (
                    rng.binomial(4, np.clip(stats.beta.ppf(u[i], d * theta, d * (1 - theta)), 0, 1)) / 4
                    for i, theta in enumerate((a, b))
                )
                for method in methods:
                    held[method].append(
                        _holds(paired_scores(x, y, method=method, runs=np.full(items, 4)).interval, a - b)
                    )
            for method in methods:
                rows.setdefault(f"{method:15s} T={items}", []).append(float(np.mean(held[method])))
    ordered = sorted(rows.items(), key=lambda row: methods.index(row[0].split()[0]))
    return words, [f"d={d:g} {a},{b}" for d, a, b in places], ordered


def windows_panel(quick: bool = False) -> tuple[str, list[str], list[Row]]:
    """Coverage of the mean difference and of the ratio of mean losses of two quantized models on few windows of text."""
    times = 200 if quick else 1000
    words = (
        "Losses a and b of two models on n windows; what makes a window hard is shared. Columns: lognormal with standard "
        "deviation .3, .6 and 1 of the logarithms (correlation .9); b gamma of shape 1 or 4 and a in proportion; a "
        "difference of heavy tails (t with 3 degrees of freedom); a lognormal difference of standard deviation 1 (few "
        "windows make all the gain). Rows from ratio on hold the ratio of means, the others the mean difference. "
        f"{times} simulated evaluations a cell (error {math.sqrt(0.05 * 0.95 / times):.3f})."
    )
    rng = np.random.Generator(np.random.PCG64(7))

    def lognormal(s: float) -> Law:
        def draw(n: int) -> Pair:
            z, own = rng.standard_normal((2, n))
            return np.exp(s * z - 0.2), np.exp(s * (0.9 * z + math.sqrt(0.19) * own))

        return draw, math.exp(s**2 / 2 - 0.2), math.exp(s**2 / 2)

    def gamma(shape: float) -> Law:
        def draw(n: int) -> Pair:
            b = rng.gamma(shape, 1 / shape, n)
            return 0.9 * b * rng.gamma(4 * shape, 1 / (4 * shape), n), b

        return draw, 0.9, 1.0

    def heavy(n: int) -> Pair:
        b = 3 + rng.gamma(4, 0.25, n)
        return b - 0.1 + 0.1 * rng.standard_t(3, n), b

    def few(n: int) -> Pair:
        b = 5 + rng.gamma(4, 0.25, n)
        return b - np.exp(rng.standard_normal(n) - 0.5), b

    laws: dict[str, Law] = {
        **{f"lognormal {s}": lognormal(s) for s in (0.3, 0.6, 1)},
        **{f"gamma {shape}": gamma(shape) for shape in (1, 4)},
        "heavy": (heavy, 3.9, 4.0),
        "few": (few, 5.0, 6.0),
    }
    rows: dict[str, list[float]] = {}
    for n in (12, 24, 48):
        for draw, above, below in laws.values():
            held: dict[str, list[bool]] = {}
            for _ in range(times):
                a, b = draw(n)
                found = {
                    "student-t": student_mean(a - b),
                    "bca": bootstrap(a - b, draws=1000),
                    "ratio fieller-t": student_ratio(a, b),
                    "ratio bca": bootstrap(np.column_stack([a, b]), lambda m: m[0] / m[1], draws=1000),
                }
                for method, interval in found.items():
                    truth = above / below if method.startswith("ratio") else above - below
                    held.setdefault(method, []).append(_holds(interval, truth))
            for method, values in held.items():
                rows.setdefault(f"{method:15s} n={n}", []).append(float(np.mean(values)))
    order = ("student-t", "bca", "ratio fieller-t", "ratio bca")
    return words, list(laws), sorted(rows.items(), key=lambda row: order.index(row[0].rpartition("n=")[0].strip()))


def scores_panel(quick: bool = False) -> tuple[str, list[str], list[Row]]:
    """Coverage of the mean of scores in [0, 1] that are not binary."""
    draws = 200 if quick else 800
    words = (
        "One model, n independent scores in [0, 1]. Columns: Beta(0.5, 0.5), nearly right or wrong; Beta(8, 2), high "
        "marks; half of the items exactly 1 and the rest uniform; 80 % exactly 1 and the rest uniform; five grades 0, "
        f"1/4 ... 1 with probabilities .05 .05 .1 .2 .6. {draws} simulated evaluations a cell (the bootstrap: an eighth)."
    )
    grades = np.linspace(0, 1, 5)
    chance = np.array([0.05, 0.05, 0.1, 0.2, 0.6])
    kinds: dict[str, tuple[Callable[[np.random.Generator, int], np.ndarray], float]] = {
        "arcsine": (lambda rng, n: rng.beta(0.5, 0.5, n), 0.5),
        "high": (lambda rng, n: rng.beta(8, 2, n), 0.8),
        "half 1": (lambda rng, n: np.where(rng.random(n) < 0.5, 1.0, rng.random(n)), 0.75),
        "most 1": (lambda rng, n: np.where(rng.random(n) < 0.8, 1.0, rng.random(n)), 0.9),
        "grades": (lambda rng, n: rng.choice(grades, n, p=chance), float(grades @ chance)),
    }
    rng = np.random.Generator(np.random.PCG64(4))
    rows: dict[str, list[float]] = {}
    for n in SIZES:
        for draw, mean in kinds.values():
            held: dict[str, list[bool]] = {"logit-t": [], "student-t": [], "bootstrap": []}
            for number in range(draws):
                x = draw(rng, n)
                for method in ("logit-t", "student-t"):
                    held[method].append(_holds(mean_score(x, method=method), mean))
                if number % 8 == 0:
                    held["bootstrap"].append(_holds(bootstrap(x, draws=1000), mean))
            for method, values in held.items():
                rows.setdefault(f"{method:15s} n={n}", []).append(float(np.mean(values)))
    order = ("logit-t", "student-t", "bootstrap")
    return words, list(kinds), sorted(rows.items(), key=lambda row: order.index(row[0].split()[0]))


def prior_sampling_panel(quick: bool = False) -> tuple[str, list[str], list[Row]]:
    """What becomes of 10,000 draws from the prior, weighed by the likelihood of a paired table."""
    words = (
        "Paired tables with shares .5, .2, .15, .15 (both, only A, only B, neither). 10,000 draws of theta_A, theta_B and "
        "rho from the prior, weighed by the likelihood, as the paper's code does (here with the exact bivariate normal). "
        "Columns: effective sample size, the 95 % bounds that two runs give, and those of the lattice."
    )
    rng = np.random.Generator(np.random.PCG64(5))
    rows = []
    for n in (10, 30, 100, 300, 1000, 3000):
        table = [n // 2, n // 5, round(0.15 * n)]
        table.append(n - sum(table))
        sizes, drawn = [], []
        for _ in range(2):
            a, b = rng.random((2, 10_000))
            neither = cdf(-special.ndtri(a), -special.ndtri(b), 2 * rng.beta(4, 2, 10_000) - 1)
            log = np.array(table) @ np.log(
                np.maximum([a + b + neither - 1, 1 - b - neither, 1 - a - neither, neither], 1e-300)
            )
            weights = np.exp(log - log.max())
            sizes.append(float(weights.sum() ** 2 / (weights**2).sum()))
            drawn += np.quantile(rng.choice(a - b, 10_000, p=weights / weights.sum()), [0.025, 0.975]).tolist()
        exact = paired_binary(*table).interval
        rows.append((f"prior-sampling n={n}", [float(np.mean(sizes)), *drawn, exact.low, exact.high]))
    return words, ["ESS", "low 1", "high 1", "low 2", "high 2", "low", "high"], rows


def _holds(interval: Interval, truth: float) -> bool:
    return interval.low - 1e-12 <= truth <= interval.high + 1e-12


PANELS: dict[str, Callable[[bool], tuple[str, list[str], list[Row]]]] = {
    "proportion": proportion_panel,
    "f1": f1_panel,
    "unpaired": unpaired_panel,
    "paired": paired_panel,
    "clustered": clustered_panel,
    "clustered-paired": clustered_paired_panel,
    "runs-paired": runs_paired_panel,
    "windows": windows_panel,
    "scores": scores_panel,
    "prior-sampling": prior_sampling_panel,
}


def main() -> None:
    """Print the panels."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("panels", nargs="*", default=list(PANELS))
    parser.add_argument("--quick", action="store_true", help="smaller: seconds a panel")
    asked = parser.parse_args()
    for name in asked.panels:
        words, columns, rows = PANELS[name](asked.quick)
        print(f"\n## {name}\n{words}\n")
        print(f"| {'method':24s} | " + " | ".join(columns) + " |")
        print("|" + "---|" * (len(columns) + 1))
        for label, values in rows:
            print(f"| {label:24s} | " + " | ".join(f"{value:.3f}" for value in values) + " |")


if __name__ == "__main__":
    main()
