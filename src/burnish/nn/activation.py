"""Quantizers for activations, keys and values: chosen anew for every token, and simulated in floating point."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from burnish.nn import hadamard


@dataclass(frozen=True)
class TokenGrid:
    """One grid a token (a vector along the last dimension), from its own range.

    Attributes:
        bits: 2 to 8.
        sym: Levels -2^(bits-1) … 2^(bits-1) - 1 around zero, a step being max|x| / (2^(bits-1) - 0.5): the dynamic
            per-token grid of compressed-tensors, so that an exported model computes the same numbers. Else a scale and
            an integer zero point.
        clip: Fraction of max|x|, or of the lowest and the highest value, at which the grid ends; what lies beyond is
            clamped.
    """

    bits: int
    sym: bool = True
    clip: float = 1.0

    def __call__(self, x: Tensor) -> Tensor:
        """`x` rounded, in its own shape and dtype."""
        wide = x.float()
        if self.sym:
            half = 2 ** (self.bits - 1)
            scale = wide.abs().amax(-1, keepdim=True) * self.clip / (half - 0.5)
            scale.masked_fill_(scale == 0, 1.0)
            return (wide / scale).round_().clamp_(-half, half - 1).mul_(scale).to(x.dtype)
        top = 2**self.bits - 1
        low = wide.amin(-1, keepdim=True).clamp_(max=0) * self.clip
        high = wide.amax(-1, keepdim=True).clamp_(min=0) * self.clip
        scale = ((high - low) / top).clamp_(min=1e-12)
        zero = (-low / scale).round_()
        return (wide / scale).round_().add_(zero).clamp_(0, top).sub_(zero).mul_(scale).to(x.dtype)


class InputStage(nn.Module):
    """What happens to a linear layer's input while the model runs: an online rotation, then a grid.

    Attached to the layer as a child module, so that it is copied, moved and shown with it.
    """

    def __init__(self, grid: TokenGrid | None = None, rotate: bool = False) -> None:
        super().__init__()
        self.grid, self.rotate = grid, rotate

    def forward(self, x: Tensor) -> Tensor:
        """The input that the layer's weights are made for."""
        if self.rotate:
            x = hadamard.apply(x)
        return x if self.grid is None else self.grid(x)

    def extra_repr(self) -> str:
        """For printing the model."""
        return f"rotate={self.rotate}, grid={self.grid}"


def _stage(linear: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    stage: Any = linear.input_stage
    return (stage(args[0]), *args[1:])


def attach(linear: nn.Linear, stage: InputStage) -> None:
    """Let `stage` see the layer's input first."""
    linear.input_stage = stage
    linear.register_forward_pre_hook(_stage)


@dataclass(frozen=True)
class KVStage:
    """What happens to queries, keys and values before attention: a rotation of q and k, and grids for k and v."""

    keys: TokenGrid | None = None
    values: TokenGrid | None = None
    rotate: bool = False

    def __call__(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(batch, heads, tokens, head_dim) each; q and k are after RoPE."""
        if self.rotate:
            query, key = hadamard.apply(query), hadamard.apply(key)
        key = key if self.keys is None else self.keys(key)
        return query, key, value if self.values is None else self.values(value)
