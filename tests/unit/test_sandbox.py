"""The sandbox: each limit is attacked by a program that would get through without it.

Attacks are bounded, so that a sandbox that fails harms nobody. Most run at each level that works on this machine; what
a level does not promise is attacked there to show that the attack is real.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.core.errors import BadInput, Unsupported
from burnish.llm.sandbox import Outcome, Program, Sandbox, spawner, strength, workspace

LINUX = sys.platform == "linux"
WALLS = ("namespaces", "landlock")


@pytest.fixture(scope="session")
def strengths() -> dict[str, strength.Strength | str]:
    return {level: strength.at(level) for level in strength.levels()}


def use(level: str, strengths: dict[str, strength.Strength | str], monkeypatch: pytest.MonkeyPatch) -> str:
    found = strengths.get(level, "this kind of system has no such level")
    if isinstance(found, str):
        pytest.skip(f"no {level} here: {found}")
    monkeypatch.setattr(strength, "strength", lambda: found)
    return level


@pytest.fixture(params=["namespaces", "landlock", "process"])
def level(
    request: pytest.FixtureRequest, strengths: dict[str, strength.Strength | str], monkeypatch: pytest.MonkeyPatch
) -> str:
    """Each level that works here."""
    return use(request.param, strengths, monkeypatch)


@pytest.fixture(params=WALLS)
def walls(
    request: pytest.FixtureRequest, strengths: dict[str, strength.Strength | str], monkeypatch: pytest.MonkeyPatch
) -> str:
    """Each level that has walls."""
    return use(request.param, strengths, monkeypatch)


@pytest.fixture
def unwalled(strengths: dict[str, strength.Strength | str], monkeypatch: pytest.MonkeyPatch) -> Callable[[], str]:
    """Switches to the level without walls, to show that an attack is real."""
    return lambda: use("process", strengths, monkeypatch)


@pytest.fixture
def outside() -> Iterator[Path]:
    """A folder of the host that every user may read and write; not below the folder for temporary files."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="outside-") as name:
        folder = Path(name)
        folder.chmod(0o777)
        (folder / "secret.txt").write_text("the secret")
        (folder / "secret.txt").chmod(0o666)
        yield folder


def box(**limits: object) -> Sandbox:
    return Sandbox(**{"seconds": 20.0, "allow_weaker": True, **limits})  # type: ignore[arg-type]


def run(code: str, *, sandbox: Sandbox | None = None, **given: object) -> Outcome:
    return (sandbox or box()).run(textwrap.dedent(code), **given)  # type: ignore[arg-type]


def needs(promise: str) -> None:
    if why := strength.strength().lacks.get(promise):
        pytest.skip(f"{promise} is not promised here: {why}")


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


def wait_for(condition: Callable[[], object], what: str, seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.02)


# -- what a well-behaved program gets ----------------------------------------------------------------------------------


def test_a_program_gets_its_input_and_hands_back_everything(level: str) -> None:
    outcome = run(
        """
        import os, sys
        print(sys.stdin.read().upper())
        print("trouble", file=sys.stderr)
        os.write(3, b"result")
        open("out/answer.txt", "w").write(open("data/in.txt").read() * 2)
        """,
        stdin="hello",
        files={"data/in.txt": "ab", "out/old.bin": b"\x00"},
        collect=["out/*.txt"],
    )
    assert (outcome.status, outcome.code, outcome.text) == ("ok", 0, "HELLO\n"), outcome
    assert (outcome.stderr, outcome.result, outcome.files) == (b"trouble\n", b"result", {"out/answer.txt": b"abab"})
    assert outcome.ok
    assert not outcome.truncated
    assert outcome.level == level
    assert outcome.cpu_seconds > 0
    assert 0 < outcome.seconds < 20
    assert 1 < outcome.peak_mb < 200


def test_the_exit_code_tells_how_a_program_ended(level: str) -> None:
    expected: list[tuple[str | list[str], str, int]] = [
        ("raise SystemExit(3)", "error", 3),
        ("1 / 0", "error", 1),
        ("import os; os._exit(0)", "ok", 0),
        ("import os; os.kill(os.getpid(), 11)", "error", -11),
        (["no-such-program"], "error", 127),
        (["sh", "-c", "exit 4"], "error", 4),
        ("def f(", "error", 1),
        ("print('\ud800')", "error", 1),
        (["\ud800"], "error", 127),
        ("", "ok", 0),
    ]
    outcomes = box().run_many([code for code, _, _ in expected])
    assert [(outcome.status, outcome.code) for outcome in outcomes] == [tuple(rest) for _, *rest in expected]


def test_python_is_isolated_and_the_same_each_time(level: str) -> None:
    code = "import sys; print(hash('a'), sys.flags.no_user_site, sys.flags.safe_path)\nimport mine"
    first, second = run(code, files={"mine.py": ""}), run(code, files={"mine.py": ""}, env={"PYTHONPATH": "."})
    assert first.text == second.text
    assert first.text.split()[1:] == ["1", "True"]
    assert b"No module named 'mine'" in first.stderr
    assert second.ok


def test_files_and_folders_of_the_caller_are_copied(level: str, tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "pkg").mkdir(parents=True)
    (project / "pkg" / "a.py").write_text("print('a')")
    (project / "link.py").symlink_to("pkg/a.py")
    outcome = box().run(["python", "p/link.py"], files={"p": project, "p/pkg/b.py": "", "c.py": project / "pkg/a.py"})
    assert outcome.text == "a\n", outcome
    assert not (project / "pkg" / "b.py").exists()


def test_run_many_keeps_the_order(level: str) -> None:
    programs = [f"import time; time.sleep({0.2 if i == 0 else 0}); print({i})" for i in range(5)]
    outcomes = box().run_many([*programs, Program(["cat"], stdin="5\n")], jobs=3)
    assert [outcome.text for outcome in outcomes] == [f"{i}\n" for i in range(6)]


def test_nothing_but_the_streams_is_open(level: str) -> None:
    code = "import os\nfor fd in range(4096):\n try: os.fstat(fd); print(fd)\n except OSError: pass"
    assert run(code).text.split() == ["0", "1", "2", "3"]


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
    caller = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stderr=subprocess.PIPE)
    others = {caller.pid}
    try:
        wait_for(lambda: len({*alive("# " + marker)} - others) == 2, "the programs did not start")
        caller.send_signal(number)
        _, errors = caller.communicate(timeout=20)
        wait_for(lambda: not alive("# " + marker), "the programs did not end")
    finally:
        caller.kill()
        caller.wait()
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
    if "processes" not in limited.lacks:
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


def test_private_scratch_space_is_limited(strengths: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    use("namespaces", strengths, monkeypatch)  # type: ignore[arg-type]
    code = "import sys\nfor i in range(5): open(f'{sys.argv[1]}/{i}', 'wb').write(bytes(4 << 20))"
    for folder in ("/tmp", "/dev/shm"):
        argv = ["python", "-c", code, folder]
        full = box(files_mb=10).run(argv)
        assert full.status == "files", full
        assert box(files_mb=30).run(argv).ok
        assert not Path(folder, "0").exists()


# -- secrets, files outside, network, other processes ------------------------------------------------------------------


def test_the_environment_is_not_inherited(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    outcome = run("import json, os; print(json.dumps(dict(os.environ)))", env={"GIVEN": "1"})
    given = json.loads(outcome.text)
    allowed = {
        "PATH",
        "HOME",
        "TMPDIR",
        "LANG",
        "PYTHONHASHSEED",
        "PYTHONDONTWRITEBYTECODE",
        "OMP_NUM_THREADS",
        "GIVEN",
    }
    assert set(given) - {"LC_CTYPE", "__CF_USER_TEXT_ENCODING"} == allowed
    assert given["HOME"] != os.environ.get("HOME")


SCAN = """
import os
for name in os.listdir("/proc"):
    if name.isdigit():
        for part in ("environ", "cmdline"):
            try:
                if b"sk-SECRET" in open(f"/proc/{name}/{part}", "rb").read():
                    print("found in", part)
            except OSError:
                pass
"""


@pytest.mark.skipif(not LINUX, reason="needs /proc")
def test_environments_of_other_processes_are_hidden(walls: str) -> None:
    holder = subprocess.Popen(["sleep", "20"], env={"KEY": "sk-" + "SECRET", "PATH": os.environ["PATH"]})
    try:
        # Put together inside the program, so that it does not find its own command line.
        code = SCAN.replace('b"sk-SECRET"', '(b"sk-" + b"SECRET")')
        assert run(code).text == ""
        assert subprocess.check_output([sys.executable, "-c", code]) == b"found in environ\n"
    finally:
        holder.kill()
        holder.wait()


READS = """
import os, sys
place = sys.argv[1]
os.symlink(place, "link")
for what in (
    lambda: open(f"{place}/secret.txt").read(),
    lambda: open("link/secret.txt").read(),
    lambda: open(f"/proc/self/cwd/link/secret.txt").read(),
    lambda: open(f"/proc/1/root{place}/secret.txt").read(),
    lambda: os.listdir(place),
    lambda: os.link(f"{place}/secret.txt", "copy") or open("copy").read(),
):
    try:
        print(what())
    except OSError:
        pass
"""


def test_files_outside_cannot_be_read(walls: str, outside: Path, unwalled: Callable[[], str]) -> None:
    argv = ["python", "-c", READS, str(outside)]
    outcome = box().run(argv)
    assert (outcome.status, outcome.text) == ("ok", ""), outcome
    assert "the secret" in box(readable=[outside]).run(argv).text
    unwalled()
    assert "the secret" in box().run(argv).text


def test_the_home_of_the_user_cannot_be_listed(walls: str) -> None:
    needs("reads")
    home = Path.home()
    shown = set(
        run(f"import os\ntry: print(*os.listdir({str(home)!r}), sep='\\n')\nexcept OSError: pass").text.split("\n")
    )
    roots = {sys.prefix, sys.base_prefix}
    assert {name for name in shown if name and not any(root.startswith(str(home / name)) for root in roots)} == set()


WRITES = """
import os, shutil, sys
place = sys.argv[1]
done = 0
for what in (
    lambda: open(f"{place}/secret.txt", "a").write("changed"),
    lambda: open(f"{place}/new.txt", "w").write("new"),
    lambda: os.truncate(f"{place}/secret.txt", 0),
    lambda: os.mkdir(f"{place}/folder"),
    lambda: os.symlink("x", f"{place}/link"),
    lambda: os.mkfifo(f"{place}/fifo"),
    lambda: (open("mine", "w").close(), os.rename("mine", f"{place}/mine")),
    lambda: os.rename(f"{place}/secret.txt", "taken"),
    lambda: os.unlink(f"{place}/secret.txt"),
    lambda: (os.symlink(place, "way"), open("way/secret.txt", "w")),
):
    try:
        what()
        done += 1
    except OSError as error:
        print(error, file=sys.stderr)
print(done)
"""


@pytest.mark.parametrize("readable", [False, True])
def test_files_outside_cannot_be_changed(
    walls: str, outside: Path, unwalled: Callable[[], str], readable: bool
) -> None:
    needs("writes")
    argv = ["python", "-c", WRITES, str(outside)]
    outcome = box(readable=[outside] if readable else []).run(argv)
    assert (outcome.status, outcome.text) == ("ok", "0\n"), outcome
    assert {path.name: path.read_text() for path in outside.iterdir()} == {"secret.txt": "the secret"}
    unwalled()
    assert int(box().run(argv).text) >= 6
    assert (outside / "secret.txt").read_text() != "the secret"


@pytest.mark.parametrize("readable", [False, True])
def test_modes_and_times_of_files_outside_stay(
    walls: str, outside: Path, unwalled: Callable[[], str], readable: bool
) -> None:
    needs("writes")
    code = """
        import os, sys
        for what in (
            lambda: os.chmod(sys.argv[1], 0o640),
            lambda: os.chmod(os.open(sys.argv[1], os.O_RDONLY), 0o640),
            lambda: os.utime(sys.argv[1], (1, 2)),
            lambda: os.setxattr(sys.argv[1], "user.mark", b"1"),
        ):
            try:
                what()
            except OSError:
                pass
    """
    secret = outside / "secret.txt"
    os.chown(secret, os.getuid(), os.getgid())
    before = secret.stat()
    argv = ["python", "-c", textwrap.dedent(code), str(secret)]
    assert box(readable=[outside] if readable else []).run(argv).ok
    after = secret.stat()
    assert (after.st_mode, after.st_mtime, os.listxattr(secret)) == (before.st_mode, before.st_mtime, [])
    unwalled()
    if not strength.strength().as_other:
        assert box().run(argv).ok
        assert (stat.S_IMODE(secret.stat().st_mode), secret.stat().st_mtime) == (0o640, 2)


def test_the_system_and_python_cannot_be_changed(walls: str) -> None:
    needs("writes")
    mark = f"mark-{uuid.uuid4().hex}"
    places = ["/usr", "/etc", "/", "/var/tmp", "/dev", sys.prefix, str(Path(os.__file__).parent), "/proc/sys/kernel"]
    code = f"""
        for place in {places!r}:
            try:
                open(f"{{place}}/{mark}", "w").close()
                print(place)
            except OSError:
                pass
    """
    assert run(code).text == ""
    assert not any(Path(place, mark).exists() for place in places)


TALK = """
import json, os, socket, sys
where = json.loads(sys.argv[1])
for name, family, kind, address in where:
    if isinstance(address, list):
        address = tuple(address)
    try:
        with socket.socket(getattr(socket, family), getattr(socket, kind)) as sock:
            sock.settimeout(2)
            sock.connect(address)
            sock.sendall(b"hello")
            if sock.recv(5) == b"HELLO":
                print(name)
    except OSError as error:
        print(name, error, file=sys.stderr)
"""


@pytest.fixture
def servers(outside: Path, socket_enabled: None) -> Iterator[list[tuple[str, str, str, object]]]:
    """Echoes in capitals: on TCP, UDP, a unix socket in a file and, on Linux, one in the abstract name space."""
    listening = []
    where: list[tuple[str, str, str, object]] = []
    unix: list[tuple[str, str]] = [("unix", str(outside / "socket"))]
    if LINUX:
        unix.append(("abstract", f"\0burnish-{uuid.uuid4().hex}"))
    for name, kind in (("tcp", "SOCK_STREAM"), ("udp", "SOCK_DGRAM")):
        sock = socket.socket(socket.AF_INET, getattr(socket, kind))
        sock.bind(("127.0.0.1", 0))
        listening.append(sock)
        where.append((name, "AF_INET", kind, sock.getsockname()))
    for name, address in unix:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.bind(address)
        listening.append(sock)
        where.append((name, "AF_UNIX", "SOCK_STREAM", address))
    (outside / "socket").chmod(0o777)

    def serve(sock: socket.socket) -> None:
        while True:
            try:
                if sock.type == socket.SOCK_DGRAM:
                    data, peer = sock.recvfrom(5)
                    sock.sendto(data.upper(), peer)
                    if data == b"stop":
                        return
                else:
                    peer_socket, _ = sock.accept()
                    with peer_socket:
                        data = peer_socket.recv(5)
                        if not data:
                            return
                        peer_socket.sendall(data.upper())
            except OSError:
                continue

    threads = []
    for sock in listening:
        if sock.type == socket.SOCK_STREAM:
            sock.listen()
        threads.append(threading.Thread(target=serve, args=(sock,)))
        threads[-1].start()
    yield where
    for sock, thread in zip(listening, threads, strict=True):
        with socket.socket(sock.family, sock.type) as last:
            last.connect(sock.getsockname())
            if sock.type == socket.SOCK_DGRAM:
                last.send(b"stop")
        thread.join()
        sock.close()


def test_the_network_is_out_of_reach(walls: str, servers: list[tuple[str, str, str, object]], outside: Path) -> None:
    needs("network")
    argv = ["python", "-c", TALK, json.dumps(servers)]
    for readable in ([], [outside]):
        assert box(readable=readable).run(argv).text == ""
    allowed = box(readable=[outside], network=True).run(argv)
    assert {"tcp", "udp"} <= set(allowed.text.split()), allowed


def test_sockets_reach_the_host_without_walls(
    servers: list[tuple[str, str, str, object]], unwalled: Callable[[], str]
) -> None:
    unwalled()
    reached = box().run(["python", "-c", TALK, json.dumps(servers)])
    assert reached.text.split() == [name for name, *_ in servers], reached


def test_sockets_that_no_namespace_holds_cannot_be_opened(walls: str) -> None:
    code = """
        import socket
        for family, kind in ((socket.AF_VSOCK, socket.SOCK_STREAM), (socket.AF_ALG, socket.SOCK_SEQPACKET)):
            try:
                socket.socket(family, kind)
                print("opened")
            except OSError:
                pass
    """
    if b"opened" not in subprocess.check_output([sys.executable, "-c", textwrap.dedent(code)]):
        pytest.skip("this machine has no such sockets")
    for network in (False, True):
        assert run(code, sandbox=box(network=network)).text == ""


def test_memory_that_outlives_programs_cannot_be_made(walls: str) -> None:
    code = """
        import ctypes
        libc = ctypes.CDLL(None)
        semaphore, memory = libc.semget(0, 1, 0o600), libc.shmget(0, 4096, 0o600)
        print(semaphore != -1, memory != -1)
        libc.semctl(semaphore, 0, 0)
        libc.shmctl(memory, 0, None)
    """
    assert run(code).text == "False False\n"
    assert subprocess.check_output([sys.executable, "-c", textwrap.dedent(code)]) == b"True True\n"


def test_a_program_may_talk_to_itself(strengths: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    use("namespaces", strengths, monkeypatch)  # type: ignore[arg-type]
    outcome = run("""
        import multiprocessing, socket
        server = socket.create_server(("127.0.0.1", 8000))
        client = socket.create_connection(("127.0.0.1", 8000))
        print(server.accept()[0].send(b"hello"), client.recv(5))
        with multiprocessing.Manager() as manager:
            print(manager.list([1, 2]))
    """)
    assert outcome.text == "5 b'hello'\n[1, 2]\n", outcome


KILL = """
import os, signal, sys
for pid in map(int, sys.argv[1:]):
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError as error:
        print(error, file=sys.stderr)
print("alive")
"""


def test_other_processes_cannot_be_killed(walls: str, unwalled: Callable[[], str]) -> None:
    needs("signals")
    victim = subprocess.Popen(["sleep", "30"])
    try:
        argv = ["python", "-c", KILL, str(victim.pid)]
        assert box().run(argv).text == "alive\n"
        assert victim.poll() is None
        unwalled()
        if "signals" in strength.strength().lacks:
            box().run(argv)
            assert victim.wait(10) == -signal.SIGKILL
    finally:
        victim.kill()
        victim.wait()


def test_a_program_cannot_escape_by_killing_its_watcher(walls: str) -> None:
    needs("signals")
    outcome = run("""
        import os, signal
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
            try:
                os.kill(os.getppid(), number)
            except OSError:
                pass
        print("alive")
    """)
    assert (outcome.status, outcome.text) == ("ok", "alive\n"), outcome


def test_a_killed_watcher_is_an_outcome(unwalled: Callable[[], str]) -> None:
    unwalled()
    if "signals" not in strength.strength().lacks:
        pytest.skip("the watcher cannot be killed here")
    outcome = run("import os; os.kill(os.getppid(), 9)")
    assert (outcome.status, outcome.code) == ("error", -9)
    assert run("print(1)").text == "1\n"


def test_privileges_are_gone(walls: str) -> None:
    outcome = run("""
        import ctypes, os
        libc = ctypes.CDLL(None, use_errno=True)
        print([line.split()[1] for line in open("/proc/self/status") if line.startswith(("CapPrm", "CapEff", "NoNewP"))])
        print(libc.mount(b"tmpfs", b".", b"tmpfs", 0, None))
        for flag in (0x20000, 0x40000000, 0x10000000):  # new mount, network, user namespaces
            print(libc.unshare(flag))
    """)  # fmt: skip
    lines = outcome.text.splitlines()
    assert lines[0] == "['0000000000000000', '0000000000000000', '1']", outcome
    assert lines[1:4] == ["-1", "-1", "-1"]
    if walls == "namespaces":
        assert lines[4] == "-1"


# -- what goes in and comes out ----------------------------------------------------------------------------------------


def test_collecting_follows_no_link(level: str, outside: Path, unwalled: Callable[[], str]) -> None:
    outcome = run(
        f"""
        import os
        os.symlink("{outside}/secret.txt", "link")
        os.symlink("{outside}", "folder")
        os.mkfifo("fifo")
        os.makedirs("deep/er")
        open("deep/er/file", "w").write("mine")
        open("twice", "w").close()
        os.link("twice", "again")
        os.symlink("deep/er/file", "inside")
        """,
        collect=["*"],
    )
    assert outcome.ok, outcome
    assert outcome.files == {"deep/er/file": b"mine"}
    assert list(outcome.left_out) == ["again", "fifo", "folder", "inside", "link", "twice"]


def test_collecting_is_bounded(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "MAX_COLLECTED", 3)
    code = "for name in 'abcdef': open(name, 'wb').write(bytes(600_000))"
    outcome = run(code, sandbox=box(files_mb=4), collect=["[abc]", "f"])
    assert list(outcome.files) == ["a", "b", "c"]
    assert list(outcome.left_out) == ["f"]
    outcome = run("for name in 'ab': open(name, 'wb').write(bytes(600_000))", sandbox=box(files_mb=1), collect=["*"])
    assert (list(outcome.files), list(outcome.left_out)) == (["a"], ["b"]) or outcome.status == "files"


def test_nothing_is_left_behind(level: str, outside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(outside))
    outcome = run("""
        import os
        os.makedirs("locked/inner")
        open("locked/inner/file", "w").close()
        os.chmod("locked/inner", 0)
        os.chmod("locked", 0)
        for _ in range(1100):
            os.mkdir("d" * 20)
            os.chdir("d" * 20)
        print("dug")
    """)  # fmt: skip
    assert outcome.text == "dug\n" or outcome.status == "files", outcome
    assert os.listdir(outside) == ["secret.txt"]


def test_removing_a_tree_follows_no_link(outside: Path) -> None:
    tree = outside / "tree"
    tree.mkdir()
    (tree / "link").symlink_to(outside)
    (tree / "dangling").symlink_to("nowhere")
    workspace.remove_tree(tree)
    assert os.listdir(outside) == ["secret.txt"]
    assert stat.S_IMODE(outside.stat().st_mode) == 0o777


def test_names_that_leave_the_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "out").symlink_to(tmp_path)
    files: dict[str, str | bytes | Path] = {
        "/etc/x": "",
        "a/../../x": "",
        "": "",
        "p": tmp_path / "project",
        "q": tmp_path / "none",
        "fine/x": "",
    }
    with pytest.raises(BadInput) as caught:
        Program("", files=files, collect=["../*"])
    for fault in ("'/etc/x'", "'a/../../x'", "'': not a path", "link that leaves", "none does not exist", "'../*'"):
        assert fault in caught.value.problem
    assert "fine/x" not in caught.value.problem


def test_a_file_in_the_place_of_a_folder_is_refused() -> None:
    with pytest.raises(BadInput, match="a/b"):
        run("", files={"a": "", "a/b": ""})


@given(st.text(alphabet="a./\\\0 ", max_size=8))
def test_accepted_names_stay_inside(name: str) -> None:
    try:
        Program("", files={name: ""}) if name else None
    except BadInput:
        return
    inside = os.path.normpath(os.path.join("/base/work", name))
    assert inside.startswith("/base/work")


def test_bad_settings_and_programs_are_refused_with_all_their_faults() -> None:
    with pytest.raises(BadInput) as caught:
        Sandbox(seconds=0, memory_mb=-1, readable=["/no/such/place", "/"])
    assert all(word in caught.value.problem for word in ("seconds", "memory_mb", "/no/such/place", "a / of their own"))
    with pytest.raises(BadInput) as caught:
        Program([], env={"A=B": "", "OK": "\0"})
    assert all(word in caught.value.problem for word in ("empty", "A=B", "OK"))
    with pytest.raises(BadInput):
        Sandbox().run_many(["print(1)", []])


# -- levels, and the spawner -------------------------------------------------------------------------------------------


def test_a_weaker_level_is_refused_unless_accepted(
    monkeypatch: pytest.MonkeyPatch, unwalled: Callable[[], str]
) -> None:
    unwalled()
    strict = Sandbox()
    for refused in (strict.check, lambda: strict.run("print(1)"), lambda: strict.run_many(["print(1)"])):
        with pytest.raises(Unsupported) as caught:
            refused()
        assert all(word in str(caught.value) for word in ("network", "reads", "writes", "allow_weaker"))
    accepted = Sandbox(allow_weaker=True).run("print(1)")
    assert {"network", "reads", "writes"} <= set(accepted.lacks)
    assert set(accepted.lacks) <= set(strength.GUARANTEES)
    assert "network" not in Sandbox(network=True).lacks


def test_the_strongest_level_is_found(strengths: dict[str, strength.Strength | str]) -> None:
    working = [level for level, found in strengths.items() if not isinstance(found, str)]
    assert Sandbox().level == working[0]
    assert set(strength.strength().refused) == {level for level, found in strengths.items() if isinstance(found, str)}


def test_a_killed_spawner_is_started_again() -> None:
    assert run("print(1)").text == "1\n"
    process = spawner._running[os.getpid()].process
    process.kill()
    process.wait()
    assert run("print(2)").text == "2\n"
    spawner.close()
    assert run("print(3)").text == "3\n"


def test_a_forked_child_uses_a_spawner_of_its_own() -> None:
    assert run("print(1)").text == "1\n"
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if run("print(2)").text == "2\n" else 2
            spawner.close()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert run("print(3)").text == "3\n"


def test_programs_find_the_packages_of_this_python(level: str) -> None:
    outcome = run("import numpy; print(numpy.arange(4).sum())")
    assert outcome.text == "6\n", outcome


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_compiled_programs_of_the_working_folder_run(level: str) -> None:
    source = '#include <stdio.h>\nint main(void) { puts("compiled"); return 0; }\n'
    if level == "landlock" and not strength.strength().as_other:
        pytest.skip("no file can be made executable at this level")
    outcome = box().run(["sh", "-c", "cc -o hello hello.c && ./hello"], files={"hello.c": source})
    assert outcome.text == "compiled\n", outcome
