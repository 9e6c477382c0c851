"""What the Linux kernel is asked to keep a program away from: namespaces, Landlock, seccomp, privileges.

Runs in the spawner, a bare interpreter: the standard library only, and nothing of burnish. The constants and the
layouts of structures are those of the kernel's user interface (``man 7 namespaces``, ``man 7 landlock``,
``man 2 seccomp``). Calls that a container or a security module forbids raise `Refused`, which names the call.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

LINUX = sys.platform == "linux"
_LIBC = ctypes.CDLL(None, use_errno=True) if os.name == "posix" else None

# unshare(2), mount(2), umount(2)
_NEWNS, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = (
    0x00020000,
    0x04000000,
    0x08000000,
    0x10000000,
    0x20000000,
    0x40000000,
)
_NOSUID, _NODEV, _NOEXEC, _BIND, _REC, _PRIVATE, _DETACH = 0x2, 0x4, 0x8, 0x1000, 0x4000, 1 << 18, 0x2
# mount_setattr(2): the flags have the same values as the first ones of mount(2), with read-only as bit 0
_AT_FDCWD, _AT_RECURSIVE, _ATTR_RDONLY = -100, 0x8000, 0x1
# prctl(2)
_PDEATHSIG, _SET_SECCOMP, _CAPBSET_DROP, _CHILD_SUBREAPER, _NO_NEW_PRIVS = 1, 22, 24, 36, 38
# system calls without a wrapper in the C library; those above 424 have one number on every architecture
_MOUNT_SETATTR, _LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 442, 444, 445, 446


class _Machine(NamedTuple):
    """Numbers of an architecture: its name for seccomp, two system calls, and groups of them."""

    architecture: int
    pivot_root: int
    socket: int
    refused: tuple[int, ...]
    """mq_open, msgget, semget, shmget; add_key, request_key, keyctl; setxattr, removexattr and their variants."""
    marking: tuple[int, ...]
    """chmod, chown, utime and their variants."""


_MACHINES = {
    "x86_64": _Machine(
        architecture=0xC000003E,
        pivot_root=155,
        socket=41,
        refused=(240, 68, 64, 29, 248, 249, 250, 188, 189, 190, 197, 198, 199),
        marking=(90, 91, 92, 93, 94, 132, 235, 260, 261, 268, 280),
    ),
    "aarch64": _Machine(
        architecture=0xC00000B7,
        pivot_root=41,
        socket=198,
        refused=(180, 186, 190, 194, 217, 218, 219, 5, 6, 7, 14, 15, 16),
        marking=(52, 53, 54, 55, 88),
    ),
}
_REFUSED, _MARKING = (425, 463, 466, 469), (452,)
"""Further ones, on every architecture: io_uring_setup, setxattrat, removexattrat, file_setattr; fchmodat2."""

INTERNET = (2, 10, 16)
"""Families of sockets that stay within a network namespace: IPv4, IPv6, and netlink, by which programs ask about it."""
UNIX = 1
"""The family of unix sockets: they connect wherever their file is seen."""
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
"""Devices that a program may read and write at every level."""


class Refused(Exception):
    """The kernel does not permit a step of the confinement."""


def _machine() -> _Machine | None:
    return _MACHINES.get(os.uname().machine) if LINUX and ctypes.sizeof(ctypes.c_void_p) == 8 else None


def _call(name: str, *args: object, what: str = "") -> int:
    """One function of the C library; the error names it, and `what` it was for."""
    result: int = getattr(_LIBC, name)(*args)
    if result == -1:
        raise Refused(f"{what or name}: {os.strerror(ctypes.get_errno())}")
    return result


def _prctl(option: int, value: int = 0, pointer: object = 0) -> int:
    return _call("prctl", option, ctypes.c_ulong(value), pointer, 0, 0, what=f"prctl({option})")


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends."""
    if LINUX:
        _prctl(_PDEATHSIG, 9)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends, even if it called setsid."""
    if LINUX:
        _prctl(_CHILD_SUBREAPER, 1)


def missing(level: str, uid: int | None, processes_bound: bool) -> dict[str, str]:
    """Guarantees that `level` does not give here, each with the reason.

    Args:
        level: ``namespaces``, ``landlock`` or ``process``.
        uid: The otherwise unused user that programs run as, if there is one.
        processes_bound: Whether RLIMIT_NPROC binds that user (it does not bind root).
    """
    lacks = {}
    if level == "landlock":
        abi = landlock_version()
        if abi < 3:
            lacks["writes"] = f"Landlock version {abi} lets a file be cut short by its name (3 is needed, Linux 6.2)"
        if abi < 6 and uid is None:
            lacks["signals"] = f"Landlock version {abi} does not confine signals (6 is needed, Linux 6.12)"
    elif level == "process":
        lacks["network"] = "nothing keeps the program from opening sockets"
        lacks["writes"] = "it may write wherever its user may"
        lacks["reads"] = "it may read whatever its user may"
        if uid is None:
            lacks["signals"] = "it may kill other processes of its user"
    if not processes_bound:
        lacks["processes"] = (
            "their number is only looked at: limits do not bind root, and no other user can start this Python"
        )
    if not (LINUX and os.path.exists(f"/proc/self/task/{os.getpid()}/children")):
        lacks["tree"] = "a process that leaves its process group cannot be found"
        lacks["memory"] = lacks["processes"] = "the system does not tell what belongs to a program"
    return lacks


# -- namespaces ------------------------------------------------------------------------------------------------------


def enter_namespaces(uid: int | None, network: bool) -> None:
    """Move into new user, mount, PID, IPC, host name and (without `network`) network namespaces.

    The caller's next child is process 1 of the new PID namespace: when it ends, the kernel kills all others in it.

    Args:
        uid: For root, a spare user to map beside root, so that programs need not run as root. Otherwise only the
            caller's own user exists inside.
        network: Keep the network of the host.
    """
    if _machine() is None:
        raise Refused(f"machine {os.uname().machine}: unknown system call numbers")
    flags = _NEWUSER | _NEWNS | _NEWPID | _NEWIPC | _NEWUTS | (0 if network else _NEWNET)
    own_uid, own_gid, me = os.geteuid(), os.getegid(), os.getpid()
    if uid is None:
        _call("unshare", flags)
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{own_uid} {own_uid} 1")
        _write("/proc/self/gid_map", f"{own_gid} {own_gid} 1")
    else:
        # A map of two users has to be written from outside, once the namespace exists.
        ready, tell = os.pipe()
        helper = os.fork()
        if helper == 0:
            os.close(tell)
            done = 1
            with suppress(Refused):
                os.read(ready, 1)
                for kind in ("uid", "gid"):
                    _write(f"/proc/{me}/{kind}_map", f"0 0 1\n{uid} {uid} 1")
                done = 0
            os._exit(done)
        os.close(ready)
        try:
            _call("unshare", flags)
        finally:
            os.close(tell)
            status = os.waitpid(helper, 0)[1]
        if status:
            raise Refused("uid_map: the spare user could not be mapped")
    if not network:
        _raise_loopback()


def _raise_loopback() -> None:
    """Give the empty network a working 127.0.0.1: test suites talk to themselves."""
    import fcntl  # not on every system that imports this file

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, 0x8914, struct.pack("16sH14x", b"lo", 0x1))  # SIOCSIFFLAGS, IFF_UP


def _write(path: str, text: str) -> None:
    try:
        handle = os.open(path, os.O_WRONLY)
        os.write(handle, text.encode())
        os.close(handle)
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}") from None


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    encoded = [None if text is None else os.fsencode(text) for text in (source, target, kind, data)]
    _call("mount", *encoded[:3], ctypes.c_ulong(flags), encoded[3], what=f"mount {source or kind}")


def _set_mount(path: str, flags: int, recursive: bool) -> None:
    """Add flags to a mount, and to all mounts below it if `recursive`."""
    attributes = struct.pack("QQQQ", flags, 0, 0, 0)
    where = (_AT_FDCWD, os.fsencode(path), _AT_RECURSIVE if recursive else 0)
    _call("syscall", _MOUNT_SETATTR, *where, attributes, len(attributes), what="mount_setattr")


def build_root(root: str, readable: Sequence[str], writable: Sequence[str], scratch_bytes: int) -> None:
    """Make `root` a file system that holds only what is named, and make it this process's whole view.

    Args:
        root: An empty folder to build in.
        readable: Files and folders shown read-only, at their own places; a symlink is shown as that symlink.
        writable: Folders that stay writable.
        scratch_bytes: Size of each of the two private memory file systems, /tmp and /dev/shm.
    """
    machine = _machine()
    assert machine is not None  # enter_namespaces came first
    _mount(None, "/", None, _REC | _PRIVATE)
    _mount("tmpfs", root, "tmpfs", _NOSUID | _NODEV, "mode=755,size=4m")
    scratch = (f"{root}/tmp", f"{root}/dev/shm")
    for folder in (*scratch, f"{root}/proc"):
        os.makedirs(folder)
    for folder in scratch:
        _mount("tmpfs", folder, "tmpfs", _NOSUID | _NODEV, f"mode=1777,size={scratch_bytes},nr_inodes=16384")
    for path in readable:
        place = root + path
        os.makedirs(os.path.dirname(place), exist_ok=True)
        if os.path.islink(path):
            os.symlink(os.readlink(path), place)
        else:
            _bind(path, place, _ATTR_RDONLY)
    for path in writable:
        _bind(path, root + path)
    for name, target in (("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        os.symlink(target, f"{root}/dev/{name}")
    for path in DEVICES:
        open(root + path, "wb").close()
    _set_mount(root, _ATTR_RDONLY, recursive=False)
    for path in DEVICES:
        _mount(path, root + path, None, _BIND)
    _mount("proc", f"{root}/proc", "proc", _NOSUID | _NODEV | _NOEXEC)
    with suppress(Refused):  # further user namespaces would only offer more of the kernel to attack
        _write(f"{root}/proc/sys/user/max_user_namespaces", "0")
    with suppress(OSError):
        socket.sethostname("sandbox")
    os.chdir(root)
    _call("syscall", machine.pivot_root, b".", b".", what="pivot_root")
    _call("umount2", b".", _DETACH)
    os.chdir("/")


def _bind(path: str, place: str, flags: int = 0) -> None:
    if os.path.isdir(path):
        os.makedirs(place, exist_ok=True)
    else:
        open(place, "wb").close()
    _mount(path, place, None, _BIND | _REC)
    _set_mount(place, flags | _NOSUID | _NODEV, recursive=True)


# -- Landlock and seccomp ---------------------------------------------------------------------------------------------


def landlock_version() -> int:
    """Version of Landlock in this kernel; 0 where there is none."""
    if not LINUX:
        return 0
    with suppress(Refused):
        return _call("syscall", _LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1)
    return 0


def restrict_files(readable: Sequence[str], writable: Sequence[str]) -> None:
    """Let this process and its descendants open nothing but what is named (and, from version 6, signal no others)."""
    version = landlock_version()
    if version == 0:
        raise Refused("Landlock: not in this kernel, or switched off")
    # Bits 0-12 of version 1; rename between folders, cut by name and device control came later.
    handled = (1 << {1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)) - 1
    scoped = 0b11 if version >= 6 else 0  # abstract unix sockets, signals
    rules = struct.pack("QQQ", handled, 0, scoped)[: 8 if version < 4 else 16 if version < 6 else 24]
    ruleset = _call("syscall", _LANDLOCK_CREATE, rules, ctypes.c_size_t(len(rules)), 0, what="landlock_create_ruleset")
    read, of_files = 0b1101, 0b0111 | 1 << 14 | 1 << 15  # execute, read file, list folder; rights a mere file can have
    for paths, rights in ((readable, read), ((*writable, *DEVICES), handled)):
        for path in paths:
            try:
                handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except OSError:
                continue  # what is not there, or not for this user, needs no permission
            allowed = rights & handled if os.path.isdir(path) else rights & handled & of_files
            rule = struct.pack("=Qi", allowed, handle)
            _call("syscall", _LANDLOCK_ADD, ruleset, 1, rule, 0, what=f"landlock_add_rule {path}")
            os.close(handle)
    _prctl(_NO_NEW_PRIVS, 1)
    _call("syscall", _LANDLOCK_RESTRICT, ruleset, 0, what="landlock_restrict_self")
    os.close(ruleset)


def restrict_calls(families: Sequence[int], marks: bool) -> None:
    """Refuse system calls that would evade the other walls, and sockets of other `families` than these.

    Refused are io_uring (which opens sockets too), interprocess communication that files do not govern, the kernel's
    key rings, which are inherited, and changes of extended attributes. ``socketpair`` stays: it reaches nobody else.
    Without `marks`, calls that change modes, owners and times of files do nothing and report success: Landlock does
    not govern them.
    """
    machine = _machine()
    if machine is None:
        raise Refused(f"seccomp: machine {os.uname().machine} is unknown")
    load, jump_equal, jump_from, ret = 0x20, 0x15, 0x35, 0x06
    allow, kill, skip, deny = (
        (ret, 0, 0, what) for what in (0x7FFF0000, 0x80000000, 0x00050000, 0x00050000 | errno.EPERM)
    )
    program = [(load, 0, 0, 4), (jump_equal, 1, 0, machine.architecture), kill, (load, 0, 0, 0)]
    tests = [(jump_from, 0x40000000, deny)]  # the numbers of another way to call, x32
    tests += [(jump_equal, number, deny) for number in (*machine.refused, *_REFUSED)]
    tests += [(jump_equal, number, skip) for number in (() if marks else (*machine.marking, *_MARKING))]
    for jump, number, verdict in tests:  # a match goes on with the verdict, anything else with what comes after it
        program += [(jump, 0, 1, number), verdict]
    n = len(families)
    of_socket = [(load, 0, 0, 16), *((jump_equal, n - i, 0, family) for i, family in enumerate(families)), deny]
    program += [(jump_equal, 0, len(of_socket), machine.socket), *of_socket, allow]
    code = b"".join(struct.pack("HBBI", *instruction) for instruction in program)
    buffer = ctypes.create_string_buffer(code, len(code))
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program), ctypes.addressof(buffer)))
    _prctl(_NO_NEW_PRIVS, 1)
    _prctl(_SET_SECCOMP, 2, header)


def drop_privileges(uid: int | None) -> None:
    """Give up every capability for good, and become the user `uid` if there is one."""
    if LINUX:
        with suppress(Refused):  # ends at the last capability, or at once for those who have none to lose
            for capability in range(64):
                _prctl(_CAPBSET_DROP, capability)
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    if LINUX:
        _prctl(_NO_NEW_PRIVS, 1)
