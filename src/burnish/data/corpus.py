"""The built-in corpus: the documentation that ships with every Python, as text to calibrate and measure on.

Two sources are on every machine, so that tests, examples and the tiny model need no download: the language reference
in ``pydoc_data.topics`` and the docstrings of the standard library. The library's modules are parsed, never imported.
One document is one topic (``topic:imports``) or one module (``module:json.decoder``).

A hash places each document's name on a line that is cut into calibration, validation and test (50/20/30 %): a
document stays in its split in every Python version, and documents follow one another in an order that mixes subjects.
The text itself differs between versions, and installations may leave out modules; `corpus_id` names exactly what was
read.

No paragraph stands in two splits: one is dropped when more than half of its runs of eight words occur earlier on that
line, so text that calibration holds never comes back in the other two.

The text is under the Python Software Foundation License, version 2.0.
"""

from __future__ import annotations

import ast
import gc
import hashlib
import os
import platform
import re
import sysconfig
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from burnish.core.errors import BadInput, UnknownName

SPLITS = ("calibration", "validation", "test")
"""The splits, in the order in which text is kept when it occurs more than once."""

_BOUNDS = (0.5, 0.7, 1.0)  # where each split ends on the unit interval

# Folders that are left out: what is no library, what systems package apart or Python has removed, generated tables.
_NO_LIBRARY = frozenset(["site-packages", "dist-packages", "lib-dynload", "__pycache__", "test", "tests", "__phello__"])
_APART = frozenset(["tkinter", "idlelib", "turtledemo", "distutils", "lib2to3", "ensurepip", "msilib"])
_TABLES = frozenset(["encodings", "pydoc_data"])
_SKIPPED = _NO_LIBRARY | _APART | _TABLES

_DOCSTRING_SHARE = 0.05  # of a module's source; parsing time is spent where the docstrings are
_SHORTEST_DOCSTRING = 60  # characters: shorter ones are mostly signatures in words
_SHORTEST_DOCUMENT = 200  # characters
_RUN = 8  # words that must agree in a row to count as the same text
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Document:
    """One topic or one module: its name and its text, paragraphs separated by one blank line."""

    name: str
    text: str


def corpus(split: str) -> list[Document]:
    """The documents of `split` ("calibration", "validation" or "test"), in the order of their names' hashes.

    Raises:
        UnknownName: no such split.
        BadInput: this Python has no documentation to read (stripped installations).
    """
    if split not in SPLITS:
        raise UnknownName("split of the built-in corpus", split, SPLITS)
    return list(_splits()[split])


def corpus_id() -> dict[str, str]:
    """Which corpus this is: the Python version, and the SHA-256 of all names and texts in order."""
    digest = hashlib.sha256()
    for split in SPLITS:
        for document in _splits()[split]:
            digest.update(f"{split}\0{document.name}\0{document.text}\0".encode())
    return {"python": platform.python_version(), "sha256": digest.hexdigest()}


def split_of(name: str) -> str:
    """The split of the document called `name`: a function of the name alone."""
    return next(split for split, bound in zip(SPLITS, _BOUNDS, strict=True) if _place(name) < bound)


def _place(name: str) -> float:
    """Where `name` falls on the unit interval."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:6], "big") / 2**48


@cache
def _splits() -> dict[str, tuple[Document, ...]]:
    """All documents by split, without repeated text. Takes a second or two, once per process."""
    with _collection_paused():
        documents = sorted([*_topics(), *_modules()], key=lambda found: _place(found.name))
    if not documents:
        raise BadInput(
            f"this Python ({platform.python_version()}) ships without its documentation and library sources",
            "use a full Python installation, or read a text file instead of the built-in corpus",
        )
    splits: dict[str, list[Document]] = {split: [] for split in SPLITS}
    seen: set[str] = set()
    for document in documents:
        text = "\n\n".join(_unseen(document.text, seen))
        if len(text) >= _SHORTEST_DOCUMENT:
            splits[split_of(document.name)].append(Document(document.name, text))
    return {split: tuple(found) for split, found in splits.items()}


@contextmanager
def _collection_paused() -> Iterator[None]:
    """No garbage collection meanwhile: syntax trees hold no cycles, and walking them all would double the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _unseen(text: str, seen: set[str]) -> Iterator[str]:
    """The paragraphs of `text` that are new; their runs of words are added to `seen`."""
    for paragraph in paragraphs(text):
        runs = word_runs(paragraph)
        if runs and 2 * len(runs & seen) <= len(runs):
            yield paragraph
        seen |= runs


def paragraphs(text: str) -> list[str]:
    """The paragraphs of `text`: stretches between blank lines, with their indentation, without trailing spaces."""
    lines = "\n".join(line.rstrip() for line in text.split("\n"))
    return [part for part in re.split(r"\n{2,}", lines.strip("\n")) if part]


def word_runs(paragraph: str) -> set[str]:
    """Every run of eight words of `paragraph`, case and punctuation aside; the whole of it if it is shorter."""
    words = _WORD.findall(paragraph.lower())
    return {" ".join(words[at : at + _RUN]) for at in range(max(1, len(words) - _RUN + 1))} - {""}


def _topics() -> Iterator[Document]:
    """The language reference behind Python's ``help("TOPIC")``."""
    try:
        from pydoc_data.topics import topics
    except ImportError:  # some systems package it apart
        return
    for name, text in topics.items():
        yield Document(f"topic:{name}", text)


def _modules() -> Iterator[Document]:
    """The long docstrings of each module of the standard library, in the order of its source."""
    root = Path(sysconfig.get_paths()["stdlib"])
    for path in _sources(root):
        try:
            source = path.read_text("utf-8")
            if sum(map(len, source.split('"""')[1::2])) < _DOCSTRING_SHARE * len(source):
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # odd escapes in the library are not the caller's concern
                tree = ast.parse(source)
        except (OSError, UnicodeDecodeError, SyntaxError):  # dangling links, other encodings, samples of bad code
            continue
        text = "\n\n".join(found for found in _docstrings(tree) if len(found) >= _SHORTEST_DOCSTRING)
        parts = path.relative_to(root).with_suffix("").parts
        yield Document("module:" + ".".join(parts[:-1] if parts[-1] == "__init__" else parts), text)


def _sources(root: Path) -> Iterator[Path]:
    for folder, inside, files in os.walk(root):
        inside[:] = [name for name in inside if name not in _SKIPPED and not name.startswith("config-")]
        yield from (Path(folder, name) for name in files if name.endswith(".py"))


def _docstrings(node: ast.AST) -> Iterator[str]:
    """Docstrings of `node` and of the classes and functions in it, in the order of the source."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and (
        text := ast.get_docstring(node)
    ):
        yield text
    body: Iterable[ast.AST] = getattr(node, "body", ())
    for child in body:
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.If | ast.Try):
            yield from _docstrings(child)
