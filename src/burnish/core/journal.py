"""An append-only JSONL file of finished units: what is in it is never done again."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Journal:
    """Keys and values, one JSON object a line, written through to disk as they come.

    A process that is killed while it writes leaves a torn last line; the line is dropped, and its unit done again.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._rows: dict[str, Any] = {}
        self._read()

    def _read(self) -> None:
        if not self.path.exists():
            return
        raw = self.path.read_bytes()
        whole = raw.rfind(b"\n") + 1
        for number, line in enumerate(raw[:whole].splitlines(), 1):
            try:
                row = json.loads(line)
                self._rows[row["key"]] = row["value"]
            except (ValueError, KeyError, TypeError):
                from burnish.core.errors import BadInput

                raise BadInput(
                    f"{self.path} line {number} is damaged", "delete that line; its unit is done again"
                ) from None
        if whole < len(raw):
            with self.path.open("r+b") as torn:
                torn.truncate(whole)

    def __contains__(self, key: str) -> bool:
        return key in self._rows

    def __getitem__(self, key: str) -> Any:
        return self._rows[key]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def add(self, key: str, value: Any) -> Any:
        """Record one finished unit; returns the value as it will be read back, so a rerun sees the same."""
        line = json.dumps({"key": key, "value": value}, ensure_ascii=False)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as out:
            out.write(line.encode() + b"\n")
            out.flush()
            os.fsync(out.fileno())
        self._rows[key] = json.loads(line)["value"]
        return self._rows[key]
