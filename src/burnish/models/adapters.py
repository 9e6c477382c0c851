"""Where things are in each architecture: blocks, linear layers, norms, heads.

Adding an architecture is adding one entry to `ARCHITECTURES`. What burnish cannot treat right is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

from torch import nn

from burnish.core.errors import Unsupported
from burnish.nn.site import Site


@dataclass(frozen=True)
class Architecture:
    """Paths inside one family of models.

    Attributes:
        blocks: Path of the list of transformer blocks.
        sites: Role to path of each linear layer inside a block.
        attention: Path of the attention module inside a block.
        feeds: Norm inside a block to the roles that its output enters.
        embeddings: Paths of the modules that begin the residual stream.
        final_norm: Path of the norm before the head.
        norm_offset: A norm multiplies by (norm_offset + weight).
        head_norms: Paths of the q and k norms inside a block, if it has them.
        branch_norms: The outputs of attention and MLP are normalized before they join the residual stream.
        rope: Queries and keys are rotated by position.
    """

    blocks: str
    sites: Mapping[str, str]
    attention: str
    feeds: Mapping[str, tuple[str, ...]]
    embeddings: tuple[str, ...]
    final_norm: str
    norm_offset: float = 0.0
    head_norms: tuple[str, str] | None = None
    branch_norms: bool = False
    rope: bool = True


_GATED = {
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "o": "self_attn.o_proj",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}
_LLAMA: dict[str, Any] = {
    "blocks": "model.layers",
    "sites": _GATED,
    "attention": "self_attn",
    "feeds": {"input_layernorm": ("q", "k", "v"), "post_attention_layernorm": ("gate", "up")},
    "embeddings": ("model.embed_tokens",),
    "final_norm": "model.norm",
}
_QK_NORMS = ("self_attn.q_norm", "self_attn.k_norm")

ARCHITECTURES: dict[str, Architecture] = {
    "llama": Architecture(**_LLAMA),
    "mistral": Architecture(**_LLAMA),
    "qwen2": Architecture(**_LLAMA),
    "qwen3": Architecture(**_LLAMA, head_norms=_QK_NORMS),
    "gemma3_text": Architecture(
        **{**_LLAMA, "feeds": {"input_layernorm": ("q", "k", "v"), "pre_feedforward_layernorm": ("gate", "up")}},
        norm_offset=1.0,
        head_norms=_QK_NORMS,
        branch_norms=True,
    ),
    "opt": Architecture(
        blocks="model.decoder.layers",
        sites={
            "q": "self_attn.q_proj",
            "k": "self_attn.k_proj",
            "v": "self_attn.v_proj",
            "o": "self_attn.out_proj",
            "fc1": "fc1",
            "fc2": "fc2",
        },
        attention="self_attn",
        feeds={"self_attn_layer_norm": ("q", "k", "v"), "final_layer_norm": ("fc1",)},
        embeddings=("model.decoder.embed_tokens", "model.decoder.embed_positions"),
        final_norm="model.decoder.final_layer_norm",
        rope=False,
    ),
}

ROLES = ("q", "k", "v", "o", "gate", "up", "down", "fc1", "fc2")
"""Every role that a linear layer of a block can have."""

_FUSED = ("gpt2", "gpt_neox", "falcon", "bloom", "phi3", "mpt", "gpt_bigcode", "chatglm")
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_intermediate_size")


def at(module: nn.Module, path: str) -> Any:
    """The submodule at a dotted path."""
    return reduce(getattr, path.split("."), module)


def architecture(config: Any) -> Architecture:
    """The entry for a model's configuration.

    Raises:
        Unsupported: a mixture of experts, fused projections, or a family without an entry, each by name.
    """
    kind = str(config.model_type)
    if any(getattr(config, name, None) for name in _EXPERTS):
        raise Unsupported(
            f"the architecture {kind!r}",
            "it is a mixture of experts, whose layers each see only some of the tokens",
            "use a dense model",
        )
    if kind in _FUSED:
        raise Unsupported(
            f"the architecture {kind!r}",
            "its query, key and value projections are fused into one layer",
            "use a model with separate projections: " + ", ".join(ARCHITECTURES),
        )
    if kind not in ARCHITECTURES:
        raise Unsupported(
            f"the architecture {kind!r}", "burnish has no adapter for it", "it has: " + ", ".join(ARCHITECTURES)
        )
    if getattr(config, "use_bidirectional_attention", False):
        raise Unsupported(
            f"this {kind} model", "its attention is not causal, and burnish treats causal language models"
        )
    if kind == "opt" and (not config.do_layer_norm_before or config.word_embed_proj_dim != config.hidden_size):
        raise Unsupported(
            "this OPT variant", "it normalizes after attention, or projects its embeddings", "use another size"
        )
    return ARCHITECTURES[kind]


@dataclass(frozen=True)
class Heads:
    """Attention's shape."""

    query: int
    kv: int
    width: int

    @property
    def group(self) -> int:
        """Query heads that share one key/value head."""
        return self.query // self.kv


def heads(config: Any) -> Heads:
    """Numbers and width of the heads; the width is not always hidden size over heads."""
    query = int(config.num_attention_heads)
    kv = int(getattr(config, "num_key_value_heads", None) or query)
    width = int(getattr(config, "head_dim", None) or config.hidden_size // query)
    return Heads(query, kv, width)


def sites(block: nn.Module, prefix: str, config: Any) -> list[Site]:
    """The linear layers of one block, in the order in which data passes them.

    Args:
        block: The block.
        prefix: Its path in the model.
        config: The model's configuration.
    """
    found = []
    for role, path in architecture(config).sites.items():
        linear = at(block, path)
        if type(linear) is not nn.Linear:
            raise Unsupported(
                f"{prefix}.{path}",
                f"it is a {type(linear).__name__}, not a plain linear layer",
                "load unquantized weights",
            )
        found.append(Site(f"{prefix}.{path}", role, linear))
    return found
