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
at hand; `lenient` keeps out its name alone, and shows what that leaks. What `any` and `same` mark in strict mode is written
to the run's ``artifact`` as ratings, in mt-metrics-eval's format.

## Differences

The paper has no such baseline, and it belongs beside every figure of a model: what a model adds is what it adds to copying.
`shuffled` never draws the rated source, wherever else it stands in the set: what it finds then would be the effect that it
is the control for. It is averaged over several draws, for with few sources one draw says little. On the 104 sources of
WMT'23 all other sources together give F1 .042; 95 % of single draws lie between .033 and .051, and of single draws that may
hit the source itself (mean .047) between .035 and .065. Rows that plant an error to check the rater's attention
(``HOTW-test``) are dropped. A severity that no weight speaks of is reported, marks its characters, and adds nothing to the
score.

## When not to use it

It predicts nothing for a source that nobody has rated. And to find errors is not to rank systems: a string that is marked in
most systems' output is found everywhere, so what sets a system apart is what is missed. On TED zh-en scores copied from all
raters order systems against the humans (Kendall's tau -.35), those of the same rater with them (.52).

## References

Finkelstein et al. 2025 (the specialist). Freitag et al. 2021, "Experts, errors, and context" (the weights).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from burnish.core.errors import BadInput
from burnish.core.run import Run, ensure
from burnish.data.mqm import Error
from burnish.data.mqm_bank import Mode, copy_spans
from burnish.data.scores import Scores
from burnish.evaluate.specialist.predicted import Autorater, Rated, Row, f1_figures, gain_figures, keep_predictions

Arm = Literal["any", "same", "shuffled", "minor"]


class SpecialistCopy(Autorater):
    """Predict a rater's error spans by copying those of other systems' translations, without a model."""

    arms: Annotated[tuple[Arm, ...], Field(min_length=1)] = ("any", "same", "shuffled", "minor")
    """What is copied from."""
    modes: Annotated[tuple[Mode, ...], Field(min_length=1)] = ("strict", "lenient")
    """What is kept out of the examples; lenient leaks, and is there to show how much."""
    draws: Annotated[int, Field(ge=1)] = 10
    """Draws of another source for each segment, in the arm "shuffled"."""

    def __call__(self, ratings: Path, run: Run | None = None) -> Scores:
        """Predict each rating from the others.

        Args:
            ratings: An MQM file (TSV), or ratings as JSON lines (mt-metrics-eval's or ESA's).
            run: Where figures go; what "any" and "same" mark, where they are strict, goes into its ``artifact``.

        Returns:
            A row a rating and arm: item_id, model (the arm), cluster (the segment), subset (the system), rater, credit,
            predicted, gold (characters), mqm (the score of the predicted errors), human (that of the rating).

        Raises:
            BadInput: the file cannot be used, or has one source only.
        """
        run = ensure(run)
        rated = self.read(ratings)
        elsewhere = rated.bank.elsewhere()
        if not all(elsewhere.values()):
            raise BadInput(f"{ratings} rates translations of one source", "intervals and the control need two or more")
        rows: dict[str, list[Row]] = {}
        for name, arm, mode in self._arms():
            draws = self._other_sources(elsewhere, run) if arm == "shuffled" else []
            marked = run.track(_predict(rated, arm, mode, draws), name, len(rated.ratings))
            found = list(zip(rated.ratings, marked, strict=True))
            rows[name] = [rated.row(name, *pair) for pair in found]
            if arm in ("any", "same") and mode == "strict":
                keep_predictions(run, name, [(one, predictions[0]) for one, predictions in found])
        flat = [row for part in rows.values() for row in part]
        run.items(flat)
        systems = {one.system for one in rated.ratings}
        run.metric(**self._headline(rows))
        run.metric(ratings=len(rated.ratings), segments=len(elsewhere), systems=len(systems), **rated.lost)
        return Scores.of(flat, weights=self.weights, **rated.notes)

    def _arms(self) -> list[tuple[str, Arm, Mode]]:
        """(name, arm, mode); the control and the arm that copies nothing have one mode."""
        found: list[tuple[str, Arm, Mode]] = []
        for arm in dict.fromkeys(self.arms):
            if arm in ("any", "same"):
                found += [(f"{arm} {mode}", arm, mode) for mode in dict.fromkeys(self.modes)]
            else:
                found.append((arm, arm, "strict"))
        return found

    def _other_sources(self, elsewhere: Mapping[str, Sequence[str]], run: Run) -> list[dict[str, str]]:
        """For each draw, a segment of another source for each segment."""
        rng = run.rng("other sources")
        return [
            {name: others[int(rng.integers(len(others)))] for name, others in elsewhere.items()}
            for _ in range(self.draws)
        ]

    def _headline(self, rows: Mapping[str, Sequence[Row]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, part in rows.items():
            found |= f1_figures(name.replace(" ", "_"), part, self.level)
        pairs = [("any strict", "shuffled", "source_gain"), ("same strict", "any strict", "same_rater_gain")]
        pairs += [(f"{arm} lenient", f"{arm} strict", f"leak_{arm}") for arm in ("any", "same")]
        for one, other, name in pairs:
            if one in rows and other in rows:
                found |= gain_figures(name, rows[one], rows[other], self.level)
        # Every F1 first, then what explains them.
        return dict(sorted(found.items(), key=lambda figure: figure[0].startswith(("precision", "recall"))))


def _predict(rated: Rated, arm: Arm, mode: Mode, draws: Sequence[Mapping[str, str]]) -> Iterator[list[list[Error]]]:
    """What an arm marks in each translation; of the control, once for each draw."""
    for rating in rated.ratings:
        text = rating.hypothesis
        if arm == "minor":
            yield [[Error(0, len(text), "Other", "Minor", "target", text)]]
        elif arm == "shuffled":
            banks = [rated.bank.others(rating, mode, segment=draw[rating.segment]) for draw in draws]
            yield [copy_spans(text, bank, rated.codes) for bank in banks]
        else:
            yield [copy_spans(text, rated.bank.others(rating, mode, arm), rated.codes)]
