"""Metrics for Inspect's scorers: intervals that are right for few samples, at the end of every evaluation.

    from burnish.evaluate.inspect_metrics import bayes_ci, cluster_bayes_ci

    @scorer(metrics=[accuracy(), bayes_ci()])
    def my_scorer(): ...

    @scorer(metrics=[accuracy(), cluster_bayes_ci("topic")])
    def my_other_scorer(): ...

Inspect reduces epochs before it computes metrics: a sample is one item here, whatever the number of its runs. Its own
`ci()` (Student's t) covers 50 % of the time at 3 samples and 79 % at 10, where 95 % is meant.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from burnish.core.errors import BadInput, MissingExtra
from burnish.stats.auto import choose

try:
    # Inspect looks at the types of a metric's parameters when it runs, so SampleScore is imported for good.
    from inspect_ai.scorer import Metric, SampleScore, metric, value_to_float
except ImportError as error:
    raise MissingExtra("metrics for Inspect", "inspect", ["inspect_ai"]) from error


@metric
def bayes_ci(level: float = 0.95, to_float: Any = None) -> Metric:
    """The interval of the mean of independent samples, as {"lower", "upper"}.

    Scores of 0 and 1 have the posterior Beta(1 + k, 1 + n - k); others an interval of their mean.

    Args:
        level: Nominal coverage in (0, 1).
        to_float: From a score's value to a number; by default Inspect's own rule (C is 1, P is .5, I and N are 0).
    """
    return _metric(level, to_float, None)


@metric
def cluster_bayes_ci(cluster: str, level: float = 0.95, to_float: Any = None) -> Metric:
    """The interval of the mean of samples in clusters, as {"lower", "upper"}.

    Scores of 0 and 1 have the clustered Beta-binomial posterior, which has no zero width even for one cluster.

    Args:
        cluster: The key of the samples' metadata that names a sample's cluster.
        level: Nominal coverage in (0, 1).
        to_float: As in `bayes_ci`.
    """
    return _metric(level, to_float, cluster)


def _metric(level: float, to_float: Any, cluster: str | None) -> Metric:
    if not 0 < level < 1:
        raise BadInput(f"the level {level!r} is not between 0 and 1")
    number = to_float or value_to_float()

    def bounds(scores: list[SampleScore]) -> Any:
        if not scores:
            raise BadInput("no sample has a score, and so there is no interval")
        values = np.array([float(number(one.score.value)) for one in scores])
        labels = None if cluster is None else _labels(scores, cluster)
        found = choose(values, clusters=labels, level=level).interval
        return {"lower": found.low, "upper": found.high}

    return bounds


def _labels(scores: list[SampleScore], cluster: str) -> list[str]:
    lacking = [str(one.sample_id) for one in scores if cluster not in (one.sample_metadata or {})]
    if lacking:
        raise BadInput(f"{len(lacking)} samples have no metadata {cluster!r}: {', '.join(lacking[:8])}")
    return [str((one.sample_metadata or {})[cluster]) for one in scores]
