"""An ordinary Hugging Face folder: floating-point weights, which may lie on a grid.

A Llama that rounds activations while it runs (`burnish.models.quantized`) is written with a model type that burnish alone
reads, so that no other loader takes it for the model that it is not.
"""

from __future__ import annotations

from pathlib import Path

from burnish.core.errors import Unsupported
from burnish.core.method import Method
from burnish.models import quantized
from burnish.models.export.folder import finish, replacing
from burnish.models.export.intent import Intent
from burnish.models.model import Model


def check(method: Method) -> None:
    """Refuse a model that changes activations while it runs, and has no model type that says so."""
    if not getattr(method, "own_type", False):
        Intent.of(method).refuse_online("a plain Hugging Face folder")


def write(model: Model, folder: Path) -> None:
    """Write weights, configuration, tokenizer, lineage and reload record.

    Raises:
        Unsupported: the model changes activations while it runs, and has no model type that says so.
    """
    if model.online and model.online != quantized.online(model.net):
        raise Unsupported(
            "a plain Hugging Face folder for this model",
            "it changes activations while it runs (" + "; ".join(model.online) + "), and a plain loader would not",
            "choose a --format that can say so",
        )
    from burnish.models.loading import quiet

    needs = sum(parameter.nbytes for parameter in model.net.parameters())
    with quiet(), replacing(folder, needs) as temporary:
        model.net.save_pretrained(temporary)
        finish(model, temporary, "hf")
