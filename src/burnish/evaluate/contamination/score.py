"""Contamination score: let a model read a test set, and write down what `contamination probe` looks at.

## How it works

`look` sentences: each sentence (or pair, in `template`) is read once. Written down are the log-probability of each token, and
its mean and standard deviation under the model's own distribution at that place (for Min-K%++); with a reference model, the
loss that it has on the same text; and with `prefix` above 0 how the model goes on when it is given the source and that share of
the target: `completion` is the share of the rest of the target's tokens that it then writes, in their order, before the first
difference.

A first token can be given a probability only after something. What stands before a text is what the model's tokenizer puts there
by itself; where it puts nothing, its token for the beginning or the end of a text, which parted documents in training. So all
tokens of a text count, for the model and for the reference, whatever their tokenizers do. Two models of which only one has such
a token are not compared.

`look` order: the test set is cut into shards of consecutive lines, and each is read in its published order and in `orders`
others; a model that saw the file in training finds the published order likelier than it would be by chance (Oren et al.).

    burnish evaluate contamination score MODEL --test test.en --test-target test.de --out runs/read
    burnish evaluate contamination probe runs/read

What was read is written down every few sentences (or shard by shard); a run that was stopped goes on there.

## Differences

The loss of a reference with another vocabulary is summed over the text and divided by the tokens of the model, so that the ratio
is one of whole texts. Min-K%++ is defined on the tokens after the first; here the first is one of them. Oren et al. read orders
with strided windows; here a window begins with the last token of the one before, so that each token is read once.

## When not to use it

For models behind a service that gives no log-probabilities. See `probe` for what the signs can and cannot say.

## References

Zhang et al. 2025 (Min-K%++), Carlini et al. 2021 (completion, reference), Oren et al. 2024 (order).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from burnish.core.errors import BadInput
from burnish.core.run import Run, ensure
from burnish.core.shapes import Evaluation
from burnish.data.injection import Pair, check_template, fill, read_pairs
from burnish.data.lines import read_side
from burnish.data.scores import Scores
from burnish.engine import Sampling
from burnish.engine.generate import generate
from burnish.engine.surprise import Surprise, surprises
from burnish.models import Model

AT_ONCE = 32
"""Sentences that are read before they are written down, or `batch_size` where that is more."""


class ContaminationScore(Evaluation):
    """Let a model read test sentences: their log-probabilities, their completion, or their order, for `contamination probe`."""

    needs: ClassVar[tuple[str, ...]] = ("models",)

    look: Literal["sentences", "order"] = "sentences"
    """What is read: each sentence by itself, or shards of the file in several orders."""
    template: str = "{source}\t{target}"
    """The text of a pair."""
    limit: Annotated[int, Field(ge=-1)] = -1
    """Lines that are read, from the first; -1 for all."""
    prefix: Annotated[float, Field(ge=0, lt=1)] = 0.5
    """Share of a target's tokens (of a sentence's, without targets) that the model is given to complete; 0 asks for none."""
    shards: Annotated[int, Field(ge=1)] = 20
    """Pieces of the file whose order is looked at."""
    orders: Annotated[int, Field(ge=1)] = 20
    """Other orders of each."""
    batch_size: Annotated[int, Field(ge=1)] = 16
    """Completions that are written together."""

    @model_validator(mode="after")
    def _template_names_both_sides(self) -> ContaminationScore:
        check_template(self.template)
        return self

    def __call__(
        self,
        model: Model,
        test: Path,
        test_target: Path | None = None,
        reference: Model | None = None,
        run: Run | None = None,
    ) -> Scores:
        """Read.

        Args:
            model: The model that is asked.
            test: The test set, or its source side: a text with a sentence a line, plain or .gz, or JSON lines.
            test_target: Its target side, line by line.
            reference: A model that cannot have seen it.
            run: Where figures go.

        Returns:
            Of sentences a row a line: item_id (its number, from 0), model, nll, logprobs, mean_logprobs, std_logprobs and, where
            asked for, reference_nll and completion. Left out, and counted in the figure `left_out`, are lines with an empty
            side, and those of no token that has another before it. Of an order a row a shard: item_id, model,
            published_logprob, shuffled_logprobs.

        Raises:
            BadInput: files that cannot be read or do not belong together, too few lines, lines beyond the context of the model
                or the reference (all of them, by number), models that cannot be compared.
        """
        run = ensure(run)
        if test_target is not None:
            pairs, template = read_pairs(test, test_target), self.template
        else:
            pairs, template = [("", line) for line in read_side(test, "source")], "{target}"
        limit = len(pairs) if self.limit == -1 else self.limit
        sides = slice(0, 2) if test_target is not None else slice(1, 2)
        lines = [
            _Line(number, pair, fill(template, pair))
            for number, pair in enumerate(pairs[:limit])
            if all(side.strip() for side in pair[sides])
        ]
        ours, theirs = _Reader.of(model), None if reference is None else _Reader.of(reference)
        if self.look == "order":
            rows = self._order(ours, [line.text for line in lines], run)
        else:
            rows = self._sentences(ours, theirs, lines, template, run)
            run.metric(left_out=len(pairs[:limit]) - len(rows))
        run.items(rows)
        run.metric(rows=len(rows), tokens=sum(len(row.get("logprobs", ())) for row in rows))
        return Scores.of(rows)

    def _sentences(
        self, ours: _Reader, theirs: _Reader | None, lines: list[_Line], template: str, run: Run
    ) -> list[dict[str, Any]]:
        readers = [ours] if theirs is None else [ours, theirs]
        lines = [line for line in lines if all(reader.counted(line.text) for reader in readers)]
        if not lines:
            raise BadInput("no line of the test set has two tokens", "check the file")
        _check(readers, lines)

        def work(group: list[_Line]) -> list[dict[str, Any]]:
            texts = [line.text for line in group]
            rows = [_row(taken) for taken in ours.read(texts)]
            if theirs is not None:
                for row, taken in zip(rows, theirs.read(texts, moments=False), strict=True):
                    row["reference_nll"] = -float(np.sum(taken.logprobs)) / len(row["logprobs"])
            if self.prefix:
                shares = self._completions(ours, [line.pair for line in group], template)
                rows = [{**row, "completion": share} for row, share in zip(rows, shares, strict=True)]
            return rows

        size = max(AT_ONCE, self.batch_size)
        groups = [lines[begin : begin + size] for begin in range(0, len(lines), size)]
        key = _key([self.settings(), [reader.model.name for reader in readers]], lambda group: [vars(x) for x in group])
        read = run.map(work, groups, key=key, step="sentences read")
        named = zip(lines, (row for rows in read for row in rows), strict=True)
        return [{"item_id": str(line.number), "model": ours.model.name, **row} for line, row in named]

    def _completions(self, reader: _Reader, pairs: Sequence[Pair], template: str) -> list[float]:
        """The share of the rest of each target that the model writes, given what comes before it."""
        head, _, _ = template.partition("{target}")
        prompts, rests = [], []
        for source, target in pairs:
            before = head.replace("{source}", source)
            ids, begin = reader.ids(before + target), len(reader.ids(before))
            given = min(len(ids) - 1, max(1, begin + round((len(ids) - begin) * self.prefix)))
            prompts.append(ids[:given])
            rests.append(ids[given:])
        each = [Sampling(max_tokens=len(rest)) for rest in rests]
        written = generate(reader.model, prompts, each, batch_size=self.batch_size)
        return [_same(text.ids, rest) / len(rest) for text, rest in zip(written, rests, strict=True)]

    def _order(self, reader: _Reader, lines: Sequence[str], run: Run) -> list[dict[str, Any]]:
        if len(lines) < 2 * self.shards:
            raise BadInput(
                f"{len(lines)} lines, and {self.shards} shards of two are asked for", f"--shards {len(lines) // 2}"
            )
        rng, shards = run.rng("orders"), []
        for shard in np.array_split(np.arange(len(lines)), self.shards):
            orders = [shard, *(rng.permutation(shard) for _ in range(self.orders))]
            shards.append(["\n".join(lines[line] for line in order) for order in orders])

        def work(texts: list[str]) -> list[float]:
            return [reader.log_probability(text) for text in texts]

        key = _key([self.settings(), reader.model.name], lambda texts: texts)
        found = run.map(work, shards, key=key, step="shards read")
        return [
            {
                "item_id": str(number),
                "model": reader.model.name,
                "published_logprob": values[0],
                "shuffled_logprobs": values[1:],
            }
            for number, values in enumerate(found)
        ]


@dataclass(frozen=True)
class _Line:
    number: int
    """In its file, from 0."""
    pair: Pair
    text: str


@dataclass(frozen=True)
class _Reader:
    """A model, and what it is given before a text."""

    model: Model
    start: list[int]

    @classmethod
    def of(cls, model: Model) -> _Reader:
        tokenizer = model.tokenizer
        special = set(tokenizer.all_special_ids)
        start = list(takewhile(special.__contains__, tokenizer("a")["input_ids"]))
        others = [token for token in (tokenizer.bos_token_id, tokenizer.eos_token_id) if token is not None]
        return cls(model, start or others[:1])

    @property
    def room(self) -> int | None:
        """Tokens of its context."""
        return getattr(self.model.net.config.get_text_config(), "max_position_embeddings", None)

    def ids(self, text: str) -> list[int]:
        return [*self.start, *self.model.tokenizer(text, add_special_tokens=False)["input_ids"]]

    def counted(self, text: str) -> int:
        """Tokens of a text that have another before them."""
        return len(self.ids(text)) - max(1, len(self.start))

    def read(self, texts: Sequence[str], *, moments: bool = True) -> list[Surprise]:
        """The tokens of each text that have another before them, and none of what it is given before the text."""
        first = max(0, len(self.start) - 1)
        found = surprises(self.model, [self.ids(text) for text in texts], moments=moments)
        return [Surprise(one.logprobs[first:], one.means[first:], one.deviations[first:]) for one in found]

    def log_probability(self, text: str) -> float:
        """Of a text of any length, window by window of the model's context."""
        ids = self.ids(text)
        room = self.room or len(ids)
        pieces = [ids[begin : begin + room] for begin in range(0, len(ids) - 1, max(1, room - 1))]
        return float(sum(sum(taken.logprobs) for taken in surprises(self.model, pieces, moments=False)))


def _check(readers: Sequence[_Reader], lines: Sequence[_Line]) -> None:
    """Refuse what cannot be read, before any of it is."""
    if len({bool(reader.start) for reader in readers}) > 1:
        without = next(reader.model.name for reader in readers if not reader.start)
        problem = (
            f"the tokenizer of {without} has no token to begin a text with, so it would skip a first token that counts"
        )
        raise BadInput(f"{problem} for the other model", "choose another reference")
    faults = []
    for reader in readers:
        for line in lines:
            size = len(reader.ids(line.text))
            if reader.room is not None and size > reader.room:
                faults.append(
                    f"line {line.number + 1}: {size} tokens of {reader.model.name}, whose context is {reader.room}"
                )
    if faults:
        raise BadInput.of("some lines are longer than the context", faults, "shorten them, or leave them out")


def _row(taken: Surprise) -> dict[str, Any]:
    columns = {"logprobs": taken.logprobs, "mean_logprobs": taken.means, "std_logprobs": taken.deviations}
    # To what float32 can tell apart: journals stay small.
    rounded = {name: [round(value, 6) for value in values] for name, values in columns.items()}
    return {"nll": -float(np.mean(rounded["logprobs"])), **rounded}


def _same(written: Sequence[int], rest: Sequence[int]) -> int:
    """Tokens up to the first difference."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(written, rest, strict=False)))


def _key(fixed: Any, part: Callable[[Any], Any]) -> Callable[[Any], str]:
    """Names a unit of work by all that its result follows from: other texts or models are other units."""
    return lambda unit: hashlib.sha256(json.dumps([fixed, part(unit)]).encode()).hexdigest()[:16]
