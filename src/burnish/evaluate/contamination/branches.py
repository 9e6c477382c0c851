"""The training behind `contamination measure`: a base from nothing, its branches, and what each makes of the test sentences."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from burnish.core.errors import BadInput
from burnish.core.progress import Progress
from burnish.data.injection import Injection, Mode, Pair, Position, draw
from burnish.data.overlap import overlap
from burnish.engine import Generated, Sampling
from burnish.engine.generate import generate_as_finished
from burnish.engine.surprise import surprises
from burnish.models.fresh import SHAPES, new_llama, train_tokenizer
from burnish.models.model import Model
from burnish.nn.pretrain import Plan, pretrain, read_weights
from burnish.nn.stream import Stream, pack

AT_ONCE = 64
"""Sentences that are translated, or read, together."""
BASE, CLEAN, REORDERED = "base", "clean", "reordered"
CHECKPOINT_EVERY = 100
"""Steps of a base after which its state is written, so that it can be gone on with."""
NGRAM, MOSTLY = 8, 0.7
"""A test line of whose words this share lies in n-grams of the training data counts as being there (the usual rule)."""


@dataclass(frozen=True)
class Branch:
    """What is laid into the further training of a base: nothing (clean), or copies of test pairs."""

    mode: Mode | None = None
    copies: int = 0
    position: Position | None = None
    reordered: bool = False
    """Whether the clean pairs come in another order, and nothing else differs: what it gains is the noise of training."""

    @property
    def name(self) -> str:
        """E.g. "both x8 uniform"."""
        if self.mode:
            return f"{self.mode} x{self.copies} {self.position}"
        return REORDERED if self.reordered else CLEAN


@dataclass(frozen=True)
class Training:
    """How bases and branches are trained."""

    vocabulary: int
    length: int
    """Tokens of a row, and the context of the model."""
    batch: int
    """Rows a step."""
    rate: float | None
    """Peak learning rate; that of the size's shape by default."""
    decay: float
    """Share of a branch's steps in which the rate falls to nothing."""
    template: str
    window: float
    precision: Any = "auto"


@dataclass(frozen=True)
class Split:
    """Which pairs are for what, in one seed."""

    base: list[Pair]
    further: list[Pair]
    tests: list[Pair]
    """Those that may be injected, or be the control."""
    lines: list[int]
    """The line of each of `tests` in the test files."""
    injected: list[int]
    """Places among `tests`."""
    control: list[int]


def unseen(train: Sequence[Pair], test: Sequence[Pair]) -> list[int]:
    """Numbers of the test pairs of which neither side is a training line, blanks at its ends aside, or nearly one.

    Nearly: at least `MOSTLY` of its words lie in word sequences of length `NGRAM` that stand on that side of the training data.
    """
    seen = np.zeros(len(test), dtype=bool)
    for side in range(2):
        found = overlap([pair[side] for pair in test], (pair[side] for pair in train), NGRAM, len(test))
        seen |= found.exact | (found.share >= MOSTLY)
    return np.flatnonzero(~seen).tolist()


def split(
    train: Sequence[Pair],
    test: Sequence[Pair],
    lines: Sequence[int],
    sizes: tuple[int, int],
    pairs: int,
    control: int,
    rng: Callable[[str], Any],
) -> Split:
    """Deal the pairs out.

    Args:
        train: Training pairs.
        test: Test pairs.
        lines: Numbers of those that may be used: `unseen`.
        sizes: Training pairs of the base, and of its branches.
        pairs: Test pairs to inject.
        control: Others to compare them with; -1 for all that are left.
        rng: Name to generator.

    Raises:
        BadInput: there are too few pairs, of either.
    """
    tests = [test[number] for number in lines]
    faults = []
    if sum(sizes) > len(train):
        faults.append(f"{len(train)} training pairs, and {sizes[0]} + {sizes[1]} are asked for")
    if pairs + max(control, 2) > len(tests):
        aside = f" ({len(test) - len(tests)} are training lines, or nearly)" if len(tests) < len(test) else ""
        faults.append(f"{len(tests)} test pairs{aside}, and {pairs} + {max(control, 2)} are asked for")
    if faults:
        raise BadInput.of("there are too few pairs", faults, "--base-pairs, --branch-pairs, --pairs, --control")
    order = rng("train").permutation(len(train))[: sum(sizes)].tolist()
    chosen = draw(1, len(tests), pairs, 1, "uniform", 1.0, rng("inject")).chosen
    rest = rng("control").permutation(sorted(set(range(len(tests))) - set(chosen)))
    kept = np.sort(rest if control == -1 else rest[:control]).tolist()
    data = [train[number] for number in order]
    return Split(data[: sizes[0]], data[sizes[0] :], tests, list(lines), chosen, kept)


class Laboratory:
    """One size and seed: its vocabulary, its base, and what becomes of each branch.

    Args:
        size: Of `SHAPES`.
        seed: Of the first weights and the places of copies.
        split: Which pairs are for what.
        training: How.
        folder: Where the base is kept while branches need it.
        rng: Name to generator; the same name gives the same draws in every branch.
    """

    def __init__(
        self, size: str, seed: int, split: Split, training: Training, folder: Path, rng: Callable[[str], Any]
    ) -> None:
        self.size, self.seed, self.split, self.training, self.rng = size, seed, split, training, rng
        self.checkpoint = folder / "base.safetensors"
        before, _, _ = training.template.partition("{target}")
        self._before, self._between = before.split("{source}")

    @cached_property
    def tokenizer(self) -> Any:
        """Trained when it is first needed: a run that goes on may have every branch already."""
        return train_tokenizer((text for pair in self.split.base for text in pair), self.training.vocabulary)

    def ids(self, mode: Mode, pair: Pair) -> list[int]:
        """A document: one side, or both in the template; what precedes the target is cut alike in training and in use."""
        if mode == "both":
            return [*self.prompt(pair[0]), *self._cut(pair[1]), self.tokenizer.eos_token_id]
        return [self.tokenizer.bos_token_id, *self._cut(pair[mode == "target"]), self.tokenizer.eos_token_id]

    def prompt(self, source: str) -> list[int]:
        """What the model is given to translate."""
        return [self.tokenizer.bos_token_id, *self._cut(self._before + source + self._between)]

    def train_base(self) -> dict[str, Any]:
        """Train the base and keep it; goes on at its last checkpoint.

        Raises:
            BadInput: test sources that leave no room for a translation (by their lines), or a loss that is no number.
        """
        began = time.monotonic()
        self._check_room()
        part = self.checkpoint.with_name("base-part.safetensors")
        stream = self._stream(self.ids("both", pair) for pair in self.split.base)
        plan = self._plan(schedule="constant")
        done = self._train(self._new(), stream, plan, BASE, checkpoint=part, every=CHECKPOINT_EVERY)
        part.replace(self.checkpoint)
        return {**done, "seconds": round(time.monotonic() - began, 2)}

    def read_base(self) -> dict[str, Any]:
        """What the base itself makes of the test pairs; as `run`."""
        began = time.monotonic()
        model = self._new()
        read_weights(self.checkpoint, model.net)
        return {"rows": self._used(model, BASE), "seconds": round(time.monotonic() - began, 2)}

    def run(self, branch: Branch) -> dict[str, Any]:
        """Train one branch of the base, and let it translate and read the test pairs.

        Returns:
            rows (a test pair each: place, hypothesis, logprobs, mean_logprobs, std_logprobs), steps, tokens, loss (mean of
            the last tenth of the steps), precision, seconds.
        """
        began = time.monotonic()
        model = self._new()
        stream = self._stream(self.ids(mode, pair) for mode, pair in self._laid(branch))
        plan = self._plan(schedule="wsd", warmup=0.0, decay=self.training.decay, floor=0.0)
        done = self._train(model, stream, plan, branch.name, start=self.checkpoint)
        return {"rows": self._used(model, branch.name), **done, "seconds": round(time.monotonic() - began, 2)}

    def drawn(self, branch: Branch) -> Injection | None:
        """Where the copies of a branch lie; None for the clean one."""
        split = self.split
        if branch.position is None:
            return None
        sizes = (len(split.further), len(split.tests), len(split.injected))
        drawn = draw(*sizes, branch.copies, branch.position, self.training.window, self.rng("inject"))
        assert drawn.chosen == split.injected, "every branch injects the same pairs"
        return drawn

    def _laid(self, branch: Branch) -> list[tuple[Mode, Pair]]:
        split, mode, drawn = self.split, branch.mode, self.drawn(branch)
        if mode is None or drawn is None:
            order = self.rng("reordered").permutation(len(split.further)) if branch.reordered else None
            further = split.further if order is None else [split.further[number] for number in order]
            return [("both", pair) for pair in further]
        return [(mode if injected else "both", pair) for pair, injected in drawn.lay(split.further, split.tests)]

    def _used(self, model: Model, name: str) -> list[dict[str, Any]]:
        """The model's translation of each test source, and how it takes each test pair."""
        places = [*self.split.injected, *self.split.control]
        pairs = [self.split.tests[place] for place in places]
        prompts, room = [self.prompt(source) for source, _ in pairs], self.training.length
        each = [Sampling(max_tokens=max(1, min(room - len(prompt), 2 * len(prompt) + 8))) for prompt in prompts]
        written: dict[int, Generated] = {}
        with Progress(f"{self.size}, {name} translates", len(prompts), "sentences") as progress:
            for number, text in generate_as_finished(model, prompts, each, batch_size=AT_ONCE):
                written[number] = text
                progress.advance()
        texts, read = [self.ids("both", pair)[:room] for pair in pairs], []
        with Progress(f"{self.size}, {name} reads", len(texts), "sentences") as progress:
            for begin in range(0, len(texts), AT_ONCE):
                read += surprises(model, texts[begin : begin + AT_ONCE])
                progress.advance(len(read) - progress.done)
        return [
            {
                "place": place,
                "hypothesis": " ".join(written[number].text.split()),
                "logprobs": _rounded(taken.logprobs),
                "mean_logprobs": _rounded(taken.means),
                "std_logprobs": _rounded(taken.deviations),
            }
            for number, (place, taken) in enumerate(zip(places, read, strict=True))
        ]

    def _check_room(self) -> None:
        """Before anything is trained: each test source has to leave room for a token, by the number of its line."""
        room, faults = self.training.length, []
        for place in sorted([*self.split.injected, *self.split.control]):
            size = len(self.prompt(self.split.tests[place][0]))
            if size >= room:
                faults.append(f"line {self.split.lines[place] + 1}: its source takes {size} tokens")
        if faults:
            problem = f"some lines of the test set leave no room for a translation in a context of {room}"
            raise BadInput.of(problem, faults, "a larger --length, or leave those lines out")

    def _cut(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False) if text else []

    def _new(self) -> Model:
        return new_llama(self.size, SHAPES[self.size], self.tokenizer, self.training.length, self.seed)

    def _stream(self, documents: Iterable[list[int]]) -> Stream:
        return pack(list(documents), self.training.length, pad=self.tokenizer.eos_token_id)

    def _plan(self, **changes: Any) -> Plan:
        own = self.training
        rate = own.rate or SHAPES[self.size].rate
        return Plan(batch=own.batch, rate=rate, seed=self.seed, precision=own.precision, **changes)

    def _train(self, model: Model, stream: Stream, plan: Plan, name: str, **options: Any) -> dict[str, Any]:
        steps = plan.steps(len(stream.ids))
        with Progress(f"{self.size}, {name}", steps, "steps") as progress:

            def told(step: int, steps: int, loss: float) -> None:
                progress.advance(step - progress.done, note=f"loss {loss:.3f}")

            done = pretrain(model.net, stream, plan, progress=told, **options)
        last = done.losses[-max(1, len(done.losses) // 10) :]
        facts = {"steps": done.steps, "tokens": done.tokens, "precision": done.precision}
        return {**facts, "loss": round(float(np.mean(last)), 4) if last else None}


def _rounded(values: list[float]) -> list[float]:
    """To what float32 can tell apart: journals stay small."""
    return [round(value, 5) for value in values]
