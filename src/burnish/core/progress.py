"""Progress of long work: a bar on a terminal, a plain line every half minute elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sized
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")

LINE_EVERY = 30.0
"""Seconds between two plain lines when standard error is no terminal."""


class Progress:
    """Shows how far one loop is. Use as a context manager; `advance` after each unit.

    Args:
        title: What is being done.
        total: Units in all; None when unknown.
        unit: What one unit is called, e.g. "block" or "MB".
    """

    def __init__(self, title: str, total: float | None = None, unit: str = "") -> None:
        self.title, self.total, self.unit = title, total, unit
        self.done = 0.0
        self.note = ""
        self._began = self._spoke = time.monotonic()
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Progress:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()]
            self._bar = Bar(*columns, TextColumn("{task.fields[note]}"), console=Console(stderr=True), transient=True)
            self._bar.start()
            self._task = self._bar.add_task(self.title, total=self.total, note="")
        return self

    def advance(self, units: float = 1, note: str = "") -> None:
        """Record that `units` more are done; `note` is the current metric, shown beside the bar."""
        self.done += units
        self.note = note or self.note
        if self._bar is not None:
            self._bar.update(self._task, advance=units, note=self.note)
        elif time.monotonic() - self._spoke >= LINE_EVERY:
            self._spoke = time.monotonic()
            sys.stderr.write(self.line() + "\n")
            sys.stderr.flush()

    def line(self) -> str:
        """One plain line: how much is done, and about how long the rest takes."""
        spent = time.monotonic() - self._began
        of = f"/{self.total:g}" if self.total else ""
        left = ""
        if self.total and self.done:
            left = f", about {max(0.0, spent * (self.total / self.done - 1)):.0f} s left"
        note = f" ({self.note})" if self.note else ""
        return f"{self.title}: {self.done:g}{of} {self.unit}".rstrip() + f"{note}{left}"

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()


def track(items: Iterable[T], title: str, total: float | None = None, unit: str = "") -> Iterator[T]:
    """Yield `items`, showing progress."""
    if total is None and isinstance(items, Sized):
        total = len(items)
    with Progress(title, total, unit) as progress:
        for item in items:
            yield item
            progress.advance()
