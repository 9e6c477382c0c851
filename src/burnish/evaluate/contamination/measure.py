"""Contamination measure: train the same model on clean and on contaminated data, and see by how much its scores differ.

## How it works

For each size and seed one *base* is trained from nothing on clean pairs. From it fork branches that all read the same further
pairs, each with other copies of test pairs among them: the source alone, the target alone or both, once or often, early, late
or spread evenly. One branch gets none: the clean continuation. Every branch then translates the same test sentences greedily.

    gain(branch) = score(branch) - score(clean continuation)
    excess(branch) = gain on the injected test pairs - gain on the control

as BLEU and as chrF of the whole set, by sacrebleu, with paired bootstrap intervals over sentences. The control are other pairs
of the same test set, which were not injected. The gain on them need not be 0: a branch reads its copies on top of what the
clean one reads, so it trains longer, and may get better at all sentences. What contamination is worth is the excess.

One more branch, `reordered`, reads the clean pairs in another order, and nothing else. Its excess comes from the noise of training
alone: that noise is in no interval, for those are over sentences, and an excess that is no larger than it says nothing. It is
one draw of the noise a size and seed; more seeds give more.

| part | what |
|---|---|
| model | a Llama from nothing; a byte-pair vocabulary of the base's own clean pairs |
| text | `template` of a pair; `<s>` before, `</s>` after; a document does not see another |
| base | AdamW, warm-up, then a constant rate, so that it can be branched anywhere |
| branch | weights and moments of the base; the rate falls to nothing over the last `decay` of its steps |

Test pairs of which a side is also a line of the training data, or of whose words on a side 70 % lie in sequences of eight that
stand there, are put aside first. Every branch is trained once ever: a run that was stopped goes on with the next, and a base at
its last checkpoint. `probe` of the branches' rows tells how well each sign finds what was injected: the columns logprobs,
mean_logprobs, std_logprobs and reference_nll are of the pair's text, the last under the clean continuation.

## Differences

The paper trains models of 1 and 8 billion parameters on multilingual text, eight languages, with 42 conditions; here are one
language pair and models that a laptop trains. Its copies are part of a whole pre-training; here they lie in the branch.
A contaminated branch takes as many more steps as its copies fill: the excess sets what that brings to all sentences off.
Not varied: the prompt format (one `template`), the language pair, the amount of clean text, and when the base is left.
Copies that do not fit into `window` widen it; the figures `windows` and `widened` say where.

## When not to use it

To say how much a given model's published score is inflated: the effect depends on size, data and time. It is a measuring
bench for the effect itself.

## References

Kocyigit et al. 2025: conditions, branching. Koehn 2004: paired bootstrap. Post 2018: sacrebleu.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from burnish.core.files import write_json
from burnish.core.method import Paper
from burnish.core.run import Run, ensure
from burnish.core.shapes import Evaluation
from burnish.data import bleu
from burnish.data.injection import Mode, Position, check_template, read_pairs
from burnish.data.scores import Scores
from burnish.evaluate.contamination import PAPER
from burnish.evaluate.contamination.gains import add_excess, counts, gains, headlines, sentences

if TYPE_CHECKING:
    from burnish.evaluate.contamination.branches import Branch, Laboratory

GAINS = "gains.json"
"""Every figure of every branch, in the run's artifact."""
Size = Literal["30k", "100k", "1.5m", "12m"]


class ContaminationMeasure(Evaluation):
    """Train on clean and on contaminated data from one base, and measure what the contamination adds to the scores."""

    paper: ClassVar[Paper | None] = PAPER
    needs: ClassVar[tuple[str, ...]] = ("models", "translation")

    sizes: tuple[Size, ...] = ("1.5m", "12m")
    """Sizes of the models, by their parameters."""
    seeds: Annotated[int, Field(ge=1)] = 1
    """Times that everything is done, each with other pairs, places and first weights."""
    modes: tuple[Mode, ...] = ("source", "target", "both")
    """Which sides of a test pair are laid in."""
    copies: tuple[Annotated[int, Field(ge=1)], ...] = (8,)
    """Copies of each pair; a branch for each number."""
    positions: tuple[Position, ...] = ("uniform",)
    """Where in the further training they lie; a branch for each."""
    window: Annotated[float, Field(gt=0, le=1)] = 0.25
    """The part of the further training that is early, or late."""
    pairs: Annotated[int, Field(ge=2)] = 200
    """Test pairs that are injected."""
    control: Annotated[int, Field(ge=-1)] = 200
    """Other test pairs to compare them with; -1 for all others."""
    base_pairs: Annotated[int, Field(ge=1)] = 8_000
    """Training pairs of the base."""
    branch_pairs: Annotated[int, Field(ge=1)] = 1_600
    """Training pairs of each branch: a fifth of the base's, so that branching saves most of the work (as in the paper)."""
    template: str = "{source}\t{target}"
    """The text of a pair; the target comes last."""
    vocabulary: Annotated[int, Field(ge=300)] = 4096
    """Byte-pair tokens of the vocabulary, at most."""
    length: Annotated[int, Field(ge=16)] = 128
    """Tokens of a packed row, and the model's context."""
    batch: Annotated[int, Field(ge=1)] = 4
    """Rows a step."""
    rate: Annotated[float, Field(gt=0)] | None = None
    """Peak learning rate; by default the size's own (3e-3 for 1.5m, 1e-3 for 12m)."""
    decay: Annotated[float, Field(gt=0, le=1)] = 0.3
    """Share of a branch's steps in which the rate falls to nothing."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of products; "auto" is bfloat16 where the processor computes with it."""
    level: Annotated[float, Field(gt=0, lt=1)] = 0.95
    """Confidence level."""
    draws: Annotated[int, Field(ge=100)] = 1000
    """Resamples of sentences."""

    @model_validator(mode="after")
    def _usable(self) -> ContaminationMeasure:
        check_template(self.template)
        if not self.template.endswith("{target}"):
            raise ValueError("template: it ends with {target}, which the model is to write")
        for name in ("sizes", "modes", "copies", "positions"):
            values = getattr(self, name)
            if not values or len(set(values)) < len(values):
                raise ValueError(f"{name}: at least one, and none twice")
        if self.control == 0 or self.control == 1:
            raise ValueError("control: at least 2, or -1 for all")
        return self

    def __call__(
        self, train: Path, train_target: Path, test: Path, test_target: Path, run: Run | None = None
    ) -> Scores:
        """Measure.

        Args:
            train: The training data's source side: a text with a sentence a line, plain or .gz.
            train_target: Its target side.
            test: The test set's source side.
            test_target: Its target side.
            run: Its parts hold a base while it is needed, and what each branch gave; its artifact gains.json, all figures.

        Returns:
            A row a test pair of each branch, size and seed: item_id (the test line, from 0), model (size, branch, seed), size,
            branch, seed, injected, hypothesis, reference; bleu and chrf (jackknife pseudo-values of the corpus score of the
            pair's set, the injected or the control); bleu_excess and chrf_excess (the same of the branch's excess over the
            clean one, over both sets); nll, reference_nll (under the clean continuation), logprobs, mean_logprobs,
            std_logprobs. The mean of pseudo-values is the score, or excess, less most of its bias: gains.json has the figures
            themselves.

        Raises:
            BadInput: files that cannot be read, sides of different length, too few pairs, test sources that fill the context
                (by their lines), a loss that is no number.
            MissingExtra: sacrebleu is not installed.
        """
        from burnish.evaluate.contamination.branches import Laboratory, split, unseen

        run = ensure(run)
        signatures = [bleu.signature(name) for name in bleu.METRICS]
        data, tests = read_pairs(train, train_target), read_pairs(test, test_target)
        amounts, training = (self.base_pairs, self.branch_pairs), self._training()
        rows: list[dict[str, Any]] = []
        told: dict[str, dict[str, Any]] = {}
        usable = unseen(data, tests)
        for seed in range(self.seeds):
            dealt = split(data, tests, usable, amounts, self.pairs, self.control, partial(_rng, run, seed))
            for size in self.sizes:
                part = run.sub(f"{size}-seed{seed}")
                number = run.seed_of(f"weights/{seed}")
                lab = Laboratory(size, number, dealt, training, part.folder, partial(_rng, run, seed))
                found = {name: self._rows(lab, result) for name, result in self._branches(lab, part)}
                for name, group in found.items():
                    add_excess(group, found["clean"])
                    for row, clean in zip(group, found["clean"], strict=True):
                        row |= {"model": f"{size} {name} seed {seed}", "size": size, "branch": name, "seed": seed}
                        row["reference_nll"] = clean["nll"]
                    rows += group
                run.metric(**self._windows(lab))
                told |= gains(found, f"{size}, seed {seed}", self.level, self.draws)
        run.items(rows)
        write_json(run.artifact / GAINS, told)
        run.metric(**headlines(told), gains=sentences(told))
        run.metric(branches=len({row["model"] for row in rows}), sentences=len(tests), sacrebleu=signatures)
        run.metric(put_aside=len(tests) - len(usable))
        return Scores.of(rows)

    def branches(self) -> list[Branch]:
        """The clean continuation, the same reordered, and one branch for each mode, number of copies and position."""
        from burnish.evaluate.contamination.branches import Branch

        found = [Branch(m, c, p) for m in self.modes for c in self.copies for p in self.positions]
        return [Branch(), Branch(reordered=True), *found]

    def _training(self) -> Any:
        from burnish.evaluate.contamination.branches import Training

        names = ("vocabulary", "length", "batch", "rate", "decay", "template", "window", "precision")
        return Training(**{name: getattr(self, name) for name in names})

    def _branches(self, lab: Laboratory, part: Run) -> Iterator[tuple[str, dict[str, Any]]]:
        """What the base and each branch gave, each once ever."""

        def done(name: str, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
            if not lab.checkpoint.exists():
                part.event("trained", name="base", **lab.train_base())
            result = work()
            part.event("measured", name=name, **{key: value for key, value in result.items() if key != "rows"})
            return result

        yield "base", part.once("base", partial(done, "base", lab.read_base))
        for branch in self.branches():
            yield branch.name, part.once(branch.name, partial(done, branch.name, partial(lab.run, branch)))
        lab.checkpoint.unlink(missing_ok=True)

    def _windows(self, lab: Laboratory) -> dict[str, Any]:
        """The share of the further training in which each branch's copies lie, and where that is more than asked for."""
        windows, widened = {}, []
        for branch in self.branches():
            drawn = lab.drawn(branch)
            if drawn is not None and branch.position is not None:
                windows[branch.name] = round(drawn.window, 4)
                said = drawn.widened(branch.position, self.window)
                widened += [f"{branch.name}: {said}"] if said else []
        return {"windows": windows, **({"widened": widened} if widened else {})}

    def _rows(self, lab: Laboratory, result: dict[str, Any]) -> list[dict[str, Any]]:
        injected, rows = set(lab.split.injected), []
        for found in result["rows"]:
            place = found["place"]
            row = {"item_id": str(lab.split.lines[place]), "injected": place in injected}
            row |= {name: value for name, value in found.items() if name != "place"}
            row["reference"] = lab.split.tests[place][1]
            rows.append({**row, "nll": -float(np.mean(found["logprobs"]))})
        for flag in (True, False):
            group = [row for row in rows if row["injected"] == flag]
            for name in bleu.METRICS:
                for row, value in zip(group, bleu.shares(name, counts(name, group)), strict=True):
                    row[name] = float(value)
        return rows


def _rng(run: Run, seed: int, name: str) -> np.random.Generator:
    return run.rng(f"{name}/{seed}")
