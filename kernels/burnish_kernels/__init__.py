"""Compiled CPU kernels of burnish: the shared library for this processor, loaded beside torch's own OpenMP.

Everything here has a path in plain torch that gives the same numbers; `burnish.nn.kernels` chooses.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

__all__ = ["INSTRUCTIONS", "load"]

INSTRUCTIONS = ("avx512", "avx2", "baseline")
"""Builds of the library, the best first."""

_NEEDS = {"avx512": {"avx512f", "avx512bw", "avx512dq", "avx512vl", "f16c", "fma"}, "avx2": {"avx2", "f16c", "fma"}}


def load(openmp: str | Path | None = None, instructions: str | None = None) -> tuple[ctypes.CDLL, str]:
    """The library for this processor.

    Args:
        openmp: The OpenMP runtime that the process uses already, e.g. the one that torch ships: two of them would fight
            over the cores. None takes the system's.
        instructions: One of `INSTRUCTIONS`, instead of the best that runs here.

    Returns:
        The library, and which build of it.

    Raises:
        OSError: no build of it is there, or the runtime is missing.
    """
    # Global, because the library is linked against none: it takes the symbols of the one that is loaded.
    ctypes.CDLL(str(openmp or "libgomp.so.1"), mode=ctypes.RTLD_GLOBAL)
    have = _flags()
    fits = [name for name in INSTRUCTIONS if _NEEDS.get(name, set()) <= have]
    chosen = instructions or next((name for name in fits if _path(name).is_file()), "baseline")
    if chosen not in fits:
        raise OSError(f"this processor cannot run the build {chosen!r}")
    return ctypes.CDLL(str(_path(chosen))), chosen


def _path(name: str) -> Path:
    return Path(__file__).parent / f"libburnish_{name}.so"


def _flags() -> set[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return set()
    return next((set(line.split(":", 1)[1].split()) for line in lines if line.startswith("flags")), set())
