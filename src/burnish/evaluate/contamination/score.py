"""Contamination score: let a model read a test set, and write down what `contamination probe` looks at.

## How it works

`look` sentences: each sentence (or pair, in `template`) is read once. Written down are the log-probability of each token, and
its mean and standard deviation under the model's own distribution at that place (for Min-K%++); with a reference model, the
loss that it has on the same text; and with `prefix` above 0 how the model goes on when it is given the source and that share of
the target: `completion` is the share of the remaining tokens that it then writes, in their order, before the first difference.

`look` order: the test set is cut into shards of consecutive lines, and each is read in its published order and in `orders`
others; a model that saw the file in training finds the published order likelier than it would be by chance (Oren et al.).

    burnish evaluate contamination score MODEL --test test.en --test-target test.de --out runs/read
    burnish evaluate contamination probe runs/read

## Differences

The loss of a reference with another vocabulary is summed over the text and divided by the tokens of the model, so that the ratio
is one of whole texts. Oren et al. read orders with strided windows; here windows follow one another without overlap.

## When not to use it

For models behind a service that gives no log-probabilities. See `probe` for what the signs can and cannot say.

## References

Zhang et al. 2025 (Min-K%++), Carlini et al. 2021 (completion, reference), Oren et al. 2024 (order).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from burnish.core.errors import BadInput
from burnish.core.run import Run, ensure
from burnish.core.shapes import Evaluation
from burnish.data.injection import check_template, fill, read_pairs
from burnish.data.lines import read_side
from burnish.data.scores import Scores
from burnish.engine import Sampling
from burnish.engine.generate import generate
from burnish.engine.surprise import surprises
from burnish.models import Model


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
            Of sentences a row a line: item_id (its number), model, nll, logprobs, mean_logprobs, std_logprobs and, where asked
            for, reference_nll and completion; empty lines are left out. Of an order a row a shard: item_id, model,
            published_logprob, shuffled_logprobs.

        Raises:
            BadInput: files that cannot be read or do not belong together, too few lines, lines beyond the model's context.
        """
        run = ensure(run)
        if test_target is not None:
            pairs = read_pairs(test, test_target)
            texts = [fill(self.template, pair) for pair in pairs]
        else:
            pairs = [("", line) for line in read_side(test, "source")]
            texts = [line for _, line in pairs]
        limit = len(pairs) if self.limit == -1 else self.limit
        kept = [number for number, pair in enumerate(pairs[:limit]) if any(side.strip() for side in pair)]
        if self.look == "order":
            rows = self._order(model, [texts[number] for number in kept], run)
        else:
            rows = self._sentences(model, kept, texts, reference)
            if self.prefix:
                self._complete(model, rows, [pairs[int(row["item_id"])] for row in rows], test_target is not None)
        run.items(rows)
        run.metric(rows=len(rows), tokens=sum(len(row.get("logprobs", ())) for row in rows))
        return Scores.of(rows)

    def _sentences(
        self, model: Model, kept: Sequence[int], texts: Sequence[str], reference: Model | None
    ) -> list[dict[str, Any]]:
        ids = [_ids(model, texts[number]) for number in kept]
        long_enough = [at for at, text in enumerate(ids) if len(text) > 1]
        if not long_enough:
            raise BadInput("no line of the test set has two tokens", "check the file")
        read = surprises(model, [ids[at] for at in long_enough])
        rows: list[dict[str, Any]] = [
            {
                "item_id": str(kept[at]),
                "model": model.name,
                "nll": -float(np.mean(taken.logprobs)),
                "logprobs": taken.logprobs,
                "mean_logprobs": taken.means,
                "std_logprobs": taken.deviations,
            }
            for at, taken in zip(long_enough, read, strict=True)
        ]
        if reference is not None:
            theirs = surprises(reference, [_ids(reference, texts[int(row["item_id"])]) for row in rows])
            for row, taken in zip(rows, theirs, strict=True):
                row["reference_nll"] = -float(np.sum(taken.logprobs)) / len(row["logprobs"])
        return rows

    def _complete(self, model: Model, rows: list[dict[str, Any]], pairs: Sequence[Any], paired: bool) -> None:
        """Add to each row the share of the rest of its target that the model writes, given what comes before it."""
        prompts, rests = [], []
        for source, target in pairs:
            text = fill(self.template, (source, target)) if paired else target
            ids = _ids(model, text)
            before = len(_ids(model, text[: text.rindex(target)])) if paired and target else 0
            given = min(len(ids) - 1, max(1, before + round((len(ids) - before) * self.prefix)))
            prompts.append(ids[:given])
            rests.append(ids[given:])
        each = [Sampling(max_tokens=len(rest)) for rest in rests]
        written = generate(model, prompts, each, batch_size=self.batch_size)
        for row, text, rest in zip(rows, written, rests, strict=True):
            same = 0
            while same < min(len(text.ids), len(rest)) and text.ids[same] == rest[same]:
                same += 1
            row["completion"] = same / len(rest)

    def _order(self, model: Model, lines: Sequence[str], run: Run) -> list[dict[str, Any]]:
        if len(lines) < 2 * self.shards:
            raise BadInput(
                f"{len(lines)} lines, and {self.shards} shards of two are asked for", f"--shards {len(lines) // 2}"
            )
        rng, rows = run.rng("orders"), []
        for number, shard in enumerate(np.array_split(np.arange(len(lines)), self.shards)):
            orders = [shard, *(rng.permutation(shard) for _ in range(self.orders))]
            found = [_log_probability(model, "\n".join(lines[line] for line in order)) for order in orders]
            row = {"item_id": str(number), "model": model.name, "published_logprob": found[0]}
            rows.append({**row, "shuffled_logprobs": found[1:]})
        return rows


def _ids(model: Model, text: str) -> list[int]:
    return list(model.tokenizer(text)["input_ids"])


def _log_probability(model: Model, text: str) -> float:
    """Of a text of any length, window by window of the model's context."""
    ids = _ids(model, text)
    room = getattr(model.config, "max_position_embeddings", None) or len(ids)
    pieces = [ids[begin : begin + room] for begin in range(0, len(ids), room)]
    read = surprises(model, [piece for piece in pieces if len(piece) > 1])
    return float(sum(sum(taken.logprobs) for taken in read))
