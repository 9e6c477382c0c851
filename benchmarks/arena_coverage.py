"""How often the interval of a win rate holds the truth, when prompts are resampled and when rows are.

    python benchmarks/arena_coverage.py [--replications 2000] [--prompts 200]

Each prompt has a preference of its own; both games on it mostly agree, and a clear verdict counts three times. The
truth is the weighted mean over a million prompts. Rows are resampled as the released code does it: every copy of a
clear verdict by itself.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np

from burnish.stats.bradley_terry import Comparisons, bootstrap


def games(rng: np.random.Generator, prompts: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores in [0, 1], weights and prompts of two games on each prompt."""
    liking = rng.normal(-0.4, 1.6, prompts)[:, None] + rng.normal(0, 0.5, (prompts, 2))
    score = np.where(np.abs(liking) < 0.25, 0.5, liking > 0)
    weight = np.where(np.abs(liking) > 1.5, 3.0, 1.0)
    return score.ravel(), weight.ravel(), np.repeat(np.arange(prompts), 2)


def truth() -> float:
    """The win rate that the intervals are to hold."""
    score, weight, _ = games(np.random.default_rng(99), 1_000_000)
    return float(np.average(score, weights=weight))


def coverage(by: str, replications: int, prompts: int, draws: int) -> float:
    """The share of intervals at 95 % that hold the truth."""
    target, held = truth(), 0
    for replication in range(replications):
        score, weight, prompt = games(np.random.default_rng(replication), prompts)
        if by == "rows":
            copies = weight.astype(int)
            score, weight, prompt = (np.repeat(score, copies), np.ones(copies.sum()), None)
        names = len(score)
        rows = Comparisons.of(["model"] * names, ["baseline"] * names, score, weights=weight, clusters=prompt)
        found = bootstrap(rows, "baseline", draws=draws, seed=replication).win_rate("model")
        held += not found.excludes(target)
    return held / replications


def main() -> int:
    """Print both shares; 1 where they miss what they are held to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replications", type=int, default=2000)
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--draws", type=int, default=400)
    asked = parser.parse_args()
    found = {}
    for by in ("prompts", "rows"):
        began = time.process_time()
        found[by] = coverage(by, asked.replications, asked.prompts, asked.draws)
        error = (found[by] * (1 - found[by]) / asked.replications) ** 0.5
        print(
            f"resampling {by}: {found[by]:.4f} +- {error:.4f} of {asked.replications} intervals at 0.95 hold the truth"
        )
        print(f"  {time.process_time() - began:.0f} s of processor time")
    good = found["prompts"] >= 0.93 and found["rows"] <= 0.75
    print("as required: at least 0.93 and at most 0.75" if good else "NOT as required: at least 0.93, at most 0.75")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
