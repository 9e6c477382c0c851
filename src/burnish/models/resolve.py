"""From the name that a user gives to a folder on this machine with the model in it.

A name is, in this order: a path (a model folder or a ``.gguf`` file), "tiny" (the small model that comes with burnish),
a built-in model's short name, a name registered with `register`, a Hugging Face hub id. Whatever it is, what comes out
is an ordinary Hugging Face folder with safetensors weights.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from burnish.core.errors import BadInput, BurnishError, UnknownName
from burnish.core.extras import require
from burnish.data import TINY as TINY_FOLDER
from burnish.models.fetch import (
    SOURCE_FILE,
    Notify,
    cache_folder,
    cache_path,
    fetch,
    ignore,
    locked,
    present,
    write_json,
)
from burnish.models.gguf_folder import dequantized, gguf_folder, read_header
from burnish.models.shelf import SHELF

Kind = Literal["folder", "gguf", "shelf", "hub"]

TINY = "tiny"

HUB_FILES = ("*.safetensors", "*.json", "*.jinja", "*.model", "*.txt")
"""What is taken from the hub: safetensors, configuration, tokenizer. Never a pickle, never code."""

HUB_SKIPPED = ("*/*.safetensors", "onnx/*", "openvino/*", "original/*")
"""Copies of the weights in other forms, which many repositories keep in subfolders."""

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")

REGISTERED_FILE = "registered.json"

REGISTERED_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")


@dataclass(frozen=True)
class Resolved:
    """Where a model is, and where it comes from."""

    folder: Path
    """An ordinary Hugging Face folder with safetensors weights."""
    kind: Kind
    """What the name turned out to be; a registered name is the folder or the GGUF file that it stands for."""
    name: str
    """The name as it was given."""
    source: dict[str, Any] = field(default_factory=dict)
    """Facts for the lineage: file, digest, quantization, licence, packages, revision; what is known."""


def resolve(name: str | Path, notify: Notify = ignore, cache: Path | str | None = None) -> Resolved:
    """Find the model called `name`, fetching and converting it if need be.

    A folder that holds no model does not hide a known name: with a folder ``tiny`` beside you, "tiny" is still the
    built-in one, unless that folder holds a model.

    Args:
        name: Path, "tiny", short name, registered name or hub id.
        notify: Called with licences and with what takes long.
        cache: Cache folder; the default is BURNISH_CACHE or the platform's.

    Raises:
        BadInput: nothing was found (says where it looked and what was there), or what was found is no model.
        Other errors of `fetch` and `gguf_folder`.
    """
    text = str(name)
    known = text == TINY or text in SHELF or text in registered(cache)
    looked: list[str] = []
    steps: tuple[Callable[[], Resolved | None], ...] = (
        lambda: _local(text, known, notify, cache, looked),
        lambda: _tiny(text, looked),
        lambda: _shelf(text, notify, cache, looked),
        lambda: _registered(text, notify, cache, looked),
        lambda: _hub(text, notify, looked),
    )
    for step in steps:
        if found := step():
            return found
    names = [TINY, *SHELF, *registered(cache)]
    hint = UnknownName("model", text, names, "give a path, a hub id (owner/name) or one of: " + ", ".join(names)).fix
    raise BadInput.of(f"no model called {text!r} was found; looked in:", looked, hint)


def _local(text: str, known: bool, notify: Notify, cache: Path | str | None, looked: list[str]) -> Resolved | None:
    path = Path(text).expanduser()
    try:
        there = path.exists()
    except OSError as error:
        raise BadInput(
            f"{text[:80]!r} cannot be looked up: {error.strerror}", "give a path that you may read"
        ) from error
    if not there:
        looked.append(f"this machine: there is no file or folder {path.absolute()}")
        return None
    if known and path.is_dir() and folder_faults(path):
        looked.append(f"this machine: the folder {path.absolute()} holds no model")
        return None
    return _from_path(path, text, notify, cache)


def _from_path(path: Path, text: str, notify: Notify, cache: Path | str | None) -> Resolved:
    if path.is_dir():
        require_model_folder(path)
        folder = path.resolve()
        return Resolved(folder, "folder", text, {"kind": "folder", "path": str(folder), **_source_file(folder)})
    if path.suffix in (".bin", ".pt", ".pth", ".pkl", ".ckpt", ".safetensors"):
        raise BadInput(f"{path} is one file of a model", "give the folder that holds its config.json, or a .gguf file")
    folder = gguf_folder(path, cache, notify)
    return Resolved(folder, "gguf", text, _source_file(folder))


def _tiny(text: str, looked: list[str]) -> Resolved | None:
    if text != TINY:
        return None
    if faults := folder_faults(TINY_FOLDER):
        looked.append(f"burnish's own data ({TINY_FOLDER}): {'; '.join(faults)}")
        return None
    source = {"kind": "folder", "package_data": "burnish/data/tiny", **_source_file(TINY_FOLDER)}
    return Resolved(TINY_FOLDER, "folder", text, source)


def _shelf(text: str, notify: Notify, cache: Path | str | None, looked: list[str]) -> Resolved | None:
    if text not in SHELF:
        looked.append(f"built-in models: none of {', '.join(SHELF)}")
        return None
    model = SHELF[text]
    if model.form == "gguf":
        folder = dequantized(model.sha256, cache)  # the GGUF file is not needed any more once this is there
        folder = folder or gguf_folder(fetch(text, cache, notify), cache, notify, sha256=model.sha256)
    else:
        folder = fetch(text, cache, notify)
    return Resolved(folder, "shelf", text, {**_source_file(folder), **model.facts()})


def _registered(text: str, notify: Notify, cache: Path | str | None, looked: list[str]) -> Resolved | None:
    names = registered(cache)
    if text not in names:
        looked.append(f"registered models: {'none of ' + ', '.join(names) if names else 'there are none'}")
        return None
    path = names[text]
    if not path.exists():
        raise BadInput(
            f"the model {text!r} is registered as {path}, and nothing is there any more",
            f"put it back, or register it anew: burnish models import {text} PATH",
        )
    return _from_path(path, text, notify, cache)


def _hub(text: str, notify: Notify, looked: list[str]) -> Resolved | None:
    if not HUB_ID.fullmatch(text) or text.endswith((".gguf", ".safetensors")):
        looked.append("Hugging Face hub: not asked, because its ids have the form owner/name")
        return None
    require("the Hugging Face hub", "models")
    from huggingface_hub import snapshot_download

    snapshot = partial(
        snapshot_download, text, allow_patterns=list(HUB_FILES), ignore_patterns=list(HUB_SKIPPED), dry_run=False
    )
    try:
        folder = Path(snapshot(local_files_only=True))
        faults = folder_faults(folder)
    except OSError:
        faults = ["not in the hub's cache"]
    if faults:
        notify(f"fetching {text} from the Hugging Face hub; its licence stands at https://huggingface.co/{text}")
        try:
            folder = Path(snapshot())
        except Exception as error:  # the transport's errors have no base class in common with the hub's
            looked.append(f"Hugging Face hub's cache: {faults[0]}")
            looked.append(f"Hugging Face hub: {_one_line(error)}")
            return None
        if faults := folder_faults(folder):
            raise BadInput.of(
                f"{text} on the Hugging Face hub is no model that can be loaded:",
                faults,
                "give a repository with config.json and safetensors weights, or download its .gguf file and give that",
            )
    return Resolved(folder, "hub", text, {"kind": "hub", "id": text, "revision": folder.name, **_source_file(folder)})


def _one_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines[:2])}"[:300]


def folder_faults(folder: Path) -> list[str]:
    """Everything that keeps `folder` from being a model folder with safetensors weights; empty when it is one."""
    if not folder.is_dir():
        return ["no such folder"]
    faults = []
    if not (folder / "config.json").is_file():
        faults.append("no config.json")
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        faults += _shard_faults(folder, index)
    elif not list(folder.glob("*.safetensors")):
        pickles = sorted(path.name for kind in ("*.bin", "*.pt", "*.pth") for path in folder.glob(kind))
        if pickles:
            faults.append(f"its weights are a pickle ({', '.join(pickles[:3])}), which can run code when it is read")
        else:
            faults.append("no safetensors weights")
    return faults


def _shard_faults(folder: Path, index: Path) -> list[str]:
    try:
        shards = sorted({str(shard) for shard in json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()})
    except (ValueError, KeyError, AttributeError):
        return [f"{index.name} cannot be read"]
    if outside := [shard for shard in shards if Path(shard).name != shard]:
        return [f"{index.name} points outside the folder: {outside[0]}"]
    absent = [shard for shard in shards if not (folder / shard).is_file()]
    return [f"{len(absent)} of {len(shards)} weight files are missing, {absent[0]} among them"] if absent else []


def require_model_folder(folder: Path) -> None:
    """Refuse a folder that is no model folder, or whose weights are a pickle.

    Raises:
        BadInput: with every fault.
    """
    faults = folder_faults(folder)
    if not faults:
        return
    if any("pickle" in fault for fault in faults):
        fix = "convert the weights to safetensors with save_pretrained, where you trust their source, and give that folder"
    elif ggufs := sorted(folder.glob("*.gguf")):
        fix = f"give the file itself: {ggufs[0]}"
    else:
        fix = "give a folder with config.json, safetensors weights and a tokenizer, as save_pretrained writes it"
    raise BadInput.of(f"{folder} is no model folder:", faults, fix)


def _source_file(folder: Path) -> dict[str, Any]:
    """What a folder that burnish made says about its origin; empty for any other folder."""
    path = folder / SOURCE_FILE
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BadInput(f"{path} is damaged: {error}", f"delete the folder {folder}, and it is made again") from error
    return dict(content)


def registered(cache: Path | str | None = None) -> dict[str, Path]:
    """The names that `register` has made known, and the paths they stand for.

    Raises:
        BadInput: the list in the cache is damaged.
    """
    path = cache_path(cache) / REGISTERED_FILE
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return {str(name): Path(target) for name, target in content.items()}
    except (ValueError, AttributeError, TypeError) as error:
        raise BadInput(f"{path} is damaged: {error}", "delete it, and register your models anew") from error


def register(name: str, path: Path | str, cache: Path | str | None = None) -> Path:
    """Make a local model folder or GGUF file known as `name`; an earlier entry of that name is replaced.

    Nothing is copied: the name stands for the path.

    Returns:
        The absolute path that the name stands for.

    Raises:
        BadInput: the name is taken or malformed, or there is no model at `path`; every fault at once.
    """
    target = Path(path).expanduser().resolve()
    faults, fixes = [], []
    if name == TINY or name in SHELF:
        faults.append(f"the name {name!r} belongs to a built-in model")
    elif not REGISTERED_NAME.fullmatch(name):
        faults.append(f"the name {name!r} is not made of small letters, digits, '.', '_' and '-'")
    if faults:
        fixes.append("choose another name")
    try:
        if target.is_dir():
            require_model_folder(target)
        else:
            read_header(target)
    except BurnishError as error:
        faults.append(error.problem)
        fixes.append(error.fix)
    if faults:
        raise BadInput.of(f"cannot register {path} as {name!r}:", faults, "; ".join(fixes))
    root = cache_folder(cache)
    with locked(root, "registered"):
        names = {**registered(root), name: target}
        write_json(root / REGISTERED_FILE, {key: str(value) for key, value in sorted(names.items())})
    return target


def shelf_rows(cache: Path | str | None = None) -> list[dict[str, Any]]:
    """One row a built-in model, for a listing: what it is, how large, under which licence, and whether it is here."""
    return [
        {
            "name": model.name,
            "origin": model.origin,
            "parameters": model.parameters,
            "bytes": model.bytes,
            "licence": model.licence,
            "quantization": model.quantization,
            "present": bool(present(model, cache) or dequantized(model.sha256, cache)),
        }
        for model in SHELF.values()
    ]
