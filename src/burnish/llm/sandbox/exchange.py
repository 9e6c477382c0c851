"""One program's run, seen from the calling process: the pipes to it, what comes through them, and when to stop it."""

from __future__ import annotations

import json
import os
import selectors
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from io import FileIO
from typing import TYPE_CHECKING, Any

from burnish.llm.sandbox import spawner

if TYPE_CHECKING:
    from burnish.llm.sandbox.warden import Request

GRACE = 30.0
"""Seconds past its time within which the end of a program must be reported."""
STRAGGLERS = 1.0
"""Seconds that pipes may stay open after the report (where the program's processes cannot all be found)."""
STREAMS = ("stdout", "stderr", "result", "report")


@dataclass(frozen=True)
class Exchange:
    """What came of a run.

    Attributes:
        report: The warden's account (`warden.watch`); empty if the warden was killed. If it holds ``refused``, the
            kernel refused a step of the confinement, and the program was not run.
        streams: What came through standard output, standard error and descriptor 3, cut at the limit.
        overflow: Whether a stream was cut, and the program stopped for it.
    """

    report: Mapping[str, Any]
    streams: Mapping[str, bytes]
    overflow: bool


def exchange(request: Request, stdin: bytes, most: int, cancel: threading.Event | None = None) -> Exchange:
    """Run what `request` says, with `stdin`, reading at most `most` bytes of each stream."""
    with ExitStack() as stack:
        source = stack.enter_context(tempfile.TemporaryFile())
        source.write(stdin)
        source.seek(0)
        leash, leash_end = _pipe(stack)
        pipes = {name: _pipe(stack) for name in STREAMS}
        handed = [*(pipes[name][1] for name in STREAMS), leash]
        spawner.send(request, [file.fileno() for file in (source, *handed)])
        for file in handed:
            file.close()
        reading = _Reading({name: pipes[name][0] for name in STREAMS}, leash_end, most)
        stack.callback(reading.stop)
        reading.until(time.monotonic() + request["seconds"] + GRACE, cancel)
    report: dict[str, Any] = {}
    for line in reading.streams.pop("report").splitlines():
        report |= json.loads(line)
    return Exchange(report, {name: bytes(got[:most]) for name, got in reading.streams.items()}, reading.overflow)


def _pipe(stack: ExitStack) -> tuple[FileIO, FileIO]:
    """A pipe's two ends, closed with the stack at the latest."""
    read, write = os.pipe()
    return stack.enter_context(FileIO(read, "r")), stack.enter_context(FileIO(write, "w"))


class _Reading:
    """Reads several pipes at once, and pulls the leash when one brings too much."""

    def __init__(self, pipes: Mapping[str, FileIO], leash: FileIO, most: int) -> None:
        self.streams = {name: bytearray() for name in pipes}
        self.overflow = False
        self._pipes, self._leash, self._most = dict(pipes), leash, most

    def until(self, deadline: float, cancel: threading.Event | None) -> None:
        """Read to the end of all pipes, but no longer than `deadline` or until `cancel` is set."""
        with selectors.DefaultSelector() as ready:
            for name, pipe in self._pipes.items():
                ready.register(pipe, selectors.EVENT_READ, name)
            while self._pipes and (left := deadline - time.monotonic()) > 0 and not (cancel and cancel.is_set()):
                for key, _ in ready.select(min(left, 0.25)):
                    name = key.data
                    chunk = os.read(key.fd, 1 << 16)
                    self.streams[name] += chunk
                    if chunk and (name == "report" or len(self.streams[name]) <= self._most):
                        continue
                    ready.unregister(key.fileobj)
                    del self._pipes[name]
                    if chunk:
                        self.overflow = True
                        self._pull()
                    elif name == "report":
                        deadline = min(deadline, time.monotonic() + STRAGGLERS)

    def stop(self) -> None:
        """If the program still runs, have it killed, and wait until it is."""
        if "report" in self._pipes:
            self._pull()
            self._pipes = {"report": self._pipes["report"]}
            self.until(time.monotonic() + STRAGGLERS, None)

    def _pull(self) -> None:
        with suppress(BrokenPipeError):
            self._leash.write(b"x")
