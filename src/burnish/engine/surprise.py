"""How a model takes a text, token by token: the log-probability of each, and what the model expected it to be.

Logits are what takes memory: a vocabulary of 152,000 makes 1.2 GB of 2,048 tokens in float32, and the moments want several
tensors of that size. So texts are fed piece by piece through a key-value cache, as in `burnish.engine.generate.score`, and the
logits of a piece are reduced a part at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers import DynamicCache

from burnish.engine.generate import LOGITS_AT_ONCE, check_room

if TYPE_CHECKING:
    from burnish.models import Model

BATCH_TOKENS = 2048
"""Tokens of a batch, padding included, unless one text is longer."""
REDUCED_AT_ONCE = 2**23
"""Most logits that are worked on in float32 at a time (a place at least): a copy takes 32 MiB, and the moments take six."""


@dataclass(frozen=True)
class Surprise:
    """Of one text, a value for each token but the first; in nats."""

    logprobs: list[float]
    """Log-probability of each token, given those before it."""
    means: list[float]
    """Its expectation under the model's own distribution at that place: minus the entropy."""
    deviations: list[float]
    """Its standard deviation there."""


@torch.no_grad()
def surprises(
    model: Model, texts: Sequence[Sequence[int]], *, moments: bool = True, batch_tokens: int = BATCH_TOKENS
) -> list[Surprise]:
    """Read texts.

    Args:
        model: Its `net` is used.
        texts: Token ids, at least two each; the first is only read.
        moments: Whether means and deviations are wanted; without, those lists are empty, and it takes less time.
        batch_tokens: Tokens that are worked on together.

    Raises:
        BadInput: texts of no token, or longer than the model's context, all of them listed.
    """
    check_room(model, [(text, 0) for text in texts])
    found: list[Surprise] = [Surprise([], [], [])] * len(texts)
    order = sorted((number for number, text in enumerate(texts) if len(text) > 1), key=lambda n: -len(texts[n]))
    while order:
        size = max(1, batch_tokens // len(texts[order[0]]))
        batch, order = order[:size], order[size:]
        read = _read(model.net, [texts[number] for number in batch], moments)
        for number, row in zip(batch, read, strict=True):
            found[number] = row
    return found


def _read(net: Any, batch: list[Sequence[int]], moments: bool) -> list[Surprise]:
    # Padded on the right: with a causal mask nothing that counts sees the padding.
    width = len(batch[0])
    ids = torch.tensor([[*text, *[0] * (width - len(text))] for text in batch], device=net.device)
    # The last token is never fed: nothing is asked about what follows it.
    fed, wanted = ids[:, :-1], ids[:, 1:]
    piece = max(1, LOGITS_AT_ONCE // (len(batch) * net.config.get_text_config().vocab_size))
    several = piece < width - 1
    cache = DynamicCache(config=net.config) if several else None
    parts = []
    for begin in range(0, width - 1, piece):
        held = {"cache": cache, "use_cache": True} if several else {"use_cache": False}
        logits = net(input_ids=fed[:, begin : begin + piece], **held).logits
        parts.append(_reduced(logits, wanted[:, begin : begin + piece], moments))
    columns = [column.tolist() for column in torch.cat(parts, dim=2)]
    taken = [[column[row][: len(text) - 1] for column in columns] for row, text in enumerate(batch)]
    return [Surprise(*values) if moments else Surprise(values[0], [], []) for values in taken]


def _reduced(logits: Tensor, wanted: Tensor, moments: bool) -> Tensor:
    """Log-probability of what is wanted, and mean and deviation if those are: (1 or 3, rows, places)."""
    vocabulary = logits.shape[-1]
    flat, tokens = logits.reshape(-1, vocabulary), wanted.reshape(-1)
    size = max(1, REDUCED_AT_ONCE // vocabulary)
    found = [
        _taken(flat[begin : begin + size].float(), tokens[begin : begin + size], moments)
        for begin in range(0, len(flat), size)
    ]
    return torch.cat(found, dim=1).reshape(-1, *wanted.shape)


def _taken(logits: Tensor, tokens: Tensor, moments: bool) -> Tensor:
    """The same of (places, vocabulary): (1 or 3, places)."""
    total = logits.logsumexp(-1, keepdim=True)
    mine = (logits.gather(-1, tokens[:, None]) - total)[:, 0]
    if not moments:
        return mine[None]
    logprobs = logits - total
    chances = logprobs.exp()
    means = _expected(chances, logprobs)
    deviations = (_expected(chances, logprobs**2) - means**2).clamp(min=0).sqrt()
    return torch.stack([mine, means, deviations])


def _expected(chances: Tensor, values: Tensor) -> Tensor:
    """The mean of `values` over the vocabulary; a token of no chance adds nothing, even where its value is infinite."""
    return torch.where(chances > 0, chances * values, 0.0).sum(-1)
