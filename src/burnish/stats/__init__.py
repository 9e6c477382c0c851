"""Intervals, paired tests and corrections for many comparisons, on numpy and scipy alone.

Functions that are called like their module (`proportion`, `clustered`, `epochs` ...) are taken from it.
"""

# The submodule `paired` comes first: importing it binds its name here, and the function of that name is meant to win.
from burnish.stats.paired import PairedResult, mcnemar, paired_binary

# isort: split
from burnish.stats.bootstrap import bootstrap, paired, ratio
from burnish.stats.confusion import confusion_interval
from burnish.stats.interval import Interval
from burnish.stats.multiplicity import bonferroni_level, holm
from burnish.stats.permutation import PermutationResult, paired_permutation
from burnish.stats.proportion import exact_coverage
from burnish.stats.scores import mean_score, paired_scores
from burnish.stats.unpaired import unpaired_binary

__all__ = [
    "Interval",
    "PairedResult",
    "PermutationResult",
    "bonferroni_level",
    "bootstrap",
    "confusion_interval",
    "exact_coverage",
    "holm",
    "mcnemar",
    "mean_score",
    "paired",
    "paired_binary",
    "paired_permutation",
    "paired_scores",
    "ratio",
    "unpaired_binary",
]
