"""The folder that an export makes: whole or not at all, with the tokenizer, the lineage and the reload record in it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from burnish.core.errors import BadInput, DoesNotFit
from burnish.core.files import write_json
from burnish.models.model import Model
from burnish.models.reload import write_record

LINEAGE = "burnish.json"
"""Where the model comes from; every exported folder has it."""
BESIDE = 100_000_000
"""Bytes that tokenizer, configuration and reload record take at most."""


class replacing:  # noqa: N801
    """A temporary folder that takes the place of `folder` when the block ends without an error.

    Args:
        folder: The folder that is wanted; one that is there is replaced.
        needs: Bytes that the weights will take.

    Raises:
        BadInput: `folder` is a file, or holds something that is no export.
        DoesNotFit: the disk has less room than is needed.
    """

    def __init__(self, folder: Path, needs: int) -> None:
        if folder.exists() and not folder.is_dir():
            raise BadInput(f"{folder} is a file", "choose another folder")
        if folder.is_dir() and any(folder.iterdir()) and not (folder / LINEAGE).is_file():
            raise BadInput(f"{folder} holds files that are no exported model", "choose another folder, or empty it")
        self.folder = folder.absolute()
        self.temporary = self.folder.with_name(f".{self.folder.name}.{os.getpid()}.tmp")
        parent = next(path for path in self.folder.parents if path.is_dir())
        free = shutil.disk_usage(parent).free
        if free < needs + BESIDE:
            raise DoesNotFit(
                f"writing {folder}",
                f"{(needs + BESIDE) / 1e9:.2f} GB of disk",
                f"{free / 1e9:.2f} GB free in {parent}",
                "free some, or choose another --out",
            )

    def __enter__(self) -> Path:
        shutil.rmtree(self.temporary, ignore_errors=True)
        self.temporary.mkdir(parents=True)
        return self.temporary

    def __exit__(self, kind: object, error: object, tb: object) -> None:
        if kind is not None:
            shutil.rmtree(self.temporary, ignore_errors=True)
            return
        earlier = self.temporary.with_suffix(".old")
        if self.folder.exists():
            os.replace(self.folder, earlier)
        os.replace(self.temporary, self.folder)
        shutil.rmtree(earlier, ignore_errors=True)


def finish(model: Model, folder: Path, format: str, dtype: str = "", exact: bool = True) -> None:
    """Add what every exported folder has beside its weights.

    Args:
        model: What was exported.
        folder: Where to.
        format: The format's name.
        dtype: What loaders of this format compute in; by default the model's own dtype.
        exact: Whether transformers computes the same as the model in memory.
    """
    model.tokenizer.save_pretrained(folder)
    lineage = model.lineage
    facts = {"name": lineage.name, "source": dict(lineage.source), "steps": lineage.steps, "format": format}
    write_json(folder / LINEAGE, facts)
    write_record(model, folder, format, dtype, exact)
