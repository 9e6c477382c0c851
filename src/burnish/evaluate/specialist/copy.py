"""Specialist copy: how far ratings of other translations of the same source go without any model.

## How it works

A specialist autorater is shown how a rater marked other systems' translations of the very source that it is to judge. This
baseline takes the examples at their word: every string that is marked in another system's translation is marked wherever
it occurs in the translation at hand, with the severity that most of its markings have. Gold is what one rater marked; each
rating (segment, system, rater) is predicted from the ratings of other systems. Per character a match earns 1, or 1/2 when
the severities differ; precision and recall are micro-averaged over all ratings, F1 is their harmonic mean, and intervals
come from resampling whole segments.

| arm | what is copied from |
|---|---|
| any | all ratings of the same source by other systems |
| same | only those of the rater whose rating is predicted |
| shuffled | all ratings of another source, drawn at random for each segment: the control |
| minor | nothing: the whole translation is marked as one minor error |

`strict` keeps out the rated system under any name (what stands before ``_with_``) and every translation that equals the one
at hand; `lenient` keeps out its name alone, and shows what that leaks.

## Differences

The paper has no such baseline, and it belongs beside every figure of a model: what a model adds is what it adds to copying.
`shuffled` is averaged over several draws; with few segments a single draw is off by a tenth of itself. Rows that plant an
error to check the rater's attention (``HOTW-test``) are dropped. A severity that no weight speaks of is reported, marks its
characters, and adds nothing to the score.

## When not to use it

It predicts nothing for a source that nobody has rated. Copied scores are sums over copied spans, so they rank systems only
among translations of one source.

## References

Finkelstein et al. 2025 (the specialist). Freitag et al. 2021, "Experts, errors, and context" (the weights).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from burnish.core.errors import BadInput
from burnish.core.method import Paper
from burnish.core.run import Run, ensure
from burnish.core.shapes import Evaluation
from burnish.data.mqm import PLANTED, Error, Rating
from burnish.data.mqm_bank import Bank, Codes, copy_spans, paint, severity_codes
from burnish.data.mqm_formats import read_ratings
from burnish.data.mqm_weights import GOOGLE, Weights
from burnish.data.scores import Scores
from burnish.stats.spans import character_counts, span_f1, span_f1_difference

Arm = Literal["any", "same", "shuffled", "minor"]


class SpecialistCopy(Evaluation):
    """Predict a rater's error spans by copying those of other systems' translations, without a model."""

    paper: ClassVar[Paper | None] = Paper(
        title="From Jack of All Trades to Master of One: Specializing LLM-based Autoraters to a Test Set",
        authors="Finkelstein, Deutsch, Riley, Juraska, Kovacs, Freitag",
        year=2025,
        venue="ICML 2025",
        arxiv="2411.15387",
    )

    arms: Annotated[tuple[Arm, ...], Field(min_length=1)] = ("any", "same", "shuffled", "minor")
    """What is copied from."""
    modes: Annotated[tuple[Literal["strict", "lenient"], ...], Field(min_length=1)] = ("strict", "lenient")
    """What is kept out of the examples; lenient leaks, and is there to show how much."""
    draws: Annotated[int, Field(ge=1)] = 10
    """Draws of another source for each segment, in the arm "shuffled"."""
    weights: str = GOOGLE
    """What errors weigh, as severity[/category[/subcategory]]:weight; the most specific rule wins. Blanks are written _."""
    drop: tuple[str, ...] = PLANTED
    """Severities of rows that say nothing about the translation."""
    level: Annotated[float, Field(gt=0, lt=1)] = 0.95
    """Confidence level of the intervals."""

    def __call__(self, ratings: Path, run: Run | None = None) -> Scores:
        """Predict each rating from the others.

        Args:
            ratings: An MQM file (TSV), or ratings as JSON lines (mt-metrics-eval's or ESA's).
            run: Where figures go.

        Returns:
            A row a rating and arm: item_id, model (the arm), cluster (the segment), subset (the system), rater, credit,
            predicted, gold (characters), mqm (the score of the predicted errors), human (that of the rating).

        Raises:
            BadInput: the file cannot be used, or has one segment only.
        """
        run = ensure(run)
        sheet = read_ratings(ratings)
        weights = Weights.parse(self.weights)
        rated = sheet.ratings(self.drop)
        bank = Bank(rated)
        if len(bank.segments) < 2:
            raise BadInput(
                f"{ratings} rates {len(bank.segments)} segment", "intervals and the control need two or more"
            )
        names = {error.severity: weights.heavier(error.severity) for rating in rated for error in rating.errors}
        codes = severity_codes({"Minor": weights.heavier("Minor"), **names})
        rows: list[dict[str, Any]] = []
        for name, arm, mode in self._arms():
            other = self._other_sources(bank, run) if arm == "shuffled" else []
            rows += list(run.track(_score(rated, name, codes, weights, bank, arm, mode, other), name, len(rated)))
        run.items(rows)
        counts = {name: [row for row in rows if row["model"] == name] for name, _, _ in self._arms()}
        run.metric(ratings=len(rated), segments=len(bank.segments), systems=len({one.system for one in rated}))
        run.metric(**self._headline(counts))
        unweighted = weights.unknown(sheet, self.drop)
        dropped = {name: n for name, n in sheet.severities().items() if name in self.drop}
        run.metric(rows_dropped=sum(dropped.values()), rows_of_unknown_severity=sum(unweighted.values()))
        return Scores.of(rows, weights=self.weights, dropped=dropped, severities_without_a_weight=unweighted)

    def _arms(self) -> list[tuple[str, Arm, Literal["strict", "lenient"]]]:
        """(name, arm, mode); the control and the arm that copies nothing have one mode."""
        found: list[tuple[str, Arm, Literal["strict", "lenient"]]] = []
        for arm in dict.fromkeys(self.arms):
            if arm in ("any", "same"):
                found += [(f"{arm} {mode}", arm, mode) for mode in dict.fromkeys(self.modes)]
            else:
                found.append((arm, arm, "strict"))
        return found

    def _other_sources(self, bank: Bank, run: Run) -> list[dict[str, str]]:
        """For each draw, another segment for each segment."""
        rng = run.rng("other sources")
        names = bank.segments
        steps = rng.integers(1, len(names), size=(self.draws, len(names)))
        return [
            {
                name: names[(place + step) % len(names)]
                for place, (name, step) in enumerate(zip(names, row, strict=True))
            }
            for row in steps.tolist()
        ]

    def _headline(self, rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, float]:
        found: dict[str, float] = {}
        counts = {name: _counts(part) for name, part in rows.items()}
        for name, part in rows.items():
            segments = [row["cluster"] for row in part]
            interval = span_f1(counts[name], segments, self.level)
            total = counts[name].sum(axis=0)
            measure = name.replace(" ", "_")
            found |= {f"f1_{measure}": interval.estimate}
            found |= {f"f1_{measure}_low": interval.low, f"f1_{measure}_high": interval.high}
            found |= {f"precision_{measure}": float(total[0] / total[1]) if total[1] else 0.0}
            found |= {f"recall_{measure}": float(total[0] / total[2])}
        pairs = [("any strict", "shuffled", "source_gain"), ("same strict", "any strict", "same_rater_gain")]
        pairs += [(f"{arm} lenient", f"{arm} strict", f"leak_{arm}") for arm in ("any", "same")]
        for one, other, measure in pairs:
            if one in counts and other in counts:
                segments = [row["cluster"] for row in rows[one]]
                interval = span_f1_difference(counts[one], counts[other], segments, self.level)
                found |= {measure: interval.estimate, f"{measure}_low": interval.low, f"{measure}_high": interval.high}
        return found


def _counts(rows: Sequence[Mapping[str, Any]]) -> np.ndarray:
    return np.array([[row["credit"], row["predicted"], row["gold"]] for row in rows], dtype=float)


def _score(
    ratings: Sequence[Rating],
    name: str,
    codes: Codes,
    weights: Weights,
    bank: Bank,
    arm: Arm,
    mode: Literal["strict", "lenient"],
    other: Sequence[Mapping[str, str]],
) -> Iterator[dict[str, Any]]:
    """A row for each rating; counts and scores are means over the draws of the control."""
    for rating in ratings:
        text = rating.hypothesis
        gold = paint(rating.errors, len(text), codes)
        if arm == "minor":
            predictions = [[Error(0, len(text), "Other", "Minor", "target", text)]]
        elif arm == "shuffled":
            sources = [draw[rating.segment] for draw in other]
            predictions = [copy_spans(text, bank.others(rating, mode, segment=source), codes) for source in sources]
        else:
            predictions = [copy_spans(text, bank.others(rating, mode, arm), codes)]
        marked = int((gold > 0).sum())
        counts = [
            character_counts(gold, paint(one, len(text), codes)) if one else (0.0, 0, marked) for one in predictions
        ]
        credit, predicted = (sum(count[part] for count in counts) / len(counts) for part in (0, 1))
        yield {
            "item_id": rating.item_id,
            "model": name,
            "cluster": rating.segment,
            "subset": rating.system,
            "rater": rating.rater,
            "credit": credit,
            "predicted": predicted,
            "gold": marked,
            "mqm": sum(weights.score(errors) for errors in predictions) / len(predictions),
            "human": weights.score(rating.errors),
        }
