"""Intervals, paired tests and corrections for many comparisons, on numpy and scipy alone."""

from burnish.stats.bootstrap import bootstrap, paired, ratio
from burnish.stats.interval import Interval
from burnish.stats.multiplicity import bonferroni_level, holm
from burnish.stats.permutation import PermutationResult, paired_permutation

__all__ = [
    "Interval",
    "PermutationResult",
    "bonferroni_level",
    "bootstrap",
    "holm",
    "paired",
    "paired_permutation",
    "ratio",
]
