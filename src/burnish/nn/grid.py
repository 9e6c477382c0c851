"""Uniform integer grids for weights: their shape, their search, and the codes that lie on them.

A grid gives each group of a row a step ``scale`` and an offset ``zero``; a weight is ``(code - zero) * scale``, or, with
a floating-point zero, ``code * scale + zero``. Codes run from 0 to 2^bits - 1; a symmetric grid has its zero in the
middle, at 2^(bits-1). Scales (and floating-point zeros) are rounded to half precision *before* the weights are, so that
every file format that stores them in 16 bits holds exactly the weights that were measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from burnish.core.errors import BadInput

Search = Literal["minmax", "mmse", "hessian"]
Zero = Literal["integer", "float"]

SHRINKS = tuple(1 - i / 40 for i in range(30))
"""Fractions of the range that a search tries: 1, 1 - 1/40, … down to 0.275."""
SHORTLIST = 8
"""Candidates of a Hessian search that are compared by the full quadratic form; a sketch of it ranks the others."""
LEADING = 4
"""Directions of a Hessian that its sketch keeps beside a diagonal."""
POWER_STEPS = 8
"""Steps of the subspace iteration that finds them."""
MMSE_POWER = 2.4
"""Exponent of |error| in the "mmse" search (the value of GPTQ's released code)."""
CHUNK = 65536
"""Weights that one step of a search holds, so that they stay in the processor's cache."""
SMALLEST_SCALE = 2.0**-24
"""The smallest positive half-precision number."""


@dataclass(frozen=True)
class GridSpec:
    """What kind of grid.

    Attributes:
        bits: 2 to 8.
        sym: The zero sits in the middle of the codes.
        group: Consecutive weights of a row that share one scale; -1 for the whole row. A row's last group may be short.
        zero: "integer" points (GPTQ, compressed-tensors) or "float" offsets (GGUF's Q4_1); without meaning when `sym`.
    """

    bits: int
    sym: bool = False
    group: int = -1
    zero: Zero = "integer"

    @property
    def top(self) -> int:
        """The largest code."""
        return 2**self.bits - 1

    @property
    def middle(self) -> int:
        """The zero of a symmetric grid."""
        return int(2 ** (self.bits - 1))

    @property
    def float_zero(self) -> bool:
        """Whether the offset is a floating-point number."""
        return not self.sym and self.zero == "float"

    def width(self, columns: int) -> int:
        """Weights in a group of a row of `columns`; the last group of a row may be shorter."""
        return columns if self.group == -1 else min(self.group, columns)


@dataclass(frozen=True)
class Grid:
    """A grid for one weight matrix.

    Attributes:
        scale: (rows, groups), float32 values that half precision can hold.
        zero: (rows, groups), float32; integers, or half-precision offsets.
    """

    spec: GridSpec
    scale: Tensor
    zero: Tensor

    def spread(self, columns: int) -> tuple[Tensor, Tensor]:
        """Scale and zero of each single weight: two (rows, columns) tensors."""
        width = self.spec.width(columns)
        scale, zero = (t.repeat_interleave(width, 1)[:, :columns] for t in (self.scale, self.zero))
        return scale, zero

    def encode(self, weight: Tensor) -> Tensor:
        """The nearest code of each weight: (rows, columns) uint8."""
        scale, zero = self.spread(weight.shape[1])
        return encode(weight.float(), scale, zero, self.spec).to(torch.uint8)

    def decode(self, codes: Tensor) -> Tensor:
        """The weights that the codes stand for: (rows, columns) float32."""
        scale, zero = self.spread(codes.shape[1])
        return decode(codes.float(), scale, zero, self.spec)


@dataclass(frozen=True)
class Quantized:
    """A weight matrix on a grid: what is exported, and what the floating-point weight is decoded from."""

    codes: Tensor
    grid: Grid

    def weight(self) -> Tensor:
        """(rows, columns) float32."""
        return self.grid.decode(self.codes)

    def __deepcopy__(self, memo: dict[int, Any]) -> Quantized:
        return self  # never changed in place, so copies of a model may share it


def encode(weight: Tensor, scale: Tensor, zero: Tensor, spec: GridSpec) -> Tensor:
    """Nearest codes, as floating-point numbers; the arguments broadcast."""
    if spec.float_zero:
        return ((weight - zero) / scale).round_().clamp_(0, spec.top)
    return (weight / scale).round_().add_(zero).clamp_(0, spec.top)


def decode(codes: Tensor, scale: Tensor, zero: Tensor, spec: GridSpec) -> Tensor:
    """Weights of codes; the arguments broadcast."""
    return codes * scale + zero if spec.float_zero else (codes - zero) * scale


def find_grid(weight: Tensor, spec: GridSpec, search: Search = "minmax", hessian: Tensor | None = None) -> Grid:
    """Choose scales and zeros for a weight matrix.

    Args:
        weight: (rows, columns), finite.
        spec: The kind of grid.
        search: "minmax" takes the whole range; "mmse" shrinks it until sum |error|^2.4 is smallest; "hessian" until
            the output error ``e H e'`` is, trying the zero point rounded down and up (BoA's grid).
        hessian: (columns, columns), for "hessian".

    Returns:
        The grid, in float32 on the weight's device.
    """
    weight = weight.float()
    rows, columns = weight.shape
    width = spec.width(columns)
    if tail := columns % width:
        whole = columns - tail
        parts = []
        for span in (slice(0, whole), slice(whole, columns)):
            metric = None if hessian is None else hessian[span, span]
            parts.append(find_grid(weight[:, span], spec, search, metric))
        return Grid(spec, *(torch.cat([getattr(p, name) for p in parts], 1) for name in ("scale", "zero")))
    groups = columns // width
    if search == "minmax":
        scale, zero = next(_candidates(weight.reshape(rows * groups, -1), spec, (1.0,), both=False))
        return Grid(spec, scale.view(rows, groups), zero.view(rows, groups))
    if search == "hessian" and hessian is None:
        raise BadInput("a Hessian grid needs calibration text", "use qparam minmax or mmse")
    metric = None
    if search == "hessian" and hessian is not None:
        blocks = hessian.float().view(groups, width, groups, width).diagonal(dim1=0, dim2=2)
        metric = blocks.permute(2, 0, 1).contiguous()
    pieces = weight.view(rows, groups, width).transpose(0, 1)
    found = [_search(chunk, spec, metric) for chunk in pieces.split(max(1, CHUNK // columns), dim=1)]
    scale, zero = (torch.cat(part, 1).T.contiguous() for part in zip(*found, strict=True))
    return Grid(spec, scale, zero)


def _search(weight: Tensor, spec: GridSpec, metric: Tensor | None) -> tuple[Tensor, Tensor]:
    """The best scale and zero, (pieces, rows), of (pieces, rows, width) weights with a metric for each piece."""
    pieces, rows, width = weight.shape
    flat = weight.reshape(pieces * rows, width)
    sketch = None if metric is None else _sketch(metric)
    tried = list(_candidates(flat, spec, SHRINKS, both=metric is not None))
    cost = flat.new_empty(len(tried), len(flat))
    for i, (scale, zero) in enumerate(tried):
        error = _error(flat, scale, zero, spec)
        if sketch is None:
            cost[i] = error.abs_().pow_(MMSE_POWER).sum(1)
        else:
            directions, rest = sketch
            shaped = error.view(pieces, rows, width)
            along = torch.bmm(shaped, directions).square_().sum(2)
            cost[i] = (along + torch.bmm(shaped.square_(), rest[:, :, None])[:, :, 0]).view(-1)
    scales, zeros = (torch.stack(column) for column in zip(*tried, strict=True))
    if metric is not None:
        best = cost.topk(min(SHORTLIST, len(tried)), 0, largest=False).indices
        scales, zeros = scales.gather(0, best), zeros.gather(0, best)
        errors = (_error(flat, s, z, spec).view(pieces, rows, width) for s, z in zip(scales, zeros, strict=True))
        cost = torch.stack([(torch.bmm(error, metric) * error).sum(2).view(-1) for error in errors])
    chosen = cost.argmin(0, keepdim=True)
    return scales.gather(0, chosen).view(pieces, rows), zeros.gather(0, chosen).view(pieces, rows)


def _sketch(metric: Tensor) -> tuple[Tensor, Tensor]:
    """A metric as a few directions and a diagonal: e M e' is about |e D|² + Σ r e².

    Activations share a mean, so one direction carries much of a Hessian, and its diagonal alone ranks errors badly.

    Returns:
        D, (pieces, width, LEADING): leading eigenvectors times the roots of their eigenvalues; and r, (pieces, width):
        the diagonal of what they leave.
    """
    pieces, width, _ = metric.shape
    count = min(LEADING, width)
    start = torch.randn(width, count, generator=torch.Generator().manual_seed(0)).to(metric)
    basis = start.expand(pieces, -1, -1)
    for _ in range(POWER_STEPS):
        basis = torch.linalg.qr(metric @ basis).Q
    values, turn = torch.linalg.eigh(basis.transpose(1, 2) @ metric @ basis)
    directions = basis @ turn * values.clamp(min=0).sqrt()[:, None]
    rest = metric.diagonal(dim1=1, dim2=2) - directions.square().sum(2)
    return directions, rest.clamp(min=0)


def _error(weight: Tensor, scale: Tensor, zero: Tensor, spec: GridSpec) -> Tensor:
    scale, zero = scale[:, None], zero[:, None]
    return decode(encode(weight, scale, zero, spec), scale, zero, spec).sub_(weight)


def _candidates(
    weight: Tensor, spec: GridSpec, shrinks: tuple[float, ...], both: bool
) -> Iterator[tuple[Tensor, Tensor]]:
    """(scale, zero) of each row of (rows, columns) for each shrink of its range; `both` rounds the zero down and up."""
    low, high = weight.amin(1), weight.amax(1)
    if not spec.float_zero:
        low, high = low.clamp(max=0), high.clamp(min=0)
    if spec.sym:
        high = torch.maximum(-low, high)
        low = -high
    empty = low == high
    if not spec.float_zero:
        low, high = low.masked_fill(empty, -1), high.masked_fill(empty, 1)
    for shrink in shrinks:
        lower, upper = low * shrink, high * shrink
        if spec.float_zero:
            middle = (low + high) / 2
            lower, upper = middle + (low - middle) * shrink, middle + (high - middle) * shrink
            zero = lower.half().float()
            yield _half((upper - zero) / spec.top), zero
            continue
        scale = _half((upper - lower) / spec.top)
        if spec.sym:
            yield scale, torch.full_like(scale, spec.middle)
            continue
        exact = -lower / scale
        for zero in (exact.floor(), exact.ceil()) if both else (exact.round(),):
            yield scale, zero.clamp(0, spec.top)


def _half(scale: Tensor) -> Tensor:
    return scale.clamp(SMALLEST_SCALE, 65504.0).half().float()
