"""QuEST's quantizers, for training with 1 to 8 bits, and the ones that it is compared with.

Each maps a tensor to its rounded values on a grid whose width follows from the root mean square of the last dimension
(a token of activations, an output row of weights), and says which part of the gradient passes. QuEST's own rotates by a
block-diagonal Hadamard matrix first: rotated numbers are nearly Gaussian, for which the best clip is known, and a gradient
is trusted only where rounding moved a number by little.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor, nn

from burnish.core.errors import Unsupported
from burnish.nn import hadamard
from burnish.nn.gaussian import TERNARY, best_clip
from burnish.nn.ste import round_through

RELEASED = {
    1: 0.79788456,
    2: 1.49353462,
    3: 2.05106835,
    4: 2.51393058,
    5: 2.91609,
    6: 3.27660,
    7: 3.60105,
    8: 3.88494,
}
"""Clips of the released code, in root mean squares; from 7 bits on they differ from the best by .01 and more."""
LARGEST_BLOCK = 128
"""Side of the Hadamard blocks, where it divides the width (released code)."""
SMALLEST = 1e-8
"""Added to scales, so that a row of zeros stays one."""

SLACK = 1e-5
"""What is trusted beyond `Quantizer.width`, as a share of it: rounding errors of single precision."""

Rotation = Literal["half", "full", "none"]
Rule = Literal["trust", "clip", "ste"]
Pattern = Literal["", "2:4", "4:8"]
PATTERNS: dict[str, tuple[int, int, int]] = {"2:4": (2, 4, 1), "4:8": (2, 4, 2)}
"""Pattern to how many of how many units are kept, and numbers in a unit: 4:8 drops pairs, as 4-bit sparse products want."""


def block_of(width: int) -> int:
    """The largest power of two up to `LARGEST_BLOCK` that divides a width; 1 means no rotation."""
    return min(width & -width, LARGEST_BLOCK)


def rotate(x: Tensor) -> Tensor:
    """x H along the last dimension, H block-diagonal of normalized Hadamard matrices; H is its own inverse."""
    block = block_of(x.shape[-1])
    if block == 1:
        return x
    return (x.unflatten(-1, (-1, block)) @ _matrix(block, x.device, x.dtype)).flatten(-2)


@cache
def _matrix(block: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    with torch.inference_mode(False):  # what is made in that mode, and kept, could not be trained through later
        return hadamard.hadamard(block).clone().to(device, dtype)


def clip_of(bits: float) -> float:
    """Where the grid ends, in root mean squares: the released constant, or the best one where none was released."""
    return RELEASED[int(bits)] if bits in RELEASED else best_clip(bits)


def to_grid(x: Tensor, scale: Tensor, bits: float) -> Tensor:
    """x on 2^bits evenly spaced levels from -scale to scale; `scale` broadcasts. An odd number of levels holds 0."""
    steps = round(2**bits) - 1
    step = 2 * scale / steps
    shift = 0.5 if steps % 2 else 0.0
    inside = x.clamp(-scale, scale)
    # Half of the levels lie on either side of 0: the nearest half-integer is the nearest integer, half a step on.
    return ((inside / step + shift).round() - shift).clamp(-steps / 2, steps / 2) * step


class Quantizer(nn.Module):
    """A fake quantizer with QuEST's grid.

    Args:
        bits: 1 to 8, or `burnish.nn.gaussian.TERNARY`; 16 leaves the tensor as it is (but rotated, if it is rotated).
        rotation: "half": what comes out stays rotated, for products of two rotated tensors; "full": it is rotated back;
            "none".
        rule: Where gradients pass. "trust": where rounding moved a number by at most `width` root mean squares; "clip":
            up to `width` times the clip; "ste": everywhere.
        width: See `rule`; by default half a step for "trust", and 1 for "clip".
        sparse: Of `PATTERNS`: which numbers are made 0 beside rounding the others; the smallest ones of a rotated tensor.
    """

    def __init__(
        self,
        bits: float = 4,
        rotation: Rotation = "half",
        rule: Rule = "trust",
        width: float | None = None,
        sparse: Pattern = "",
    ) -> None:
        super().__init__()
        self.bits, self.rotation, self.rule, self.sparse = bits, rotation, rule, sparse
        self.clip = clip_of(bits) if bits < 16 else float("inf")
        usual = self.clip / (round(2**bits) - 1) if rule == "trust" and bits < 16 else 1.0
        self.width = usual if width is None else width

    def forward(self, x: Tensor) -> Tensor:
        """The rounded tensor, in x's shape and dtype, rotated as `rotation` says."""
        turned = x if self.rotation == "none" else rotate(x)
        if self.bits < 16:
            with torch.no_grad():
                wide = turned.float()
                deviation = self._deviation(wide)
                rounded = self._rounded(wide, deviation)
                kept = self._kept(wide, rounded, deviation).to(turned.dtype)
            turned = _Passing.apply(turned, rounded.to(turned.dtype), kept)
        return rotate(turned) if self.rotation == "full" else turned

    @torch.no_grad()
    def rounded(self, turned: Tensor) -> Tensor:
        """The grid's values for a tensor that is rotated already."""
        wide = turned.float()
        return self._rounded(wide, self._deviation(wide)).to(turned.dtype)

    @torch.no_grad()
    def mask(self, turned: Tensor) -> Tensor:
        """1 where the gradient of a rotated tensor passes, else 0."""
        wide = turned.float()
        deviation = self._deviation(wide)
        return self._kept(wide, self._rounded(wide, deviation), deviation).to(turned.dtype)

    def _rounded(self, wide: Tensor, deviation: Tensor) -> Tensor:
        found = to_grid(wide, self.clip * deviation, self.bits)
        return found * largest(wide, self.sparse) if self.sparse else found

    def _kept(self, wide: Tensor, rounded: Tensor, deviation: Tensor) -> Tensor:
        """Decided in single precision: half precision would move a level by as much as half a step of 8 bits."""
        if self.rule == "ste":
            return torch.ones_like(wide)
        if self.rule == "clip":
            return (wide.abs() <= self.clip * deviation * self.width).float()
        # Exactly half a step, as of all of a row of zeros, is trusted however it is summed.
        return ((rounded - wide).abs() <= deviation * self.width * (1 + SLACK)).float()

    def scale(self, wide: Tensor) -> Tensor:
        """Where the grid of a rotated tensor ends, (…, 1)."""
        return self.clip * self._deviation(wide)

    def _deviation(self, wide: Tensor) -> Tensor:
        return _root_mean_square(wide) + SMALLEST

    def extra_repr(self) -> str:
        """For printing the model."""
        return f"bits={self.bits:g}, rotation={self.rotation}, rule={self.rule}" + (
            f", {self.sparse}" if self.sparse else ""
        )


class LSQ(nn.Module):
    """Learned step size (Esser et al. 2020): one step for the whole tensor, trained with the weights.

    Args:
        bits: 1 to 8.
        rows: A step for each of so many rows of a weight, which is the stronger baseline; 0 for one in all, as published.

    The first tensor sets the step so that the grid ends where it is best for a Gaussian of that size, as the released code of
    QuEST does for LSQ+; LSQ's own start, 2 E|x| / sqrt(2^(bits-1)), wastes most levels from 4 bits on. That it was set is a
    buffer, so it survives saving.
    """

    begun: Tensor

    def __init__(self, bits: int = 4, rows: int = 0) -> None:
        super().__init__()
        self.bits = bits
        self.step = nn.Parameter(torch.ones(rows or ()))
        self.register_buffer("begun", torch.zeros((), dtype=torch.bool))

    def forward(self, x: Tensor) -> Tensor:
        """The rounded tensor."""
        top = 2 ** (self.bits - 1)
        if not self.begun:
            with torch.no_grad():
                wide = x.detach().float()
                deviation = _root_mean_square(wide if self.step.ndim else wide.flatten())[..., 0]
                self.step.copy_(2 * clip_of(self.bits) * deviation / (2**self.bits - 1))
                self.begun.fill_(True)
        # The step's gradient is scaled to the size of a weight's (section 2.2).
        shared = x.numel() / self.step.numel()
        step = _scaled_gradient(self.step.abs() + SMALLEST, (shared * max(top - 1, 1)) ** -0.5)
        step = step[:, None] if step.ndim else step
        wide = (x.float() / step + 0.5).clamp(-top + 1, top)
        return ((round_through(wide) - 0.5) * step).to(x.dtype)

    def extra_repr(self) -> str:
        """For printing the model."""
        return f"bits={self.bits}"


class PACT(nn.Module):
    """A learned clip on both sides (after Choi et al. 2018, who clip activations of ReLU), then a uniform grid.

    Args:
        bits: 1 to 8.
        start: The first clip, in root mean squares of the first tensor; by default the best for a Gaussian.
    """

    begun: Tensor

    def __init__(self, bits: int = 4, start: float | None = None) -> None:
        super().__init__()
        self.bits, self.start = bits, clip_of(bits) if start is None else start
        self.bound = nn.Parameter(torch.ones(()))
        self.register_buffer("begun", torch.zeros((), dtype=torch.bool))

    def forward(self, x: Tensor) -> Tensor:
        """The rounded tensor."""
        if not self.begun:
            with torch.no_grad():
                self.bound.copy_(self.start * _root_mean_square(x.detach().float().flatten())[0])
                self.begun.fill_(True)
        bound = self.bound.abs() + SMALLEST
        clipped = torch.minimum(torch.maximum(x.float(), -bound), bound)
        return (clipped + (to_grid(clipped, bound, self.bits) - clipped).detach()).to(x.dtype)

    def extra_repr(self) -> str:
        """For printing the model."""
        return f"bits={self.bits}"


class QuantizedLinear(nn.Linear):
    """A linear layer whose weight and input pass fake quantizers, in training and in evaluation alike.

    Args:
        inputs: Features.
        outputs: Features.
        bias: Whether there is one; it is not rounded.
        weight_quantizer: Sees the weight, a row at a time.
        input_quantizer: Sees the input, a token at a time.

    Both quantizers have to leave their tensors in one basis: both "half", or neither.
    """

    def __init__(
        self, inputs: int, outputs: int, bias: bool, weight_quantizer: nn.Module, input_quantizer: nn.Module
    ) -> None:
        super().__init__(inputs, outputs, bias)
        turned = {getattr(quantizer, "rotation", "none") == "half" for quantizer in (weight_quantizer, input_quantizer)}
        if len(turned) > 1:
            raise ValueError(
                "one quantizer leaves its tensor rotated and the other does not: their product means nothing"
            )
        self.weight_quantizer, self.input_quantizer = weight_quantizer, input_quantizer

    @classmethod
    def of(cls, linear: nn.Linear, weight_quantizer: nn.Module, input_quantizer: nn.Module) -> QuantizedLinear:
        """A layer with the weight and bias of another, which it shares."""
        with torch.device("meta"):  # draws no first weights, which would be thrown away
            made = cls(
                linear.in_features, linear.out_features, linear.bias is not None, weight_quantizer, input_quantizer
            )
        made.weight, made.bias = linear.weight, linear.bias
        return made.to(linear.weight.device)

    def forward(self, input: Tensor) -> Tensor:
        """(…, inputs) to (…, outputs)."""
        return nn.functional.linear(self.input_quantizer(input), self.weight_quantizer(self.weight), self.bias)


def largest(x: Tensor, pattern: str) -> Tensor:
    """1 at the numbers that a pattern keeps along the last dimension, by the size of their unit, else 0.

    Raises:
        Unsupported: a width that is no multiple of the pattern's.
    """
    kept, of, unit = PATTERNS[pattern]
    if x.shape[-1] % (of * unit):
        raise Unsupported(f"a {pattern} pattern", f"a width of {x.shape[-1]} is no multiple of {of * unit}")
    units = x.unflatten(-1, (-1, of, unit))
    chosen = units.square().sum(-1).topk(kept, -1).indices
    mask = torch.zeros(units.shape[:-1], device=x.device, dtype=x.dtype).scatter_(-1, chosen, 1.0)
    return mask[..., None].expand_as(units).flatten(-3)


def _root_mean_square(x: Tensor) -> Tensor:
    return x.square().mean(-1, keepdim=True).sqrt()


class _Passing(torch.autograd.Function):
    """A rounded tensor, whose gradient reaches the tensor that was rounded where a mask is 1."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rounded: Tensor, kept: Tensor) -> Tensor:
        ctx.save_for_backward(kept)
        return rounded

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        return gradient * ctx.saved_tensors[0], None, None


class _Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return gradient * ctx.factor, None


def _scaled_gradient(x: Tensor, factor: float) -> Tensor:
    found: Tensor = _Scaled.apply(x, factor)
    return found


__all__ = [
    "LSQ",
    "PACT",
    "TERNARY",
    "QuantizedLinear",
    "Quantizer",
    "block_of",
    "clip_of",
    "largest",
    "rotate",
    "to_grid",
]
