"""Several logs at once: files, folders and patterns of files, as one good that a method is called on."""

from __future__ import annotations

from collections.abc import Iterable
from glob import glob, has_magic
from pathlib import Path
from typing import Self

from burnish.core.errors import BadInput


class Logs(tuple[Path, ...]):
    """Paths of logs, in their given order, each once."""

    @classmethod
    def of(cls, source: str | Path | Iterable[str | Path]) -> Self:
        """The logs that are named.

        Args:
            source: A path, a pattern such as "logs/*.eval" (``**`` for folders within folders), several of them, or a
                text with one a line.

        Raises:
            BadInput: a path is not there, or a pattern fits nothing; all of them at once.
        """
        cls.check(source)
        return cls(dict.fromkeys(path for one in _listed(source) for path in _found(one)))

    @classmethod
    def check(cls, source: str | Path | Iterable[str | Path]) -> None:
        """Refuse what `of` would, without reading a log.

        Raises:
            BadInput: a path is not there, or a pattern fits nothing; all of them at once.
        """
        faults = [
            f"no file fits the pattern {one}" if has_magic(one) else f"there is nothing at {one}"
            for one in _listed(source)
            if not _found(one)
        ]
        if faults:
            raise BadInput.of("there are no such logs", faults)

    @property
    def names(self) -> list[str]:
        """What to call them: their file names, or their whole paths where several files have one name."""
        short = [path.name for path in self]
        return short if len(set(short)) == len(short) else [str(path) for path in self]


def _listed(source: str | Path | Iterable[str | Path]) -> list[str]:
    if isinstance(source, Path):
        return [str(source)]
    if isinstance(source, str):
        return [line for line in source.split("\n") if line.strip()]
    return [str(one) for one in source]


def _found(one: str) -> list[Path]:
    # A file may have a name that looks like a pattern, such as "arc[0].eval".
    if Path(one).exists():
        return [Path(one)]
    return [Path(name) for name in sorted(glob(one, recursive=True))] if has_magic(one) else []
