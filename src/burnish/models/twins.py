"""The calibration walk beside the original: what enters a block as the model was, and as it is after rounding."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from burnish.models.model import Block, Model
from burnish.models.walk import Walk
from burnish.nn.attention import tapped


class OriginalWalk:
    """Yields the blocks of a fork with the inputs that the *original* model gives them (AWQ, FlatQuant).

    Args:
        model: The original, which is not changed.
        fork: The fork whose blocks are yielded, to be rewritten.
        tokens: Calibration windows, (samples, length), without padding.
    """

    def __init__(self, model: Model, fork: Model, tokens: Tensor) -> None:
        self._walk, self._fork = Walk(model.fork(), tokens), fork
        self._blocks = fork.blocks()

    def __len__(self) -> int:
        return len(self._blocks)

    def __iter__(self) -> Iterator[Block]:
        with tapped(self._fork.net):  # the masks of the walk are made for that attention
            for original, block in zip(self._walk, self._blocks, strict=True):
                block.inputs, block.context = original.inputs, original.context
                yield block
                block.inputs = []


class TwinWalk:
    """Yields the blocks of a fork with the inputs that the rewritten model gives them; `original` walks beside (GPTAQ).

    Args:
        model: The original, which is not changed.
        fork: The fork whose blocks are yielded, to be rewritten.
        tokens: Calibration windows, (samples, length), without padding.
    """

    original: Block
    """The block as it was, with the inputs that the original model gives it."""

    def __init__(self, model: Model, fork: Model, tokens: Tensor) -> None:
        self._originals, self._walk = Walk(model.fork(), tokens), Walk(fork, tokens)

    def __len__(self) -> int:
        return len(self._walk)

    def __iter__(self) -> Iterator[Block]:
        for original, block in zip(self._originals, self._walk, strict=True):
            self.original = original
            yield block
