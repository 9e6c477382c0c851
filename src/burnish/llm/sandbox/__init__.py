"""A sandbox for programs that nobody has read: limits on what they use, and walls around what they reach.

Programs written by language models run here and nowhere else. Each runs in a temporary folder, as a process of its own
with its own limits, without the caller's environment, network or files, and is ended with all its descendants.
A program that fails, hangs or misbehaves is an `Outcome`, never an exception.

## How it works
A small resident process, the spawner, forks a warden for each program; the warden puts up the walls, starts the
program and watches it. The walls depend on what the system permits (`Sandbox.level`), strongest first:

* ``namespaces`` (Linux with user namespaces): the program sees a file system that holds only what it may read, an
  empty network with a loopback of its own, and no processes but its own. All guarantees hold. (Where `readable` names
  folders, unix sockets are refused, since a socket file in them would lead out.)
* ``landlock`` (Linux where user namespaces are forbidden, as in many containers and on Ubuntu 24.04): the kernel's
  Landlock rules confine files and, from Linux 6.12 on, signals; a seccomp filter refuses sockets. Shared memory in
  /dev/shm and the locks of Python's `multiprocessing` do not work there. Unless programs run as another user (see
  below), calls that change modes and times of files do nothing, so that what a compiler made cannot be run. A program
  can see that files exist, but not what is in them.
* ``process`` (others, macOS among them): resource limits, a clean environment and a clean end, but no walls.

Root runs each program as a user of its own that exists nowhere else, where that user can start this Python.

A level that lacks a guarantee is refused unless `allow_weaker` is set; `Sandbox.lacks` says what is lacking and why.

## When not to use it
The walls are those of one kernel: a program with a fault of that kernel at hand gets through. For programs by
people who mean harm, use a virtual machine. GPUs are not visible inside.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from burnish.core.errors import BadInput, Unsupported
from burnish.llm.sandbox import strength as _strength
from burnish.llm.sandbox import view
from burnish.llm.sandbox.exchange import Exchange, exchange
from burnish.llm.sandbox.strength import GUARANTEES, Level
from burnish.llm.sandbox.workspace import Workspace, as_bytes, check_files

if TYPE_CHECKING:
    from burnish.llm.sandbox.warden import Request

__all__ = ["GUARANTEES", "Outcome", "Program", "Sandbox", "Status"]

Status = Literal["ok", "error", "timeout", "memory", "output", "files", "processes"]
Content = str | bytes | Path

_SIGNS: Mapping[Status, re.Pattern[bytes]] = {
    "memory": re.compile(rb"MemoryError|std::bad_alloc|[Cc]annot allocate memory|can't allocate memory"),
    "files": re.compile(rb"File too large|No space left on device"),
    "processes": re.compile(rb"Resource temporarily unavailable|can't start new thread|Cannot fork"),
}
"""What programs say on standard error that fail because a limit held."""
_TAIL = 4096
"""Bytes at the end of standard error where a program says what it died of."""


@dataclass(frozen=True)
class Program:
    """A program to run, with all that it is given.

    Args:
        code: Python source, or a command line. A command's first word is looked up in the sandbox's PATH, where this
            interpreter's folder comes first; ``python`` is this interpreter, ``./name`` a file of the working folder.
        stdin: Standard input.
        files: Path below the working folder -> text, bytes, or a file or folder to copy.
        env: Variables to set besides (or in place of) the sandbox's own few. ``PYTHONPATH="."`` lets Python source
            import `files`, which it otherwise does not.
        collect: Patterns of files to hand back, as of `fnmatch`: ``*`` matches folders' slashes too.

    Raises:
        BadInput: for paths that leave the working folder, links that do, and malformed variables.
    """

    code: str | Sequence[str]
    stdin: str | bytes = b""
    files: Mapping[str, Content] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    collect: Sequence[str] = ()

    def __post_init__(self) -> None:
        words = [] if isinstance(self.code, str) else [*self.code]
        faults = ["an empty command"] if not self.code and not isinstance(self.code, str) else []
        faults += [f"the word {word!r} holds a NUL" for word in words if "\0" in word]
        faults += [
            f"the variable {name!r}"
            for name, value in self.env.items()
            if not re.fullmatch(r"\w+", name) or "\0" in value
        ]
        if faults:
            raise BadInput.of("the sandbox cannot run this program:", faults)
        check_files(self.files, self.collect)


@dataclass(frozen=True)
class Outcome:
    """How a program ended.

    Attributes:
        status: ``ok`` (it returned 0), ``error`` (anything else), or the limit that it ran into: because it was ended
            for that, or failed and its last words on standard error say so.
        code: Exit code; minus the signal if one ended it.
        stdout: Standard output, at most `Sandbox.output_kb`.
        stderr: Standard error, likewise.
        result: What the program wrote to file descriptor 3, likewise: a way to hand back results that cannot be
            confused with what it prints.
        truncated: Whether one of these three was cut; the status is then ``output``.
        files: Collected files.
        left_out: Files that match `Program.collect` but are links, not regular, or too large.
        seconds: Wall clock, from the start of the program to its end.
        cpu_seconds: Of all its processes.
        peak_mb: Largest memory (resident) seen: of one process, or of all together at a look.
        level: The level it ran at.
        lacks: Guarantees that did not hold, with the reasons.
    """

    status: Status
    code: int
    stdout: bytes
    stderr: bytes
    result: bytes
    truncated: bool
    files: Mapping[str, bytes]
    left_out: Sequence[str]
    seconds: float
    cpu_seconds: float
    peak_mb: float
    level: Level
    lacks: Mapping[str, str]

    @property
    def ok(self) -> bool:
        """Whether the program returned 0 within all limits."""
        return self.status == "ok"

    @property
    def text(self) -> str:
        """Standard output as text; what is not UTF-8 is marked."""
        return self.stdout.decode(errors="replace")


@dataclass(frozen=True)
class Sandbox:
    """Limits for programs, and a place to run them.

    Args:
        seconds: Wall clock of one program.
        memory_mb: Memory of all its processes together, and data of each.
        files_mb: Each file it writes; all files together; each of its /tmp and /dev/shm; all it hands back.
        processes: Processes and threads at a time. Below the level of namespaces a burst may exceed it for a moment.
        output_kb: Each of standard output, standard error and descriptor 3.
        network: Leave it the network of the host.
        readable: Files and folders that it may read besides the system and this Python installation.
        allow_weaker: Accept a level that lacks some of `GUARANTEES`; see `lacks`.

    Raises:
        BadInput: for a limit that is not positive, or a readable path that does not exist.
    """

    seconds: float = 10.0
    memory_mb: int = 1024
    files_mb: int = 64
    processes: int = 64
    output_kb: int = 1024
    network: bool = False
    readable: Sequence[str | Path] = ()
    allow_weaker: bool = False

    def __post_init__(self) -> None:
        limits = ("seconds", "memory_mb", "files_mb", "processes", "output_kb")
        given = {name: getattr(self, name) for name in limits}
        faults = [
            f"{name} is {value}, and must be positive and below 1e9"
            for name, value in given.items()
            if not 0 < value < 1e9
        ]
        faults += [f"readable: {path} does not exist" for path in self.readable if not Path(path).exists()]
        own = [path for path in self.readable if str(Path(path).resolve()) in ("/", "/dev", "/proc", "/tmp")]
        faults += [f"readable: programs have a {path} of their own; name folders in it" for path in own]
        if faults:
            raise BadInput.of("the sandbox cannot be set up:", faults)

    @property
    def level(self) -> Level:
        """The strongest level that works on this machine; found by trying, once a process."""
        return _strength.strength().level

    @property
    def lacks(self) -> Mapping[str, str]:
        """The guarantees asked for that do not hold on this machine, with the reasons."""
        lacks = _strength.strength().lacks
        return {name: why for name, why in lacks.items() if not (name == "network" and self.network)}

    def check(self) -> None:
        """Refuse now what `run` would refuse: to be called before a long job.

        Raises:
            Unsupported: if a guarantee does not hold and `allow_weaker` is not set.
        """
        if self.allow_weaker or not self.lacks:
            return
        found = _strength.strength()
        why = f"this machine permits the level {found.level!r} only, which lacks"
        why = "\n".join([why, *(f"  {name} ({GUARANTEES[name]}): {reason}" for name, reason in self.lacks.items())])
        fix = "set allow_weaker to run programs without that"
        if refused := found.refused.get("namespaces"):
            fix += (
                f"; or permit user namespaces, which failed with {refused!r} (on Ubuntu: sysctl "
                "kernel.apparmor_restrict_unprivileged_userns=0; in Docker: --security-opt seccomp=unconfined "
                "--security-opt systempaths=unconfined)"
            )
        raise Unsupported("a sandbox that keeps all its promises", why, fix)

    def run(
        self,
        program: str | Sequence[str] | Program,
        *,
        stdin: str | bytes = b"",
        files: Mapping[str, Content] | None = None,
        env: Mapping[str, str] | None = None,
        collect: Sequence[str] = (),
    ) -> Outcome:
        """Run one program to its end, or to its limits. The arguments are those of `Program`.

        Raises:
            BadInput: see `Program`.
            Unsupported: see `check`.
        """
        if not isinstance(program, Program):
            program = Program(program, stdin, files or {}, env or {}, collect)
        self.check()
        return self._run(program, None)

    def run_many(self, programs: Iterable[str | Sequence[str] | Program], jobs: int | None = None) -> list[Outcome]:
        """Run programs, `jobs` at a time (default: one a core); the outcomes come in the order of the programs.

        Raises:
            BadInput, Unsupported: as `run` does, before the first program starts.
        """
        ready = [program if isinstance(program, Program) else Program(program) for program in programs]
        self.check()
        cancel = threading.Event()
        with ThreadPoolExecutor(jobs or os.cpu_count() or 1) as pool:
            try:
                return list(pool.map(lambda program: self._run(program, cancel), ready))
            except BaseException:  # Ctrl-C as well: end the programs that run, start no other
                cancel.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _run(self, program: Program, cancel: threading.Event | None) -> Outcome:
        found = _strength.strength()
        start = time.monotonic()
        with Workspace(found.spare_uid()) as space:
            space.put(program.files)
            argv = [*program.code]
            if isinstance(program.code, str):
                source = space.home / "program.py"
                source.write_bytes(as_bytes(program.code))
                # -s and -P, with the environment below, are what -I does; -I itself would ignore PYTHONHASHSEED.
                argv = ["python", "-s", "-P", str(source)]
            if argv[0] == "python":
                argv[0] = sys.executable
            space.hand_over()
            request: Request = {
                "level": found.level,
                "uid": space.uid,
                "network": self.network,
                "families": found.families(self.network, named=bool(self.readable)),
                "argv": argv,
                "env": {**_environment(space.home), **program.env},
                "base": str(space.base),
                "readable": view.readable(found.level, self.network, self.readable),
                "seconds": float(self.seconds),
                "memory": self.memory_mb << 20,
                "files": self.files_mb << 20,
                "processes": self.processes,
            }
            got = exchange(request, as_bytes(program.stdin), self.output_kb << 10, cancel)
            if "refused" in got.report:  # although it worked when the level was found
                raise Unsupported(f"a sandbox of level {found.level!r}", str(got.report["refused"]))
            files, left_out = space.collect(program.collect, self.files_mb << 20)
        report = {
            "code": -signal.SIGKILL,
            "seconds": time.monotonic() - start,
            "cpu_seconds": 0.0,
            "peak": 0,
            **got.report,
        }
        return Outcome(
            status=_status(got, report["seconds"] >= self.seconds),
            code=report["code"],
            stdout=got.streams["stdout"],
            stderr=got.streams["stderr"],
            result=got.streams["result"],
            truncated=got.overflow,
            files=files,
            left_out=left_out,
            seconds=report["seconds"],
            cpu_seconds=report["cpu_seconds"],
            peak_mb=report["peak"] / 2**20,
            level=found.level,
            lacks=self.lacks,
        )


def _environment(home: Path) -> dict[str, str]:
    """All variables that a program gets: none of the caller's."""
    return {
        "PATH": os.pathsep.join([os.path.dirname(sys.executable), "/usr/local/bin", "/usr/bin", "/bin"]),
        "HOME": str(home),
        "TMPDIR": str(home),
        "LANG": "C.UTF-8",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",  # numerical libraries start a thread for each core otherwise
    }


def _status(got: Exchange, late: bool) -> Status:
    if got.overflow:
        return "output"
    end, code = got.report.get("end"), got.report.get("code")
    if end in ("timeout", "memory", "files", "processes"):
        return end
    if end is None:  # the warden itself was killed, or does not answer
        return "timeout" if late else "error"
    if code == 0:
        return "ok"
    if code == -signal.SIGXCPU:
        return "timeout"
    if code == -signal.SIGXFSZ:
        return "files"
    last_words = got.streams["stderr"][-_TAIL:]
    return next((status for status, sign in _SIGNS.items() if sign.search(last_words)), "error")
