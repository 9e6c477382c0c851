"""Specialist rank: does an autorater rank systems, and translations of one segment, as humans do?

## How it works

Each autorater's MQM scores are set beside the human ones of the same translations, both averaged over raters.

| figure | of | meaning |
|---|---|---|
| kendall | systems | Kendall's tau-b of the mean scores |
| pairwise | systems | share of pairs that are ordered alike |
| spa | systems | soft pairwise accuracy: 1 minus the mean difference of the p-values of "the first is better" |
| acc* | translations | pairs within a segment that agree, with the threshold for ties that suits the autorater best |

A p-value comes from a paired permutation test over segments. Intervals of kendall, pairwise and acc* come from resampling
segments; the threshold of acc* is kept at what all segments gave.

## Differences

* From mt-metrics-eval: draws that equal the observed difference count half in a p-value, so the order in which systems are
  listed does not matter; two equal systems have p = .5, not 1. Sums are compared in double precision.
* System scores are means over the segments in which every system has both scores; how many were left out is told.
* A system listed under several names counts once, under its first name, unless `--no-merge` says otherwise: two copies of one
  text are a pair that every metric gets right or wrong for no reason.

## When not to use it

With few systems: tau of 5 systems has 10 pairs. acc* is tuned on the scores it judges, which favours fine-grained scores; and
scores that say nothing still reach the share of pairs on which humans tie, by calling every pair a tie. So set acc* beside
that of an autorater that says nothing (`specialist copy` has two: shuffled and minor).

## References

Thompson et al. 2024, "Improving statistical significance in human evaluation of automatic metrics via soft pairwise
accuracy". Deutsch, Foster and Freitag 2023, "Ties matter".
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from burnish.core.errors import BadInput
from burnish.core.run import Run, ensure
from burnish.core.shapes import Analysis
from burnish.data.mqm import PLANTED
from burnish.data.mqm_bank import base_system
from burnish.data.mqm_formats import read_ratings
from burnish.data.mqm_scores import read_segment_scores
from burnish.data.mqm_weights import GOOGLE, Weights, segment_scores
from burnish.data.scores import Scores, Table
from burnish.stats.bootstrap import bootstrap
from burnish.stats.interval import Interval
from burnish.stats.ranking import kendall, pairwise_accuracy, soft_pairwise_interval, tie_calibrated_accuracy

Cells = Mapping[tuple[str, str], float]
"""(system, segment) to a score."""


class SpecialistRank(Analysis):
    """Compare an autorater's scores of systems and translations with those of human raters."""

    draws: Annotated[int, Field(ge=100)] = 1000
    """Permutations behind each p-value (mt-metrics-eval: 1,000)."""
    resamples: Annotated[int, Field(ge=1)] = 1000
    """Resamples of segments behind each interval."""
    level: Annotated[float, Field(gt=0, lt=1)] = 0.95
    """Confidence level of the intervals."""
    merge: bool = True
    """Let a system that is listed under several names count once."""
    weights: str = GOOGLE
    """What errors weigh, where `human` is a file of ratings; as in `specialist copy`."""

    def __call__(self, scores: Scores, human: Path | None = None, run: Run | None = None) -> Table:
        """Compare.

        Args:
            scores: Rows with model (the autorater), subset (the system), cluster (the segment) and mqm (higher is better),
                as `specialist copy` and `specialist judge` give them.
            human: MQM ratings in any format, or a file of segment scores (system, score, segment); by default the column
                human of the scores.
            run: Where figures go.

        Returns:
            A row an autorater: item_id, systems, segments, kendall (nothing when all systems score alike), pairwise, spa,
            acc_star, threshold; those that resampling reaches with bounds.

        Raises:
            BadInput: columns are missing, or the two have no two systems and two segments in common.
        """
        run = ensure(run)
        lacking = {"model", "subset", "cluster", "mqm", *(() if human else ("human",))} - set(scores.table.column_names)
        if lacking:
            raise BadInput(
                f"the scores have no column {', '.join(sorted(lacking))}",
                "give what `specialist copy` or `judge` wrote",
            )
        given = self._human(human) if human is not None else None
        by_model: dict[str, list[dict[str, Any]]] = {}
        for row in scores.rows():
            by_model.setdefault(str(row["model"]), []).append(row)
        rows = []
        for model, part in run.track(by_model.items(), "rank", len(by_model), "autoraters"):
            metric = _means(part, "mqm")
            rows.append({"item_id": model, **self._compare(model, metric, given or _means(part, "human"))})
        run.items(rows)
        run.metric(
            **{
                f"{name}_{row['item_id'].replace(' ', '_')}": _figure(row, name)
                for name in ("kendall", "spa", "acc_star")
                for row in rows
                if row[name] is not None
            }
        )
        return Table.of(rows)

    def _human(self, path: Path) -> Cells:
        if ".tsv" in path.suffixes and (found := read_segment_scores(path)) is not None:
            return found
        sheet = read_ratings(path)
        return segment_scores(sheet.ratings(PLANTED), Weights.parse(self.weights))

    def _compare(self, model: str, metric: Cells, human: Cells) -> dict[str, Any]:
        shared = [key for key in human if key in metric]
        systems = list(dict.fromkeys(system for system, _ in shared))
        if self.merge:
            systems = list({base_system(system): system for system in reversed(systems)}.values())[::-1]
        segments = list(dict.fromkeys(segment for _, segment in shared))
        count = len(systems)
        if count < 2 or len(segments) < 2:
            raise BadInput(
                f"{model} and the human scores share {count} systems and {len(segments)} segments",
                "two of each are needed; system and segment names must be the same in both",
            )
        left, right = (
            np.array([[cells.get((system, segment), np.nan) for system in systems] for segment in segments])
            for cells in (human, metric)
        )
        left[np.isnan(right)], right[np.isnan(left)] = np.nan, np.nan
        whole = np.isfinite(left).all(axis=1)
        if whole.sum() < 2:
            raise BadInput(
                f"{model}: {whole.sum()} of {len(segments)} segments have scores of all {count} systems, and two are needed",
                "score every system's translation of a segment (`specialist judge` with --each -1)",
            )
        both = np.concatenate([left[whole], right[whole]], axis=1)
        constant = np.isnan(kendall(*np.split(both.mean(axis=0), 2)))
        tau = None if constant else self._interval(both, lambda m: _by_resample(m, count, kendall))
        pairwise = self._interval(both, lambda m: _by_resample(m, count, pairwise_accuracy))
        spa = soft_pairwise_interval(
            left[whole], right[whole], level=self.level, draws=self.draws, resamples=self.resamples
        )
        ties = tie_calibrated_accuracy(left, right)
        star = self._interval(ties.by_segment[np.isfinite(ties.by_segment)], "mean")
        return {
            "systems": count,
            "segments": int(whole.sum()),
            "segments_left_out": int((~whole).sum()),
            **_spread("kendall", tau),
            **_spread("pairwise", pairwise),
            **_spread("spa", spa),
            **_spread("acc_star", star),
            "threshold": ties.threshold,
        }

    def _interval(self, values: np.ndarray, statistic: Any) -> Interval:
        return bootstrap(values, statistic, level=self.level, draws=self.resamples)


def _spread(name: str, interval: Interval | None) -> dict[str, float | None]:
    if interval is None:
        return dict.fromkeys((name, f"{name}_low", f"{name}_high"))
    return {name: interval.estimate, f"{name}_low": interval.low, f"{name}_high": interval.high}


def _figure(row: Mapping[str, Any], name: str) -> dict[str, float]:
    """A figure with the bounds that it has."""
    ends = {end: row[f"{name}_{end}"] for end in ("low", "high") if row.get(f"{name}_{end}") is not None}
    return {"estimate": row[name], **ends}


def _by_resample(means: np.ndarray, systems: int, figure: Any) -> np.ndarray:
    """A figure of the two lists of system means, (2 systems, resamples), for each resample."""
    return np.array([figure(column[:systems], column[systems:]) for column in means.T])


def _means(rows: list[dict[str, Any]], column: str) -> Cells:
    found: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        if row[column] is not None and np.isfinite(row[column]):
            found.setdefault((row["subset"], row["cluster"]), []).append(row[column])
    return {key: float(np.mean(values)) for key, values in found.items()}
