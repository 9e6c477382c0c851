"""The temporary folder of one run: its files put in, read back and removed, whatever the program made of it.

A workspace is a folder with three others in it: ``work`` (the program's working folder), ``home`` (its home and
folder for temporary files) and ``root`` (empty; the place to build the program's view of the file system).
"""

from __future__ import annotations

import fnmatch
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath

from burnish.core.errors import BadInput

MAX_COLLECTED = 4096
"""Files that one run may hand back."""


class Workspace:
    """A temporary folder for one program; use it as a context manager.

    Args:
        uid: The user that the program will run as, if not the caller.
    """

    def __init__(self, uid: int | None) -> None:
        self.uid = uid
        self.base = Path(tempfile.mkdtemp(prefix="burnish-sandbox-")).resolve()
        self.work, self.home, self.root = (self.base / name for name in ("work", "home", "root"))
        for folder in (self.work, self.home, self.root):
            folder.mkdir(mode=0o700)

    def __enter__(self) -> Workspace:
        return self

    def __exit__(self, *_: object) -> None:
        remove_tree(self.base)

    def put(self, files: Mapping[str, str | bytes | Path]) -> None:
        """Write texts and bytes, and copy files and folders, to their places below ``work``.

        Raises:
            BadInput: for what cannot be written, such as a file where another needs a folder.
        """
        for name, content in files.items():
            place = self.work / name
            try:
                place.parent.mkdir(parents=True, exist_ok=True)
                if not isinstance(content, Path):
                    place.write_bytes(as_bytes(content))
                elif content.is_dir():
                    shutil.copytree(content, place, symlinks=True, dirs_exist_ok=True)
                else:
                    shutil.copyfile(content, place)
            except OSError as error:
                raise BadInput(f"the file {name!r} cannot be put into a sandbox: {error.strerror or error}") from None

    def hand_over(self) -> None:
        """Make the folders the program's own, where it runs as another user."""
        if self.uid is None:
            return
        self.base.chmod(0o711)
        for folder in (self.work, self.home):
            os.chown(folder, self.uid, self.uid)
            for parent, folders, names in os.walk(folder):
                for name in (*folders, *names):
                    os.lchown(os.path.join(parent, name), self.uid, self.uid)

    def collect(self, patterns: Sequence[str], most: int) -> tuple[dict[str, bytes], list[str]]:
        """Regular files whose path below ``work`` matches a pattern, in the order of their paths.

        Returns:
            Path -> content, and the matching paths left out: symlinks, special files, files that have other names,
            and those beyond `most` bytes or `MAX_COLLECTED` files in all.
        """
        found: dict[str, bytes] = {}
        left_out: list[str] = []
        if not patterns:
            return found, left_out
        names = (name for name in _names(self.work) if any(fnmatch.fnmatchcase(name, p) for p in patterns))
        for name in sorted(names):
            content = _regular(self.work / name, most) if len(found) < MAX_COLLECTED else None
            if content is None:
                left_out.append(name)
            else:
                found[name] = content
                most -= len(content)
        return found, left_out


def as_bytes(text: str | bytes) -> bytes:
    """UTF-8; halves of characters, which models may write, are kept for the program to fail on."""
    return text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text


def check_files(files: Mapping[str, str | bytes | Path], patterns: Sequence[str]) -> None:
    """Refuse names and patterns that leave the workspace, and folders with links that do.

    Raises:
        BadInput: naming every fault.
    """
    faults = [f"{name!r}: {why}" for name in (*files, *patterns) if (why := _fault(name))]
    for name, content in files.items():
        if isinstance(content, Path):
            if not content.exists():
                faults.append(f"{name!r}: {content} does not exist")
            elif content.is_dir():
                faults += [f"{name!r}: {link} is a link that leaves {content}" for link in _leaving_links(content)]
    if faults:
        fix = "name files by their path below the working folder, like 'tests/test_it.py'"
        raise BadInput.of("the sandbox cannot take these files:", faults, fix)


def _fault(name: str) -> str:
    path = PurePosixPath(name)
    if not name or "\0" in name:
        return "not a path"
    if path.is_absolute():
        return "the path is absolute"
    if ".." in path.parts:
        return "the path climbs with '..'"
    return ""


def _leaving_links(folder: Path) -> Iterator[Path]:
    top = folder.resolve()
    for parent, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = Path(parent, name)
            if path.is_symlink():
                target = os.readlink(path)
                if os.path.isabs(target) or not path.resolve().is_relative_to(top):
                    yield path


def _names(folder: Path) -> Iterator[str]:
    """Paths of all entries that are not folders, relative to `folder`; no symlink is followed."""
    waiting = [""]
    while waiting:
        inside = waiting.pop()
        with suppress(OSError), os.scandir(folder / inside) as entries:
            for entry in entries:
                name = os.path.join(inside, entry.name)
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(name)
                else:
                    yield name


def _regular(path: Path, most: int) -> bytes | None:
    """The content of a regular file of at most `most` bytes; None for anything else."""
    try:
        # Not blocking: a FIFO would keep the reader waiting for ever.
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with open(handle, "rb") as file:
        about = os.fstat(handle)
        # A second hard link could be a file that the program itself may not read.
        if not stat.S_ISREG(about.st_mode) or about.st_nlink > 1 or about.st_size > most:
            return None
        return file.read(most)


def remove_tree(path: Path) -> None:
    """Delete a folder that a hostile program filled: locked folders, and nests too deep for recursion, included.

    Nothing is left of the folder but what the system refuses to delete. No symlink is followed.
    """
    with suppress(OSError):
        top = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            _empty(top)
        finally:
            os.close(top)
        os.rmdir(path)


def _empty(top: int) -> None:
    """Empty the folder open as `top`. What lies deeper is moved up to it first, so that no path gets long."""
    moved = 0
    stuck: set[str] = set()
    while names := [name for name in os.listdir(top) if name not in stuck]:
        for name in names:
            with suppress(OSError):
                os.unlink(name, dir_fd=top)
                continue
            try:
                _unlock(name, top)
                inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=top)
            except OSError:
                stuck.add(name)
                continue
            try:
                for child in os.listdir(inner):
                    _unlock(child, inner)
                    moved += 1
                    os.rename(child, f".moved-{moved}", src_dir_fd=inner, dst_dir_fd=top)
                os.rmdir(name, dir_fd=top)
            except OSError:
                stuck.add(name)
            finally:
                os.close(inner)


def _unlock(name: str, folder: int) -> None:
    """Let the owner list and move a folder; other files need no permission for that."""
    if stat.S_ISDIR(os.lstat(name, dir_fd=folder).st_mode):
        os.chmod(name, 0o700, dir_fd=folder)
