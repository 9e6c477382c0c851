"""The small parts of the command line: values from text, threads, what is printed."""

from __future__ import annotations

import json
import os
import sys
import types
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.cli import fields, look, threads
from burnish.core.errors import BadInput


@given(st.sampled_from([2, 3, "auto", True, -1]))
def test_every_option_of_a_literal_is_read_back(option: Any) -> None:
    assert fields.from_text(Literal[2, 3, "auto", True, -1], str(option)) == option


@given(st.lists(st.integers()))
def test_lists_are_read_from_repeats_and_from_commas(numbers: list[int]) -> None:
    texts = [str(number) for number in numbers]
    assert fields.from_text(list[int], texts) == texts
    if texts:
        assert fields.from_text(list[int], [",".join(texts)]) == texts


@given(st.lists(st.sampled_from(["--a", "--b=1", "x", "-3"])))
def test_no_word_of_a_command_is_lost(words: list[str]) -> None:
    arguments, lines = fields.split_words(words, [], places=1)
    flags = [word for word in words if word.startswith("--")]
    assert len([line for line in lines if "no such flag" in line]) == len(flags)
    eaten = sum(word == "--a" and not after.startswith("--") for word, after in pairwise(words))
    assert len(arguments) + len(lines) + eaten == len(words)


@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        (Literal[2, 3], "2|3"),
        (float | None, "float|none"),
        (tuple[Literal["q", "k"], ...], "q|k…"),
        (dict[str, int], "json"),
        (bool, "yes|no"),
        (Path, "path"),
        (str, "text"),
    ],
)
def test_types_are_shown_as_what_is_typed(annotation: Any, text: str) -> None:
    assert fields.type_text(annotation) == text


def test_json_is_read_for_mappings() -> None:
    assert fields.from_text(dict[str, int], '{"a": 1}') == {"a": 1}
    assert fields.from_text(dict[str, int], "{a") == "{a"


@pytest.mark.parametrize(
    ("words", "count"),
    [
        ("--threads 3", 3), ("x --threads=5 y", 5), ("--threads", None), ("--threads zero", None), ("--threads 0", None),
        ("--threads ²", None), ("--threads 9", None), ("--threads " + "9" * 5000, None),
    ],
)  # fmt: skip
def test_threads_are_read_before_flags_are_parsed(
    words: str, count: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert threads.asked_threads(words.split()) == count


def test_threads_are_set_for_every_library(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(set_num_threads=seen.append))
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    for name in threads.VARIABLES:
        monkeypatch.setenv(name, "7")
    assert threads.use_threads(None) == 7
    assert threads.use_threads(2) == 2
    assert [os.environ[name] for name in threads.VARIABLES] == ["2"] * 3
    assert seen == [7, 2]
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert 1 <= threads.default_threads() <= (os.cpu_count() or 1)


def test_user_text_is_never_markup(capsys: pytest.CaptureFixture[str]) -> None:
    look.table(("[b]a[/b]",), [["[red]x[/red]"], ["[/]"]])
    look.problem(BadInput("[bold]p", "[/f]"))
    out, err = capsys.readouterr()
    assert "[b]a[/b]" in out
    assert "[red]x[/red]" in out
    assert err == "error: [bold]p\nfix: [/f]\n"


def test_nothing_steers_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    evil = "a\x1b[31mb\x9b\u202ec\udcffd\r\ne"
    look.say(evil)
    look.note(evil)
    look.heading(evil)
    look.table((evil,), [[evil]])
    look.problem(BadInput(evil, evil))
    look.as_json({"x": evil})
    out, err = capsys.readouterr()
    for text in (out, err):
        assert not set("\x1b\x9b\u202e\udcff\r") & set(text)
    assert r"a\x1b[31mb\x9b\u202ec\xffd" in out
    assert json.loads(out[out.index("{") :])["x"] == evil


def test_estimates_are_shown_with_their_bounds_and_lists_line_by_line() -> None:
    assert look.figure({"estimate": 0.123456, "low": 0.1, "high": 2.0}) == "0.12346 [0.1, 2]"
    assert look.figure(["a", 1.0]) == "a\n1"
