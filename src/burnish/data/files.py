"""Files of text as Arrow tables, what is wrong with the ones that cannot be read, and how a dataset is saved."""

from __future__ import annotations

import gzip
import io
import json
import os
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from burnish.core.errors import BadInput
from burnish.data.wikitext import articles

if TYPE_CHECKING:
    from datasets import Dataset

SAVED = "data.parquet"
"""What the file of a saved dataset is called in its folder."""

_FAULTS_SHOWN = 5


def load(path: Path) -> pa.Table:
    """The rows of the file at `path`, by its suffix; a plain text becomes the column ``text``.

    Of a folder, the dataset that `save` put there, or into its ``artifact`` when it is a run's folder.

    Raises:
        BadInput: no such file, an unknown suffix, an empty file, not UTF-8 (names the byte), malformed rows (names
            their lines).
    """
    if not path.exists():
        raise BadInput(f"there is no file {path}", "check the path")
    if path.is_dir():
        path = _saved_in(path)
    reader = SUFFIXES.get(suffix_of(path))
    if reader is None:
        raise BadInput(f"{path} has the unknown suffix {path.suffix!r}", f"files of text end in {', '.join(SUFFIXES)}")
    if not path.is_file():
        raise BadInput(f"{path} is a device or a pipe", "give a regular file: text is read more than once")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}", "check the permissions of the file") from error
    if not data:
        raise BadInput(f"{path} is empty", "give a file with at least one document")
    return reader(data, path)


def save(dataset: Dataset, folder: str | Path) -> None:
    """Write `dataset` into `folder` as ``data.parquet``; `burnish.data.read` of the folder gives it back."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    beside = folder / f"{SAVED}.part"
    pa.parquet.write_table(dataset.with_format("arrow")[:], beside)
    os.replace(beside, folder / SAVED)


def _saved_in(folder: Path) -> Path:
    for path in (folder / SAVED, folder / "artifact" / SAVED):
        if path.is_file():
            return path
    raise BadInput(f"the folder {folder} holds no dataset ({SAVED})", f"give a file: {', '.join(SUFFIXES)}")


def suffix_of(path: Path) -> str:
    """The suffix in lower case, both of them when the file is compressed: ``.jsonl.gz``."""
    count = 2 if path.suffix.lower() == ".gz" else 1
    return "".join(path.suffixes[-count:]).lower()


def decode(data: bytes, path: Path) -> str:
    """`data` as text: UTF-8, without a byte-order mark, lines ended by ``\\n``.

    Raises:
        BadInput: not UTF-8; names the file and the offset of the first wrong byte.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(
            f"{path} is not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start}",
            f"convert it, e.g. iconv -f LATIN1 -t UTF-8 {path.name}",
        ) from error
    return text.removeprefix("\ufeff").replace("\r\n", "\n")


def _text(data: bytes, path: Path) -> pa.Table:
    return pa.table({"text": [decode(data, path)]})


def _wikitext(data: bytes, path: Path) -> pa.Table:
    return pa.table({"text": articles(decode(data, path))})


def _json_lines(data: bytes, path: Path) -> pa.Table:
    rows, faults = [], []
    for number, line in enumerate(decode(data, path).split("\n"), 1):
        if not line.strip():
            continue
        try:
            rows.append(_row(json.loads(line)))
        except (ValueError, RecursionError) as error:
            faults.append(f"line {number}: {error}")
    if faults:
        more = [f"and {len(faults) - _FAULTS_SHOWN} more"] if len(faults) > _FAULTS_SHOWN else []
        raise BadInput.of(
            f"{path} is not JSON Lines:", [*faults[:_FAULTS_SHOWN], *more], "put one JSON object on each line"
        )
    return _table(rows, path)


def _json_lines_gz(data: bytes, path: Path) -> pa.Table:
    try:
        data = gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise BadInput(f"{path} is not a whole gzip file: {error}", "compress it again with gzip") from error
    return _json_lines(data, path)


def _json(data: bytes, path: Path) -> pa.Table:
    fix = 'write a list of objects, e.g. [{"text": "..."}]'
    try:
        loaded = json.loads(decode(data, path))
        if not isinstance(loaded, list):
            raise ValueError(f"a list of objects is expected, not {_kind(loaded)}")
        rows = [_row(entry) for entry in loaded]
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path} is not a JSON list of rows: {error}", fix) from error
    return _table(rows, path)


def _parquet(data: bytes, path: Path) -> pa.Table:
    try:
        table = pa.parquet.read_table(io.BytesIO(data))
        table.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise BadInput(f"{path} is not a sound Parquet file: {error}", "write it again") from error
    return table


def _csv(data: bytes, path: Path) -> pa.Table:
    clean = io.BytesIO(decode(data, path).encode())
    try:
        return pa.csv.read_csv(
            clean,
            parse_options=pa.csv.ParseOptions(newlines_in_values=True),
            convert_options=pa.csv.ConvertOptions(column_types={"text": pa.string()}),
        )
    except pa.ArrowException as error:
        raise BadInput(f"{path} is not CSV with a header line: {error}", "quote fields that hold commas") from error


SUFFIXES: dict[str, Callable[[bytes, Path], pa.Table]] = {
    ".txt": _text,
    ".raw": _wikitext,
    ".jsonl": _json_lines,
    ".jsonl.gz": _json_lines_gz,
    ".json": _json,
    ".parquet": _parquet,
    ".csv": _csv,
}
"""Suffixes of the files that can be read."""


def _row(entry: Any) -> dict[str, Any]:
    if isinstance(entry, str):
        return {"text": entry}
    if isinstance(entry, dict):
        return entry
    raise ValueError(f"an object or a string is expected, not {_kind(entry)}")


def _kind(value: Any) -> str:
    return {dict: "an object", list: "a list", type(None): "null"}.get(type(value), f"a {type(value).__name__}")


def _table(rows: Sequence[dict[str, Any]], path: Path) -> pa.Table:
    """`rows` as a table with every column that occurs; what a row lacks is null."""
    columns, faults = {}, []
    for name in {name: None for row in rows for name in row}:
        try:
            columns[name] = pa.array([row.get(name) for row in rows])
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            faults.append(f"column {name!r}: {error}")
    if faults:
        raise BadInput.of(f"{path} has columns of mixed or unusable values:", faults, "give each column one type")
    return pa.table(columns)
