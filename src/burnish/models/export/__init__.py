"""Writing a model in the formats that other tools read.

========================  ====================================================  ====================================
format                    holds                                                 is read by
========================  ====================================================  ====================================
``hf``                    floating-point weights, which may lie on a grid       transformers, and whatever reads its
                                                                                folders
``compressed-tensors``    2- to 8-bit codes of any grid but one with a          transformers, vLLM, SGLang
                          floating-point zero; 8-bit activations
``gptq``                  2-, 3-, 4- and 8-bit codes, in groups of usual sizes  gptqmodel, vLLM, transformers
``gguf``                  4 or 8 bits in groups of 32: Q4_0, Q4_1, Q8_0         llama.cpp and what builds on it
========================  ====================================================  ====================================

Codes, scales and zeros are written as they were measured; nothing is rounded again.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from burnish.core.errors import UnknownName
from burnish.core.method import Method

if TYPE_CHECKING:
    from burnish.models.model import Model

FORMATS = {
    "hf": "burnish.models.export.huggingface",
    "compressed-tensors": "burnish.models.export.compressed_tensors",
    "gptq": "burnish.models.export.gptq",
    "gguf": "burnish.models.export.gguf",
}
"""Format to the module that writes it."""


class Writer(Protocol):
    """A module that writes one format."""

    def check(self, method: Method) -> None:
        """Refuse a method whose result the format cannot hold, as far as its settings say so."""

    def write(self, model: Model, folder: Path) -> None:
        """Write a model, or refuse it."""


def _writer(format: str) -> Writer:
    if format not in FORMATS:
        raise UnknownName("export format", format, FORMATS)
    return cast(Writer, importlib.import_module(FORMATS[format]))


def check_export(method: Method, format: str) -> None:
    """Refuse, before anything is computed, a method whose result a format cannot hold.

    Raises:
        UnknownName: there is no such format.
        Unsupported: naming the settings, and those that would do.
    """
    _writer(format).check(method)


def export(model: Model, folder: str | Path, format: str = "hf") -> Path:
    """Write `model` to `folder`, whole or not at all; an earlier export in that folder is replaced.

    Beside the weights stand the tokenizer, ``burnish.json`` (where the model comes from) and a record from which
    `burnish.models.reload.compare` can prove that another tool finds the same model.

    Args:
        model: What to write; it is not changed.
        folder: Made if absent.
        format: "hf", "compressed-tensors", "gptq" or "gguf".

    Returns:
        The folder.

    Raises:
        UnknownName: there is no such format.
        Unsupported: the format cannot hold this model; says why, and what to do.
        BadInput: the folder holds something that is no export.
        DoesNotFit: the disk is too small.
    """
    _writer(format).write(model, Path(folder))
    return Path(folder)
