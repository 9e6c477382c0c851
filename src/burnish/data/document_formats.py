"""Formats that are more than text: what of them can be put into words without executing or unpickling anything."""

from __future__ import annotations

import io
import json
import math
import struct
import warnings
import wave
import zipfile
from typing import Any

PAGES, ROWS, COLUMNS, SHEETS = 30, 60, 20, 5
"""Of a document that are read."""
MOST_UNPACKED = 200 * 2**20
"""Bytes that a packed document may claim to unpack to."""
MOST_PIXELS = 20_000_000

MEDIA = {
    ".mp4": "video", ".avi": "video", ".mov": "video", ".mkv": "video", ".webm": "video",
    ".mp3": "sound", ".flac": "sound", ".ogg": "sound", ".m4a": "sound",
}  # fmt: skip
OPAQUE = {
    ".pkl": "pickled object", ".pickle": "pickled object", ".joblib": "pickled object", ".h5": "HDF5 data",
    ".hdf5": "HDF5 data", ".onnx": "ONNX model", ".model": "model", ".bin": "binary data", ".parquet": "Parquet table",
    ".db": "database", ".sqlite": "database", ".sqlite3": "database", ".ckpt": "checkpoint", ".tar": "archive",
    ".gz": "packed data", ".7z": "archive", ".exe": "program", ".so": "program",
}  # fmt: skip
_PACKED = (b"PK\x03\x04", b"PK\x05\x06")
SIGNATURES: dict[str, tuple[bytes, ...]] = {
    ".pdf": (b"%PDF-",), ".png": (b"\x89PNG\r\n\x1a\n",), ".jpg": (b"\xff\xd8\xff",), ".jpeg": (b"\xff\xd8\xff",),
    ".gif": (b"GIF87a", b"GIF89a"), ".bmp": (b"BM",), ".webp": (b"WEBP",), ".docx": _PACKED, ".xlsx": _PACKED,
    ".pptx": _PACKED, ".zip": _PACKED, ".npz": _PACKED, ".npy": (b"\x93NUMPY",), ".wav": (b"WAVE",), ".mp4": (b"ftyp",),
    ".mov": (b"ftyp", b"moov"), ".avi": (b"AVI ",), ".h5": (b"\x89HDF",), ".hdf5": (b"\x89HDF",),
    ".gz": (b"\x1f\x8b",), ".sqlite": (b"SQLite format 3\0",), ".parquet": (b"PAR1",),
}  # fmt: skip
"""Suffix to byte strings of which one stands at, or near, the beginning of such a file."""
_CONTAINERS = {
    b"ftyp": "MP4 container", b"AVI ": "AVI container", b"\x1aE\xdf\xa3": "Matroska container", b"ID3": "MP3 with tags",
    b"\xff\xfb": "MP3 stream", b"fLaC": "FLAC", b"OggS": "Ogg container",
}  # fmt: skip


class Unreadable(Exception):
    """What was given is not read, and why."""


def container(head: bytes) -> str:
    """The container of a video or sound, by its first bytes; empty when it is none that is known."""
    return next((name for mark, name in _CONTAINERS.items() if mark in head[:16]), "")


def pdf(raw: bytes) -> str:
    """The text of the first pages."""
    import logging

    from pypdf import PdfReader

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reader = PdfReader(io.BytesIO(raw), strict=False)
        if reader.is_encrypted:
            raise Unreadable("the pdf is encrypted")
        count = len(reader.pages)
        if not count:
            raise Unreadable("broken pdf: it has no pages")
        texts = [reader.pages[number].extract_text() for number in range(min(count, PAGES))]
        images = sum(len(reader.pages[number].images) for number in range(min(count, PAGES)))
    facts = f"(pdf, {count} pages, {images} images)"
    return "\n".join([facts, *(f"[page {number}]\n{text}" for number, text in enumerate(texts, 1))])


def docx(raw: bytes) -> str:
    """Paragraphs and tables."""
    _check_packed(raw)
    from docx import Document

    document = Document(io.BytesIO(raw))
    lines = [paragraph.text for paragraph in document.paragraphs]
    for table in document.tables:
        lines += [" | ".join(cell.text for cell in row.cells) for row in table.rows[:ROWS]]
    return "\n".join([f"(docx, {len(document.inline_shapes)} images)", *lines])


def xlsx(raw: bytes) -> str:
    """The first rows of the first sheets."""
    _check_packed(raw)
    from openpyxl import load_workbook

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        book = load_workbook(io.BytesIO(raw), read_only=True, data_only=True)
        lines = []
        for sheet in book.worksheets[:SHEETS]:
            lines.append(f"[sheet {sheet.title}: {sheet.max_row} rows, {sheet.max_column} columns]")
            rows = sheet.iter_rows(max_row=ROWS, max_col=COLUMNS, values_only=True)
            lines += [", ".join("" if value is None else str(value) for value in row) for row in rows]
        book.close()
    return "\n".join(lines)


def pptx(raw: bytes) -> str:
    """The text of each slide."""
    _check_packed(raw)
    from pptx import Presentation

    lines = []
    for number, slide in enumerate(Presentation(io.BytesIO(raw)).slides, 1):
        if number > PAGES:
            break
        lines.append(f"[slide {number}]")
        lines += [shape.text_frame.text for shape in slide.shapes if shape.has_text_frame]
    return "\n".join(lines)


def image(raw: bytes) -> str:
    """What an image is, in figures: nobody looks at it."""
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        picture = Image.open(io.BytesIO(raw))
        picture.verify()
        picture = Image.open(io.BytesIO(raw))
        facts = [str(picture.format), f"{picture.width} x {picture.height} pixels", picture.mode]
        frames = getattr(picture, "n_frames", 1)
        facts += [f"{frames} frames"] if frames > 1 else []
        if picture.width * picture.height <= MOST_PIXELS:
            low, high = picture.convert("L").getextrema()
            facts.append("of one colour only" if low == high else "not blank")
    return f"(image: {', '.join(facts)}; its content is not looked at)"


def wav(raw: bytes) -> str:
    """Length and format of a recording."""
    with wave.open(io.BytesIO(raw)) as sound:
        seconds = sound.getnframes() / sound.getframerate()
        return f"(sound: {seconds:.2f} s, {sound.getframerate()} Hz, {sound.getnchannels()} channels)"


def npy(raw: bytes) -> str:
    """Shape and type of an array."""
    import numpy as np

    file = io.BytesIO(raw)
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, kind = read(file)
    if kind.hasobject:
        raise Unreadable("it holds pickled objects, which are not looked into")
    if math.prod(shape) * kind.itemsize > len(raw):
        raise Unreadable("broken array: it is shorter than its header says")
    array: Any = np.load(io.BytesIO(raw), allow_pickle=False)
    finite = bool(np.isfinite(array).all()) if array.dtype.kind in "fiu" else "unknown"
    return f"(array: shape {array.shape}, {array.dtype}, all finite: {finite})"


def members(raw: bytes) -> str:
    """Names and sizes of what is packed."""
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        names = archive.infolist()
        lines = [f"{one.filename} ({one.file_size} bytes)" for one in names[:ROWS]]
    more = [f"and {len(names) - ROWS} more"] if len(names) > ROWS else []
    return "\n".join([f"(archive of {len(names)} files)", *lines, *more])


def safetensors(raw: bytes) -> str:
    """Names, types and shapes of tensors."""
    if len(raw) < 8 or (length := struct.unpack("<Q", raw[:8])[0]) > len(raw) - 8:
        raise Unreadable("broken tensors: the header is longer than the file")
    header = json.loads(raw[8 : 8 + length])
    rows = [f"{name}: {one['dtype']} {one['shape']}" for name, one in header.items() if name != "__metadata__"]
    return "\n".join([f"({len(rows)} tensors)", *rows[:ROWS]])


def _check_packed(raw: bytes) -> None:
    """Refuse what would unpack to far more than it is."""
    if not zipfile.is_zipfile(io.BytesIO(raw)):
        raise Unreadable("broken: it is no packed document")
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        size = sum(one.file_size for one in archive.infolist())
    if size > MOST_UNPACKED:
        raise Unreadable(f"it would unpack to {size} bytes")
