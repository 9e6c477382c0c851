"""Specialist judge: a model that marks errors as the raters of this very test set do.

## How it works

The model is asked for the errors of one translation as JSON: span, category, severity (AutoMQM). What makes it a specialist are
the examples: how raters marked other systems' translations of the same source, ideally the rater whose rating is to be
predicted. Nothing is trained. Predictions are scored per character as in `specialist copy`, against that one rating.

| arm | examples |
|---|---|
| specialist | ratings of the same source by other systems |
| shuffled | ratings of the same systems on another source: the control |
| fixed | the same few ratings of other sources for every translation |
| zero-shot | none |
| copy | no model: the marked strings of the specialist's examples, marked again |

A reply that is broken JSON counts as far as it can be read (partial); one of which nothing can be read is unscored, which is
not "no errors": its rating is left out of that arm's F1 and counted. A span that does not stand in the translation is dropped
and counted as invented. The arms are compared on the ratings that both have scored, with intervals over segments.

## Differences

* The paper leaves the rated system out by its name. Public sets list one translation under two names, and systems give equal
  translations; examples that hold the answer in either way are refused (`burnish.data.mqm_bank.guard`).
* The prompt is our own, and the same for all arms but for the examples.
* The paper judges with Gemini 1.5 Pro; any model that follows instructions will do. A weak one may not beat `copy`: look.

## When not to use it

For sources that nobody has rated. With few ratings a source, or when the ratings are not side by side (one rater for all
translations of a source), "same" finds few examples.

## References

Finkelstein et al. 2025. Fernandes et al. 2023, "The devil is in the errors" (AutoMQM).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from burnish.core.errors import BadInput
from burnish.core.method import Paper
from burnish.core.run import Run, ensure
from burnish.core.shapes import Evaluation
from burnish.data.mqm import PLANTED, Error, Rating
from burnish.data.mqm_bank import Bank, Codes, Rater, copy_spans, guard, leak, paint, severity_codes
from burnish.data.mqm_formats import read_ratings
from burnish.data.mqm_weights import GOOGLE, Weights
from burnish.data.scores import Scores
from burnish.engine import Sampling
from burnish.llm.client import LLM, Message, Reply
from burnish.llm.error_spans import locate, read_reply
from burnish.stats.spans import character_counts, span_f1, span_f1_difference

Arm = Literal["specialist", "shuffled", "fixed", "zero-shot", "copy"]

TASK = """You are a professional translator who checks translations{pair}. Mark every error in the translation.
Answer with a JSON list and nothing else: [{{"span": "...", "category": "...", "severity": "major" or "minor"}}]. \
"span" is copied from the translation character by character; for an omission it is the source text that is missing. \
"category" is one like Accuracy/Mistranslation, Accuracy/Omission, Fluency/Grammar, Fluency/Punctuation, Style/Awkward, \
Terminology. An error is major when it changes the meaning or is hard to read over, else minor. Without errors, answer []."""


class SpecialistJudge(Evaluation):
    """Let a model mark translation errors, shown how raters marked other translations of the same source."""

    paper: ClassVar[Paper | None] = Paper(
        title="From Jack of All Trades to Master of One: Specializing LLM-based Autoraters to a Test Set",
        authors="Finkelstein, Deutsch, Riley, Juraska, Kovacs, Freitag",
        year=2025,
        venue="ICML 2025",
        arxiv="2411.15387",
    )

    arms: Annotated[tuple[Arm, ...], Field(min_length=1)] = ("specialist", "shuffled", "zero-shot", "copy")
    """What the model is shown; copy asks no model."""
    rater: Rater = "any"
    """Whose ratings are shown: anybody's, only those of the rater to be predicted, or only those of the others."""
    examples: Annotated[int, Field(ge=-1)] = -1
    """Examples at most, drawn at random where there are more; -1 for all of them, as in the paper."""
    segments: Annotated[int, Field(ge=-1)] = 60
    """Segments, drawn at random; -1 for all of them."""
    each: Annotated[int, Field(ge=-1)] = 1
    """Ratings of each segment that are predicted, drawn at random; -1 for all of them."""
    languages: str = ""
    """The two languages in words, e.g. "English to German"; the prompt names them."""
    max_tokens: Annotated[int, Field(ge=16)] = 512
    """Tokens of a reply at most; a longer list is cut off and counts as partial."""
    weights: str = GOOGLE
    """What errors weigh, as severity[/category[/subcategory]]:weight; the most specific rule wins. Blanks are written _."""
    level: Annotated[float, Field(gt=0, lt=1)] = 0.95
    """Confidence level of the intervals."""

    def __call__(self, ratings: Path, judge: LLM, run: Run | None = None) -> Scores:
        """Predict ratings.

        Args:
            ratings: An MQM file (TSV), or ratings as JSON lines (mt-metrics-eval's or ESA's).
            judge: The model.
            run: Where replies and figures go.

        Returns:
            A row a rating and arm: item_id, model (the arm), cluster (the segment), subset (the system), rater, status,
            examples (how many), invented, malformed, credit, predicted, gold (characters), mqm and human (scores). An
            unscored row has no credit, predicted and mqm.

        Raises:
            BadInput: the file cannot be used, or no rating has examples.
        """
        run = ensure(run)
        sheet = read_ratings(ratings)
        weights = Weights.parse(self.weights)
        rated = sheet.ratings(PLANTED)
        names = {error.severity: weights.heavier(error.severity) for one in rated for error in one.errors}
        codes = severity_codes({"Minor": weights.heavier("Minor"), "Major": weights.heavier("Major"), **names})
        shown = _Examples(Bank(rated), self.rater, self.examples, run)
        items = self._items(rated, shown, run)
        rows: list[dict[str, Any]] = []
        for arm in dict.fromkeys(self.arms):
            offered = shown.of(arm, items)
            for one, examples in zip(items, offered, strict=True):
                guard(one, examples)
            if arm == "copy":
                found = [
                    _Prediction(copy_spans(one.hypothesis, of, codes)) for one, of in zip(items, offered, strict=True)
                ]
            else:
                chats = [self.chat(one, of) for one, of in zip(items, offered, strict=True)]
                replies = judge.generate(chats, Sampling(max_tokens=self.max_tokens), run)
                found = [_prediction(reply, one) for reply, one in zip(replies, items, strict=True)]
            rows += [_row(arm, *whole, codes, weights) for whole in zip(items, map(len, offered), found, strict=True)]
        run.items(rows)
        run.metric(ratings=len(items), segments=len({one.segment for one in items}), **self._headline(rows))
        unweighted = weights.unknown(sheet, PLANTED)
        run.metric(rows_of_unknown_severity=sum(unweighted.values()))
        return Scores.of(rows, judge=judge.name, weights=self.weights, severities_without_a_weight=unweighted)

    def chat(self, rated: Rating, examples: Sequence[Rating]) -> list[Message]:
        """What the model is asked: the task, the examples, and the translation to be judged.

        Raises:
            Leak: an example gives the answer away.
        """
        guard(rated, examples)
        pair = f" from {self.languages}" if self.languages else ""
        parts = [TASK.format(pair=pair)]
        parts += [f"{_shown(one)}\nErrors: {_as_json(one)}" for one in examples]
        parts.append(f"{_shown(rated)}\nErrors:")
        return [{"role": "user", "content": "\n\n".join(parts)}]

    def _items(self, rated: Sequence[Rating], shown: _Examples, run: Run) -> list[Rating]:
        """The ratings to be predicted: of those that have examples, some of some segments, in the file's order."""
        by_segment: dict[str, list[int]] = {}
        for number, one in enumerate(rated):
            by_segment.setdefault(one.segment, []).append(number)
        rng = run.rng("items")
        chosen: list[int] = []
        taken = 0
        for segment in rng.permutation(list(by_segment)).tolist():
            if taken == self.segments:
                break
            fit = [
                number for number in rng.permutation(by_segment[segment]).tolist() if shown.same_source(rated[number])
            ]
            chosen += fit if self.each == -1 else fit[: self.each]
            taken += bool(fit)
        if not chosen:
            raise BadInput(
                "no rating has examples: no other system's translation of its source was rated"
                + (f" by the {self.rater} rater" if self.rater != "any" else ""),
                "give ratings of several systems on the same sources, or another --rater",
            )
        return [rated[number] for number in sorted(chosen)]

    def _headline(self, rows: Sequence[dict[str, Any]]) -> dict[str, float]:
        found: dict[str, float] = {}
        by_arm: dict[str, dict[str, dict[str, Any]]] = {}
        for row in rows:
            by_arm.setdefault(row["model"], {})[row["item_id"]] = row
        scored = {arm: {k: r for k, r in part.items() if r["status"] != "unscored"} for arm, part in by_arm.items()}
        for arm, part in by_arm.items():
            name = arm.replace("-", "_")
            if arm != "copy":
                found |= {
                    f"{state}_{name}": sum(r["status"] == state for r in part.values())
                    for state in ("partial", "unscored")
                }
                found[f"invented_{name}"] = sum(row["invented"] for row in part.values())
            keys = list(scored[arm])
            if _enough([scored[arm]], keys):
                interval = span_f1(_counts(scored[arm], keys), _segments(scored[arm], keys), self.level)
                found |= {
                    f"f1_{name}": interval.estimate,
                    f"f1_{name}_low": interval.low,
                    f"f1_{name}_high": interval.high,
                }
        for arm in [arm for arm in by_arm if arm != "specialist" and "specialist" in by_arm]:
            one, other = scored["specialist"], scored[arm]
            keys = [key for key in one if key in other]
            if _enough([one, other], keys):
                counts = (_counts(one, keys), _counts(other, keys))
                interval = span_f1_difference(*counts, _segments(one, keys), self.level)
                name = f"gain_over_{arm.replace('-', '_')}"
                found |= {name: interval.estimate, f"{name}_low": interval.low, f"{name}_high": interval.high}
        return found


class _Examples:
    """Which ratings each arm shows for each item."""

    def __init__(self, bank: Bank, rater: Rater, most: int, run: Run) -> None:
        self.bank, self.rater, self.most, self.run = bank, rater, most, run

    def of(self, arm: Arm, items: Sequence[Rating]) -> list[list[Rating]]:
        """The examples of each item."""
        if arm == "zero-shot":
            return [[] for _ in items]
        if arm == "fixed":
            return self._fixed(items)
        if arm == "shuffled":
            return [self._other_source(one) for one in items]
        return [self._some(one, self.same_source(one)) for one in items]

    def same_source(self, rated: Rating) -> list[Rating]:
        """All ratings that the specialist may see."""
        return self.bank.others(rated, rater=self.rater)

    def _some(self, rated: Rating, offered: list[Rating]) -> list[Rating]:
        """As many of them as are wanted; the same ones in every arm that asks, and in every run."""
        if self.most < 0 or len(offered) <= self.most:
            return offered
        rng = self.run.rng(f"examples {rated.item_id}")
        return [offered[place] for place in sorted(rng.permutation(len(offered))[: self.most].tolist())]

    def _other_source(self, rated: Rating) -> list[Rating]:
        """Ratings of the specialist's systems on the first of the other sources, in a random order, that has any."""
        systems = {one.system for one in self._some(rated, self.same_source(rated))}
        for segment in self.run.rng(f"other source {rated.segment}").permutation(self.bank.segments).tolist():
            if segment != rated.segment:
                offered = self.bank.others(rated, rater=self.rater, segment=segment)
                if same := [one for one in offered if one.system in systems]:
                    return same
        return []

    def _fixed(self, items: Sequence[Rating]) -> list[list[Rating]]:
        judged = {one.segment for one in items}
        spare = [segment for segment in self.bank.segments if segment not in judged]
        everything = [one for segment in spare for one in self.bank.ratings(segment)]
        if not everything:
            raise BadInput("the arm fixed has no source left for its examples", "judge fewer --segments")
        order = self.run.rng("fixed").permutation(len(everything)).tolist()
        # Some systems may be the rated one or give the same text: the next in the same order take their place.
        count = self.most if self.most >= 0 else max(1, round(np.mean([len(self.same_source(one)) for one in items])))
        return [[everything[place] for place in order if not leak(one, everything[place])][:count] for one in items]


class _Prediction:
    """The errors that one arm predicts for one translation."""

    def __init__(self, errors: list[Error], status: str = "ok", invented: int = 0, malformed: int = 0) -> None:
        self.errors, self.status, self.invented, self.malformed = errors, status, invented, malformed


def _prediction(reply: Reply, rated: Rating) -> _Prediction:
    read = read_reply(reply.text)
    errors, invented = locate(read.claims, rated.hypothesis, rated.source)
    return _Prediction(errors, read.status, invented, read.malformed)


def _row(arm: Arm, rated: Rating, examples: int, found: _Prediction, codes: Codes, weights: Weights) -> dict[str, Any]:
    length = len(rated.hypothesis)
    counts = character_counts(paint(rated.errors, length, codes), paint(found.errors, length, codes))
    scored = found.status != "unscored"
    return {
        "item_id": rated.item_id,
        "model": arm,
        "cluster": rated.segment,
        "subset": rated.system,
        "rater": rated.rater,
        "status": found.status,
        "examples": examples,
        "invented": found.invented,
        "malformed": found.malformed,
        "credit": counts[0] if scored else None,
        "predicted": counts[1] if scored else None,
        "gold": counts[2],
        "mqm": weights.score(found.errors) if scored else None,
        "human": weights.score(rated.errors),
    }


def _shown(rated: Rating) -> str:
    return f"Source: {rated.source}\nTranslation: {rated.hypothesis}"


def _as_json(rated: Rating) -> str:
    errors = [
        {"span": error.text, "category": error.category, "severity": error.severity.casefold()}
        for error in rated.errors
    ]
    return json.dumps(errors, ensure_ascii=False)


def _enough(parts: Sequence[dict[str, dict[str, Any]]], keys: Sequence[str]) -> bool:
    """Whether an F1 and its interval exist: two segments, and something marked in each part."""
    marked = all(any(part[key]["predicted"] + part[key]["gold"] for key in keys) for part in parts)
    return marked and len({parts[0][key]["cluster"] for key in keys}) > 1


def _counts(rows: dict[str, dict[str, Any]], keys: Sequence[str]) -> np.ndarray:
    return np.array([[rows[key][name] for name in ("credit", "predicted", "gold")] for key in keys], dtype=float)


def _segments(rows: dict[str, dict[str, Any]], keys: Sequence[str]) -> list[str]:
    return [rows[key]["cluster"] for key in keys]
