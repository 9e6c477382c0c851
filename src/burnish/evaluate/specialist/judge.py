"""Specialist judge: a model that marks errors as the raters of this very test set do.

## How it works

The model is asked for the errors of one translation as JSON: span, category, severity (AutoMQM). What makes it a specialist are
the examples: how raters marked other systems' translations of the same source, ideally the rater whose rating is to be
predicted. Nothing is trained. Predictions are scored per character as in `specialist copy`, against that one rating.

| arm | examples |
|---|---|
| specialist | ratings of the same source by other systems |
| shuffled | as many ratings of the same systems on another source: the control |
| fixed | the same few ratings of other sources for every translation |
| zero-shot | none |
| copy | no model: the marked strings of the specialist's examples, marked again |

A reply that is broken JSON counts as far as it can be read (partial); one of which nothing can be read is unscored, which is
not "no errors": its rating is left out of that arm's F1 and counted. A span that does not stand in the translation is dropped
and counted as invented, one that is claimed more often than it stands there as repeated. The arms are compared on the
ratings that both have scored, with intervals over segments. What each arm marks is written to the run's ``artifact`` as
ratings, in mt-metrics-eval's format.

With `--translations` the model rates translations that nobody has rated, such as a new system's output on the same test set:
the same examples and guards, and scores and spans instead of F1.

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
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from burnish.core.errors import BadInput
from burnish.core.run import Run, ensure
from burnish.data.mqm import Error, Rating
from burnish.data.mqm_bank import Bank, Rater, copy_spans, guard, leak
from burnish.data.mqm_formats import read_translations
from burnish.data.scores import Scores
from burnish.engine import Sampling
from burnish.evaluate.specialist.predicted import Autorater, Rated, Row, f1_figures, gain_figures, keep_predictions
from burnish.llm.client import LLM, Message, Reply
from burnish.llm.error_spans import Located, locate, read_reply

Arm = Literal["specialist", "shuffled", "fixed", "zero-shot", "copy"]

TASK = """You are a professional translator who checks translations{pair}. Mark every error in the translation.
Answer with a JSON list and nothing else: [{{"span": "...", "category": "...", "severity": "major" or "minor"}}]. \
"span" is copied from the translation character by character; for an omission it is the source text that is missing. \
"category" is one like Accuracy/Mistranslation, Accuracy/Omission, Fluency/Grammar, Fluency/Punctuation, Style/Awkward, \
Terminology. An error is major when it changes the meaning or is hard to read over, else minor. Without errors, answer []."""


class SpecialistJudge(Autorater):
    """Let a model mark translation errors, shown how raters marked other translations of the same source."""

    arms: Annotated[tuple[Arm, ...], Field(min_length=1)] = ("specialist", "shuffled", "zero-shot", "copy")
    """What the model is shown; copy asks no model."""
    rater: Rater = "any"
    """Whose ratings are shown: anybody's, only those of the rater to be predicted, or only those of the others."""
    examples: Annotated[int, Field(ge=-1)] = -1
    """Examples at most, drawn at random where there are more; -1 for all of them, as in the paper."""
    segments: Annotated[int, Field(ge=-1)] = 60
    """Segments, drawn at random; -1 for all of them."""
    longest: Annotated[int, Field(ge=-1)] = -1
    """Characters of a source at most; longer ones are neither judged nor shown. -1 for any."""
    each: Annotated[int, Field(ge=-1)] = 1
    """Ratings of each segment that are predicted, drawn at random; -1 for all of them."""
    languages: str = ""
    """The two languages in words, e.g. "English to German"; the prompt names them."""
    max_tokens: Annotated[int, Field(ge=16)] = 512
    """Tokens of a reply at most; a longer list is cut off and counts as partial."""

    def __call__(self, ratings: Path, judge: LLM, translations: Path | None = None, run: Run | None = None) -> Scores:
        """Predict ratings, or rate translations that nobody has rated.

        Args:
            ratings: An MQM file (TSV), or ratings as JSON lines (mt-metrics-eval's or ESA's).
            judge: The model.
            translations: Translations of sources of `ratings`, to be rated instead: in any of those formats, where what
                is said of errors is passed over, or TSV with the columns system, seg_id, source and target.
            run: Where replies and figures go; what each arm marks goes into its ``artifact``.

        Returns:
            A row a rating and arm: item_id, model (the arm), cluster (the segment), subset (the system), rater, status,
            examples (how many), invented, repeated, malformed (claimed errors that do not count), prompt_tokens,
            completion_tokens, credit, predicted, gold (characters), mqm and human (scores). An unscored row has no
            credit, predicted and mqm; of `translations`, none has credit, gold and human.

        Raises:
            BadInput: a file cannot be used, or nothing that is to be rated has examples.
        """
        run = ensure(run)
        rated = self.read(ratings)
        if self.longest >= 0:
            rated = rated.up_to(self.longest)
        shown = _Examples(rated.bank, self.rater, self.examples, run)
        offered = rated.ratings if translations is None else self._unrated(translations, rated)
        items = self._items(offered, shown, run)
        rows: dict[str, list[Row]] = {}
        for arm in dict.fromkeys(self.arms):
            examples = shown.of(arm, items)
            found = self._mark(arm, items, examples, rated, judge, run)
            rows[arm] = [
                {**one.row(rated, arm, item), "examples": len(of)}
                for one, item, of in zip(found, items, examples, strict=True)
            ]
            scored = [(item, one.errors) for one, item in zip(found, items, strict=True) if one.errors is not None]
            keep_predictions(run, arm, scored)
        flat = [row for part in rows.values() for row in part]
        if translations is not None:
            flat = [{**row, **dict.fromkeys(("credit", "gold", "human"))} for row in flat]
        run.items(flat)
        run.metric(**self._headline(rows, rated=translations is None))
        run.metric(ratings=len(items), segments=len({one.segment for one in items}), **rated.lost)
        return Scores.of(flat, judge=judge.name, weights=self.weights, **rated.notes)

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

    def _mark(
        self,
        arm: Arm,
        items: Sequence[Rating],
        examples: Sequence[list[Rating]],
        rated: Rated,
        judge: LLM,
        run: Run,
    ) -> list[_Marked]:
        """What an arm marks in each translation."""
        pairs = list(zip(items, examples, strict=True))
        for item, of in pairs:
            guard(item, of)
        if arm == "copy":
            return [_Marked(Located(copy_spans(item.hypothesis, of, rated.codes))) for item, of in pairs]
        replies = judge.generate([self.chat(*pair) for pair in pairs], self._sampling, run)
        return [_Marked.of(reply, item, rated) for reply, item in zip(replies, items, strict=True)]

    @property
    def _sampling(self) -> Sampling:
        # A base model that is done goes on with the next translation.
        return Sampling(max_tokens=self.max_tokens, stop=("\nSource:",))

    def _unrated(self, translations: Path, rated: Rated) -> list[Rating]:
        """Translations to be rated.

        Raises:
            BadInput: sources that nobody has rated, or that are numbered otherwise; or --rater asks for a rater.
        """
        if self.rater != "any":
            raise BadInput(
                f"translations have no rater, so there is none to be the {self.rater} one", "use --rater any"
            )
        sources = {one.segment: one.source.strip() for one in rated.ratings}
        found = read_translations(translations)
        wrong = [one.item_id for one in found if sources.get(one.segment) != one.source.strip()]
        if wrong:
            raise BadInput.of(
                f"{len(wrong)} of {len(found)} translations are of no source that was rated",
                wrong[:10],
                "number their segments as the ratings do, with the same source, and leave out the others",
            )
        return found

    def _items(self, offered: Sequence[Rating], shown: _Examples, run: Run) -> list[Rating]:
        """The ratings to be predicted: of those that have examples, some of some segments, in the file's order."""
        by_segment: dict[str, list[int]] = defaultdict(list)
        for number, one in enumerate(offered):
            by_segment[one.segment].append(number)
        rng = run.rng("items")
        chosen: list[int] = []
        taken = 0
        for segment in rng.permutation(list(by_segment)).tolist():
            if taken == self.segments:
                break
            fit = [
                number for number in rng.permutation(by_segment[segment]).tolist() if shown.same_source(offered[number])
            ]
            chosen += fit if self.each == -1 else fit[: self.each]
            taken += bool(fit)
        if not chosen:
            raise BadInput(
                "no rating has examples: no other system's translation of its source was rated"
                + (f" by the {self.rater} rater" if self.rater != "any" else ""),
                "give ratings of several systems on the same sources, or another --rater",
            )
        return [offered[number] for number in sorted(chosen)]

    def _headline(self, rows: Mapping[str, Sequence[Row]], rated: bool) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for arm, part in rows.items():
            found |= f1_figures(_plain(arm), part, self.level) if rated else _mean_score(_plain(arm), part)
            if rated and arm != "specialist" and "specialist" in rows:
                found |= gain_figures(f"gain_over_{_plain(arm)}", rows["specialist"], part, self.level)
        found = dict(sorted(found.items(), key=lambda figure: figure[0].startswith(("precision", "recall"))))
        for arm, part in rows.items():
            if arm != "copy":
                states = {state: sum(row["status"] == state for row in part) for state in ("partial", "unscored")}
                counts = {what: sum(row[what] for row in part) for what in ("invented", "repeated", "prompt_tokens")}
                found |= {f"{what}_{_plain(arm)}": count for what, count in (states | counts).items()}
        return found


def _plain(arm: str) -> str:
    return arm.replace("-", "_")


class _Examples:
    """Which ratings each arm shows for each item."""

    def __init__(self, bank: Bank, rater: Rater, most: int, run: Run) -> None:
        self.bank, self.rater, self.most, self.run = bank, rater, most, run
        self.elsewhere = bank.elsewhere()

    def of(self, arm: Arm, items: Sequence[Rating]) -> list[list[Rating]]:
        """The examples of each item."""
        if arm == "zero-shot":
            return [[] for _ in items]
        if arm == "fixed":
            return self._fixed(items)
        if arm == "shuffled":
            return [self._other_source(one) for one in items]
        return [self._chosen(one) for one in items]

    def same_source(self, rated: Rating) -> list[Rating]:
        """All ratings that the specialist may see."""
        return self.bank.others(rated, rater=self.rater)

    def _chosen(self, rated: Rating) -> list[Rating]:
        """As many of them as are wanted; the same ones in every arm that asks, and in every run."""
        offered = self.same_source(rated)
        if self.most < 0 or len(offered) <= self.most:
            return offered
        rng = self.run.rng(f"examples {rated.item_id}")
        return [offered[place] for place in sorted(rng.permutation(len(offered))[: self.most].tolist())]

    def _other_source(self, rated: Rating) -> list[Rating]:
        """For each of the specialist's examples, one of the same system on another source.

        All are of one source, the first in a random order that has one for each; else the one that has most.
        """
        wanted = self._chosen(rated)
        most: list[Rating] = []
        rng = self.run.rng(f"other source {rated.segment}")
        for segment in rng.permutation(self.elsewhere[rated.segment]).tolist():
            found = _counterparts(wanted, self.bank.others(rated, rater=self.rater, segment=segment))
            if len(found) > len(most):
                most = found
            if len(most) == len(wanted):
                break
        return most

    def _fixed(self, items: Sequence[Rating]) -> list[list[Rating]]:
        judged = {one.segment for one in items}
        # A source that is judged is no other source, wherever else it stands.
        spare = [name for name in self.bank.segments if judged <= {*self.elsewhere[name]}]
        everything = [one for segment in spare for one in self.bank.ratings(segment)]
        if not everything:
            raise BadInput("the arm fixed has no source left for its examples", "judge fewer --segments")
        order = self.run.rng("fixed").permutation(len(everything)).tolist()
        # Some systems may be the rated one or give the same text: the next in the same order take their place.
        count = self.most if self.most >= 0 else max(1, round(np.mean([len(self.same_source(one)) for one in items])))
        return [[everything[place] for place in order if not leak(one, everything[place])][:count] for one in items]


def _counterparts(wanted: Sequence[Rating], offered: Sequence[Rating]) -> list[Rating]:
    """For each wanted rating one of the same system, of the same rater where there is one, and none twice."""
    by_system: dict[str, list[Rating]] = defaultdict(list)
    for one in offered:
        by_system[one.system].append(one)
    found = []
    for one in wanted:
        if left := by_system[one.system]:
            left.sort(key=lambda other: other.rater != one.rater)
            found.append(left.pop(0))
    return found


class _Marked:
    """What one arm marks in one translation."""

    def __init__(self, located: Located | None, status: str = "ok", malformed: int = 0, reply: Reply | None = None):
        self.located, self.status, self.malformed, self.reply = located, status, malformed, reply

    @classmethod
    def of(cls, reply: Reply, rated: Rating, known: Rated) -> _Marked:
        read = read_reply(reply.text, known.codes)
        located = None if read.status == "unscored" else locate(read.claims, rated.hypothesis, rated.source)
        return cls(located, read.status, read.malformed, reply)

    @property
    def errors(self) -> list[Error] | None:
        """None when the reply says nothing that can be read."""
        return None if self.located is None else self.located.errors

    def row(self, known: Rated, arm: Arm, rated: Rating) -> Row:
        return {
            **known.row(arm, rated, [] if self.errors is None else [self.errors]),
            "status": self.status,
            "invented": self.located.invented if self.located else 0,
            "repeated": self.located.repeated if self.located else 0,
            "malformed": self.malformed,
            "prompt_tokens": self.reply.usage.prompt_tokens if self.reply else 0,
            "completion_tokens": self.reply.usage.completion_tokens if self.reply else 0,
        }


def _shown(rated: Rating) -> str:
    return f"Source: {rated.source}\nTranslation: {rated.hypothesis}"


def _as_json(rated: Rating) -> str:
    """The errors of a rating as a reply would have them; one that is said to be nowhere cannot be shown."""
    errors = [
        {"span": error.text, "category": error.category, "severity": error.severity.casefold()}
        for error in rated.errors
        if error.text.strip() or error.omission
    ]
    return json.dumps(errors, ensure_ascii=False)


def _mean_score(name: str, rows: Sequence[Row]) -> dict[str, float]:
    scores = [row["mqm"] for row in rows if row["mqm"] is not None]
    return {f"mqm_{name}": sum(scores) / len(scores)} if scores else {}
