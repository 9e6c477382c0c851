"""Rounding whose gradient is that of the identity (straight-through estimator), and the grids that are trained with it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class _Round(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.round()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        return gradient


class _Half(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.half().to(x.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        return gradient


def round_through(x: Tensor) -> Tensor:
    """`x` rounded to whole numbers; gradients pass as if it were not."""
    found: Tensor = _Round.apply(x)
    return found


def half_through(x: Tensor) -> Tensor:
    """`x` in its own dtype, with values that half precision can hold; gradients pass as if it were not rounded."""
    found: Tensor = _Half.apply(x)
    return found


def symmetric(x: Tensor, largest: Tensor, bits: int) -> Tensor:
    """`x` on the levels -2^(b-1) … 2^(b-1) - 1 of a step largest / (2^(b-1) - 1); `largest` broadcasts."""
    top = 2 ** (bits - 1) - 1
    scale = (largest / top).clamp(min=1e-8)
    return round_through(x / scale).clamp(-top - 1, top) * scale


def asymmetric(x: Tensor, low: Tensor, high: Tensor, bits: int) -> Tensor:
    """`x` on 2^b levels from `low` to `high`, one of which is 0; both broadcast, and are moved to hold 0 between them."""
    top = 2**bits - 1
    low, high = low.clamp(max=0), high.clamp(min=0)
    scale = ((high - low) / top).clamp(min=1e-8)
    zero = round_through(-low / scale)
    return ((round_through(x / scale) + zero).clamp(0, top) - zero) * scale
