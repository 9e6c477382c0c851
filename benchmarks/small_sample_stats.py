"""Times of the statistics of small evaluations; prints a table. CPU time of this process, best and worst of several runs.

python benchmarks/small_sample_stats.py
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import numpy as np

from burnish.stats import paired_binary, paired_scores
from burnish.stats.clustered import clustered
from burnish.stats.proportion import exact_coverage

SIZES = (3, 10, 30, 100, 300, 1000, 3000, 20000)


def clock(work: Callable[[], object], times: int = 5) -> list[float]:
    """CPU seconds of each run."""
    found = []
    for _ in range(times):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return found


def tables() -> list[tuple[int, int, int, int]]:
    """Tables of every size, at random and at the edges."""
    rng = np.random.default_rng(0)
    found = [(20, 0, 0, 0), (0, 10, 0, 0), (500, 0, 0, 500), (10_000, 0, 0, 10_000), (0, 500, 500, 0)]
    for n in SIZES:
        for _ in range(5):
            both, only_a, only_b, neither = (int(v) for v in rng.multinomial(n, rng.dirichlet([2, 0.7, 0.7, 1])))
            found.append((both, only_a, only_b, neither))
    return found


def main() -> None:
    """Print the times."""
    methods = ("wald", "student-t", "wilson", "clopper-pearson", "beta", "jeffreys")
    sizes = (3, 10, 30, 100, 300, 1000)

    def every_cell() -> None:
        for method, n in itertools.product(methods, sizes):
            for level in (0.8, 0.9, 0.95, 0.99):
                exact_coverage(method, n, level)
            for theta in (0.5, 0.8, 0.95):
                exact_coverage(method, n, theta=theta)

    rng = np.random.default_rng(1)
    runs: dict[str, list[float]] = {"exact coverage, 252 cells": clock(every_cell, 2)}
    clustered([1, 2], [3, 3])
    runs["clustered, 20 clusters of 5"] = clock(lambda: clustered(rng.binomial(5, 0.7, 20), [5] * 20))
    k = rng.binomial(5, rng.beta(4, 2, 1000))
    runs["clustered, 1000 clusters of 5"] = clock(lambda: clustered(k, [5] * 1000))
    n = rng.integers(1, 60, 1000)
    mixed = rng.binomial(n, rng.beta(4, 2, 1000))
    runs["clustered, 1000 clusters of 1 to 59"] = clock(lambda: clustered(mixed, n))
    large = rng.integers(100, 3000, 1000)
    hits = rng.binomial(large, rng.beta(4, 2, 1000))
    runs["clustered, 1000 clusters of 100 to 2999"] = clock(lambda: clustered(hits, large))
    runs["paired posterior, a table"] = [clock(lambda t=table: paired_binary(*t), 1)[0] for table in tables()]
    runs["Tango, a table"] = [clock(lambda t=table: paired_binary(*t, "tango"), 1)[0] for table in tables()]
    skill, items = rng.normal(0, 0.6, 20), rng.normal(0, 1, 1000)
    scores = (rng.random((20, 1000)) < 1 / (1 + np.exp(-(skill[:, None] + items + 0.5)))).astype(float)

    def all_pairs() -> None:
        for a, b in itertools.combinations(scores, 2):
            paired_scores(a, b)

    runs["20 models x 1000 items, all 190 pairs"] = clock(all_pairs, 1)
    print(f"{'what':42s} {'median ms':>10s} {'worst ms':>10s}")
    for what, seconds in runs.items():
        print(f"{what:42s} {np.median(seconds) * 1e3:10.1f} {max(seconds) * 1e3:10.1f}")


if __name__ == "__main__":
    main()
