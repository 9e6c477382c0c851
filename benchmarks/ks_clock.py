"""Timing that the Kronecker-sparse benchmarks share: the best of several runs, in process time on one thread."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch


def clock(work: Callable[[], object], seconds: float) -> float:
    """Seconds of the quickest run, of as many as fit into `seconds` (three at least), after one that is not counted."""
    now = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    work()
    best, end, runs = float("inf"), time.perf_counter() + seconds, 0
    while runs < 3 or time.perf_counter() < end:
        began = now()
        work()
        best = min(best, now() - began)
        runs += 1
    return best


def interleaved(works: dict[str, Callable[[], object]], seconds: float) -> dict[str, float]:
    """The same for several works, a run of each in turn, so that what else the machine does meets all of them alike."""
    now = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    for work in works.values():
        work()
    best = dict.fromkeys(works, float("inf"))
    end, rounds = time.perf_counter() + seconds * len(works), 0
    while rounds < 3 or time.perf_counter() < end:
        for name, work in works.items():
            began = now()
            work()
            best[name] = min(best[name], now() - began)
        rounds += 1
    return best
