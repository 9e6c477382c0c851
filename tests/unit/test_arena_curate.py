"""Curating a benchmark: the annotator's answers, topics, the stages, the draw, and that twice is the same."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from burnish.core.errors import BadInput
from burnish.core.run import Run
from burnish.evaluate.arena.criteria import CRITERIA, criteria_chat, parse_criteria, parse_topic, topic_chat
from burnish.evaluate.arena.curate import ArenaCurate
from burnish.evaluate.arena.topics import find_topics, principal_components
from burnish.llm import Reply, Usage
from burnish.llm.budget import Spent
from burnish.llm.client import Journaled, Request

GROUPS = 6
EACH = 20


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("[1,2,3]", {1, 2, 3}),
        ("[1, 2, 3]", {1, 2, 3}),
        ("1, 3", {1, 3}),
        ("1,3.", {1, 3}),
        ("```[2]```", {2}),
        ("```python\n[2, 7]\n```", {2, 7}),
        ("The list is [ 4 ,5 ].", {4, 5}),
        ("[1] no, rather [6, 7]", {6, 7}),
        ("[1, 1, 2]", {1, 2}),
        ("[1, 2,]", {1, 2}),
        ("[]", set()),
        ("none", None),
        ("None", None),
        ("", None),
        ("[8]", None),
        ("[0, 1]", None),
        ("[1, 8]", None),
        ("[1 2]", None),
        ("[1,, 2]", None),
        ("['specificity']", None),
        ("Criteria 1 and 3 are met", None),
        ("[1, 2", None),
        ("-1", None),
        ("[12]", None),
    ],
)
def test_an_annotators_answer_is_read_or_unparsed_and_never_silently_none(text: str, numbers: set[int] | None) -> None:
    assert parse_criteria(text) == numbers


@settings(derandomize=True, deadline=None)
@given(st.sets(st.integers(1, 7)), st.sampled_from([",", ", ", " , "]), st.sampled_from(["{}", "```{}```", "So: {}\n"]))
def test_every_set_is_read_however_it_is_written(numbers: set[int], comma: str, around: str) -> None:
    assert parse_criteria(around.format("[" + comma.join(map(str, sorted(numbers))) + "]")) == numbers


def test_topics_are_named_in_five_words() -> None:
    assert parse_topic('\n "Sorting lists in the Rust language today"\nmore', 3) == "Sorting lists in the Rust"
    assert parse_topic("**Shell**", 3) == "Shell"
    assert parse_topic(" \n", 3) == "Topic 3"


# -- topics ----------------------------------------------------------------------------------------------------------


def vectors(seed: int = 0, groups: int = GROUPS, each: int = EACH, stray: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centres = np.eye(16)[:groups]
    found = np.repeat(centres, each, axis=0) + rng.normal(0, 0.03, (groups * each, 16))
    return np.vstack([found, rng.normal(0, 1, (stray, 16))]).astype(np.float32)


HOW: dict[str, Any] = {"reduce": "pca", "neighbours": 15, "components": 5, "smallest": 8, "seed": 0}


@pytest.mark.parametrize("reduce", ["pca", pytest.param("umap", marks=pytest.mark.slow)])
def test_planted_groups_are_found_and_the_rest_joins_the_nearest(reduce: str) -> None:
    pytest.importorskip("umap" if reduce == "umap" else "sklearn")
    # PCA sees what differs, so that six groups lie in five dimensions.
    found = find_topics(vectors(stray=8), **(HOW | {"reduce": reduce}))
    own = found.labels[: GROUPS * EACH].reshape(GROUPS, EACH)
    assert (own == own[:, :1]).all()
    assert len(set(own[:, 0])) == GROUPS
    assert not found.outlier[: GROUPS * EACH].any()
    assert (found.labels >= 0).all()
    again = find_topics(vectors(stray=8), **(HOW | {"reduce": reduce}))
    assert (again.labels == found.labels).all()
    if reduce == "pca":
        assert found.outlier[-8:].any()
    unit = vectors(stray=8) / np.linalg.norm(vectors(stray=8), axis=1, keepdims=True)
    for topic, rows in enumerate(found.central):
        assert set(rows) == set(np.flatnonzero(found.labels == topic))
        dense = unit[(found.labels == topic) & ~found.outlier].mean(0)
        assert (np.diff(unit[rows] @ dense) <= 1e-6).all()


def test_principal_components_keep_the_distances_of_flat_data() -> None:
    rng = np.random.default_rng(0)
    flat = (rng.normal(size=(30, 3)) @ rng.normal(size=(3, 8))).astype(np.float32)
    low = principal_components(flat, 3)
    far = np.linalg.norm(flat[:, None] - flat[None], axis=2)
    assert np.allclose(np.linalg.norm(low[:, None] - low[None], axis=2), far, atol=1e-4)
    assert np.allclose(principal_components(flat[::-1], 3)[::-1], low, atol=1e-4)


def test_too_few_or_too_even_prompts_are_refused() -> None:
    pytest.importorskip("sklearn")
    with pytest.raises(BadInput, match="10 prompts are too few to group: these settings need 16"):
        find_topics(vectors(each=10, groups=1), **HOW)
    with pytest.raises(BadInput, match="dense enough"):
        find_topics(np.random.default_rng(0).normal(size=(40, 16)).astype(np.float32), **(HOW | {"smallest": 15}))


# -- the whole -------------------------------------------------------------------------------------------------------


class Annotator(Journaled):
    """Marks by rule: what it says of a prompt is a function of its text."""

    def __init__(self, rule: Callable[[str], str], name: str = "annotator") -> None:
        super().__init__()
        self.rule, self.name, self.asked = rule, name, 0

    def worst(self, request: Request) -> Spent:
        return Spent(1)

    def answer(self, asked: list[Request], keep: Callable[[Request, Reply], None], run: Run) -> None:
        for request in asked:
            self.asked += 1
            shown = request.chat[-1]["content"]
            naming = request.chat[0] == topic_chat([])[0]
            text = "Group " + shown.split("group ")[1][0] if naming else self.rule(shown)
            usage = Usage(prompt_tokens=1, completion_tokens=1)
            keep(request, Reply(text=text, finish="stop", usage=usage, model=self.name, seconds=0.0))


def listed(count: int) -> str:
    return str(list(range(1, count + 1)))


def mark(shown: str) -> str:
    """Group g's prompts meet 2 + g criteria, every third one fewer; a few answers are no list."""
    group, number = map(int, re.findall(r"group (\d) number (\d+)", shown)[0])
    return "Well." if number == 7 else listed(max(0, min(7, 2 + group) - (number % 3 == 0)))


@pytest.fixture
def heap(tmp_path: Path) -> tuple[Path, Path]:
    """Prompts in six groups, two of them unusable, and their embeddings."""
    pytest.importorskip("sklearn")
    rows = [
        {"prompt": f"Please solve this task of group {g} number {n} for me."}
        for g in range(GROUPS)
        for n in range(EACH)
    ]
    rows.insert(3, {"prompt": "too short"})
    rows.append(dict(rows[0]))
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    table = vectors()
    np.save(tmp_path / "e.npy", np.vstack([table[:3], np.zeros((1, 16)), table[3:], table[:1]]).astype(np.float32))
    return tmp_path / "p.jsonl", tmp_path / "e.npy"


SMALL: dict[str, Any] = {"reduce": "pca", "topics": 2, "per_topic": 3}


def questions(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "artifact" / "question.jsonl").read_text().splitlines()]


def test_the_stages_keep_what_they_say(heap: tuple[Path, Path], tmp_path: Path) -> None:
    with Run(tmp_path / "run") as run:
        table = ArenaCurate(**SMALL)(heap[0], Annotator(mark), embeddings=heap[1], run=run)
    assert len(table) == GROUPS * EACH
    fate = {}
    for row, (group, number) in zip(table.rows(), [(g, n) for g in range(GROUPS) for n in range(EACH)], strict=True):
        score = None if number == 7 else max(0, min(7, 2 + group) - (number % 3 == 0))
        assert row["score"] == score
        assert [row[name] for name in CRITERIA] == [None if score is None else n <= score for n in range(1, 8)]
        # A topic's mean is 2 + group - 7/19: the first two groups are below 3.
        want = "unparsed" if score is None else "topic" if group < 2 else "score" if score < 5 else "left"
        assert want == ("left" if row["fate"] in ("kept", "not drawn") else row["fate"]), (group, number)
        fate[group, number] = row["fate"]
    drawn = [key for key, value in fate.items() if value == "kept"]
    assert len({group for group, _ in drawn}) == 2
    assert len(drawn) == 6 == len(questions(tmp_path / "run")) == table.notes["questions"]
    for question in questions(tmp_path / "run"):
        # The name belongs to the prompt's own topic.
        assert question["cluster"] == "Group " + re.findall(r"group (\d)", question["prompt"])[0]
        assert list(question) == ["uid", "category", "cluster", "prompt"]
    assert table.notes["dropped"] == {"repeated": 1, "short": 1}
    assert table.notes["unparsed"] == GROUPS


def test_the_second_annotator_marks_what_the_first_kept(heap: tuple[Path, Path], tmp_path: Path) -> None:
    second = Annotator(
        lambda shown: "?" if "number 11 " in shown else listed(7 if "group 5" in shown else 6 - ("number 1 " in shown)),
        "second",
    )
    method = ArenaCurate(**(SMALL | {"topics": 5, "second_mean": 6}))
    with Run(tmp_path / "run") as run:
        table = method(heap[0], Annotator(mark), second, embeddings=heap[1], run=run)
    fates = {}
    for row, (group, number) in zip(table.rows(), [(g, n) for g in range(GROUPS) for n in range(EACH)], strict=True):
        fates[group, number] = row["fate"]
        asked = group >= 3 and number != 7 and min(7, 2 + group) - (number % 3 == 0) >= 5
        assert (row["second_score"] is not None) == (asked and number != 11)
    assert second.asked == sum(
        row["fate"] in ("kept", "not drawn") or row["fate"].startswith("second") for row in table.rows()
    )
    # Of groups 3 and 4 number 1 has a 5, so their means are below 6; group 5 is left.
    assert {fates[g, n] for g in (3, 4) for n in (1, 2)} == {"second topic"}
    assert fates[5, 11] == "second unparsed"
    assert {group for (group, _), value in fates.items() if value == "kept"} == {5}
    assert "5 topics were asked for, and 1" in table.notes["note"]


def test_twice_is_identical_and_another_seed_draws_others(heap: tuple[Path, Path], tmp_path: Path) -> None:
    files, tables = [], []
    for name, seed in (("one", 0), ("two", 0), ("three", 1)):
        with Run(tmp_path / name, seed=seed) as run:
            tables.append(ArenaCurate(**SMALL)(heap[0], Annotator(mark), embeddings=heap[1], run=run).rows())
        files.append((tmp_path / name / "artifact" / "question.jsonl").read_bytes())
    assert files[0] == files[1] != files[2]
    assert tables[0] == tables[1]


def test_a_stopped_run_asks_only_for_the_rest(heap: tuple[Path, Path], tmp_path: Path) -> None:
    class Stopping(Annotator):
        def answer(self, asked: list[Request], keep: Callable[[Request, Reply], None], run: Run) -> None:
            super().answer(asked[:50], keep, run)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), Run(tmp_path / "run") as run:
        ArenaCurate(**SMALL)(heap[0], Stopping(mark), embeddings=heap[1], run=run)
    rest = Annotator(mark)
    with Run(tmp_path / "run") as run:
        ArenaCurate(**SMALL)(heap[0], rest, embeddings=heap[1], run=run)
    assert rest.asked == GROUPS * EACH - 50 + 2


def test_topics_may_stay_without_names(heap: tuple[Path, Path], tmp_path: Path) -> None:
    annotator = Annotator(mark)
    with Run(tmp_path / "run") as run:
        ArenaCurate(**SMALL, name_topics=False, category="mine")(heap[0], annotator, embeddings=heap[1], run=run)
    assert annotator.asked == GROUPS * EACH
    assert all(
        re.fullmatch(r"Topic \d", one["cluster"]) and one["category"] == "mine" for one in questions(tmp_path / "run")
    )


def test_two_topics_with_one_name_are_told_apart(heap: tuple[Path, Path], tmp_path: Path) -> None:
    class Same(Annotator):
        def answer(self, asked: list[Request], keep: Callable[[Request, Reply], None], run: Run) -> None:
            super().answer(
                asked,
                lambda one, reply: keep(one, reply.model_copy(update={"text": re.sub("Group .", "Same", reply.text)})),
                run,
            )

    with Run(tmp_path / "run") as run:
        ArenaCurate(**SMALL)(heap[0], Same(mark), embeddings=heap[1], run=run)
    assert len({one["cluster"] for one in questions(tmp_path / "run")}) == 2


def test_costs_are_known_before_the_first_call(heap: tuple[Path, Path]) -> None:
    costs = ArenaCurate(**SMALL).estimate({"prompts": str(heap[0])})
    assert costs["prompts"] == GROUPS * EACH
    assert costs["calls_at_most"] == GROUPS * EACH + 2
    assert costs["prompt_tokens_about"] > 100 * GROUPS * EACH
    both = ArenaCurate(**SMALL).estimate({"prompts": str(heap[0]), "second": "better"})
    assert both["second_calls_at_most"] == GROUPS * EACH


def test_what_cannot_be_curated_is_refused(heap: tuple[Path, Path], tmp_path: Path) -> None:
    method = ArenaCurate(**SMALL)
    with pytest.raises(BadInput, match=r"none of the 120 answers of annotator is a list of numbers, e.g. 'No\.'"):
        method(heap[0], Annotator(lambda shown: "No."), embeddings=heap[1])
    with pytest.raises(BadInput, match=r"no prompt is left\n  120 ruled out: topic"):
        method(heap[0], Annotator(lambda shown: "[]"), embeddings=heap[1])
    table = np.load(heap[1])
    for broken, match in ((table[:50], "a row of floats"), (table * 0, "all 0"), (table[0], "a row of floats")):
        np.save(tmp_path / "b.npy", broken)
        with pytest.raises(BadInput, match=match):
            method(heap[0], Annotator(mark), embeddings=tmp_path / "b.npy")
    (tmp_path / "b.npy").write_bytes(b"no")
    with pytest.raises(BadInput, match=r"is no \.npy file"):
        method(heap[0], Annotator(mark), embeddings=tmp_path / "b.npy")
    with pytest.raises(BadInput, match=r"second_score: .*less than or equal to 7"):
        ArenaCurate.build({"second_score": 8})


def test_what_the_annotator_is_asked() -> None:
    chat = criteria_chat("Sort this.")
    assert all(f"{n}. {name.replace('_', ' ')}" in chat[0]["content"] for n, name in enumerate(CRITERIA, 1))
    assert "Sort this." in chat[1]["content"]
