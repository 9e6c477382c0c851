"""Llamas whose linear layers round what enters them: saved and loaded with a model type of their own.

A folder that said "llama" would load anywhere, without the rounding, and be another model. Transformers refuses a model type
that it does not know; burnish teaches it this one before it loads.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import cache
from typing import Any

from torch import nn

from burnish.nn.quest_layers import Quantization

TYPE = "burnish_llama"
"""The model type in ``config.json``."""


@cache
def register() -> tuple[Any, Any]:
    """Teach transformers the model type.

    Returns:
        The classes of its configuration and of its model.
    """
    from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

    class BurnishLlamaConfig(LlamaConfig):
        model_type = TYPE
        quantization: dict[str, Any] | None = None

    class BurnishLlamaForCausalLM(LlamaForCausalLM):
        config_class = BurnishLlamaConfig

        def __init__(self, config: Any) -> None:
            super().__init__(config)
            Quantization(**(config.quantization or {})).put(self, linears(self))

    AutoConfig.register(TYPE, BurnishLlamaConfig)
    AutoModelForCausalLM.register(BurnishLlamaConfig, BurnishLlamaForCausalLM)
    return BurnishLlamaConfig, BurnishLlamaForCausalLM


def linears(net: Any) -> list[str]:
    """Paths of the linear layers of all blocks of a Llama."""
    inside = net.model.layers.named_modules(prefix="model.layers")
    return [name for name, module in inside if isinstance(module, nn.Linear)]


def of(net: Any, how: Quantization) -> Any:
    """The same model as one of that type: a Llama into whose blocks `how` was put."""
    config_of, model_of = register()
    settings = {
        name: value for name, value in net.config.to_dict().items() if name not in ("model_type", "architectures")
    }
    made = model_of(config_of(**settings, quantization=asdict(how)))
    made.load_state_dict(net.state_dict())
    made.generation_config = net.generation_config
    return made.to(net.device).requires_grad_(False).eval()


def online(net: Any) -> tuple[str, ...]:
    """What happens to activations while such a model runs, in words; empty for other models."""
    own = getattr(net.config, "model_type", "") == TYPE
    return Quantization(**net.config.quantization).online() if own else ()
