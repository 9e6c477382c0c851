"""CPU threads: by default as many as there are physical cores, because more make small models slower."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def most_threads() -> int:
    """As many as the machine has logical CPUs: more would only wait for one another, and starting millions hangs."""
    return os.cpu_count() or 1


def default_threads() -> int:
    """OMP_NUM_THREADS where it can be used, else the physical cores that this process may use."""
    if asked := _count(os.environ.get("OMP_NUM_THREADS", "")):
        return asked
    import psutil

    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(psutil.cpu_count(logical=False) or allowed, allowed))


def use_threads(threads: int | None) -> int:
    """Set the threads of the numerical libraries, which read them when they are first imported; returns how many."""
    count = threads or default_threads()
    for name in VARIABLES:
        os.environ[name] = str(count)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(count)
    return count


def asked_threads(tokens: Sequence[str]) -> int | None:
    """The value of --threads in a command line that is not parsed yet; None where there is none that can be used."""
    for token, after in zip(tokens, [*tokens[1:], ""], strict=True):
        name, equals, value = token.partition("=")
        if name == "--threads" and (asked := _count(value if equals else after)):
            return asked
    return None


def _count(text: str) -> int | None:
    """The number of threads that a text stands for, if this machine can use so many."""
    usable = text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= most_threads()
    return int(text) if usable else None
