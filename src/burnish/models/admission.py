"""Whether a model can be used at all, said before its weights are read: they may be many gigabytes."""

from __future__ import annotations

from typing import Any

import psutil
import torch

from burnish.core.errors import DoesNotFit
from burnish.core.shapes import Compressor
from burnish.models import quantized
from burnish.models.adapters import architecture
from burnish.models.checkpoint import require_sound
from burnish.models.loading import DTYPES, pick_device
from burnish.models.resolve import resolve


def admit(name: str, method: type[Any], *, device: str = "auto", dtype: str = "auto", notify: Any = None) -> None:
    """Refuse what `burnish.load` or the method would refuse later.

    Args:
        name: As for `burnish.load`.
        method: The class of the method that the model is for: a compressor needs to know the model's architecture.
        device: As for `burnish.load`.
        dtype: As for `burnish.load`.
        notify: As for `burnish.load`.

    Raises:
        BadInput: the errors of `burnish.load`.
        Unsupported: no causal language model; an architecture that a compressor cannot treat.
        DoesNotFit: the weights need more memory than is free.
    """
    from transformers import AutoConfig

    quantized.register()
    folder = resolve(name, notify or (lambda line: None)).folder
    require_sound(folder)
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception:  # whatever a configuration that lies brings transformers to: `burnish.load` says it
        return
    if issubclass(method, Compressor):
        architecture(config)
    if pick_device(device).type != "cpu":
        return
    stored = getattr(config, "dtype", None) or torch.float32
    width = DTYPES.get(dtype, torch.float32).itemsize
    needs = sum(path.stat().st_size for path in folder.glob("*.safetensors")) * width / stored.itemsize
    has = psutil.virtual_memory().available
    if needs > has:
        raise DoesNotFit(
            f"the weights of {name}",
            f"{needs / 1e9:.1f} GB",
            f"{has / 1e9:.1f} GB of free memory",
            "use --dtype bfloat16" if width == 4 and needs / 2 < has else "give a smaller model",
        )
