"""Small logs of other tools, made for tests in the shapes that those tools write."""

from __future__ import annotations

import json
import struct
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

DEFLATE, ZSTANDARD = 8, 93


def zstandard(data: bytes, frames: int = 1) -> bytes:
    """Packed as one frame, or several one after the other."""
    step = -(-len(data) // frames) or 1
    codec = pa.Codec("zstd")
    return b"".join(codec.compress(data[at : at + step], asbytes=True) for at in range(0, len(data), step))


def write_zip(path: Path, entries: Mapping[str, bytes], method: int = DEFLATE, frames: int = 1) -> Path:
    """A zip file, of a method that Python's own zipfile may not write."""
    body, directory = bytearray(), bytearray()
    for name, data in entries.items():
        if method == ZSTANDARD:
            packed = zstandard(data, frames)
        else:
            packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
            packed = packer.compress(data) + packer.flush()
        sizes = (zlib.crc32(data), len(packed), len(data), len(name), 0)
        at = len(body)
        body += struct.pack("<4sHHHHHIIIHH", b"PK\x03\x04", 20, 0, method, 0, 0, *sizes) + name.encode() + packed
        directory += struct.pack(
            "<4sHHHHHHIIIHHHHHII", b"PK\x01\x02", 20, 20, 0, method, 0, 0, *sizes, 0, 0, 0, 0, at
        ) + name.encode()  # fmt: skip
    end = struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, len(entries), len(entries), len(directory), len(body), 0)
    path.write_bytes(bytes(body) + bytes(directory) + end)
    assert zipfile.is_zipfile(path)
    return path


def sample(item: int, value: Any, epoch: int = 1, **more: Any) -> dict[str, Any]:
    """One Inspect sample, or its summary."""
    scores = {"match": {"value": value, "answer": f"answer {item} {epoch}"}}
    return {"id": item, "epoch": epoch, "input": f"question {item}", "target": "x", "scores": scores} | more


def header(samples: Sequence[Any], model: str = "maker/one", **results: Any) -> dict[str, Any]:
    """An Inspect header."""
    spec = {"task": "quiz", "model": model, "config": {}, "dataset": {"name": "quiz"}}
    return {"version": 2, "status": "success", "eval": spec, "results": {"total_samples": len(samples)} | results}


def inspect_json(path: Path, samples: Sequence[Any], model: str = "maker/one", **results: Any) -> Path:
    """An Inspect JSON log."""
    path.write_text(json.dumps(header(samples, model, **results) | {"samples": list(samples)}), encoding="utf-8")
    return path


def inspect_eval(path: Path, samples: Sequence[Any], method: int = ZSTANDARD, frames: int = 1, **more: Any) -> Path:
    """An Inspect .eval log of summaries."""
    entries = {"header.json": header(samples), "summaries.json": list(samples)} | more
    return write_zip(path, {name: json.dumps(value).encode() for name, value in entries.items()}, method, frames)


def line(doc: int, value: Any, through: str = "none", **more: Any) -> dict[str, Any]:
    """One line of lm-eval's samples."""
    found = {"doc_id": doc, "doc": {"question": f"question {doc}", "topic": f"topic {doc % 3}"}, "filter": through}
    found |= {"metrics": ["exact_match"], "doc_hash": f"hash{doc:05d}", "prompt_hash": f"prompt{doc}"}
    return found | {"exact_match": value} | more


def lm_eval(path: Path, lines: Iterable[Mapping[str, Any]]) -> Path:
    """A file of lm-eval's samples."""
    path.write_text("".join(json.dumps(one) + "\n" for one in lines), encoding="utf-8")
    return path


def csv(path: Path, names: str, *rows: str) -> Path:
    """A CSV file."""
    path.write_text("\n".join([names, *rows]) + "\n", encoding="utf-8")
    return path
