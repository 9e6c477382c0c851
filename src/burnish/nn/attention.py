"""One attention function under our control, whatever a model was loaded with.

`tapped` switches a model to it for a while. Every attention module may then have a *tap*: a function that sees the
queries, keys and values as attention uses them (after RoPE and after q/k norms) and may replace them. Attention itself
is transformers' own SDPA path, so masks, sliding windows, padding and caches behave as they always do, and what a tap
sees does not depend on whether the model was loaded with eager attention or SDPA.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

NAME = "burnish"


def attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: Any
) -> tuple[Tensor, Tensor | None]:
    """Apply the module's tap, if it has one, and then SDPA."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    tap = getattr(module, "tap", None)
    if tap is not None:
        query, key, value = tap(query, key, value)
    return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)


def use(net: nn.Module) -> None:
    """Make `net` (a transformers model) attend through `attend` from now on."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    for config in _configs(net):
        config._attn_implementation = NAME


@contextmanager
def tapped(net: nn.Module) -> Iterator[None]:
    """Attend through `attend` inside the block, and as before after it."""
    before = [(config, config._attn_implementation) for config in _configs(net)]
    use(net)
    try:
        yield
    finally:
        for config, implementation in before:
            config._attn_implementation = implementation


def _configs(net: nn.Module) -> list[Any]:
    """Each configuration that `net` and its parts hold, once."""
    found = {id(m.config): m.config for m in net.modules() if hasattr(m, "config")}
    return list(found.values())


def causal_weights(query: Tensor, key: Tensor, scaling: float, window: int | None = None) -> Tensor:
    """Softmax attention over what each token may see, in float32, from post-RoPE queries and keys.

    Args:
        query: (batch, heads, tokens, head_dim).
        key: (batch, kv_heads, tokens, head_dim); each is used by heads / kv_heads query heads.
        scaling: Factor of the scores.
        window: Sliding window: a token sees itself and window - 1 tokens before it.

    Returns:
        (batch, kv_heads, heads / kv_heads, tokens, tokens); exactly zero above the diagonal.
    """
    batch, heads, tokens, width = query.shape
    kv_heads = key.shape[1]
    # The query heads of a group lie one below the other, so that they meet their keys in one product.
    stacked = (query.float() * scaling).reshape(batch, kv_heads, heads // kv_heads * tokens, width)
    scores = (stacked @ key.float().transpose(-1, -2)).view(batch, kv_heads, heads // kv_heads, tokens, tokens)
    ahead = torch.ones(tokens, tokens, dtype=torch.bool, device=query.device).triu(1)
    if window is not None:
        ahead |= torch.ones_like(ahead).tril(-window)
    return scores.masked_fill_(ahead, float("-inf")).softmax(-1)
