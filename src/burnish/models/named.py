"""Whether what a string names can be a model, without loading or fetching it: for what is checked before anything runs."""

from __future__ import annotations

from pathlib import Path

from burnish.core.errors import BadInput, UnknownName
from burnish.models.resolve import HUB_ID, TINY, registered, require_model_folder
from burnish.models.shelf import SHELF

MAGIC = b"GGUF"
"""How a GGUF file begins."""


def check_model(source: str) -> None:
    """Refuse a name that `burnish.load` cannot load, as far as that is seen from outside; hub ids are let through.

    Raises:
        BadInput: nothing of that name, or a folder or a file that is no model.
    """
    known = [TINY, *SHELF, *registered()]
    path = Path(source).expanduser()
    try:
        if path.is_file():
            with path.open("rb") as file:
                if file.read(len(MAGIC)) != MAGIC:
                    raise BadInput(f"{path} is no GGUF file", "give a .gguf file, or the folder with its config.json")
            return
        if source in known:
            return
        if path.is_dir():
            require_model_folder(path)
            return
    except OSError as error:
        raise BadInput(f"{source[:80]!r} cannot be read: {error.strerror}", "give a path that you may read") from None
    if source.startswith(("/", ".", "~")) or not HUB_ID.fullmatch(source) or source.endswith((".gguf", ".safetensors")):
        hint = UnknownName("model", source, known, "give a path, a hub id (owner/name) or one of: " + ", ".join(known))
        raise BadInput(
            f"no model called {source!r} was found: no file or folder {path.absolute()}, no built-in or imported model "
            "of that name",
            hint.fix,
        )
