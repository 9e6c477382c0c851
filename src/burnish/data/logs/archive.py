"""Entries of a zip file, read into memory under a limit; nothing is written to disk.

Python's zipfile knows no Zstandard before version 3.14, and Inspect packs with it: the packed bytes are read here, and
unpacked by pyarrow, piece by piece, until the limit. What an entry's header says about its size is never trusted.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from burnish.core.errors import BadInput

LARGEST_ENTRY = 256 << 20
"""Bytes of one unpacked entry."""
LARGEST_TOTAL = 2 << 30
"""Bytes of all entries that are read."""
STORED, DEFLATE, ZSTANDARD = 0, 8, 93
_PIECE = 1 << 18
_HEADER = struct.Struct("<4s22xHH")


class Archive:
    """A zip file, as a context manager.

    Args:
        path: The file.

    Raises:
        BadInput: it is not a whole zip file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._spent = 0
        try:
            self._zip = zipfile.ZipFile(path)
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
            raise BadInput(f"{path}: is not a whole zip file: {error}") from None
        self._entries = {entry.filename: entry for entry in self._zip.infolist()}

    @property
    def names(self) -> list[str]:
        """The entries."""
        return list(self._entries)

    def json(self, name: str) -> Any:
        """The value of an entry of JSON.

        Raises:
            BadInput: the entry is damaged, packed in a way that is not known, or unpacks to more than the limit.
        """
        import json

        try:
            return json.loads(self.read(name))
        except (ValueError, RecursionError) as error:
            raise BadInput(f"{self.path}: its entry {name} is not JSON: {error}") from None

    def read(self, name: str) -> bytes:
        """The bytes of an entry; the errors of `json`."""
        entry = self._entries[name]
        kept = bytearray()
        try:
            for piece in self._pieces(entry):
                kept += piece
                self._spent += len(piece)
                if len(kept) > LARGEST_ENTRY or self._spent > LARGEST_TOTAL:
                    raise BadInput(
                        f"{self.path}: its entry {name} unpacks to more than is read "
                        f"({LARGEST_ENTRY >> 20} MB an entry, {LARGEST_TOTAL >> 20} MB a file)",
                        "the file is damaged, or made to fill memories",
                    )
        except (zlib.error, OSError, ValueError, struct.error) as error:
            raise BadInput(f"{self.path}: its entry {name} is damaged: {error}") from None
        if entry.CRC and zlib.crc32(kept) != entry.CRC:
            raise BadInput(f"{self.path}: its entry {name} is damaged: the checksum is wrong")
        return bytes(kept)

    def _pieces(self, entry: zipfile.ZipInfo) -> Iterator[bytes]:
        if entry.flag_bits & 1:
            raise BadInput(f"{self.path}: its entry {entry.filename} is encrypted")
        if entry.compress_type == STORED:
            yield from self._raw(entry)
        elif entry.compress_type == DEFLATE:
            yield from _inflate(self._raw(entry))
        elif entry.compress_type == ZSTANDARD:
            yield from _zstandard(b"".join(self._raw(entry)))
        else:
            raise BadInput(
                f"{self.path}: its entry {entry.filename} is packed by method {entry.compress_type}, which is not known",
                "deflate (8) and Zstandard (93) are",
            )

    def _raw(self, entry: zipfile.ZipInfo) -> Iterator[bytes]:
        """The packed bytes, found through the entry's own header."""
        with self.path.open("rb") as file:
            file.seek(entry.header_offset)
            mark, name, extra = _HEADER.unpack(file.read(_HEADER.size))
            if mark != b"PK\x03\x04":
                raise ValueError("its header is not where it should be")
            file.seek(name + extra, 1)
            left = entry.compress_size
            while left and (piece := file.read(min(left, _PIECE))):
                left -= len(piece)
                yield piece
            if left:
                raise ValueError("it is cut off")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._zip.close()


def _inflate(packed: Iterator[bytes]) -> Iterator[bytes]:
    unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
    for piece in packed:
        while piece:
            yield unpacker.decompress(piece, _PIECE)
            piece = unpacker.unconsumed_tail
    yield unpacker.flush()


def _zstandard(packed: bytes) -> Iterator[bytes]:
    """One frame, or several one after the other."""
    import pyarrow as pa

    with pa.CompressedInputStream(pa.BufferReader(packed), "zstd") as stream:
        while piece := stream.read(_PIECE):
            yield piece
