"""How strongly programs can be confined on this machine, found by trying."""

from __future__ import annotations

import functools
import itertools
import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from burnish.core.errors import Unsupported
from burnish.llm.sandbox import confine, view
from burnish.llm.sandbox.exchange import exchange
from burnish.llm.sandbox.workspace import Workspace

if TYPE_CHECKING:
    from burnish.llm.sandbox.warden import Request

Level = Literal["namespaces", "landlock", "process"]

GUARANTEES = {
    "environment": "no variable of the caller reaches a program",
    "time": "a program is ended when its time is up",
    "output": "what it prints is bounded",
    "tree": "no process of it outlives the run",
    "memory": "its processes together stay within the memory limit",
    "processes": "their number is bounded",
    "network": "it reaches no other process through a socket, and no other machine",
    "writes": "it changes no file outside its temporary folders",
    "reads": "it reads no file outside them but the system's, the Python installation's and those named",
    "signals": "it signals no process but its own",
}
"""What a sandbox promises when nothing is lacking."""

SPARE_UIDS = range(1_900_000_000, 1_900_100_000)
"""Users that exist on no system: root runs each program as one of them."""

_turn = itertools.count()


@dataclass(frozen=True)
class Strength:
    """What this machine permits.

    Attributes:
        level: The strongest level that works.
        as_other: Whether programs run as a spare user (for root only).
        lacks: Those of `GUARANTEES` that do not hold, with the reasons.
        refused: Stronger levels, with the reasons why they do not work.
    """

    level: Level
    as_other: bool
    lacks: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)

    def spare_uid(self) -> int | None:
        """A user for one program, unlike those of the programs before it."""
        return SPARE_UIDS[(os.getpid() * 64 + next(_turn)) % len(SPARE_UIDS)] if self.as_other else None

    def families(self, network: bool, named: bool) -> list[int]:
        """Families of sockets for a program with or without a network, where readable folders are `named` or not."""
        if self.level == "namespaces":  # only a socket file in a named folder leads out of its own network
            return [*confine.INTERNET, *([confine.UNIX] if network or not named else [])]
        return [*confine.INTERNET, confine.UNIX] if network else []


@functools.cache
def strength() -> Strength:
    """The strongest level that works here, found by running an empty program; done once a process.

    Raises:
        Unsupported: where no level works.
    """
    if os.name != "posix":
        raise Unsupported("the sandbox", f"{sys.platform} is not a POSIX system", "use it under WSL")
    refused: dict[str, str] = {}
    for level in levels():
        found = at(level)
        if isinstance(found, Strength):
            return replace(found, refused=refused)
        refused[level] = found
    raise Unsupported("the sandbox", f"not even a plain child process works: {refused['process']}")


def at(level: Level) -> Strength | str:
    """The level's strength on this machine, or why it does not work here."""
    why = ""
    for as_other in (True, False) if _spare_users() else (False,):
        found = Strength(level, as_other)
        if why := _failure(found):
            continue
        lacks = confine.missing(level, found.spare_uid(), processes_bound=as_other or not _true_root())
        if home := view.exposed_home():
            lacks["reads"] = f"your home is in {home}, which programs must read"
        return replace(found, lacks=lacks)
    return why


def levels() -> tuple[Level, ...]:
    """The levels that this kind of system knows, strongest first."""
    return ("namespaces", "landlock", "process") if confine.LINUX else ("process",)


def _failure(found: Strength) -> str:
    """Why an empty Python program does not run as `found` says; empty if it does."""
    uid = found.spare_uid()
    with Workspace(uid) as space:
        space.hand_over()
        request: Request = {
            "level": found.level,
            "uid": uid,
            "network": False,
            "families": found.families(network=False, named=False),
            "argv": [sys.executable, "-I", "-S", "-c", ""],
            "env": {},
            "base": str(space.base),
            "readable": view.readable(found.level, False, ()),
            "seconds": 10.0,
            "memory": 1 << 30,
            "files": 1 << 20,
            "processes": 16,
        }
        got = exchange(request, b"", 1 << 16)
    if "refused" in got.report:
        return str(got.report["refused"])
    if got.report.get("code") == 0:
        return ""
    return got.streams["stderr"].decode(errors="replace").strip() or f"an empty program ended with {dict(got.report)}"


def _uid_map() -> Iterable[tuple[int, int, int]]:
    """The users of this user namespace: first, the first's name outside, how many."""
    with suppress(OSError):
        for line in Path("/proc/self/uid_map").read_text().splitlines():
            first, outside, count = map(int, line.split())
            yield first, outside, count


def _spare_users() -> bool:
    """Whether this process may run others as users that exist on no system."""
    wanted = SPARE_UIDS
    inside = any(first <= wanted.start and wanted.stop <= first + count for first, _, count in _uid_map())
    return os.geteuid() == 0 and inside


def _true_root() -> bool:
    """Whether this process is root outside its user namespace too."""
    return os.geteuid() == 0 and not any(first == 0 and outside != 0 for first, outside, _ in _uid_map())
