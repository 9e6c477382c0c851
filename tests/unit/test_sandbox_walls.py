"""Walls of the sandbox: secrets, files, networks and other processes are attacked by programs that reach them without."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import textwrap
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sandboxes import (
    LINUX,
    box,
    each_level,  # noqa: F401  a fixture
    each_level_with_walls,  # noqa: F401  a fixture
    folder_outside,  # noqa: F401  a fixture
    needs,
    run,
    use,
    without_walls,  # noqa: F401  a fixture
)

from burnish.llm.sandbox import strength

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


def test_a_program_may_talk_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    use("namespaces", monkeypatch)
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
