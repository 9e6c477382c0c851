"""The calling process's end of the spawner: starting it and sending it requests."""

from __future__ import annotations

import atexit
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from burnish.llm.sandbox.warden import Request


class _Spawner:
    """A running spawner process."""

    def __init__(self) -> None:
        self.calls, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(Path(__file__).parent)],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={"LANG": "C.UTF-8"},
                start_new_session=True,  # a Ctrl-C at the terminal is for the caller alone
            )

    def send(self, request: Request, fds: Sequence[int]) -> None:
        body = json.dumps(request).encode()
        socket.send_fds(self.calls, [len(body).to_bytes(8, "little")], fds)
        self.calls.sendall(body)

    def close(self) -> None:
        self.calls.close()
        self.process.wait()


_running: dict[int, _Spawner] = {}
"""Process -> the spawner it started; a forked child must not use its parent's."""
_lock = threading.Lock()


def send(request: Request, fds: Sequence[int]) -> None:
    """Have a program run; `fds` are standard input, output, error, result, report and leash."""
    with _lock:
        try:
            _own().send(request, fds)
        except (BrokenPipeError, ConnectionResetError):  # somebody killed it: start another
            _running.pop(os.getpid()).close()
            _own().send(request, fds)


def close() -> None:
    """End this process's spawner, if it runs; the next request starts another."""
    with _lock:
        if spawner := _running.pop(os.getpid(), None):
            spawner.close()


def _own() -> _Spawner:
    if os.getpid() not in _running:
        _running[os.getpid()] = _Spawner()
        atexit.register(close)
    return _running[os.getpid()]


def _leave_parents() -> None:
    """In a forked child: a spawner ends when nobody holds its socket any more, so do not hold the parent's."""
    global _lock
    _lock = threading.Lock()
    for spawner in _running.values():
        spawner.calls.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_parents)
