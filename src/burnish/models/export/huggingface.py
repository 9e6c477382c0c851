"""An ordinary Hugging Face folder: floating-point weights, which may lie on a grid."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from burnish.core.errors import BadInput, Unsupported
from burnish.core.files import write_json
from burnish.core.method import Method
from burnish.models.model import Model


def check(method: Method) -> None:
    """Every method whose result is weights can be written so."""


def write(model: Model, folder: Path) -> None:
    """Write weights, configuration, tokenizer and ``burnish.json`` (lineage)."""
    if model.online:
        raise Unsupported(
            "a plain Hugging Face folder for this model",
            "it changes activations while it runs (" + "; ".join(model.online) + "), and a plain loader would not",
            "choose a --format that can say so",
        )
    with replacing(folder) as temporary:
        model.net.save_pretrained(temporary)
        finish(model, temporary)


def finish(model: Model, folder: Path) -> None:
    """Add what every exported folder has beside its weights: the tokenizer and where the model comes from."""
    model.tokenizer.save_pretrained(folder)
    lineage = model.lineage
    write_json(folder / "burnish.json", {"name": lineage.name, "source": dict(lineage.source), "steps": lineage.steps})


class replacing:  # noqa: N801
    """A temporary folder that takes the place of `folder` when the block ends without an error."""

    def __init__(self, folder: Path) -> None:
        if folder.exists() and not folder.is_dir():
            raise BadInput(f"{folder} is a file", "choose another folder")
        self.folder = folder
        self.temporary = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")

    def __enter__(self) -> Path:
        shutil.rmtree(self.temporary, ignore_errors=True)
        self.temporary.mkdir(parents=True)
        return self.temporary

    def __exit__(self, kind: object, error: object, tb: object) -> None:
        if kind is None:
            shutil.rmtree(self.folder, ignore_errors=True)
            os.replace(self.temporary, self.folder)
        else:
            shutil.rmtree(self.temporary, ignore_errors=True)
