"""Limits of the sandbox: each is attacked by a program that would get through without it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from sandboxes import (
    LINUX,
    box,
    each_level,  # noqa: F401  a fixture
    needs,
    run,
    use,
)


def alive(marker: str) -> list[int]:
    """Processes of this machine with `marker` in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
                if state != "Z" and marker.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except (OSError, IndexError):
                continue
    return found


def wait_for(condition: Callable[[], object], what: str, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.02)


# -- time, and the end of all processes --------------------------------------------------------------------------------


def test_an_endless_loop_ends(level: str) -> None:
    outcome = run(
        """
        import signal
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM, signal.SIGXCPU):
            signal.signal(number, signal.SIG_IGN)
        while True:
            pass
        """,
        sandbox=box(seconds=0.5),
    )
    assert outcome.status == "timeout", outcome
    assert 0.5 <= outcome.seconds < 15


SURVIVOR = """
import os, time
read, write = os.pipe()
os.set_inheritable(write, True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        os.execvp("sh", ["sh", "-c", f"echo >&{write}; exec {write}>&-; sleep 20 # MARKER"])
    os._exit(0)
os.wait()
os.read(read, 1)
print("born")
"""


@pytest.mark.skipif(not LINUX, reason="needs /proc")
@pytest.mark.parametrize("then", ["", "time.sleep(20)"])
def test_no_process_outlives_the_run(level: str, then: str) -> None:
    needs("tree")
    marker = uuid.uuid4().hex
    outcome = run(SURVIVOR.replace("MARKER", marker) + then, sandbox=box(seconds=1 if then else 20))
    assert (outcome.status, outcome.text) == (("timeout", "") if then else ("ok", "born\n")), outcome
    assert alive(marker) == []


@pytest.mark.skipif(not LINUX, reason="needs /proc")
def test_the_survivor_survives_without_the_sandbox() -> None:
    marker = uuid.uuid4().hex
    subprocess.run([sys.executable, "-c", SURVIVOR.replace("MARKER", marker)], stdout=subprocess.DEVNULL, check=True)
    survivors = alive(marker)
    for pid in survivors:
        os.kill(pid, signal.SIGKILL)
    assert survivors


@pytest.mark.skipif(not LINUX, reason="needs /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_programs_end_with_their_caller(number: signal.Signals, tmp_path: Path) -> None:
    marker = uuid.uuid4().hex
    script = f"""
        from burnish.llm.sandbox import Sandbox
        box = Sandbox(seconds=100, allow_weaker=True)
        box.run_many([["sh", "-c", "sleep 100; # {marker}"]] * 3, jobs=2)
    """
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stderr=subprocess.PIPE, env=env) as caller:
        try:
            wait_for(lambda: len({*alive("# " + marker)} - {caller.pid}) == 2, "the programs did not start")
            caller.send_signal(number)
            _, errors = caller.communicate(timeout=60)
        finally:
            caller.kill()
    wait_for(lambda: not alive("# " + marker), "the programs did not end")
    wait_for(lambda: not os.listdir(tmp_path), "folders were left behind")
    assert number == signal.SIGKILL or b"KeyboardInterrupt" in errors
    assert caller.returncode == -number


# -- memory, processes, output, files ----------------------------------------------------------------------------------

HOGS = {
    "one process": "block = bytearray(SIZE)",
    "several processes": """
for _ in range(4):
    if os.fork() == 0:
        block = b"x" * (SIZE // 4)
        time.sleep(HOLD)
        os._exit(0)
for _ in range(4):
    os.wait()
""",
    "shared memory": "import mmap; block = mmap.mmap(-1, SIZE); block.write(b'x' * SIZE); time.sleep(HOLD)",
}


@pytest.mark.parametrize("hog", HOGS)
def test_memory_is_limited(level: str, hog: str) -> None:
    needs("memory")
    code = "import os, time\nSIZE = 96 << 20\nHOLD = {}\n" + HOGS[hog]
    outcome = run(code.format(10), sandbox=box(memory_mb=64))
    assert outcome.status == "memory", outcome
    assert outcome.seconds < 10
    outcome = run(code.format(0.2), sandbox=box(memory_mb=400))
    assert outcome.ok, outcome
    assert outcome.peak_mb >= 96 / (1 if hog != "several processes" else 4)


FORKS = """
import os, sys, time
born = 0
try:
    while born < 60:
        if os.fork() == 0:
            time.sleep(HOLD)
            os._exit(0)
        born += 1
finally:
    print(born, flush=True)
    time.sleep(0.3)
"""


def test_processes_are_limited(level: str) -> None:
    needs("tree")
    limited = run(FORKS.replace("HOLD", "1"), sandbox=box(processes=20))
    assert limited.status == "processes", limited
    if level == "namespaces":
        assert int(limited.text) < 20
    free = run(FORKS.replace("HOLD", "0.2"), sandbox=box(processes=70))
    assert (free.status, free.text) == ("ok", "60\n")


def test_threads_count_as_processes(level: str) -> None:
    needs("tree")
    code = """
        import threading, time
        threads = [threading.Thread(target=time.sleep, args=(5,), daemon=True) for _ in range(40)]
        for thread in threads:
            thread.start()
        time.sleep(0.2)
    """
    assert run(code, sandbox=box(processes=20)).status == "processes"
    assert run(code, sandbox=box(processes=60)).ok


@pytest.mark.parametrize("stream", [1, 2, 3])
def test_output_is_limited(level: str, stream: int) -> None:
    code = f"import os\nfor _ in range(1 << 14): os.write({stream}, b'x' * (1 << 16))"  # one gigabyte
    outcome = run(code, sandbox=box(output_kb=100))
    assert (outcome.status, outcome.truncated) == ("output", True)
    assert [len(outcome.stdout), len(outcome.stderr), len(outcome.result)][stream - 1] == 100 << 10


def test_output_just_within_its_limit_is_whole(level: str) -> None:
    outcome = run("print('x' * ((100 << 10) - 1))", sandbox=box(output_kb=100))
    assert (outcome.status, len(outcome.stdout), outcome.truncated) == ("ok", 100 << 10, False)


FILES = {
    "one big": "open('big', 'wb').write(bytes(20 << 20))",
    "many": "for i in range(5): open(f'{i}', 'wb').write(bytes(4 << 20))",
    "deleted": """
held = []
for i in range(5):
    held.append(open(f"{i}", "wb", buffering=0))
    held[-1].write(bytes(4 << 20))
    os.unlink(f"{i}")
""",
    "in memory": "held = [os.memfd_create('x') for _ in range(5)]\nfor fd in held: os.write(fd, bytes(4 << 20))",
}


@pytest.mark.parametrize("kind", FILES)
def test_files_are_limited(level: str, kind: str) -> None:
    if kind in ("deleted", "in memory"):
        needs("tree")
    code = "import os, time\n" + FILES[kind] + "\ntime.sleep(HOLD)"
    outcome = run(code.replace("HOLD", "10"), sandbox=box(files_mb=10))
    assert outcome.status == "files", outcome
    assert run(code.replace("HOLD", "0.1"), sandbox=box(files_mb=30)).ok


def test_private_scratch_space_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    use("namespaces", monkeypatch)
    code = "import sys\nfor i in range(5): open(f'{sys.argv[1]}/{i}', 'wb').write(bytes(4 << 20))"
    for folder in ("/tmp", "/dev/shm"):
        argv = ["python", "-c", code, folder]
        full = box(files_mb=10).run(argv)
        assert full.status == "files", full
        assert box(files_mb=30).run(argv).ok
        assert not Path(folder, "0").exists()
