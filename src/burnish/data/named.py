"""Whether what a string names can be there, without reading it: for what is checked before anything runs.

What only a network can tell (a hub id) is let through; the reader says it.
"""

from __future__ import annotations

from pathlib import Path

from burnish.core.errors import BadInput, UnknownName

SPLITS = {"builtin": ("calibration", "validation", "test"), "wikitext2": ("valid", "validation", "test")}
"""Named texts, and their parts."""


def check_dataset(source: str) -> None:
    """Refuse a source that `burnish.data.read` cannot read, as far as that is seen from outside.

    Raises:
        BadInput: there is no such file, or it is of a kind that is not read.
        UnknownName: no such part of a named text.
    """
    from burnish.data.files import SAVED, SUFFIXES, suffix_of

    name, _, split = source.partition(":")
    if name in SPLITS:
        if split and split not in SPLITS[name]:
            raise UnknownName(f"split of {name}", split, SPLITS[name])
        return
    path = Path(source).expanduser()
    known = ", ".join(SUFFIXES)
    if path.is_dir():
        if not any((folder / SAVED).is_file() for folder in (path, path / "artifact")):
            raise BadInput(f"the folder {path} holds no dataset ({SAVED})", f"give a file: {known}")
    elif path.exists():
        if suffix_of(path) not in SUFFIXES:
            raise BadInput(f"{path} has the unknown suffix {path.suffix!r}", f"files of text end in {known}")
    elif suffix_of(path) in SUFFIXES or source.startswith(("/", ".", "~")):
        raise BadInput(f"there is no file {path}", "check the path")


def check_scores(source: str) -> None:
    """Refuse a source at which there are no scores.

    Raises:
        BadInput: nothing is there.
    """
    _check_parquet(source, "items.parquet", "scores")


def check_table(source: str) -> None:
    """Refuse a source at which there is no table.

    Raises:
        BadInput: nothing is there.
    """
    _check_parquet(source, "table.parquet", "table")


def _check_parquet(source: str, inside: str, what: str) -> None:
    path = Path(source) / inside if Path(source).is_dir() else Path(source)
    if not path.exists():
        raise BadInput(f"no {what} at {path}", f"give a run folder with {inside}, or a Parquet file")
