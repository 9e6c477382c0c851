"""A stream of tokens packed into rows, each token with its document: what a language model is trained on.

A document is seen by its own tokens alone: attention stays inside it, and its positions count from 0.

References: Krell et al. 2021 (packing without cross-contamination).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from burnish.core.errors import BadInput

PADDING = -1
"""Document number of a place that holds no token."""


@dataclass(frozen=True)
class Stream:
    """Rows of tokens; also a batch of them."""

    ids: Int[Tensor, "rows length"]
    documents: Int[Tensor, "rows length"]
    """The document of each token, in the order in which they came; PADDING where there is none."""
    weights: Float[Tensor, "rows length"]
    """Weight of the loss on predicting each token; a document's first token has none to predict it."""
    positions: Int[Tensor, "rows length"]
    """The place of each token in its document."""

    def rows(self, chosen: Any, device: torch.device) -> Stream:
        """Some of the rows, on a device."""
        return Stream(*(getattr(self, name)[chosen].to(device) for name in self.__dataclass_fields__))

    @property
    def tokens(self) -> int:
        """Tokens in all, without padding."""
        return int((self.documents != PADDING).sum())

    def mask(self) -> Bool[Tensor, "rows 1 length length"]:
        """What each token may look at: itself and what precedes it in its document (padding looks at itself)."""
        same = self.documents[:, :, None] == self.documents[:, None, :]
        return torch.tril(same)[:, None]


def windows(tokens: Int[Tensor, "rows length"]) -> Stream:
    """Windows as rows of a stream, each one text of its own."""
    rows, length = tokens.shape
    weights = torch.ones(rows, length)
    weights[:, 0] = 0.0
    return Stream(
        tokens, torch.arange(rows)[:, None].expand(rows, length), weights, torch.arange(length).expand(rows, length)
    )


def pack(
    documents: Sequence[Sequence[int]], length: int, *, weights: Sequence[Sequence[float]] | None = None, pad: int = 0
) -> Stream:
    """Lay documents into rows, in their order; one that does not fit in the rest of a row begins the next.

    Only documents that are longer than a row are cut, and the pieces go on counting positions: a piece does not see the
    piece before it.

    Args:
        documents: Token ids of each.
        length: Tokens of a row.
        weights: Weight of the loss on each token; all 1 by default.
        pad: The id that stands where there is no token.

    Raises:
        BadInput: no tokens, or weights that do not fit the documents.
    """
    weights = [[1.0] * len(document) for document in documents] if weights is None else weights
    if length < 2 or not any(len(document) > 1 for document in documents):
        raise BadInput("there is nothing to predict", "give documents, and rows, of at least two tokens")
    if [len(row) for row in weights] != [len(document) for document in documents]:
        raise BadInput("the weights do not fit the documents", "give a weight for each token")
    rows: list[list[tuple[int, int, float, int]]] = [[]]
    for number, (document, own) in enumerate(zip(documents, weights, strict=True)):
        places = [(token, number, own[at] if at else 0.0, at) for at, token in enumerate(document)]
        for begin in range(0, len(places), length):
            piece = places[begin : begin + length]
            piece[0] = (*piece[0][:2], 0.0, piece[0][3])
            if len(rows[-1]) + len(piece) > length:
                rows.append([])
            rows[-1] += piece
    padded = [row + [(pad, PADDING, 0.0, 0)] * (length - len(row)) for row in rows]
    columns = [torch.tensor([[place[column] for place in row] for row in padded]) for column in range(4)]
    return Stream(columns[0], columns[1], columns[2].float(), columns[3])
