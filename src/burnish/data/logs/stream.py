"""Reading big text files a piece at a time: lines of JSON, and the elements of one array inside a JSON file."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast

from burnish.core.errors import BadInput

CHUNK = 1 << 20
LONGEST_LINE = 256 << 20
"""Bytes of a line, or of one value of a JSON file: more is refused."""

GZIP = b"\x1f\x8b"


def opened(path: Path) -> AbstractContextManager[BinaryIO]:
    """A file's bytes; those of a gzip file are unpacked as they are read."""
    with path.open("rb") as file:
        packed = file.read(2) == GZIP
    return cast(AbstractContextManager[BinaryIO], gzip.open(path, "rb") if packed else path.open("rb"))


@contextmanager
def text(path: Path) -> Iterator[TextIO]:
    """A file's text, without the mark that some programs write before it; line ends are left as they are."""
    with opened(path) as raw, io.TextIOWrapper(raw, "utf-8-sig", newline="") as file:
        yield file


def head(path: Path, size: int = CHUNK) -> bytes:
    """The first bytes of a file."""
    try:
        with opened(path) as file:
            return file.read(size)
    except (OSError, EOFError) as error:
        raise BadInput(f"{path}: cannot be read: {_first_line(error)}") from None


def lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a file of JSON lines, with their line numbers.

    Raises:
        BadInput: a line is not a JSON object, or too long; names the line.
    """
    try:
        with opened(path) as file:
            number = 0
            while line := file.readline(LONGEST_LINE):
                number += 1
                if len(line) >= LONGEST_LINE:
                    raise BadInput(f"{path}, line {number}: is longer than {LONGEST_LINE >> 20} MB")
                if not line.strip():
                    continue
                yield number, _object(path, number, line)
    except (OSError, EOFError) as error:
        raise BadInput(f"{path}: cannot be read: {_first_line(error)}") from None


def _object(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        torn = "" if line.endswith(b"\n") else "; the file may have been cut off there"
        raise BadInput(f"{path}, line {number}: is not JSON: {_first_line(error)}{torn}") from None
    if not isinstance(value, dict):
        raise BadInput(f"{path}, line {number}: is not a JSON object")
    return value


class JsonFile:
    """A JSON file whose one long array is never in memory as a whole.

    Args:
        path: The file.
        array: The key of the top-level array whose elements go to `each` one by one.
        each: Called with every element.
    """

    def __init__(self, path: Path, array: str = "", each: Callable[[Any], None] = lambda element: None) -> None:
        self.path, self.array, self.each = path, array, each
        self._decoder = json.JSONDecoder()
        self._text = ""
        self._at = 0
        self._ended = False

    def read(self) -> Any:
        """The file's value; of an object, the array's elements are left out.

        Raises:
            BadInput: it is not JSON.
        """
        try:
            with text(self.path) as self._file:
                if self._peek() != "{":
                    return self._value()
                return dict(self._members())
        except (ValueError, RecursionError, OSError, EOFError) as error:
            raise BadInput(f"{self.path}: is not JSON: {_first_line(error)}") from None

    def _members(self) -> Iterator[tuple[str, Any]]:
        self._at += 1
        if self._peek() == "}":
            return
        while True:
            self._peek()
            key = self._value()
            self._expect(":")
            if key == self.array and self._peek() == "[":
                self._elements()
            else:
                yield key, self._value()
            if self._expect(",}") == "}":
                return

    def _elements(self) -> None:
        self._at += 1
        if self._peek() == "]":
            self._at += 1
            return
        while True:
            self.each(self._value())
            if self._expect(",]") == "]":
                return

    def _value(self) -> Any:
        """The next value: tried again with twice as much text while it is not whole."""
        self._peek()
        want = CHUNK
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
                # A number at the end of the buffer may go on in the next piece.
                if end < len(self._text) or self._ended:
                    self._at = end
                    return value
            except json.JSONDecodeError as error:
                if self._ended:
                    raise ValueError(f"{error.msg}, {self._left()} characters before its end") from None
            if len(self._text) - self._at > LONGEST_LINE:
                raise ValueError(f"one of its values is longer than {LONGEST_LINE >> 20} MB")
            self._more(want)
            want *= 2

    def _peek(self) -> str:
        while True:
            while self._at < len(self._text) and self._text[self._at] in " \t\r\n":
                self._at += 1
            if self._at < len(self._text):
                return self._text[self._at]
            if self._ended:
                raise ValueError("it ends in the middle")
            self._more(CHUNK)

    def _expect(self, which: str) -> str:
        found = self._peek()
        if found not in which:
            raise ValueError(f"{' or '.join(which)} expected, {found!r} found")
        self._at += 1
        return found

    def _more(self, count: int) -> None:
        fresh = self._file.read(count)
        self._ended = not fresh
        self._text, self._at = self._text[self._at :] + fresh, 0

    def _left(self) -> int:
        return len(self._text) - self._at


def top_keys(text: str) -> tuple[list[str], dict[str, Any]]:
    """The keys at the top of the beginning of a JSON object, and the values that are whole there."""
    decoder = json.JSONDecoder()
    blank = " \t\r\n,:"
    keys: list[str] = []
    values: dict[str, Any] = {}
    at = text.find("{") + 1
    try:
        while at:
            while text[at] in blank:
                at += 1
            if text[at] != '"':
                break
            key, at = decoder.raw_decode(text, at)
            keys.append(key)
            while text[at] in blank:
                at += 1
            values[key], at = decoder.raw_decode(text, at)
    except (ValueError, IndexError, RecursionError):
        pass
    return keys, values


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
