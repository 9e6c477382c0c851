"""Rows of a table as they are written, values of any kind in any column: for files that no columnar table can hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from burnish.core.errors import BadInput
from burnish.data.files import decode, load, suffix_of


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSON list, of JSON Lines, or of any other table that `burnish.data.files.load` reads.

    Raises:
        BadInput: no such file, or not what its suffix says; JSON that is not made of objects.
    """
    if suffix_of(path) not in (".json", ".jsonl") or not path.is_file():
        return load(path).to_pylist()
    text = decode(path.read_bytes(), path)
    try:
        found = (
            json.loads(text)
            if suffix_of(path) == ".json"
            else [json.loads(line) for line in text.split("\n") if line.strip()]
        )
        if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
            raise ValueError("it is not a list of objects")
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path} holds no rows: {error}", 'write a list of objects, e.g. [{"loss": 3.2}]') from None
    if not found:
        raise BadInput(f"{path} is empty", "give at least one row")
    return found
