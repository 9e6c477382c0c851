"""BLEU and chrF by sacrebleu, kept sentence by sentence so that systems can be compared over the same sentences.

A corpus score is no mean over sentences: it is a function of counts that add up. `counts` gives them a sentence, and `corpus`
the score of their sum. sacrebleu makes its scores of just these counts, but names the two steps as its own business; so pyproject.toml
allows only the releases that have them, and a test holds the figures against sacrebleu's public ones.

Post 2018 (sacrebleu), Papineni et al. 2002 (BLEU), Popović 2015 (chrF).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from burnish.core.extras import require

Metric = Literal["bleu", "chrf"]
METRICS: tuple[Metric, ...] = ("bleu", "chrf")
Counts = NDArray[np.int64]


@cache
def _metric(name: Metric) -> Any:
    require("BLEU and chrF", "translation")
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    return BLEU() if name == "bleu" else CHRF()


def signature(name: Metric) -> str:
    """sacrebleu's own description of the metric: settings and version."""
    metric = _metric(name)
    metric.corpus_score(["a"], [["a"]])  # it knows the number of references only afterwards
    return f"{name}|{metric.get_signature()}"


def counts(name: Metric, hypotheses: Sequence[str], references: Sequence[str]) -> Counts:
    """What each sentence adds to the counts of which the score is made, (sentences, counts).

    Args:
        name: Of the metric.
        hypotheses: Translations.
        references: One reference each.

    Raises:
        MissingExtra: sacrebleu is not installed.
    """
    metric = _metric(name)
    found = metric._extract_corpus_statistics(list(hypotheses), [list(references)])
    return np.array(found, dtype=np.int64)


def corpus(name: Metric, rows: Any) -> float:
    """The corpus score, 0 to 100, of the sentences with these counts."""
    return float(_metric(name)._compute_score_from_stats(np.asarray(rows).sum(axis=0).astype(int).tolist()).score)


def shares(name: Metric, rows: Counts) -> NDArray[np.float64]:
    """Each sentence's jackknife pseudo-value of the corpus score, (sentences,).

    n S - (n - 1) S without the sentence (Tukey 1958): their mean is the score, less most of its bias, and their spread is
    that of the score. So what compares means over items can compare corpus scores.
    """
    return len(rows) * corpus(name, rows) - (len(rows) - 1) * without(name, rows)


def without(name: Metric, rows: Counts) -> NDArray[np.float64]:
    """The corpus score without each sentence in turn, (sentences,)."""
    total = rows.sum(axis=0)
    compute = _metric(name)._compute_score_from_stats
    return np.array([compute((total - row).tolist()).score for row in rows])
