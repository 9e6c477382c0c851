"""Loading a model for use: weights that are not numbers are refused by name, for the text would get the blame; and folders
that burnish alone can read are read."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from burnish.core.errors import BadInput
from burnish.models import quantized
from burnish.models.loading import load as load_whole

if TYPE_CHECKING:
    from burnish.models.model import Model

MOST = 5
"""Weights that are named."""


def load(name: str, *, notify: Callable[[str], None] | None = None, **options: Any) -> Model:
    """`burnish.models.loading.load`, for weights that are finite; weights that are zero everywhere are remarked on.

    Raises:
        BadInput: as `burnish.models.loading.load`; weights that are infinite or no numbers.
    """
    quantized.register()
    model = load_whole(name, notify=notify, **options)
    model = replace(model, online=quantized.online(model.net))
    broken, empty = [], []
    for weight, tensor in model.net.named_parameters():
        if not tensor.numel():
            continue
        low, high = (float(end) for end in tensor.aminmax())
        if not (math.isfinite(low) and math.isfinite(high)):
            broken.append(weight)
        elif low == high == 0 and tensor.ndim > 1:
            empty.append(weight)
    if broken:
        raise BadInput(f"{name} has weights that are not finite: {_some(broken)}", "get a sound copy of the model")
    if empty and notify is not None:
        notify(f"{name} has weights that are zero everywhere: {_some(empty)}; figures of it say little")
    return model


def _some(names: list[str]) -> str:
    more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    return ", ".join(names[:MOST]) + more
