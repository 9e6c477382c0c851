"""Prompts that begin alike, read so that what they share is computed once.

Sorted by their tokens, each prompt begins like the one before it as far as it begins like any earlier one. So they are
read in that order through one key-value cache, which is cut back to where the next prompt departs. Questions about the
same evidence then cost little more than the evidence once and each question.

This pays on a CPU, where a few dozen tokens keep all cores busy; on a GPU, prompts are better read side by side. What is
computed for a token never depends on what follows it, so the cache is the same but for the rounding of matrix products.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import pad
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

WORTHWHILE = 0.25
"""Share of all tokens that must be shared for prompts to be read one by one instead of side by side."""
MOVING_ROPES = frozenset({"dynamic", "longrope"})
"""Rotary embeddings that change with the length of the whole, and with them what was computed for a beginning."""

Layers = list[tuple[Tensor, Tensor]]
"""Keys and values of each layer, each (1, heads, tokens, head)."""


def worthwhile(net: Any, prompts: Sequence[Sequence[int]]) -> bool:
    """Whether these prompts share enough to be read one by one, and the network allows it."""
    total = sum(map(len, prompts))
    shared = sum(common(before, after) for before, after in pairwise(sorted(map(list, prompts))))
    return shared > 0 and shared >= WORTHWHILE * total and allowed(net)


def allowed(net: Any) -> bool:
    """Whether a cache of this network may be cut back: on a CPU, with attention to everything in all layers."""
    config = net.config.get_text_config()
    ropes = getattr(config, "rope_parameters", None) or {}
    kinds = {rope.get("rope_type") for rope in (ropes, *ropes.values()) if isinstance(rope, dict)}
    plain = all(type(layer) is DynamicLayer for layer in DynamicCache(config=net.config).layers)
    return net.device.type == "cpu" and plain and not kinds & MOVING_ROPES


def common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens two prompts have in common at their beginnings."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))


class Reader:
    """Reads prompts one after the other, of each what the one before did not begin with.

    Args:
        net: The network, as `allowed` has it.
    """

    def __init__(self, net: Any) -> None:
        self.net = net
        self._cache = DynamicCache(config=net.config)
        self._known: Sequence[int] = ()

    def read(self, prompt: Sequence[int], asked: int = 1) -> Float[Tensor, "asked vocab"]:
        """The logits that follow each of the last `asked` tokens of a prompt."""
        begin = min(common(self._known, prompt), len(prompt) - asked)
        if self._known:
            self._cache.crop(begin - len(self._known))
        device = self.net.device
        out = self.net(
            input_ids=torch.tensor([list(prompt[begin:])], device=device),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.bool, device=device),
            position_ids=torch.arange(begin, len(prompt), device=device)[None],
            cache=self._cache,
            use_cache=True,
            logits_to_keep=asked,
        )
        self._known = prompt
        logits: Tensor = out.logits[0]
        return logits

    def read_all(
        self, prompts: Sequence[Sequence[int]]
    ) -> tuple[DynamicCache, Float[Tensor, "rows vocab"], Bool[Tensor, "rows width"]]:
        """One cache of all prompts, padded on the left; the logits after each; and which columns are tokens."""
        logits: list[Tensor] = []
        rows: list[Layers] = []
        for prompt in prompts:
            logits.append(self.read(prompt)[-1])
            layers: Any = self._cache.layers
            rows.append([(layer.keys, layer.values) for layer in layers])
        width = max(map(len, prompts))
        first = torch.tensor([[width - len(prompt)] for prompt in prompts], device=self.net.device)
        mask = torch.arange(width, device=self.net.device) >= first
        return _together(self.net, rows, width), torch.stack(logits), mask


def _together(net: Any, rows: list[Layers], width: int) -> DynamicCache:
    """Rows of keys and values as one cache. Empties `rows`, layer by layer, so that little is held twice."""
    cache = DynamicCache(config=net.config)
    for number in range(len(rows[0])):
        pairs = [row.pop(0) for row in rows]
        keys, values = (
            torch.cat([pad(pair[which], (0, 0, width - pair[which].shape[-2], 0)) for pair in pairs])
            for which in (0, 1)
        )
        cache.update(keys, values, number)
    return cache
