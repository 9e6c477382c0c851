"""Looking at a model folder before its weights are read: what it cannot be, and files that contradict each other.

A configuration decides how much memory is taken before the first weight is read, so one that lies must be found out
from the headers of the weight files, which are small.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from burnish.core.errors import BadInput, Unsupported

CAUSAL = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
"""How the classes of models that predict the next token are called."""
SIZES = ("hidden_size", "intermediate_size", "vocab_size", "ffn_dim")
"""Numbers of a configuration that are a dimension of some weight."""
PACKED = 16
"""A packed weight's dimension is at most this much smaller than the layer's (2-bit codes in words of 32 bits)."""
LAYER = re.compile(r"\.(\d+)\.")


def require_sound(folder: Path) -> None:
    """Refuse what need not be read further.

    Raises:
        BadInput: configuration or weights are damaged, or the configuration is of a larger model than the weights.
        Unsupported: no causal language model.
    """
    config = _config(folder)
    classes = config.get("architectures") or []
    if isinstance(classes, list) and classes and not any(str(name).endswith(CAUSAL) for name in classes):
        raise Unsupported(
            f"the model in {folder}", f"it is a {classes[0]}, no causal language model", "give one that predicts text"
        )
    # Models of several parts (text, vision) keep the language model's numbers in a table of their own.
    text = config.get("text_config")
    said = {**config, **text} if isinstance(text, dict) else config
    shapes = dict(_shapes(folder))
    faults = _faults(said, shapes)
    if faults:
        raise BadInput.of(
            f"configuration and weights in {folder} do not fit:",
            faults,
            "give a whole checkpoint with its own config.json: missing weights would be random numbers",
        )


def _faults(config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> list[str]:
    numbers = [int(found) for name in shapes for found in LAYER.findall(name)[:1]]
    widest = max((size for shape in shapes.values() for size in shape), default=0)
    faults = []
    layers = config.get("num_hidden_layers")
    held = max(numbers, default=-1) + 1
    if isinstance(layers, int) and layers > held:
        faults.append(f"num_hidden_layers is {layers}, and the weights hold {held} layers")
    for name in SIZES:
        size = config.get(name)
        if isinstance(size, int) and size > widest * PACKED:
            faults.append(f"{name} is {size}, and no weight is wider than {widest}")
    return faults


def _config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(config, dict):
            raise ValueError("it holds no table")
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"{path} is damaged: {error}", "check that the model's files are whole") from None
    return config


def _shapes(folder: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Name and shape of each weight, from the headers of the files."""
    from safetensors import SafetensorError, safe_open

    for path in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(path, "pt") as file:
                for name in file.keys():  # noqa: SIM118 (no dictionary)
                    yield name, tuple(file.get_slice(name).get_shape())
        except (SafetensorError, OSError) as error:
            raise BadInput(f"{path} is damaged: {error}", "check that the model's files are whole") from None
