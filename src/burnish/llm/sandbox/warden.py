"""Run one program under limits, watch it, and leave none of its processes behind.

Runs in a child of the spawner (see ``__main__``), which at the level of namespaces is process 1 of a PID namespace of
its own. The standard library only.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import resource
import select
import signal
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn, TypedDict

if TYPE_CHECKING or __package__:
    from burnish.llm.sandbox import confine
else:
    import confine

TICK = 0.05
"""Seconds between two looks at what the program's processes use."""
OPEN_FILES = 512
SLACK_TASKS = 256
"""Where a user's other processes count towards RLIMIT_NPROC, room for those that start in the meantime."""
MAX_DEPTH = 64
MAX_ENTRIES = 100_000
"""Folders deeper, and trees larger, than this count as too many files."""


class Request(TypedDict):
    """What the sandbox asks for; travels as JSON."""

    level: str
    uid: int | None
    network: bool
    families: list[int]
    argv: list[str]
    env: dict[str, str]
    base: str
    readable: list[str]
    seconds: float
    memory: int
    files: int
    processes: int


class Descriptors:
    """The six open files that come with a request, moved out of the way of 0 to 3."""

    def __init__(self, received: list[int]) -> None:
        moved = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in received]
        for fd in received:
            os.close(fd)
        self.stdin, self.stdout, self.stderr, self.result, self.report, self.leash = moved

    def tell(self, **facts: object) -> None:
        """One line of JSON to the sandbox."""
        with suppress(BrokenPipeError):
            os.write(self.report, json.dumps(facts).encode() + b"\n")


def serve(request: Request, received: list[int]) -> None:
    """Confine this process as `request` says, run the program in a child, and report how it ended."""
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    fds = Descriptors(received)
    try:
        if request["level"] == "namespaces":
            confine.enter_namespaces(request["uid"], request["network"])
            if first := os.fork():
                os.waitpid(first, 0)
                return
            confine.die_with_parent()
            base = request["base"]
            confine.build_root(f"{base}/root", request["readable"], writable(request), request["files"])
        else:
            confine.adopt_orphans()
        watch(request, fds)
    except (confine.Refused, OSError) as error:
        fds.tell(refused=str(error))


def writable(request: Request) -> tuple[str, str]:
    """The folders that the program may write: its working folder, and its home and folder for temporary files."""
    return f"{request['base']}/work", f"{request['base']}/home"


def watch(request: Request, fds: Descriptors) -> None:
    """Start the program and wait until it ends, uses too much, or the leash moves; then end all its processes.

    The report is ``end`` (exit, stopped, timeout, memory, processes or files), ``code`` (of the program; minus the
    signal), ``seconds``, ``cpu_seconds`` and ``peak`` (bytes).
    """
    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waker)
    limits = _limits(request)
    tree = _Tree(request)
    start = time.monotonic()
    program = os.fork()
    if program == 0:
        _become(request, limits, fds)
    for fd in (fds.stdin, fds.stdout, fds.stderr, fds.result):
        os.close(fd)
    end, code = "", None
    while not end:
        left = start + request["seconds"] - time.monotonic()
        ready = select.select([wake, fds.leash], [], [], max(0.0, min(TICK, left)))[0]
        if wake in ready:
            os.read(wake, 4096)
            code = _reap(program)
        if code is not None:
            end = "exit"
        elif fds.leash in ready:
            end = "stopped"
        elif time.monotonic() >= start + request["seconds"]:
            end = "timeout"
        else:
            end = tree.excess()
    seconds = time.monotonic() - start
    tree.kill(program)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    largest = used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    fds.tell(
        end=end,
        code=-signal.SIGKILL if code is None else code,
        seconds=seconds,
        cpu_seconds=used.ru_utime + used.ru_stime,
        peak=max(tree.peak, largest),
    )


def _reap(program: int) -> int | None:
    """Collect every ended child; the exit code if the program itself is among them."""
    code = None
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == program:
                code = os.waitstatus_to_exitcode(ended[1])
    return code


def _limits(request: Request) -> dict[int, int]:
    """Resource limits of each single process of the program."""
    limits = {
        # Only a stop for processes that outlive their watcher: the wall clock ends the others first.
        resource.RLIMIT_CPU: math.ceil(request["seconds"]) * (os.cpu_count() or 1) + 1,
        resource.RLIMIT_FSIZE: request["files"],
        resource.RLIMIT_NOFILE: OPEN_FILES,
        resource.RLIMIT_CORE: 0,
        # Not the address space: threads and numerical libraries reserve far more of it than they use.
        resource.RLIMIT_DATA: request["memory"],
    }
    if confine.LINUX:
        if request["uid"] is not None:
            others = 0  # nobody else is this user
        elif request["level"] == "namespaces":
            others = 2  # a user namespace counts for itself: this process and its parent
        else:
            others = _tasks_of(os.getuid()) + SLACK_TASKS
        limits[resource.RLIMIT_NPROC] = request["processes"] + others
    return limits


def _tasks_of(uid: int) -> int:
    """Threads that a user runs now."""
    count = 0
    for name in os.listdir("/proc"):
        with suppress(OSError):
            if name.isdigit() and os.stat(f"/proc/{name}").st_uid == uid:
                count += len(os.listdir(f"/proc/{name}/task"))
    return count


def _become(request: Request, limits: dict[int, int], fds: Descriptors) -> NoReturn:
    """In the child: set the limits, give up all rights, and turn into the program."""
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):  # what Python itself had set
            signal.signal(number, signal.SIG_DFL)
        for place, fd in enumerate((fds.stdin, fds.stdout, fds.stderr, fds.result)):
            os.dup2(fd, place, inheritable=True)
        with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")  # where memory runs out after all, the program goes first
        os.chdir(writable(request)[0])
        for kind, limit in limits.items():
            hard = resource.getrlimit(kind)[1]
            if hard != resource.RLIM_INFINITY:
                limit = min(limit, hard)
            resource.setrlimit(kind, (limit, limit))
        confine.drop_privileges(request["uid"])
        confine.die_with_parent()
        if request["level"] == "landlock":
            confine.restrict_files(request["readable"], writable(request))
        if request["level"] != "process":
            # Other users' files, and files of other mounts, are safe from it anyway.
            marks = request["level"] == "namespaces" or request["uid"] is not None
            confine.restrict_calls(request["families"], marks)
    except BaseException as error:
        fds.tell(refused=str(error))
        os._exit(126)
    try:
        os.execvpe(request["argv"][0], request["argv"], request["env"])
    except Exception as error:  # a name that cannot be encoded is as good as one that does not exist
        os.write(2, f"cannot run {request['argv'][0]!a}: {error}\n".encode())
    os._exit(127)


class _Tree:
    """All processes of the program: what they use, and their end."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.alone = request["level"] == "namespaces"  # nobody else is in this PID namespace
        self.peak = 0
        self.page = os.sysconf("SC_PAGE_SIZE")
        self.next_walk = 0.0

    def pids(self) -> list[int]:
        if self.alone:
            return [int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1"]
        found = [os.getpid()]
        for pid in found:  # grows while it is walked
            with suppress(OSError):
                for task in os.listdir(f"/proc/{pid}/task"):
                    with open(f"/proc/{pid}/task/{task}/children") as file:
                        found.extend(int(child) for child in file.read().split())
        return found[1:]

    def excess(self) -> str:
        """Which limit the processes exceed together, if any."""
        pids = self.pids()
        resident = sum(self._resident(pid) for pid in pids)
        unnamed = self._unnamed(pids)
        # Pages shared after a fork are counted more than once above: look closely only when it matters.
        if resident > self.request["memory"]:
            resident = sum(self._proportional(pid) for pid in pids)
        self.peak = max(self.peak, resident)
        if resident > self.request["memory"]:
            return "memory"
        tasks = 0
        for pid in pids:
            with suppress(OSError):
                tasks += len(os.listdir(f"/proc/{pid}/task"))
        if tasks > self.request["processes"]:
            return "processes"
        now = time.monotonic()
        if unnamed > self.request["files"]:
            return "files"
        if now >= self.next_walk:
            if not self._folders_fit(self.request["files"] - unnamed):
                return "files"
            took = time.monotonic() - now
            self.next_walk = now + took + max(5 * TICK, 20 * took)
        return ""

    def _resident(self, pid: int) -> int:
        try:
            with open(f"/proc/{pid}/statm") as file:
                return int(file.read().split()[1]) * self.page
        except (OSError, IndexError):
            return 0

    def _proportional(self, pid: int) -> int:
        try:
            with open(f"/proc/{pid}/smaps_rollup") as file:
                return next(int(line.split()[1]) for line in file if line.startswith("Pss:")) * 1024
        except (OSError, StopIteration):
            return self._resident(pid)

    def _unnamed(self, pids: list[int]) -> int:
        """Bytes of open files without a name: deleted ones, and memory files."""
        sizes = {}
        for pid in pids:
            with suppress(OSError):
                for name in os.listdir(f"/proc/{pid}/fd"):
                    about = os.stat(f"/proc/{pid}/fd/{name}")
                    if stat.S_ISREG(about.st_mode) and about.st_nlink == 0:
                        sizes[about.st_dev, about.st_ino] = about.st_blocks * 512
        return sum(sizes.values())

    def _folders_fit(self, room: int) -> bool:
        """Whether the program's folders hold at most `room` bytes, in a tree of bearable shape."""
        for entries, blocks in enumerate(_blocks([(path, 0) for path in writable(self.request)])):
            room -= blocks * 512
            if room < 0 or entries >= MAX_ENTRIES:
                return False
        return True

    def kill(self, program: int) -> None:
        """End every process of the tree, and wait for all of them."""
        give_up = time.monotonic() + 5
        while time.monotonic() < give_up:
            with suppress(OSError):
                if self.alone:
                    os.kill(-1, signal.SIGKILL)
                else:
                    os.killpg(program, signal.SIGKILL)
            if confine.LINUX and not self.alone:
                for pid in self.pids():
                    with suppress(OSError):
                        os.kill(pid, signal.SIGKILL)
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                return
            time.sleep(0.001)


def _blocks(folders: list[tuple[str, int]]) -> Iterator[int]:
    """Disk blocks of each entry below some folders; a folder that is too deep has infinitely many."""
    while folders:
        path, depth = folders.pop()
        if depth > MAX_DEPTH:
            yield sys.maxsize
        with suppress(OSError), os.scandir(path) as entries:
            for entry in entries:
                with suppress(OSError):
                    yield entry.stat(follow_symlinks=False).st_blocks
                    if entry.is_dir(follow_symlinks=False):
                        folders.append((entry.path, depth + 1))
