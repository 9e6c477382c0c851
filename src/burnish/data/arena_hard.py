"""Files of Arena-Hard-Auto: questions, answers, judgments and leaderboards, of both versions of the benchmark.

================  =====================================================================================================
questions         JSON lines, ``uid`` (or ``question_id``), ``category``, ``cluster`` or ``subcategory``, and ``prompt``
                  (or ``turns``)
answers           JSON lines, ``uid``, ``model``, and the text in ``messages[-1].content.answer``, or as of v0.1
                  ``model_id`` and ``choices[0].turns[0].content``; a folder holds one file a model
judgments         JSON lines, ``uid``, ``category``, ``judge``, ``model``, ``baseline`` and two ``games``; a game is, as
                  of v0.1, ``{user_prompt, judgment: text, score}``, or, as of v2, ``{prompt: messages, judgment:
                  {answer}, score}``. In game 0 the baseline is A, in game 1 the model is.
leaderboard       CSV with ``model``, ``score``, ``rating_q025``, ``rating_q975``; or AlpacaEval's, with names in its first
                  column, ``win_rate`` and ``standard_error``, of which 1.96 are taken for a bound
================  =====================================================================================================

Files may be compressed (``.jsonl.gz``). All faults of a file are told at once, by line.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import hashlib
import io
import json
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Any, TypeVar

from burnish.core.errors import BadInput
from burnish.data.files import decode

T = TypeVar("T")

VERDICTS = ("A>>B", "A>B", "A=B", "B>A", "B>>A")
"""What a judge may say, best for A first."""
_VALUE = {"A>>B": 1.0, "A>B": 1.0, "A=B": 0.5, "B>A": 0.0, "B>>A": 0.0}
_SAME = {"A<<B": "B>>A", "A<B": "B>A", "B=A": "A=B", "B<A": "A>B", "B<<A": "A>>B"}
_LABEL = (re.compile(r"\[\[([AB<>=]+)\]\]"), re.compile(r"\[([AB<>=]+)\]"))
_SHOWN = 8

DRAWS = "draws.parquet"
"""In the run folder of a leaderboard: the win rates in each resample, with category, model, draw and win_rate."""


@dataclass(frozen=True)
class Question:
    """One prompt of the benchmark."""

    uid: str
    category: str
    prompt: str
    cluster: str = ""
    """The topic (v0.1) or the subcategory (v2)."""


@dataclass(frozen=True)
class Answer:
    """What one model wrote for one prompt."""

    uid: str
    model: str
    text: str
    tokens: int | None = None
    """As the file records it."""
    markup: tuple[int, int, int] | None = None
    """Headers, list items and bold phrases, as the file records them."""


@dataclass(frozen=True)
class Game:
    """One look of a judge at two answers."""

    uid: str
    category: str
    judge: str
    model: str
    baseline: str
    number: int
    """0: the baseline is A; 1: the model is A."""
    verdict: str | None
    """One of `VERDICTS`; None where the judge gave none."""
    prompt: str = ""
    """SHA-256 (12 digits) of the instructions that the judge was given; empty where the file does not hold them."""

    @property
    def score(self) -> float | None:
        """1 where the model won, 0 where it lost, 0.5 for a tie, None without a verdict."""
        if self.verdict is None:
            return None
        return _VALUE[self.verdict] if self.number == 1 else 1 - _VALUE[self.verdict]

    @property
    def strong(self) -> bool:
        """Whether the judge called it a clear win or loss."""
        return self.verdict in ("A>>B", "B>>A")

    def row(self) -> dict[str, Any]:
        """As a row of scores: one game is one item of its model, and games on one prompt are a cluster."""
        return {
            "item_id": f"{self.uid}/{self.number}",
            "model": self.model,
            "cluster": self.uid,
            "subset": self.category,
            "status": "judged" if self.verdict else "no verdict",
            "score": self.score,
            "verdict": self.verdict,
            "first": "baseline" if self.number == 0 else "model",
            "baseline": self.baseline,
            "judge": self.judge,
        }


@dataclass(frozen=True)
class Standing:
    """A model's line of a leaderboard."""

    model: str
    score: float
    low: float
    high: float
    category: str = ""
    level: float | None = None
    """Of the interval; None where the file does not say."""


def parse_verdict(text: str) -> str | None:
    """The last label in a judge's answer, ``[[A>B]]`` or else ``[A>B]``; None where it is none of the five.

    Case does not matter, and a label that is written the other way round (``[[A<B]]``) means what it says.
    """
    for pattern in _LABEL:
        if found := pattern.findall(text.upper()):
            label = _SAME.get(found[-1], found[-1])
            return label if label in VERDICTS else None
    return None


def read_questions(path: Path | str) -> list[Question]:
    """The questions of a file, in its order.

    Raises:
        BadInput: no such file, rows without an id or a prompt, ids that occur twice.
    """
    path = Path(path)
    found = _each(path, _question)
    _refuse_repeats(path, [question.uid for question in found])
    return found


def read_answers(path: Path | str) -> dict[str, dict[str, Answer]]:
    """Answers by model and by question, from one file or from all files of a folder.

    Raises:
        BadInput: no such file, rows without an id, a model or a text, a model that answers one question twice.
    """
    found: dict[str, dict[str, Answer]] = {}
    for file in _files(Path(path)):
        rows = _each(file, _answer)
        _refuse_repeats(file, [f"{answer.model}: {answer.uid}" for answer in rows])
        for answer in rows:
            known = found.setdefault(answer.model, {})
            if answer.uid in known:
                raise BadInput(f"{file} answers {answer.uid} as {answer.model}, as another file of {path} does")
            known[answer.uid] = answer
    return found


def read_judgments(path: Path | str) -> list[Game]:
    """The games of one file, or of all files below a folder, in the files' order.

    Raises:
        BadInput: no such file, rows that are no judgments, a model that is judged twice on one question.
    """
    games: list[Game] = []
    for file in _files(Path(path)):
        games += [game for pair in _each(file, _games) for game in pair]
    firsts = [game for game in games if game.number == 0]
    _refuse_repeats(Path(path), [f"{one.model} against {one.baseline} by {one.judge}: {one.uid}" for one in firsts])
    return games


def read_leaderboard(path: Path | str) -> list[Standing]:
    """The standings of a CSV file, or of a table that `arena score` wrote into its run folder.

    Raises:
        BadInput: no such file, columns that are missing, scores that are no numbers, models that occur twice.
    """
    path = Path(path)
    if path.is_dir() or path.suffix == ".parquet":
        from burnish.data.scores import read_table

        rows: list[dict[str, Any]] = read_table(path).rows()
    else:
        rows = list(csv.DictReader(io.StringIO(decode(_bytes(path), path))))
    columns = set(rows[0]) if rows else set()
    if {"", "win_rate", "standard_error"} <= columns:
        rows, columns = [_with_bounds(row) for row in rows], {"model", "win_rate", "low", "high"}
    names = ("estimate", "win_rate", "score")
    ways = (("score", "rating_q025", "rating_q975"), *((name, "low", "high") for name in names))
    way = next((way for way in ways if {"model", *way} <= columns), None)
    if way is None:
        raise BadInput(
            f"{path} is no leaderboard: it has {', '.join(sorted(columns)) or 'no rows'}",
            "it needs the columns model, score, low, high (or rating_q025 and rating_q975)",
        )
    found, faults = [], []
    for number, row in enumerate(rows, 1):
        try:
            score, low, high = (float(row[name]) for name in way)
        except (TypeError, ValueError):
            faults.append(f"row {number}: {[row[name] for name in way]} are not three numbers")
            continue
        if not low <= high:
            faults.append(f"row {number}: the bounds {low} and {high} are crossed")
        level = row.get("level")
        told = float(level) if isinstance(level, int | float) else None
        found.append(Standing(str(row["model"]), score, low, high, str(row.get("category") or ""), told))
    if faults:
        raise BadInput.of(f"{path} is no leaderboard", _some(faults))
    _refuse_repeats(path, [f"{standing.category} {standing.model}".strip() for standing in found])
    return found


def _with_bounds(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of AlpacaEval's table with the bounds of its win rate; what is no number is left for the reader to name."""
    found: dict[str, Any] = {"model": row[""], "win_rate": row["win_rate"], "low": None, "high": None, "level": 0.95}
    with contextlib.suppress(TypeError, ValueError):
        rate, error = float(row["win_rate"]), float(row["standard_error"])
        away = NormalDist().inv_cdf(0.975) * error
        found |= {"low": rate - away, "high": rate + away}
    return found


def prompt_digest(instructions: str) -> str:
    """What tells one set of judging instructions from another."""
    return hashlib.sha256(instructions.encode()).hexdigest()[:12]


# -- rows --------------------------------------------------------------------------------------------------------


def _question(row: Mapping[str, Any]) -> Question:
    turns = row.get("turns")
    prompt = row.get("prompt")
    if prompt is None and isinstance(turns, list):
        prompt = "\n".join(str(turn["content"] if isinstance(turn, dict) else turn) for turn in turns)
    return Question(
        _uid(row),
        str(row.get("category") or ""),
        _string("prompt", prompt),
        str(row.get("cluster") or row.get("subcategory") or ""),
    )


def _answer(row: Mapping[str, Any]) -> Answer:
    model = _string("model", row.get("model", row.get("model_id")))
    recorded = row.get("metadata") or {}
    tokens = recorded.get("token_len")
    if "choices" in row:
        turn = row["choices"][0]["turns"][0]
        text, tokens = turn["content"], turn.get("token_len", tokens)
    else:
        content = row["messages"][-1]["content"]
        text = content["answer"] if isinstance(content, dict) else content
    if text is not None and not isinstance(text, str):
        raise ValueError("the answer is no text")
    return Answer(_uid(row), model, text or "", None if tokens is None else int(tokens), _markup(recorded))


def _markup(recorded: Mapping[str, Any]) -> tuple[int, int, int] | None:
    """The counts of Markdown that version 2's answer files hold, each a number or numbers by kind to be added up."""
    names = ("header_count", "list_count", "bold_count")
    if not {*names} <= {*recorded}:
        return None
    found = [recorded[name] for name in names]
    headers, items, bold = (int(sum(one.values()) if isinstance(one, dict) else one) for one in found)
    return headers, items, bold


def _games(row: Mapping[str, Any]) -> list[Game]:
    games = row["games"]
    if not isinstance(games, list) or len(games) != 2:
        raise ValueError("there are not two games")
    common = {name: _string(name, row.get(name)) for name in ("judge", "model", "baseline")}
    return [
        Game(
            uid=_uid(row), category=str(row.get("category") or ""), number=number, **common,
            verdict=_verdict(game), prompt=_instructions(game, row),
        )
        for number, game in enumerate(games)
    ]  # fmt: skip


def _verdict(game: Mapping[str, Any] | None) -> str | None:
    if game is None or game.get("score") is None:
        return None
    label = _SAME.get(game["score"], game["score"])
    if label not in VERDICTS:
        raise ValueError(f"the score {game['score']!r} is none of {', '.join(VERDICTS)}")
    return str(label)


def _instructions(game: Mapping[str, Any] | None, row: Mapping[str, Any]) -> str:
    if row.get("prompt_digest"):
        return str(row["prompt_digest"])
    messages = (game or {}).get("prompt")
    if not isinstance(messages, list):
        return ""
    return next((prompt_digest(str(one["content"])) for one in messages if one.get("role") == "system"), "")


def _uid(row: Mapping[str, Any]) -> str:
    return _string("uid", row.get("uid", row.get("question_id")))


def _string(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} is {'missing' if value is None else repr(value)}")
    return value


# -- files -------------------------------------------------------------------------------------------------------


def json_rows(path: Path | str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line numbers and objects of a file of JSON lines, which may be compressed.

    Raises:
        BadInput: the file cannot be read, or lines of it are no objects (the first of them are named).
    """
    path = Path(path)
    data = _bytes(path)
    if path.suffix == ".gz":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise BadInput(f"{path} is not a whole gzip file: {error}", "compress it again with gzip") from None
    faults = []
    for number, line in enumerate(decode(data, path).split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            faults.append(f"line {number}: {error}")
            continue
        if isinstance(row, dict):
            yield number, row
        else:
            faults.append(f"line {number}: no object")
    if faults:
        raise BadInput.of(f"{path} is not JSON lines", _some(faults), "put one JSON object on each line")


def _each(path: Path, make: Callable[[Mapping[str, Any]], T]) -> list[T]:
    found, faults = [], []
    for number, row in json_rows(path):
        try:
            found.append(make(row))
        except KeyError as error:
            faults.append(f"line {number}: {error.args[0]} is missing")
        except (ValueError, TypeError, IndexError, AttributeError) as error:
            faults.append(f"line {number}: {error}")
    if faults:
        raise BadInput.of(f"{path} has rows that cannot be used", _some(faults))
    if not found:
        raise BadInput(f"{path} has no rows", "give a file with at least one JSON object")
    return found


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    if (path / "artifact").is_dir():  # a run's folder, which holds journals too
        path = path / "artifact"
    names = [file for end in ("*.jsonl", "*.jsonl.gz") for file in path.rglob(end) if file.is_file()]
    if not names:
        raise BadInput(f"the folder {path} holds no *.jsonl or *.jsonl.gz")
    return sorted(names)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}", "check the path") from None


def _refuse_repeats(path: Path, keys: Sequence[str]) -> None:
    twice = [key for key, count in Counter(keys).items() if count > 1]
    if twice:
        raise BadInput.of(f"{path} has rows that occur more than once", _some(twice), "keep one of each")


def _some(faults: Sequence[str]) -> list[str]:
    more = [f"and {len(faults) - _SHOWN} more"] if len(faults) > _SHOWN else []
    return [*faults[:_SHOWN], *more]
