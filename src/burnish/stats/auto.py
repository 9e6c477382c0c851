"""One call from scores to an interval: it looks at what the scores are, picks the method, and says why.

Which method is picked rests on the coverage tables in docs/statistics.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from numpy.typing import ArrayLike

from burnish.core.errors import BadInput
from burnish.stats.interval import Interval
from burnish.stats.items import Labels
from burnish.stats.paired import PairedResult
from burnish.stats.scores import mean_score, paired_scores, unpaired_scores


@dataclass(frozen=True)
class Choice:
    """What was found, and why in this way."""

    result: Interval | PairedResult
    """An interval of one model's mean, or a comparison of two."""
    why: str
    """One sentence."""

    @property
    def interval(self) -> Interval:
        """The interval, of one model or of a difference."""
        return self.result if isinstance(self.result, Interval) else self.result.interval


def choose(
    a: ArrayLike,
    b: ArrayLike | None = None,
    *,
    clusters: Labels | None = None,
    clusters_b: Labels | None = None,
    weights: ArrayLike | None = None,
    paired: bool = True,
    level: float = 0.95,
    scale: tuple[float, float] = (0.0, 1.0),
) -> Choice:
    """The interval of a model's mean score, or of the difference of two models' means.

    Args:
        a: (n,) scores of one model.
        b: Scores of another; of the same items in the same order when `paired`.
        clusters: Labels of the items of `a`, and of `b` when paired.
        clusters_b: Labels of the items of `b` when not paired.
        weights: Weights of the items of one model.
        paired: Whether `a` and `b` are the same items.
        level: Nominal coverage.
        scale: Least and greatest possible score of one model.

    Raises:
        BadInput: Scores, labels or weights that cannot be used, or that are given where they have no meaning.
    """
    faults = []
    if b is not None and weights is not None:
        faults.append("weights: comparisons take none")
    if clusters_b is not None and (b is None or paired):
        faults.append("clusters_b: only for two models on different items")
    if faults:
        raise BadInput.of("no interval", faults)
    labels = None if clusters is None else list(clusters)
    many = "in clusters" if labels is not None else "one by one"
    if b is None:
        found = mean_score(a, labels, weights, level, scale=scale)
        return Choice(found, _WHY_ONE[found.method].format(many=many))
    if paired:
        result = paired_scores(a, b, labels, level)
        return Choice(result, _WHY_PAIRED[result.interval.method])
    result = unpaired_scores(a, b, labels, clusters_b, level)
    return Choice(result, _WHY_UNPAIRED[result.interval.method])


_WHY_ONE = {
    "beta": "right or wrong answers, {many}: the posterior of a proportion covers at 3 items what it says",
    "bayes": "right or wrong answers in clusters: the beta-binomial posterior learns how alike clusters are",
    "beta-effective": "right or wrong answers in many clusters: a proportion of as many items as say the same",
    "logit-t": "scores on a bounded scale, {many}: Student's t on the logit keeps the bounds on the scale",
    "student-t": "scores without bounds, {many}: Student's t on the mean",
}
_WHY_PAIRED = {
    "probit": "right or wrong answers of both models to the same items: the paired posterior uses how they agree",
    "tango": "clustered or all alike: Tango's interval at the effective number of items is never of zero width",
    "student-t": "scores of both models on the same items: Student's t on their differences",
}
_WHY_UNPAIRED = {
    "beta": "right or wrong answers to different items: the difference of two independent posteriors",
    "bayes": "right or wrong answers to different items in clusters: the difference of two clustered posteriors",
    "newcombe": "all scores of a model are alike: Newcombe's interval is never of zero width",
    "welch-t": "scores on different items: Welch's t on the difference of means",
}
