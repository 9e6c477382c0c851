"""Arena-Hard-Auto and BenchBuilder: from prompts to a benchmark, from answers to judgments, from judgments to ranks.

`arena curate` makes the benchmark, `arena judge` plays the games, `arena score` turns them into win rates, and `arena
validity` says what a leaderboard is worth. Each works on files of the released benchmark, and each writes what the
next one reads.
"""

from burnish.core.method import Paper

PAPER = Paper(
    title="From Crowdsourced Data to High-Quality Benchmarks: Arena-Hard and BenchBuilder Pipeline",
    authors="Li, Chiang, Frick, Dunlap, Wu, Zhu, Gonzalez, Stoica",
    year=2025,
    venue="ICML 2025",
    arxiv="2406.11939",
)
