"""Texts with a sentence a line, plain or compressed, and one side of JSON lines."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from burnish.core.errors import BadInput

Side = Literal["source", "target"]


def read_lines(path: str | Path) -> Iterator[str]:
    """The lines of a text, plain or ``.gz``, without their ends; only a line feed ends a line.

    Raises:
        BadInput: it cannot be read, or is not UTF-8.
    """
    path = Path(path)
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    yield line.decode("utf-8").rstrip("\r\n")
                except UnicodeDecodeError:
                    raise BadInput(f"{path} is not UTF-8 in line {number}", "convert it to UTF-8") from None
    except (OSError, EOFError) as error:
        raise BadInput(
            f"{path} cannot be read: {error}", "give a text with one sentence a line, plain or .gz"
        ) from None


def read_side(path: str | Path, side: Side) -> Iterator[str]:
    """One side of a parallel text: the lines of a text, or that field of JSON lines (``.jsonl``, ``.jsonl.gz``).

    A row of JSON lines that lacks the side counts as an empty line, as `contamination inject` writes them.

    Raises:
        BadInput: it cannot be read, is not UTF-8, or a line is no JSON object or holds something else than text.
    """
    if ".jsonl" not in Path(path).suffixes[-2:]:
        yield from read_lines(path)
        return
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            value = row.get(side) or ""
        except (ValueError, AttributeError):
            raise BadInput(f"{path} has no JSON object in line {number}", "give one object a line") from None
        if not isinstance(value, str):
            raise BadInput(f"{path}: {side} is no text in line {number}", "give source and target as strings")
        yield " ".join(value.splitlines())
