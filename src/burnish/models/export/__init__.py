"""Writing a model in the formats that other tools read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from burnish.core.errors import UnknownName
from burnish.core.method import Method

if TYPE_CHECKING:
    from burnish.models.model import Model

FORMATS = {"hf": "burnish.models.export.huggingface"}
"""Format to the module that writes it; each has ``check(method)``, ``write(model, folder)``."""


def _writer(format: str) -> object:
    import importlib

    if format not in FORMATS:
        raise UnknownName("export format", format, FORMATS)
    return importlib.import_module(FORMATS[format])


def check_export(method: Method, format: str) -> None:
    """Refuse, before anything is computed, a method whose result a format cannot hold."""
    _writer(format).check(method)  # type: ignore[attr-defined]


def export(model: Model, folder: str | Path, format: str = "hf") -> Path:
    """Write `model` to `folder`, whole or not at all."""
    _writer(format).write(model, Path(folder))  # type: ignore[attr-defined]
    return Path(folder)
