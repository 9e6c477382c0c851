"""What predictions of ratings have in common: settings, the ratings made ready, a row for each, and figures of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from pydantic import Field

from burnish.core.errors import BadInput
from burnish.core.method import Paper
from burnish.core.run import Run
from burnish.core.shapes import Evaluation
from burnish.data.mqm import PLANTED, Error, Rating
from burnish.data.mqm_bank import Bank, Codes, paint, severity_codes
from burnish.data.mqm_formats import read_ratings, write_predictions
from burnish.data.mqm_weights import GOOGLE, Weights
from burnish.evaluate.specialist import PAPER
from burnish.stats.interval import Interval
from burnish.stats.spans import character_counts, f1, span_f1, span_f1_difference

Row = dict[str, Any]


class Autorater(Evaluation):
    """What all that predict ratings are told."""

    paper: ClassVar[Paper | None] = PAPER

    weights: str = GOOGLE
    """What errors weigh, as severity[/category[/subcategory]]:weight; the most specific rule wins. Blanks are written _."""
    drop: tuple[str, ...] = PLANTED
    """Severities of rows that say nothing about the translation."""
    level: Annotated[float, Field(gt=0, lt=1)] = 0.95
    """Confidence level of the intervals."""

    def read(self, ratings: Path) -> Rated:
        """Make a file of ratings ready."""
        return Rated.read(ratings, Weights.parse(self.weights), self.drop)


@dataclass(frozen=True)
class Rated:
    """Ratings of a file, and what it takes to predict them from one another."""

    ratings: list[Rating]
    bank: Bank
    weights: Weights
    codes: Codes
    """Of every severity that occurs, and of those that a model may give."""
    dropped: dict[str, int]
    """Dropped severities, and how many rows of each there are."""
    without_a_weight: dict[str, int]
    """The same for severities that no rule speaks of: they mark their characters, and add nothing to the score."""

    @classmethod
    def read(cls, path: Path, weights: Weights, drop: Sequence[str]) -> Self:
        """From a file in any of the formats."""
        sheet = read_ratings(path)
        ratings = sheet.ratings(drop)
        names = {error.severity for one in ratings for error in one.errors} | {"Minor", "Major"}
        gone = {severity.casefold() for severity in drop}
        return cls(
            ratings,
            Bank(ratings),
            weights,
            severity_codes({name: weights.heavier(name) for name in names}),
            {name: count for name, count in sheet.severities().items() if name.casefold() in gone},
            weights.unknown(sheet, drop),
        )

    def up_to(self, longest: int) -> Rated:
        """Only translations of sources of so many characters at most.

        Raises:
            BadInput: there are none.
        """
        kept = [one for one in self.ratings if len(one.source) <= longest]
        if not kept:
            shortest = min((len(one.source) for one in self.ratings), default=0)
            raise BadInput(f"no source is as short as {longest} characters", f"the shortest one has {shortest}")
        return replace(self, ratings=kept, bank=Bank(kept))

    def row(self, model: str, rating: Rating, predictions: Sequence[Sequence[Error]]) -> Row:
        """How a rating was predicted.

        Args:
            model: What predicted it.
            rating: What was to be predicted.
            predictions: Usually one; of several, counts and scores are means; without any, they are missing.
        """
        length = len(rating.hypothesis)
        gold = paint(rating.errors, length, self.codes)
        marked = int((gold > 0).sum())
        counts = [
            character_counts(gold, paint(one, length, self.codes)) if one else (0.0, 0, marked) for one in predictions
        ]
        credit, predicted = ([count[part] for count in counts] for part in (0, 1))
        return {
            "item_id": rating.item_id,
            "model": model,
            "cluster": rating.segment,
            "subset": rating.system,
            "rater": rating.rater,
            "credit": _mean(credit),
            "predicted": _mean(predicted),
            "gold": marked,
            "mqm": _mean([self.weights.score(errors) for errors in predictions]),
            "human": self.weights.score(rating.errors),
        }

    @property
    def lost(self) -> dict[str, int]:
        """How many rows of the file count for nothing, and why."""
        return {
            "rows_dropped": sum(self.dropped.values()),
            "rows_of_unknown_severity": sum(self.without_a_weight.values()),
        }

    @property
    def notes(self) -> dict[str, Any]:
        """Facts about the scores."""
        return {"dropped": self.dropped, "severities_without_a_weight": self.without_a_weight}


def keep_predictions(run: Run, name: str, pairs: Iterable[tuple[Rating, Sequence[Error]]]) -> None:
    """Write predicted spans into the run's ``artifact``, as ratings that mt-metrics-eval and burnish read."""
    write_predictions(pairs, name, run.artifact / f"{name.replace(' ', '-')}.jsonl")


def f1_figures(name: str, rows: Sequence[Row], level: float) -> dict[str, Any]:
    """F1 with bounds, precision and recall of what was scored; nothing where they do not exist."""
    rows = [row for row in rows if row["credit"] is not None]
    credit, predicted, gold = _counts(rows).sum(axis=0).tolist()
    if not predicted + gold:
        return {}
    return {
        f"f1_{name}": _figure(
            float(f1(credit, predicted, gold)), partial(span_f1, _counts(rows), _clusters(rows), level)
        ),
        f"precision_{name}": credit / predicted if predicted else 0.0,
        f"recall_{name}": credit / gold if gold else 0.0,
    }


def gain_figures(name: str, ours: Sequence[Row], theirs: Sequence[Row], level: float) -> dict[str, Any]:
    """F1 of ours minus that of theirs, with bounds, on the ratings that both have scored; nothing where there is none."""
    by_item: Mapping[str, Row] = {row["item_id"]: row for row in theirs if row["credit"] is not None}
    ours = [row for row in ours if row["credit"] is not None and row["item_id"] in by_item]
    theirs = [by_item[row["item_id"]] for row in ours]
    sums = [_counts(part).sum(axis=0).tolist() for part in (ours, theirs)]
    if not all(predicted + gold for _, predicted, gold in sums):
        return {}
    interval = partial(span_f1_difference, _counts(ours), _counts(theirs), _clusters(ours), level)
    return {name: _figure(float(f1(*sums[0]) - f1(*sums[1])), interval)}


def _figure(estimate: float, interval: Callable[[], Interval]) -> dict[str, float]:
    """An estimate, and its bounds unless so little is marked that many resamples of the segments mark nothing at all."""
    try:
        found = interval()
    except BadInput:
        return {"estimate": estimate}
    return {"estimate": estimate, "low": found.low, "high": found.high}


def _counts(rows: Sequence[Row]) -> np.ndarray:
    counts = [[row[name] for name in ("credit", "predicted", "gold")] for row in rows]
    return np.array(counts, dtype=float).reshape(-1, 3)


def _clusters(rows: Sequence[Row]) -> list[str]:
    return [row["cluster"] for row in rows]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
