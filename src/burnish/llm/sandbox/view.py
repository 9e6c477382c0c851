"""What a sandboxed program may read: the system's programs and libraries, the Python installation, and what is named."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store"),
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime"),
    *("/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/mime.types", "/etc/fonts", "/etc/ssl", "/etc/pki"),
    "/sys/devices/system/cpu",
)
"""Programs and libraries, and the few settings that they need."""
NETWORK = ("/etc/hosts", "/etc/resolv.conf", "/etc/gai.conf", "/etc/services", "/etc/ca-certificates")
"""What is needed in addition to find other machines."""
PROC = ("/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/filesystems", "/proc/sys")
"""Needed where a program has no /proc of its own."""


def readable(level: str, network: bool, named: Iterable[str | Path]) -> list[str]:
    """Existing paths that a program may read with all that is below them, none inside another.

    Links on the way to a path are resolved, and both places are listed.
    """
    wanted = {*_always(level, network), *_places(map(os.path.abspath, named))}
    chosen: list[str] = []
    for path in sorted(wanted):  # a folder sorts before what is in it
        if not any(path == other or path.startswith(other.rstrip("/") + "/") for other in chosen):
            chosen.append(path)
    return chosen


@functools.cache
def _always(level: str, network: bool) -> frozenset[str]:
    paths = (*SYSTEM, *(NETWORK if network else ()), *(PROC if level != "namespaces" else ()), *_python())
    return frozenset(_places(paths))


def _places(paths: Iterable[str]) -> Iterator[str]:
    for path in paths:
        if os.path.lexists(path):
            yield from (path, os.path.realpath(path))


def _python() -> Iterator[str]:
    """Where this interpreter, its library and its packages are."""
    yield from (sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix)
    path = sys.executable
    while os.path.islink(path):  # each link on the way must be there to follow
        path = os.path.join(os.path.dirname(path), os.readlink(path))
        yield os.path.abspath(path)


def exposed_home() -> str:
    """The folder that must be readable and holds the user's home, if there is one: then the home cannot be hidden."""
    home = os.path.realpath(os.path.expanduser("~"))
    return next((path for path in readable("", False, ()) if Path(home).is_relative_to(path)), "")
