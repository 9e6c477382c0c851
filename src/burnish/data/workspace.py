"""A folder that an untrusted program left behind, looked at without ever leaving it.

Names come from models and from the folder's own files. One that leads out of the folder, through "..", an absolute path
or a symbolic link, is refused with a reason; links are never followed, wherever they lead.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from burnish.core.errors import BadInput

SKIPPED = frozenset(
    {
        ".git",
        ".hg",
        ".svn",
        "__pycache__",
        "node_modules",
        ".venv",
        "venv",
        "site-packages",
        ".mypy_cache",
        ".ipynb_checkpoints",
    }
)
"""Folders that no one wrote by hand."""
MOST_ENTRIES = 50_000
"""Files and folders of a workspace that are looked at."""

_SUFFIX = (
    r"py|txt|md|pdf|png|jpe?g|gif|bmp|csv|tsv|jsonl?|html?|css|js|ts|ya?ml|toml|xml|ipynb|docx|xlsx|pptx|pth?|pkl|npy|npz|"
    r"h5|onnx|joblib|safetensors|mp4|avi|mov|wav|mp3|log|sh|sql|db|sqlite3?|zip|tex|keras|model"
)
_NAMED = re.compile(rf"(?<![\w/.:@-])(?:(?:[\w.-]+/)+(?:[\w.-]+\.(?:{_SUFFIX})\b)?|[\w-]+\.(?:{_SUFFIX})\b)")
_ADDRESS = re.compile(r"\b\w+://\S+")


class Refused(Exception):
    """A path that is not read, and why."""


@dataclass(frozen=True)
class Found:
    """A file of a workspace."""

    path: str
    """Relative to the workspace, with slashes."""
    size: int
    """Bytes."""


class Workspace:
    """The regular files below one folder.

    Args:
        root: The folder.

    Raises:
        BadInput: it is no folder.
    """

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root).resolve()
        if not self.root.is_dir():
            raise BadInput(f"there is no folder {root}", "give the folder that the developing agent worked in")
        self.left_out: list[str] = []
        """Links, special files and what is too much, as far as `files` came across them."""
        self._files: list[Found] | None = None

    def files(self) -> list[Found]:
        """Every regular file, by path; links and folders that no one wrote are left out."""
        if self._files is None:
            self._files = sorted(self._walk(self.root, ""), key=lambda found: found.path)
        return self._files

    def _walk(self, folder: Path, before: str) -> Iterator[Found]:
        todo, count = [(folder, before)], 0
        while todo:
            folder, before = todo.pop()
            try:
                entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
            except OSError as error:
                self.left_out.append(f"{before or '.'}: {error.strerror}")
                continue
            for entry in entries:
                path = f"{before}{entry.name}"
                if count >= MOST_ENTRIES:
                    self.left_out.append(f"{path} and all after it: more than {MOST_ENTRIES} files and folders")
                    return
                count += 1
                if not entry.name.isprintable():
                    # Also what is no UTF-8. A name with a line break could pose as several files.
                    self.left_out.append(f"{path!r}: its name cannot be printed")
                elif entry.is_symlink():
                    self.left_out.append(f"{path}: a symbolic link")
                elif entry.is_dir(follow_symlinks=False):
                    if entry.name in SKIPPED:
                        self.left_out.append(f"{path}/: not written by hand")
                    else:
                        todo.append((Path(entry.path), f"{path}/"))
                elif not entry.is_file(follow_symlinks=False):
                    self.left_out.append(f"{path}: no regular file")
                else:
                    yield Found(path, entry.stat(follow_symlinks=False).st_size)

    def resolve(self, proposal: str) -> str:
        """The path, relative to the workspace, of the file or folder that a proposal means; a folder ends in a slash.

        A leading slash, or the folder's own name, means the workspace itself.

        Raises:
            Refused: it leads out of the workspace, through a link, or to nothing.
        """
        text = proposal.strip().strip("`'\"").replace("\\", "/")
        if not text or "\0" in text or len(text) > 4096:
            raise Refused("no path")
        own = self.root.as_posix()
        if text == own or text.startswith(own + "/"):
            text = text[len(own) :]
        parts = [part for part in text.split("/") if part not in ("", ".")]
        if ".." in parts or (parts and (parts[0].startswith("~") or parts[0].endswith(":"))):
            raise Refused("it leads out of the workspace")
        try:
            return self._descend(parts)
        except Refused:
            if parts and parts[0] in (self.root.name, "workspace") and not (self.root / parts[0]).exists():
                return self._descend(parts[1:])
            raise

    def _descend(self, parts: list[str]) -> str:
        place, mode = self.root, self.root.lstat().st_mode
        for part in parts:
            place = place / part
            try:
                mode = place.lstat().st_mode
            except (OSError, ValueError):
                raise Refused("there is no such file in the workspace") from None
            if stat.S_ISLNK(mode):
                raise Refused("it leads through a symbolic link")
        path = "/".join(parts)
        if stat.S_ISDIR(mode):
            return f"{path or '.'}/"
        if not stat.S_ISREG(mode):
            raise Refused("it is no regular file")
        return path

    def open(self, path: str) -> int:
        """A file descriptor for reading a file, by its path as `files` and `resolve` give it.

        Raises:
            Refused: it is not there, no regular file, or may not be read.
        """
        resolved = self.resolve(path)
        try:
            # A link that took the file's place since is not followed, and a pipe is not waited for.
            handle = os.open(
                self.root / resolved, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
            )
        except OSError as error:
            raise Refused(f"it cannot be read: {error.strerror}") from None
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise Refused("it is no regular file")
        return handle

    def size(self, path: str) -> int:
        """Bytes of a file."""
        return (self.root / self.resolve(path)).lstat().st_size

    def inside(self, folder: str) -> list[Found]:
        """The files below a folder, by its path as `resolve` gives it."""
        prefix = "" if folder == "./" else folder
        return [found for found in self.files() if found.path.startswith(prefix)]


def tree(files: list[Found], notes: dict[str, str] | None = None) -> str:
    """Files as an indented list, folders first named where they begin, with their sizes.

    Args:
        files: By path, sorted.
        notes: Path to what to say of it, e.g. what it defines.
    """
    lines: list[str] = []
    open_folders: list[str] = []
    for found in files:
        *folders, name = found.path.split("/")
        shared = 0
        while shared < min(len(folders), len(open_folders)) and folders[shared] == open_folders[shared]:
            shared += 1
        lines += [f"{'  ' * depth}{folders[depth]}/" for depth in range(shared, len(folders))]
        open_folders = folders
        note = f": {notes[found.path]}" if notes and notes.get(found.path) else ""
        lines.append(f"{'  ' * len(folders)}{name} ({readable(found.size)}){note}")
    return "\n".join(lines)


def readable(size: int) -> str:
    """Bytes for people."""
    amount = float(size)
    for unit in ("bytes", "KB", "MB", "GB"):
        if amount < 1000 or unit == "GB":
            break
        amount /= 1000
    return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"


def named_paths(text: str) -> list[str]:
    """Files, and folders with a slash at their end, that a sentence names; addresses on the web are none."""
    return list(dict.fromkeys(match[0] for match in _NAMED.finditer(_ADDRESS.sub(" ", text))))
