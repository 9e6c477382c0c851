"""FlatQuant's learnable parts: transforms of a layer's input, clips of weights and activations, and how they are applied.

Everything here serves both training, where gradients pass through rounding, and the folded model, where the same
numbers are constants.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from burnish.core.errors import Unsupported
from burnish.nn import kernels
from burnish.nn.kronecker import Factor, FreeFactor, Kronecker, SVDFactor, balanced
from burnish.nn.ste import asymmetric, half_through, symmetric

START = 4.0
"""Logit at which a clip starts: sigmoid(4) = 0.982 of the range."""
Parametrization = Literal["svd", "free"]


class Transform(nn.Module):
    """A learned transform of n features: a diagonal (optional), then a Kronecker product.

    Args:
        size: (l, r): which of the two factors there are, and how large; (l, 1) has a left one only, (1, r) a right one.
        parametrization: "svd" (orthogonal factors and singular values) or "free" (any matrix).
        generator: Of the random start.
        diagonal: What the features are multiplied by first, (l·r,); learned. None: nothing.
        width: Features of the whole vector when only its heads are mixed (left) or each head is turned (right).
    """

    def __init__(
        self,
        size: tuple[int, int],
        parametrization: Parametrization,
        generator: torch.Generator,
        *,
        diagonal: Tensor | None = None,
        width: int | None = None,
    ) -> None:
        super().__init__()
        make: type[Factor] = SVDFactor if parametrization == "svd" else FreeFactor
        left, right = size
        self.left = make(left, generator) if left > 1 else None
        self.right = make(right, generator) if right > 1 else None
        whole = width or left * right
        self.shape = (left, whole // left) if left > 1 else (whole // right, right)
        self.diagonal = None if diagonal is None else nn.Parameter(diagonal.float().clone())
        self._held: tuple[Kronecker, Kronecker] | None = None

    @classmethod
    def of(cls, n: int, parametrization: Parametrization, generator: torch.Generator, diagonal: Tensor) -> Transform:
        """One for n features, with balanced factors."""
        return cls(balanced(n), parametrization, generator, diagonal=diagonal)

    def matrices(self) -> tuple[Kronecker, Kronecker]:
        """The Kronecker product P and its inverse transpose, without the diagonal."""
        return self._made() if self._held is None else self._held

    @contextmanager
    def held(self) -> Iterator[None]:
        """Make the matrices once for everything inside: a step asks for them at every weight and input they belong to."""
        self._held = self._made()
        try:
            yield
        finally:
            self._held = None

    def _made(self) -> tuple[Kronecker, Kronecker]:
        pairs = [(None, None) if factor is None else factor.pair() for factor in (self.left, self.right)]
        forward, inverse = (Kronecker(pairs[0][i], pairs[1][i], self.shape) for i in (0, 1))
        return forward, inverse

    def forward(self, x: Tensor) -> Tensor:
        """Activations: ``(x · d) P``."""
        return self.matrices()[0](x if self.diagonal is None else x * self.diagonal)

    def weight(self, weight: Tensor) -> Tensor:
        """The matching weight, (outputs, inputs): ``(W / d) P⁻ᵀ``."""
        return self.matrices()[1](weight if self.diagonal is None else weight / self.diagonal)


class Clip(nn.Module):
    """Learned fractions of the highest and the lowest value at which a grid ends.

    Args:
        rows: One pair a row of a weight, or one pair in all (None).
    """

    def __init__(self, rows: int | None = None) -> None:
        super().__init__()
        shape = (2,) if rows is None else (2, rows, 1)
        self.logits = nn.Parameter(torch.full(shape, START))

    def fractions(self) -> tuple[Tensor, Tensor]:
        """Of the highest and of the lowest value."""
        high, low = self.logits.sigmoid()
        return high, low

    def clamp(self, weight: Tensor) -> Tensor:
        """A weight, (rows, columns), cut at the fractions of each row's own range."""
        high, low = self.fractions()
        return torch.minimum(
            torch.maximum(weight, weight.amin(1, keepdim=True) * low), weight.amax(1, keepdim=True) * high
        )


@dataclass(frozen=True)
class LearnedGrid:
    """One grid a token over learned fractions of its range.

    Attributes:
        bits: 2 to 8.
        sym: Levels around zero, a step being the largest size / (2^(bits-1) - 1); else a scale and an integer zero.
        high: Fraction of the highest value at which the grid ends, a scalar tensor.
        low: Of the lowest.
    """

    bits: int
    sym: bool
    high: Tensor
    low: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        """`x` rounded, in its own shape and dtype."""
        wide = x.float()
        high, low = wide.amax(-1, keepdim=True) * self.high, wide.amin(-1, keepdim=True) * self.low
        if self.sym:
            return symmetric(wide, torch.maximum(high.abs(), low.abs()), self.bits).to(x.dtype)
        return asymmetric(wide, low, high, self.bits).to(x.dtype)


class TokenClip(Clip):
    """Learned activation clipping: the grid of one activation tensor.

    Args:
        bits: Of the grid; 16 leaves activations alone.
        sym: See `LearnedGrid`.
    """

    def __init__(self, bits: int, sym: bool) -> None:
        super().__init__()
        self.bits, self.sym = bits, sym

    def grid(self) -> LearnedGrid | None:
        """What it has learned, with gradients where they are on."""
        return None if self.bits == 16 else LearnedGrid(self.bits, self.sym, *self.fractions())

    def forward(self, x: Tensor) -> Tensor:
        """`x` on the grid."""
        grid = self.grid()
        return x if grid is None else grid(x)


def weight_scale(weight: Tensor, bits: int) -> Tensor:
    """The step of a row's symmetric grid, (rows, 1): its largest size / (2^(bits-1) - 1), as half precision holds it."""
    return half_through((weight.abs().amax(1, keepdim=True) / (2 ** (bits - 1) - 1)).clamp(min=2.0**-24))


def round_weight(weight: Tensor, bits: int) -> Tensor:
    """A weight, (rows, columns), on one symmetric grid a row, with gradients passing through."""
    return symmetric(weight, weight_scale(weight, bits) * (2 ** (bits - 1) - 1), bits)


class FlatStage(nn.Module):
    """What a folded layer's input passes while the model runs: a Kronecker product, then a grid.

    The numbers are parameters, so that they are saved, moved and copied with the block that they are part of.

    Args:
        size: (l, r) of the features.
        left: Whether there is a left factor.
        right: Whether there is a right one.
        bits: Of the grid, symmetric; 16 for none.
    """

    def __init__(self, size: tuple[int, int], *, left: bool, right: bool, bits: int) -> None:
        super().__init__()
        self.size, self.bits = size, bits
        self.left = _constant(torch.eye(size[0])) if left else None
        self.right = _constant(torch.eye(size[1])) if right else None
        self.clip = _constant(torch.ones(2)) if bits < 16 else None
        self.on = True

    def fill(self, product: Kronecker, grid: LearnedGrid | None) -> None:
        """Take over what was learned."""
        if product.left is not None:
            self.left = _constant(product.left)
        if product.right is not None:
            self.right = _constant(product.right)
        if grid is not None:
            self.clip = _constant(torch.stack([grid.high, grid.low]))

    def forward(self, x: Tensor) -> Tensor:
        """The input that the layer's folded weights are made for."""
        if not self.on:
            return x
        if (self.left is not None or self.right is not None) and kernels.runs_here(x, self.left, self.right):
            high, low = (1.0, 1.0) if self.clip is None else self.clip.tolist()
            flat = x.reshape(-1, x.shape[-1])
            found = kernels.kronecker_turn(flat, self.left, self.right, list(self.size), self.bits, high, low)
            return found.view(x.shape)
        x = Kronecker(self.left, self.right, self.size)(x)
        return x if self.clip is None else LearnedGrid(self.bits, True, *self.clip)(x)

    def extra_repr(self) -> str:
        """For printing the model."""
        return f"size={self.size}, bits={self.bits}"


class FlatTap(nn.Module):
    """What happens to queries, keys and values before attention in a folded model: a turn of q and k, then grids.

    Args:
        width: Of a head.
        bits: Of the grids of keys and values, asymmetric, one a token and head.
    """

    def __init__(self, width: int, bits: int) -> None:
        super().__init__()
        self.bits = bits
        self.turn, self.back = _constant(torch.eye(width)), _constant(torch.eye(width))
        self.keys, self.values = _constant(torch.ones(2)), _constant(torch.ones(2))
        self.on = True

    def fill(self, pair: tuple[Tensor, Tensor], keys: LearnedGrid, values: LearnedGrid) -> None:
        """Take over what was learned: the keys' matrix and its inverse transpose, and the two grids."""
        self.turn, self.back = map(_constant, pair)
        self.keys, self.values = (_constant(torch.stack([grid.high, grid.low])) for grid in (keys, values))

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(batch, heads, tokens, head_dim) each; q and k are after RoPE."""
        if not self.on:
            return query, key, value
        query, key = query @ self.back.to(query.dtype), key @ self.turn.to(key.dtype)
        return (
            query,
            LearnedGrid(self.bits, False, *self.keys)(key),
            LearnedGrid(self.bits, False, *self.values)(value),
        )


def _constant(value: Tensor) -> nn.Parameter:
    return nn.Parameter(value.detach().float(), requires_grad=False)


def _after(module: nn.Module, _: tuple[Tensor, ...], output: Tensor) -> Tensor:
    stage: FlatStage = module.output_stage  # type: ignore[assignment]
    return stage(output)


def _before(module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    stage: FlatStage = module.input_stage  # type: ignore[assignment]
    return (stage(args[0]), *args[1:])


def _require_free(module: nn.Module, slot: str) -> None:
    # One hook reads each slot: a second stage would run twice, and the first not at all.
    if getattr(module, slot, None) is not None:
        raise Unsupported(
            f"a second {slot.replace('_', ' ')} of one {type(module).__name__}", "the first one would be lost"
        )


def attach_before(linear: nn.Linear, stage: FlatStage) -> None:
    """Let `stage` see the layer's input first.

    Raises:
        Unsupported: another stage sees it already.
    """
    _require_free(linear, "input_stage")
    linear.input_stage = stage
    linear.register_forward_pre_hook(_before)


def attach_after(module: nn.Module, stage: FlatStage) -> None:
    """Let `stage` see what the module gives, before anything else does.

    Raises:
        Unsupported: another stage sees it already.
    """
    _require_free(module, "output_stage")
    module.output_stage = stage
    module.register_forward_hook(_after)
