"""How a model takes a text, token by token: the log-probability of each, and what the model expected it to be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from burnish.engine.generate import check_room

if TYPE_CHECKING:
    from burnish.models import Model

BATCH_TOKENS = 2048
"""Tokens of a batch, padding included, unless one text is longer."""


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
def surprises(model: Model, texts: Sequence[Sequence[int]], *, batch_tokens: int = BATCH_TOKENS) -> list[Surprise]:
    """Read texts.

    Args:
        model: Its `net` is used.
        texts: Token ids, at least two each; the first is only read.
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
        for number, row in zip(batch, _read(model.net, [texts[number] for number in batch]), strict=True):
            found[number] = row
    return found


def _read(net: Any, batch: list[Sequence[int]]) -> list[Surprise]:
    # Padded on the right: with a causal mask nothing that counts sees the padding.
    width = len(batch[0])
    ids = torch.tensor([[*text, *[0] * (width - len(text))] for text in batch], device=net.device)
    logits = net(input_ids=ids, use_cache=False).logits[:, :-1].float()
    logprobs = logits - logits.logsumexp(-1, keepdim=True)
    chances = logprobs.exp()
    means = _expected(chances, logprobs)
    deviations = (_expected(chances, logprobs**2) - means**2).clamp(min=0).sqrt()
    mine = logprobs.gather(-1, ids[:, 1:, None])[..., 0]
    columns = [part.tolist() for part in (mine, means, deviations)]
    return [Surprise(*(column[row][: len(text) - 1] for column in columns)) for row, text in enumerate(batch)]


def _expected(chances: Tensor, values: Tensor) -> Tensor:
    """The mean of `values` over the vocabulary; a token of no chance adds nothing, even where its value is infinite."""
    return torch.where(chances > 0, chances * values, 0.0).sum(-1)
