"""Writing files so that a reader never sees half of one."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from burnish.core.errors import BadInput


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path`, whole or not at all; half a character (of a file name that is not UTF-8) is escaped."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_text(text, encoding="utf-8", errors="backslashreplace")
    os.replace(temporary, path)


def require_folder(path: Path) -> Path:
    """`path`, if a folder is there or can be made there.

    Raises:
        BadInput: something else is in its place.
    """
    for place in (path, *path.parents):
        if place.is_dir():
            return path
        if place.exists() or place.is_symlink():
            what = "is no folder" if place.exists() else "is a link that leads nowhere"
            raise BadInput(f"{place} {what}, and a run needs a folder", "choose another --out")
    return path


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON, whole or not at all."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, default=str) + "\n")


def sha256(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
