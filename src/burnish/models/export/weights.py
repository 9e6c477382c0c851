"""Weights and configuration of a folder that transformers-like loaders read, with some layers packed."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from burnish.models.model import Model


def repacked(model: Model, packed: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The model's tensors by name, with the weights of some layers replaced; tied tensors stand once.

    Args:
        model: The model.
        packed: Layer to the tensors that stand for its weight.
    """
    tensors: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in model.net.state_dict().items():
        layer = name.removesuffix(".weight")
        if layer in packed and layer != name:
            tensors |= {f"{layer}.{part}": value.contiguous().cpu() for part, value in packed[layer].items()}
        elif tensor.data_ptr() not in seen:
            seen.add(tensor.data_ptr())
            tensors[name] = tensor.detach().contiguous().cpu()
    return tensors


def write_folder(
    model: Model, folder: Path, tensors: dict[str, Tensor], quantization: dict[str, Any], dtype: str
) -> None:
    """Write tensors, in shards where they are large, and the configuration that says how to read them."""
    from huggingface_hub import save_torch_state_dict

    save_torch_state_dict(tensors, folder, metadata={"format": "pt"})
    config = copy.deepcopy(model.config)
    config.architectures = [type(model.net).__name__]
    config.dtype = dtype
    config.quantization_config = quantization
    config.save_pretrained(folder)
    if getattr(model.net, "generation_config", None) is not None:
        model.net.generation_config.save_pretrained(folder)
