"""Files of Arena-Hard-Auto in all their shapes, the label parser, and what is counted in an answer."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from burnish.core.errors import BadInput
from burnish.data.answer_style import answer_style, count_tokens, length_difference, markdown_differences, outside_code
from burnish.data.arena_hard import (
    VERDICTS,
    parse_verdict,
    prompt_digest,
    read_answers,
    read_judgments,
    read_leaderboard,
    read_questions,
)
from burnish.data.prompts import LONGEST, read_prompts


def lines(path: Path, *rows: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.fixture
def published() -> Path:
    folder = Path(os.environ.get("BURNISH_DATA", "")) / "arena_hard"
    if "BURNISH_DATA" not in os.environ or not folder.is_dir():
        pytest.skip("BURNISH_DATA holds no arena_hard")
    return folder


# -- verdicts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        *[(f"My final verdict is: [[{label}]]", label) for label in VERDICTS],
        ("[[A>B]] at first, but then [[B>>A]].", "B>>A"),
        ("only single brackets [A=B]", "A=B"),
        ("single [A>B] does not count beside double [[B>A]] brackets, even [A>>B] after it", "B>A"),
        ("in small letters [[b>a]]", "B>A"),
        ("the other way round [[A<B]]", "B>A"),
        ("[[A<<B]]", "B>>A"),
        ("[[B<A]]", "A>B"),
        ("[[B<<A]]", "A>>B"),
        ("[[B=A]]", "A=B"),
        ("[[A]]", None),
        ("[[A>B]] no, [[A>C]]", "A>B"),
        ("[[A>B]] no, [[AB]]", None),
        ("[[A>>>B]]", None),
        ("A is better", None),
        ("", None),
        ("[A>B", None),
    ],
)
def test_verdicts(text: str, verdict: str | None) -> None:
    assert parse_verdict(text) == verdict


@settings(derandomize=True, deadline=None, max_examples=200)
@given(st.text(alphabet="AB<>=[] xab\n", max_size=40))
def test_whatever_the_text_a_verdict_is_one_of_the_five_or_none(text: str) -> None:
    assert parse_verdict(text) in (*VERDICTS, None)
    assert parse_verdict(text + "[[A>B]]") == "A>B"


labels = st.sampled_from([*VERDICTS, *(label.lower() for label in VERDICTS)])


@settings(derandomize=True, deadline=None, max_examples=100)
@given(st.lists(st.tuples(st.sampled_from(["[[{}]]", "[{}]", "so {} "]), labels), max_size=5))
def test_annotations_are_read_as_the_released_rule_reads_them(parts: list[tuple[str, str]]) -> None:
    # Written anew: the last label in double brackets, else the last one in single ones, in capitals.
    double = [label for shape, label in parts if shape == "[[{}]]"]
    single = [label for shape, label in parts if shape != "so {} "]
    expected = next((found[-1].upper() for found in (double, single) if found), None)
    assert parse_verdict("\n".join(shape.format(label) for shape, label in parts)) == expected


def test_every_verdict_is_seen_from_the_model(tmp_path: Path) -> None:
    rows = [judged(str(number), [label, label]) for number, label in enumerate(VERDICTS)]
    games = read_judgments(lines(tmp_path / "j.jsonl", *rows))
    assert [(g.score, g.strong) for g in games if g.number == 0] == [
        (0, True), (0, False), (0.5, False), (1, False), (1, True),
    ]  # fmt: skip
    assert [g.score for g in games if g.number == 1] == [1, 1, 0.5, 0, 0]


# -- judgments -------------------------------------------------------------------------------------------------------


def judged(uid: str, scores: list[Any], **more: Any) -> dict[str, Any]:
    games = [{"score": score, "judgment": {"answer": f"[[{score}]]"}} for score in scores]
    return {"uid": uid, "category": "c", "judge": "j", "model": "m", "baseline": "b", "games": games, **more}


def test_both_shapes_of_judgments_say_the_same(tmp_path: Path) -> None:
    old = judged("1", ["A>B", None])
    old["question_id"] = old.pop("uid")
    old["games"] = [{"user_prompt": "?", "judgment": "so [[A>B]]", "score": "A>B"},
                    {"user_prompt": "?", "judgment": "hm", "score": None}]  # fmt: skip
    new = judged("1", ["A>B", None])
    first = read_judgments(lines(tmp_path / "old.jsonl", old))
    second = read_judgments(lines(tmp_path / "new.jsonl.gz", new))
    assert first == second
    assert [(game.number, game.verdict, game.score) for game in first] == [(0, "A>B", 0.0), (1, None, None)]
    assert first[0].row()["status"] == "judged"
    assert first[1].row() | {"item_id": "1/1", "status": "no verdict", "first": "model"} == first[1].row()


def test_instructions_are_told_apart(tmp_path: Path) -> None:
    row = judged("1", ["A>B", "A>B"])
    for game in row["games"]:
        game["prompt"] = [{"role": "system", "content": "Judge."}, {"role": "user", "content": "x"}]
    ours = judged("2", ["A>B", "A>B"], prompt_digest="abc")
    games = read_judgments(lines(tmp_path / "j.jsonl", row, ours))
    assert [game.prompt for game in games] == [prompt_digest("Judge.")] * 2 + ["abc"] * 2


def test_a_folder_of_judgments_is_read_whole_and_a_run_by_its_artifact(tmp_path: Path) -> None:
    lines(tmp_path / "run" / "artifact" / "j" / "m.jsonl", judged("1", ["A>B", "A>B"]))
    lines(tmp_path / "run" / "artifact" / "j" / "n.jsonl", judged("1", ["A>B", "A>B"], model="n"))
    lines(tmp_path / "run" / "llm.jsonl", {"key": "no judgment"})
    assert {game.model for game in read_judgments(tmp_path / "run")} == {"m", "n"}
    lines(tmp_path / "run" / "artifact" / "k.jsonl", judged("1", ["B>A", "A>B"]))
    with pytest.raises(BadInput, match=r"more than once\n  m against b by j: 1"):
        read_judgments(tmp_path / "run")


def test_rows_that_are_no_judgments_are_all_named(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "j.jsonl",
        judged("1", ["A>B"]),
        judged("2", ["A>B", "A>C"]),
        {"uid": "3"},
        judged("", ["A>B", "A>B"]),
        judged("5", ["A>B", "A>B"], judge=None),
        judged("6", ["A>B", "A>B"]) | {"games": 7},
    )
    with pytest.raises(BadInput) as caught:
        read_judgments(path)
    for told in (
        "line 1: there are not two games", "line 2: the score 'A>C' is none of", "line 3: games is missing",
        "line 4: uid is ''", "line 5: judge is missing", "line 6: there are not two games",
    ):  # fmt: skip
        assert told in caught.value.problem


@pytest.mark.parametrize(
    ("content", "match"),
    [(b"", "has no rows"), (b"{", "not JSON lines"), (b"[1]\n", "no object"), (b"\xff\n", "not UTF-8")],
)
def test_broken_files_are_refused(tmp_path: Path, content: bytes, match: str) -> None:
    (tmp_path / "x.jsonl").write_bytes(content)
    for read in (read_judgments, read_questions, read_answers):
        with pytest.raises(BadInput, match=match):
            read(tmp_path / "x.jsonl")
    (tmp_path / "x.jsonl.gz").write_bytes(b"no gzip")
    with pytest.raises(BadInput, match="not a whole gzip file"):
        read_questions(tmp_path / "x.jsonl.gz")
    with pytest.raises(BadInput, match="cannot be read"):
        read_questions(tmp_path / "absent.jsonl")
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match="holds no"):
        read_answers(tmp_path / "empty")


# -- questions and answers -------------------------------------------------------------------------------------------


def test_questions_and_answers_of_version_0_1(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "q.jsonl", {"question_id": "1", "category": "c", "cluster": "t", "turns": [{"content": "?"}]}
    )
    question = read_questions(path)[0]
    assert (question.uid, question.cluster, question.prompt) == ("1", "t", "?")
    row = {"question_id": "1", "model_id": "m", "choices": [{"index": 0, "turns": [{"content": "!", "token_len": 7}]}]}
    answer = read_answers(lines(tmp_path / "a.jsonl", row))["m"]["1"]
    assert (answer.text, answer.tokens) == ("!", 7)


def test_answers_of_version_2_and_their_faults(tmp_path: Path) -> None:
    def row(uid: str, content: Any, **more: Any) -> dict[str, Any]:
        return {"uid": uid, "model": "m", "messages": [{"role": "assistant", "content": content}], **more}

    path = lines(
        tmp_path / "a.jsonl",
        row("1", {"answer": "x"}, metadata={"token_len": 3}),
        row("2", "y"),
        row("3", {"answer": None}),
    )
    found = read_answers(path)["m"]
    assert [(found[uid].text, found[uid].tokens) for uid in "123"] == [("x", 3), ("y", None), ("", None)]
    lines(tmp_path / "b.jsonl", row("1", "z"))
    with pytest.raises(BadInput, match="as another file"):
        read_answers(tmp_path)
    bad = lines(tmp_path / "c.jsonl", row("1", {"answer": 7}), {"uid": "2", "model": "m"}, {"uid": "3"})
    with pytest.raises(
        BadInput, match=r"line 1: the answer is no text\n.*line 2: messages is missing\n.*line 3: model"
    ):
        read_answers(bad)


def test_the_published_files(published: Path) -> None:
    questions = read_questions(published / "question_v0.1.jsonl")
    assert len(questions) == 500
    assert len({question.cluster for question in questions}) == 250
    later = read_questions(published / "question_v2.0.jsonl.gz")
    assert [sum(q.category == name for q in later) for name in ("hard_prompt", "creative_writing")] == [500, 250]
    for model in ("gpt-3.5-turbo-0125", "gpt-4-0314", "gpt-4-0613"):
        answers = read_answers(published / f"answers_v0.1_{model}.jsonl.gz")
        assert list(answers) == [model]
        assert {*answers[model]} == {question.uid for question in questions}
    board = read_leaderboard(published / "arena_hard_leaderboard_20240731.csv")
    assert len(board) == 60
    row = next(one for one in board if one.model == "gpt-3.5-turbo-0125")
    assert (row.score, row.low, row.high) == (23.34, 21.67, 25.27)


def test_leaderboards_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("model,score\na,1\n")
    with pytest.raises(BadInput, match="it has model, score"):
        read_leaderboard(path)
    path.write_text("model,score,low,high\na,1,x,2\nb,1,3,2\n")
    with pytest.raises(BadInput, match=r"row 1: .* not three numbers\n  row 2: the bounds"):
        read_leaderboard(path)
    path.write_text("model,score,low,high\na,1,0,2\na,1,0,2\n")
    with pytest.raises(BadInput, match="more than once"):
        read_leaderboard(path)


# -- style -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("plain words, no marks", (0, 0, 0)),
        ("# One\n## Two\n#no header\n####### seven", (2, 0, 0)),
        ("- a\n* b\n+ c\n1. d\n2) e\n  - f\n-g\n3.h", (0, 6, 0)),
        ("**bold** and __also__, not ** this ** nor a__b__c", (0, 0, 2)),
        ("# A\n```python\n# no header\n- no item\n**no**\n```\n- item", (1, 1, 0)),
        ("```\n- inside\n~~~\n- still inside\n```\n- out", (0, 1, 0)),
        ("- out\n```\n- never closed", (0, 1, 0)),
    ],
)
def test_markdown_is_counted_outside_code(text: str, counts: tuple[int, int, int]) -> None:
    found = answer_style(text)
    assert (found.headers, found.lists, found.bold) == counts
    assert found.tokens == count_tokens(text)  # code counts as length
    assert answer_style(text, 7).tokens == 7


def test_differences_are_those_of_the_released_code() -> None:
    long, short = answer_style("**a** " * 10, 9), answer_style("b", 3)
    assert length_difference(long, short) == 0.5
    assert length_difference(short, long) == -0.5
    assert length_difference(answer_style(""), answer_style("")) == 0
    density = 10 / 10
    assert markdown_differences(long, short) == (0, 0, density / (density + 1))
    assert outside_code("a\n```\nb\n```\nc") == "a\nc"


# -- prompts ---------------------------------------------------------------------------------------------------------


def test_prompts_are_cleaned(tmp_path: Path) -> None:
    long = "x" * (LONGEST + 5)
    turns = [{"role": "user", "content": "How do I sort a list"}, {"role": "assistant", "content": "So."},
             {"role": "user", "content": "in reverse, in Rust?"}]  # fmt: skip
    path = lines(
        tmp_path / "p.jsonl",
        {"conversation": turns, "language": "English"},
        {"conversation": [{"content": "y" * 40}], "language": "German"},
        {"conversation": [{"content": "z" * 32}], "language": "English"},
        {"conversation": [{"content": long}], "language": None},
        {"conversation": [{"content": long + "!"}], "language": "en"},
    )
    kept, dropped = read_prompts(path)
    assert [(one.text, one.row) for one in kept] == [
        ("How do I sort a list\nin reverse, in Rust?", 0),
        ("x" * LONGEST, 3),
    ]
    assert dropped == {"language": 1, "short": 1, "repeated": 1}
    assert kept == read_prompts(path)[0]
    assert len({one.uid for one in kept}) == 2


def test_files_without_usable_prompts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no column of prompts: it has words"):
        read_prompts(lines(tmp_path / "a.jsonl", {"words": "x" * 40}))
    with pytest.raises(BadInput, match="no usable prompt"):
        read_prompts(lines(tmp_path / "b.jsonl", {"prompt": "short"}))
    rows = [{"uid": "1", "prompt": "x" * 40}, {"uid": "1", "prompt": "y" * 40}, {"uid": "2", "prompt": None}]
    with pytest.raises(BadInput, match=r"row 2: the prompt is missing\n  1 is the id of 2 prompts"):
        read_prompts(lines(tmp_path / "c.jsonl", *rows))


def test_alpacaevals_table_is_a_leaderboard_with_normal_bounds(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(",win_rate,standard_error,mode\nfirst,50.0,0.0,x\nsecond,40,1.0,y\n")
    first, second = read_leaderboard(path)
    assert (first.model, first.score, first.low, first.high, first.level) == ("first", 50, 50, 50, 0.95)
    assert (second.low, second.high) == (pytest.approx(40 - 1.959964), pytest.approx(40 + 1.959964))
    path.write_text(",win_rate,standard_error\nfirst,50.0,\n")
    with pytest.raises(BadInput, match=r"row 1: .* are not three numbers"):
        read_leaderboard(path)
