"""Recorded answers instead of a model: the same calls give the same replies, and any other call is an error.

A replay file is a journal of calls: JSON lines of a key and an `Entry`. `record` collects one from a run's folder, and
a run's ``llm.jsonl`` can be replayed as it is.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from burnish.core.errors import BadInput, UnknownName
from burnish.core.files import write_text
from burnish.core.method import faults
from burnish.core.run import Run
from burnish.engine import Sampling
from burnish.llm.budget import CALLS
from burnish.llm.client import Chat, Entry, Reply, Request, request_key, requests, shorten

_COMPARED = 2000
"""Characters of a chat that count when the nearest recorded one is sought."""


class Replay:
    """Answers chats from a file. Nothing is journaled and no budget applies: nothing is paid.

    Args:
        file: As `record` writes it.
        model: Whose answers; may be left out when the file holds those of one model.

    Raises:
        BadInput: the file is missing, damaged, empty, or holds several models and none is named.
        UnknownName: it holds no answers of that model.
    """

    def __init__(self, file: Path, model: str = "") -> None:
        self.file = file
        entries = _read(file)
        models = sorted({entry.model for entry in entries})
        if not entries:
            raise BadInput(f"{file} holds no recorded calls", "record some with burnish.llm.record")
        if not model and len(models) > 1:
            raise BadInput(f"{file} holds the answers of {len(models)} models", f"add one: #{' or #'.join(models)}")
        if model and model not in models:
            raise UnknownName("recorded model", model, models)
        self.name = model or models[0]
        self._entries = {_key(entry): entry for entry in entries if entry.model == self.name}

    def generate(self, chats: Sequence[Chat], sampling: Sampling, run: Run) -> list[Reply]:
        """The recorded reply to each chat, in their order.

        Raises:
            BadInput: listing requests that were not recorded, each with its hash and what comes nearest to it.
        """
        asked = requests(self.name, chats, sampling)
        unknown = [request for request in asked if request.key not in self._entries]
        if unknown:
            more = [f"and {len(unknown) - 3} more"] if len(unknown) > 3 else []
            raise BadInput.of(
                f"{self.file} has no answer to {len(unknown)} of {len(asked)} requests",
                [*map(self._describe, unknown[:3]), *more],
                "ask what was asked when it was recorded, or record again with a live model",
            )
        return [self._entries[request.key].reply for request in asked]

    def _describe(self, request: Request) -> str:
        key, near = self._nearest(request)
        return (
            f"{request.key[:12]} {_quote(request)}; nearest is {key[:12]} {_quote(near)}: {_difference(request, near)}"
        )

    def _nearest(self, request: Request) -> tuple[str, Entry]:
        text = _text(request)[:_COMPARED]
        matcher = difflib.SequenceMatcher(autojunk=False)
        matcher.set_seq2(text)

        def likeness(entry: Entry) -> tuple[float, bool, int]:
            matcher.set_seq1(_text(entry)[:_COMPARED])
            return matcher.quick_ratio(), entry.sampling == request.sampling, -abs(entry.sample - request.sample)

        return max(self._entries.items(), key=lambda item: likeness(item[1]))


def record(folder: Path | str, file: Path | str) -> int:
    """Write all calls in a run's folder, those of its parts too, to one replay file, and say how many they are.

    Raises:
        BadInput: the folder holds no calls, or a damaged journal.
    """
    entries = {_key(entry): entry for path in sorted(Path(folder).rglob(CALLS)) for entry in _read(path)}
    if not entries:
        raise BadInput(f"{folder} holds no calls to a language model", f"give the folder of a run with a {CALLS}")
    lines = [
        json.dumps({"key": key, "value": entry.model_dump(mode="json")}, ensure_ascii=False) + "\n"
        for key, entry in entries.items()
    ]
    write_text(Path(file), "".join(lines))
    return len(lines)


def _read(file: Path) -> list[Entry]:
    # Not a Journal: that would mend a torn file, and this one is not ours to change.
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{file} cannot be read: {error}", "give a file that burnish.llm.record has written") from None
    lines = text.split("\n")
    entries, found = [], []
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            entries.append(Entry.model_validate(json.loads(line)["value"]))
        except ValidationError as error:
            found.append(f"line {number}: {'; '.join(faults(error))}")
        except (ValueError, KeyError, TypeError):
            if number < len(lines):  # a last line without its end was torn by a kill
                found.append(f"line {number}: no recorded call")
    if found:
        raise BadInput.of(f"{file} is damaged", found[:10], "delete those lines, or record again")
    return entries


def _key(entry: Entry) -> str:
    return request_key(entry.model, entry.chat, entry.sampling, entry.sample)


def _text(asked: Request | Entry) -> str:
    return "\n".join(f"{message['role']}: {message['content']}" for message in asked.chat)


def _quote(asked: Request | Entry) -> str:
    return f"({shorten(asked.chat[-1]['content'], 60)!r}, sample {asked.sample})"


def _difference(asked: Request, near: Entry) -> str:
    told = [] if asked.chat == near.chat else [_first_difference(_text(asked), _text(near))]
    there, here = near.sampling.model_dump(), asked.sampling.model_dump()
    told += [f"{name} is {there[name]!r} there, {here[name]!r} here" for name in here if here[name] != there[name]]
    if asked.sample != near.sample:
        told.append(f"sample {near.sample} there, {asked.sample} here")
    return "; ".join(told)


def _first_difference(here: str, there: str) -> str:
    place = next((i for i, (a, b) in enumerate(zip(here, there, strict=False)) if a != b), min(len(here), len(there)))
    return (
        f"the chats part at character {place}: {there[place : place + 40]!r} there, {here[place : place + 40]!r} here"
    )
