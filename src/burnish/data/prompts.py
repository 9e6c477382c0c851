"""Users' prompts as a benchmark is curated from: read from any file of rows, cleaned, each with an id.

A prompt is the column ``prompt`` or ``text``, or all turns of the user in ``turns`` or ``conversation`` (texts, or
objects with role and content), joined by line breaks. Lengths as in the released code of Li et al., arXiv 2406.11939.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from burnish.core.errors import BadInput
from burnish.data.files import load

SHORTEST = 32
"""Prompts of up to so many characters are dropped."""
LONGEST = 10_000
"""Prompts are cut after so many characters."""
LANGUAGES = frozenset({"english", "en"})
_COLUMNS = ("prompt", "text", "turns", "conversation")
_IDS = ("uid", "question_id", "conversation_id")


@dataclass(frozen=True)
class Prompt:
    """One prompt."""

    uid: str
    text: str
    row: int
    """Where it stands in its file, counted from 0."""


def read_prompts(path: Path | str) -> tuple[list[Prompt], Counter[str]]:
    """The usable prompts of a file in its order, and how many were dropped for what: language, short, repeated.

    Rows without an id get one from their text, the same in every file.

    Raises:
        BadInput: the file cannot be read, has none of the columns, has rows that are no prompts, or one id for two
            prompts, or none is usable.
    """
    path = Path(path)
    table = load(path)
    column = next((name for name in _COLUMNS if name in table.column_names), None)
    if column is None:
        raise BadInput(
            f"{path} has no column of prompts: it has {', '.join(table.column_names)}",
            f"name one of them {' or '.join(_COLUMNS)}",
        )
    found: list[Prompt] = []
    dropped: Counter[str] = Counter()
    texts: set[str] = set()
    uids: Counter[str] = Counter()
    faults = []
    for number, row in enumerate(table.to_pylist()):
        try:
            text = _text(row[column])[:LONGEST]
        except ValueError as error:
            faults.append(f"row {number}: {error}")
            continue
        if not _english(row):
            dropped["language"] += 1
        elif len(text.strip()) <= SHORTEST:
            dropped["short"] += 1
        elif text in texts:
            dropped["repeated"] += 1
        else:
            texts.add(text)
            uid = next((str(row[name]) for name in _IDS if row.get(name)), "") or _digest(text)
            uids[uid] += 1
            found.append(Prompt(uid, text, number))
    faults += [f"{uid} is the id of {count} prompts" for uid, count in uids.items() if count > 1]
    if faults:
        more = [f"and {len(faults) - 8} more"] if len(faults) > 8 else []
        raise BadInput.of(f"{path} has rows that are no prompts", [*faults[:8], *more])
    if not found:
        raise BadInput(f"{path} has no usable prompt: {dict(dropped)}", f"they need more than {SHORTEST} characters")
    return found, dropped


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not value:
        raise ValueError("the prompt is missing" if value is None else f"{str(value)[:40]!r} is no prompt")
    turns = []
    for turn in value:
        if isinstance(turn, str):
            turns.append(turn)
        elif isinstance(turn, dict) and isinstance(turn.get("content"), str):
            turns += [turn["content"]] if turn.get("role") in (None, "user", "human") else []
        else:
            raise ValueError("a turn has no content")
    return "\n".join(turns)


def _english(row: Mapping[str, Any]) -> bool:
    language = row.get("language")
    return language is None or str(language).lower() in LANGUAGES


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
