"""What each training of `contamination measure` is given: seen from the inside, with nothing trained."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from burnish.data.injection import Mode, Pair, Position, text_of
from burnish.evaluate.contamination import branches
from burnish.evaluate.contamination.branches import Branch, Laboratory, Split, Training, split, unseen
from burnish.nn.pretrain import Plan, Trained
from burnish.nn.stream import PADDING, Stream

TEMPLATE = "{source} => {target}"
TRAIN = [(f"train {i}", f"Zug {i}") for i in range(40)]
TESTS = [(f"exam {i}", f"Prüfung {i}") for i in range(12)]
COPIES = 3


def generator(name: str) -> np.random.Generator:
    return np.random.default_rng(sum(name.encode()))


@dataclass
class Lesson:
    """What one training was given."""

    documents: list[str]
    plan: Plan
    start: str
    """What its checkpoint held; empty without one."""


@dataclass
class Trainer:
    """Stands in for training: it writes down what it is given, and a checkpoint says whose it is."""

    lab: Laboratory | None = None
    seen: list[Lesson] = field(default_factory=list)

    def __call__(
        self,
        net: Any,
        stream: Stream,
        plan: Plan,
        *,
        start: Path | None = None,
        checkpoint: Path | None = None,
        **_: Any,
    ) -> Trained:
        assert self.lab is not None
        documents = [
            self.lab.tokenizer.decode(stream.ids[stream.documents == number].tolist(), skip_special_tokens=True)
            for number in sorted({*stream.documents.flatten().tolist()} - {PADDING})
        ]
        self.seen.append(Lesson(documents, plan, start.read_text() if start else ""))
        if checkpoint is not None:
            checkpoint.write_text(f"after {len(documents)} documents")
        return Trained(plan.steps(len(stream.ids)), stream.tokens, "float32", [1.0])


Make = Callable[[], Laboratory]


@pytest.fixture
def trainer(monkeypatch: pytest.MonkeyPatch) -> Trainer:
    found = Trainer()
    monkeypatch.setattr(branches, "pretrain", found)
    monkeypatch.setattr(Laboratory, "_used", lambda self, model, name: [])
    return found


@pytest.fixture
def lab(trainer: Trainer, tmp_path: Path) -> Laboratory:
    settings = Training(300, 64, 2, None, 0.3, TEMPLATE, 0.25)
    dealt = split(TRAIN, TESTS, range(12), (24, 16), 4, -1, generator)
    trainer.lab = Laboratory("30k", 5, dealt, settings, tmp_path, generator)
    return trainer.lab


def filled(mode: Mode, pairs: list[Pair]) -> list[str]:
    return [text_of(TEMPLATE, mode, pair) for pair in pairs]


def injected(dealt: Split) -> list[Pair]:
    return [dealt.tests[place] for place in dealt.injected]


def ran(lab: Laboratory, trainer: Trainer, branch: Branch) -> Lesson:
    """A branch of a base that was trained before."""
    lab.train_base()
    lab.run(branch)
    return trainer.seen[-1]


def test_pairs_are_dealt_out_once(lab: Laboratory) -> None:
    dealt = lab.split
    assert sorted([*dealt.base, *dealt.further]) == sorted(TRAIN)
    assert (len(dealt.base), len(dealt.further), len(dealt.injected), len(dealt.control)) == (24, 16, 4, 8)
    assert sorted([*dealt.injected, *dealt.control]) == list(range(12))


def test_the_base_reads_its_own_pairs_alone(lab: Laboratory, trainer: Trainer) -> None:
    lab.train_base()
    assert trainer.seen[0].documents == filled("both", lab.split.base)
    assert trainer.seen[0].start == ""
    assert trainer.seen[0].plan.schedule == "constant"


def test_the_vocabulary_is_learnt_from_the_base_alone(lab: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []
    learn = branches.train_tokenizer

    def watched(found: Any, size: int) -> Any:
        texts.extend(found)
        return learn(texts, size)

    monkeypatch.setattr(branches, "train_tokenizer", watched)
    assert lab.tokenizer is lab.tokenizer
    assert texts == [side for pair in lab.split.base for side in pair]


@pytest.mark.parametrize("branch", [Branch(), Branch(reordered=True), Branch("both", COPIES, "uniform")], ids=str)
def test_every_branch_begins_with_the_base_and_lets_the_rate_fall(
    lab: Laboratory, trainer: Trainer, branch: Branch
) -> None:
    found = ran(lab, trainer, branch)
    assert found.start == "after 24 documents"
    assert (found.plan.schedule, found.plan.warmup, found.plan.decay, found.plan.floor) == ("wsd", 0, 0.3, 0)


def test_the_clean_branches_read_the_same_pairs_in_two_orders(lab: Laboratory, trainer: Trainer) -> None:
    clean = ran(lab, trainer, Branch()).documents
    again = ran(lab, trainer, Branch(reordered=True)).documents
    assert clean == filled("both", lab.split.further)
    assert sorted(again) == sorted(clean)
    assert again != clean


@pytest.mark.parametrize("position", ["early", "late", "uniform"])
@pytest.mark.parametrize("mode", ["source", "target", "both"])
def test_a_contaminated_branch_reads_the_clean_pairs_and_the_chosen_sides_where_they_should_lie(
    lab: Laboratory, trainer: Trainer, mode: Mode, position: Position
) -> None:
    found = ran(lab, trainer, Branch(mode, COPIES, position)).documents
    copies = filled(mode, injected(lab.split))
    places = [place for place, text in enumerate(found) if text in copies]
    assert Counter(found[place] for place in places) == dict.fromkeys(copies, COPIES)
    assert [text for text in found if text not in copies] == filled("both", lab.split.further)
    # 12 copies among 16 pairs: they fill the first 12 lines, or the last, and more than those when spread.
    wanted = {"early": list(range(12)), "late": list(range(16, 28))}
    assert places == wanted.get(position, places)
    assert places not in wanted.values() or position != "uniform"


def test_every_branch_injects_the_same_pairs_wherever_they_lie(lab: Laboratory) -> None:
    drawn = [lab.drawn(Branch("both", copies, place)) for copies in (1, 8) for place in ("early", "late")]  # type: ignore[arg-type]
    assert all(one is not None and one.chosen == lab.split.injected for one in drawn)
    assert lab.drawn(Branch()) is lab.drawn(Branch(reordered=True)) is None


def test_test_pairs_that_stand_in_the_training_data_or_nearly_are_put_aside() -> None:
    ten = "one two three four five six seven eight nine ten"
    train = [(ten, "eins"), ("so", f"und {ten}"), ("a short line", "kurz")]
    tests = [
        ("new", "neu"),
        (f"{ten} eleven twelve", "10 of 12 words"),
        (f"{ten} and so much more that nobody ever wrote", "10 of 19 words"),
        ("target", f"{ten} elf"),
        ("  a short line ", "blanks at its ends"),
        ("a short line", "the very line"),
        ("another source", "kurz"),
        (ten.replace("five", "fünf"), "no eight in a row"),
    ]
    assert unseen(train, tests) == [0, 2, 7]
