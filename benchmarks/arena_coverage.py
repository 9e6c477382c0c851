"""How often the interval of a win rate holds the truth, when prompts are resampled and when games are.

    python benchmarks/arena_coverage.py [--replications 2000] [--prompts 200]

The judgments are made up as in the claim `arena` (`burnish.claims.arena`). Games are resampled as the released code does
it: every copy of a clear verdict by itself.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Literal

from burnish.claims.arena import interval


def coverage(by: Literal["prompts", "games"], replications: int, prompts: int, draws: int) -> float:
    """The share of intervals at 95 % that hold the truth."""
    return sum(interval(by, number, prompts, draws)[0] for number in range(replications)) / replications


def main() -> int:
    """Print both shares; 1 where they miss what they are held to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replications", type=int, default=2000)
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--draws", type=int, default=400)
    asked = parser.parse_args()
    ways: tuple[Literal["prompts", "games"], ...] = ("prompts", "games")
    found = {}
    for by in ways:
        began = time.process_time()
        found[by] = coverage(by, asked.replications, asked.prompts, asked.draws)
        error = (found[by] * (1 - found[by]) / asked.replications) ** 0.5
        print(
            f"resampling {by}: {found[by]:.4f} +- {error:.4f} of {asked.replications} intervals at 0.95 hold the truth"
        )
        print(f"  {time.process_time() - began:.0f} s of processor time")
    good = found["prompts"] >= 0.93 and found["games"] <= 0.75
    print("as required: at least 0.93 and at most 0.75" if good else "NOT as required: at least 0.93, at most 0.75")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
