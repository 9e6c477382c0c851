"""Readers: a file, the built-in corpus, WikiText-2 or a hub id becomes a dataset with one document a row.

What `read` accepts:

======================================  ===============================================================================
``notes.txt``                           the whole file is one document
``wiki.test.raw``                       the layout of WikiText: one article is one document, unchanged to the character
``rows.jsonl``, ``rows.jsonl.gz``       one object (or one string) a line
``rows.json``                           a list of objects or strings
``rows.parquet``, ``rows.csv``          a table; CSV with a header line
``runs/a``                              the dataset that a run made, or that `burnish.data.save` put into the folder
``builtin[:SPLIT]``                     Python's own documentation: calibration (the default), validation or test
``wikitext2[:SPLIT]``                   valid (the default; detokenized, for calibration) or test (unchanged, for
                                        perplexity), from ``$BURNISH_DATA/wikitext2``, else from the hub
``ID[:CONFIG[:SPLIT]]``                 a dataset of the Hugging Face hub, e.g. ``wikitext:wikitext-2-raw-v1:test``
======================================  ===============================================================================

A table's documents are its column ``text``, or else its only column of strings, which is then renamed to ``text``; the
other columns are kept. Rows without text are left out. Files are UTF-8.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from burnish.core.errors import BadInput, UnknownName
from burnish.core.extras import require
from burnish.data.corpus import corpus
from burnish.data.files import SUFFIXES, decode, load, suffix_of
from burnish.data.wikitext import articles, detokenize

if TYPE_CHECKING:
    from datasets import Dataset

_HUB_ID = re.compile(r"[\w-][\w.-]*(/[\w.-]+)?")
_WIKITEXT2 = {"valid": ("wiki.valid.raw", "valid.txt"), "test": ("wiki.test.raw",)}
_WIKITEXT2_HUB = ("Salesforce/wikitext", "wikitext-2-raw-v1")


def read(source: str | Path, split: str | None = None) -> Dataset:
    """Read `source` (see the table above) into a dataset with the column ``text``.

    Args:
        source: A path, or one of the names above. A file called like a name is meant by ``./builtin``.
        split: The split of a named source, where `source` does not say it.

    Raises:
        BadInput: missing, empty, not UTF-8 or malformed file; no text column; a source that cannot be reached.
        UnknownName: no such split.
        MissingExtra: the packages of the extra ``models`` are not installed.
    """
    require("reading data", "models")
    name, _, said = str(source).partition(":")
    if isinstance(source, Path) or (name not in ("builtin", "wikitext2") and _is_file(source)):
        if split is not None:
            raise BadInput(f"{source} is a file, and a file has no split {split!r}", "leave the split out")
        return _documents(_from_table(load(Path(source).expanduser())), str(source))
    if split is not None and said and said != split and name in ("builtin", "wikitext2"):
        raise BadInput(f"{source!r} and split {split!r} contradict each other", "give the split once")
    if name == "builtin":
        return _builtin(said or split or "calibration")
    if name == "wikitext2":
        return _wikitext2(said or split or "valid")
    return _hub(source, split)


def provenance(dataset: Dataset) -> dict[str, str | int]:
    """Where the documents of `dataset` come from, and exactly which text they are.

    The digest and the counts are those of the rows as they are now, so they stay true after ``select`` or ``map``;
    the source is what `read` was asked for, kept in ``dataset.info.description``.

    Returns:
        ``source``; ``sha256`` of the texts in order, each preceded by its length in bytes (8 bytes, big-endian);
        ``documents``; ``characters``.
    """
    digest = hashlib.sha256()
    characters = 0
    texts: list[str] = dataset["text"][:]
    for text in texts:
        data = text.encode()
        digest.update(len(data).to_bytes(8, "big") + data)
        characters += len(text)
    try:
        source = json.loads(dataset.info.description)["source"]
    except (ValueError, TypeError, KeyError):  # a dataset that `read` did not make
        source = "unknown"
    return {"source": source, "sha256": digest.hexdigest(), "documents": len(texts), "characters": characters}


def _is_file(source: str) -> bool:
    """Whether `source` is a file or can only be meant as one."""
    path = Path(source).expanduser()
    meant = suffix_of(path) in SUFFIXES or source.startswith(("/", ".", "~")) or "\\" in source
    return bool(source) and (meant or path.exists())


def _builtin(split: str) -> Dataset:
    documents = corpus(split)
    columns = {"name": [found.name for found in documents], "text": [found.text for found in documents]}
    return _documents(_from_columns(columns), f"builtin:{split} of Python {platform.python_version()}")


def _wikitext2(split: str) -> Dataset:
    split = {"validation": "valid"}.get(split, split)
    if split not in _WIKITEXT2:
        raise UnknownName("split of wikitext2", split, _WIKITEXT2)
    folder = Path(os.environ.get("BURNISH_DATA", "")) / "wikitext2"
    names = _WIKITEXT2[split]
    path = next((folder / name for name in names if "BURNISH_DATA" in os.environ and (folder / name).is_file()), None)
    if path is not None:
        text, source = decode(path.read_bytes(), path), f"wikitext2:{split} ({path.name})"
    else:
        hub, config = _WIKITEXT2_HUB
        where = f"{' or '.join(names)} in $BURNISH_DATA/wikitext2"
        place = str(folder) if "BURNISH_DATA" in os.environ else "BURNISH_DATA is not set"
        try:
            rows = _load_hub(hub, config, {"valid": "validation"}.get(split, split))
        except BadInput as error:
            raise BadInput(
                f"wikitext2:{split} is not at hand: no {where} ({place}); {error.problem}",
                f"put the file there and set BURNISH_DATA, or go online for the hub's {hub}",
            ) from error
        # The hub has one line a row and empties the blank ones, which are one space in the file.
        text, source = "".join(line or " \n" for line in rows["text"][:]), f"wikitext2:{split} ({hub})"
    parts = articles(text)
    return _documents(
        _from_columns({"text": [detokenize(part) for part in parts] if split == "valid" else parts}), source
    )


def _hub(source: str, split: str | None) -> Dataset:
    parts = source.split(":")
    if not _HUB_ID.fullmatch(parts[0]) or len(parts) > 3:
        raise BadInput(
            f"{source!r} is no file and no name of a dataset",
            "give a path, builtin[:SPLIT], wikitext2[:SPLIT] or a hub id as ID[:CONFIG[:SPLIT]]",
        )
    name, config, said = [*parts, "", ""][:3]
    if split is not None and said and said != split:
        raise BadInput(f"{source!r} and split {split!r} contradict each other", "give the split once")
    loaded = _load_hub(name, config or None, said or split)
    if isinstance(loaded, dict):
        if len(loaded) > 1:
            raise BadInput(
                f"{source!r} has several splits: {', '.join(map(str, loaded))}",
                f"choose one, e.g. {name}:{config}:{next(iter(loaded))}",
            )
        loaded = next(iter(loaded.values()))
    return _documents(loaded, source)


def _load_hub(name: str, config: str | None, split: str | None) -> Any:
    from datasets import load_dataset

    try:
        return load_dataset(name, config, split=split)
    except Exception as error:  # whatever the hub's client raises: no network, no such id, configuration or split
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise BadInput(
            f"no file is called {name!r}, and the hub gave no dataset of that name: {reason}",
            "check the spelling and the network (HF_HUB_OFFLINE=1 answers at once); offline, read a file or builtin",
        ) from error


def _from_columns(columns: dict[str, list[str]]) -> Dataset:
    import pyarrow as pa

    return _from_table(pa.table(columns))


def _from_table(table: Any) -> Dataset:
    from datasets import Dataset

    return Dataset(table)


def _documents(dataset: Dataset, source: str) -> Dataset:
    """`dataset` with its documents in ``text``, without rows that have none, and with its source noted."""
    strings = [name for name, feature in dataset.features.items() if _is_string(feature)]
    if "text" not in strings:
        if len(strings) != 1 or "text" in dataset.features:
            raise BadInput(
                f"{source} has no column that is clearly the text; its columns: {_listed(dataset.features)}",
                "call the column of the documents 'text' and make it hold strings",
            )
        dataset = dataset.rename_column(strings[0], "text")
    texts: list[str | None] = dataset["text"][:]
    filled = [at for at, text in enumerate(texts) if text and not text.isspace()]
    if not filled:
        raise BadInput(f"{source} holds no text", "give a file with at least one document")
    if len(filled) < len(texts):
        dataset = dataset.select(filled)
    dataset.info.description = json.dumps({"source": source})
    return dataset


def _is_string(feature: Any) -> bool:
    return getattr(feature, "dtype", None) in ("string", "large_string")


def _listed(features: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in features) or "none"
