"""Files of many formats as text for a judge to read, each with a reason where something could not be read.

A file is untrusted and may be huge, broken or made to do harm: only so much of it is read, nothing in it is executed or
unpickled, and what fails is said. An unknown format is never taken as fine.
"""

from __future__ import annotations

import ast
import io
import json
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass

from burnish.data import document_formats as formats
from burnish.data.workspace import Refused, Workspace, readable

HEAD, TAIL = 256 * 1024, 64 * 1024
"""Bytes of a long text that are read from its beginning and from its end."""
MOST_BYTES = 50 * 2**20
"""Of a file that has to be read whole."""
SNIFFED = 8192


@dataclass(frozen=True)
class Document:
    """What was read of a file."""

    path: str
    kind: str
    """E.g. "text", "pdf", "image"."""
    text: str
    """Its content, or what can be said about it."""
    problem: str = ""
    """Why it, or a part of it, could not be read; empty when all is well."""


def read_document(workspace: Workspace, path: str) -> Document:
    """Read a file by its suffix, or by its first bytes where the suffix is not known.

    Raises:
        Refused: it is not a file of the workspace.
    """
    handle = workspace.open(path)
    with os.fdopen(handle, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        suffix = os.path.splitext(path)[1].lower()
        if size == 0:
            return Document(path, "empty", "", "the file is empty")
        if suffix in TEXTS:
            return _text(path, file, size)
        if suffix in WHOLE:
            kind, read = WHOLE[suffix]
            if size > MOST_BYTES:
                return Document(
                    path,
                    kind,
                    f"({kind}, {readable(size)})",
                    f"larger than {readable(MOST_BYTES)}: only its size is known",
                )
            return _whole(path, kind, read, file.read(MOST_BYTES + 1))
        return _facts(path, suffix, file, size)


def _text(path: str, file: io.BufferedReader, size: int) -> Document:
    head = file.read(HEAD)
    if b"\0" in head[:SNIFFED] and not head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return Document(path, "binary", f"({readable(size)} of binary data)", "named like a text, and is binary data")
    encoding = "utf-16" if head.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    text = head.decode(encoding, errors="replace")
    problem = "some bytes are not UTF-8" if "\N{REPLACEMENT CHARACTER}" in text else ""
    if size > HEAD:
        file.seek(max(HEAD, size - TAIL))
        rest = file.read(TAIL).decode(encoding, errors="replace")
        gap = size - HEAD - TAIL
        text += f"\n[… {readable(gap)} left out …]\n{rest}" if gap > 0 else rest
        problem = f"{readable(size)}: only the beginning and the end were read" if gap > 0 else problem
    return Document(path, "text", text, problem)


def _whole(path: str, kind: str, read: Callable[[bytes], str], raw: bytes) -> Document:
    try:
        text = read(raw)
    except formats.Unreadable as error:
        return Document(path, kind, f"({kind}, {readable(len(raw))})", str(error))
    # Parsers of foreign formats fail in every way that there is on files that are broken on purpose.
    except (Exception, RecursionError) as error:
        reason = str(error).strip().splitlines()
        told = f"{type(error).__name__}: {reason[0]}" if reason else type(error).__name__
        return Document(path, kind, f"({kind}, {readable(len(raw))})", f"broken {kind}: {told[:200]}")
    return Document(path, kind, text) if text.strip() else Document(path, kind, "", f"the {kind} holds no text")


def _facts(path: str, suffix: str, file: io.BufferedReader, size: int) -> Document:
    """What can be said of a format that is not read, from its first bytes."""
    head = file.read(SNIFFED)
    if suffix in formats.MEDIA:
        known = formats.container(head)
        text = f"({formats.MEDIA[suffix]}, {readable(size)}, {known or 'no known container'})"
        return Document(
            path,
            "media",
            text,
            "not seen or heard: only its container and its size are known"
            if known
            else "its first bytes are not those of its format",
        )
    if suffix in formats.OPAQUE:
        return Document(path, "data", f"({formats.OPAQUE[suffix]}, {readable(size)})", "its content is not looked into")
    if b"\0" not in head:
        try:
            head[: max(1, len(head) - 4)].decode()
        except UnicodeDecodeError as error:
            if error.start < len(head) - 8:
                return Document(
                    path, "unknown", f"({readable(size)})", f"unknown format {suffix or 'without a suffix'}"
                )
        file.seek(0)
        return _text(path, file, size)
    return Document(path, "unknown", f"({readable(size)})", f"unknown binary format {suffix or 'without a suffix'}")


def _notebook(raw: bytes) -> str:
    """Cells of a Jupyter notebook: what was written and the text that came out."""
    book = json.loads(raw)
    lines = []
    for number, cell in enumerate(book["cells"], 1):
        lines.append(f"[{number}] {cell.get('cell_type', 'cell')}\n{_joined(cell.get('source', ''))}")
        for out in cell.get("outputs", []):
            shown = out.get("text") or (out.get("data") or {}).get("text/plain") or ""
            lines += [f"[{number}] output\n{_joined(shown)}"] if shown else []
    return "\n".join(lines)


def _joined(source: object) -> str:
    return "".join(map(str, source)) if isinstance(source, list) else str(source)


TEXTS = frozenset(
    [
        ".py",
        ".txt",
        ".md",
        ".rst",
        ".csv",
        ".tsv",
        ".json",
        ".jsonl",
        ".xml",
        ".yaml",
        ".yml",
        ".toml",
        ".ini",
        ".cfg",
        ".html",
        ".htm",
        ".css",
        ".js",
        ".ts",
        ".jsx",
        ".tsx",
        ".tex",
        ".log",
        ".sh",
        ".sql",
        ".c",
        ".h",
        ".cpp",
        ".hpp",
        ".java",
        ".go",
        ".rs",
        ".r",
        ".rb",
        ".php",
        ".env",
        ".svg",
        ".bib",
        ".vtt",
        ".srt",
    ]
)
"""Suffixes of plain text."""
WHOLE: dict[str, tuple[str, Callable[[bytes], str]]] = {
    ".ipynb": ("notebook", _notebook),
    ".pdf": ("pdf", formats.pdf),
    ".docx": ("docx", formats.docx),
    ".xlsx": ("xlsx", formats.xlsx),
    ".pptx": ("pptx", formats.pptx),
    **dict.fromkeys((".png", ".jpg", ".jpeg", ".gif", ".bmp", ".webp", ".tif", ".tiff"), ("image", formats.image)),
    ".wav": ("sound", formats.wav),
    ".npy": ("array", formats.npy),
    **dict.fromkeys((".npz", ".zip", ".pt", ".pth", ".keras"), ("archive", formats.members)),
    ".safetensors": ("tensors", formats.safetensors),
}
"""Suffix to what it is and what reads it."""


def fault(workspace: Workspace, path: str) -> str:
    """Why a file is not what its suffix says, as far as the standard library can tell; empty when it looks well.

    Raises:
        Refused: it is not a file of the workspace.
    """
    handle = workspace.open(path)
    with os.fdopen(handle, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size == 0:
            return "it is empty"
        suffix = os.path.splitext(path)[1].lower()
        raw = file.read(MOST_BYTES)
    if not raw.strip():
        return "it is blank"
    if signature := formats.SIGNATURES.get(suffix):
        # Only a pdf may have something before its mark.
        begin = raw[: 1024 if suffix == ".pdf" else 16]
        return "" if any(mark in begin for mark in signature) else f"it does not begin as {suffix} files do"
    if suffix in (".py", ".json") and size <= MOST_BYTES:
        try:
            with warnings.catch_warnings():
                # What Python says about somebody else's code, such as "invalid escape sequence", is no fault of it.
                warnings.simplefilter("ignore")
                ast.parse(raw) if suffix == ".py" else json.loads(raw)
        except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
            return f"it does not parse: {str(error)[:100]}"
    return ""


__all__ = ["Document", "Refused", "fault", "read_document"]
