"""Weights kept as packed codes: one copy serves single tokens, where memory is the limit, and long texts, where arithmetic is.

The layout is made for reading in order. Outputs come in panels of 16, inputs in units of 32, both padded with code 0. For each
panel and unit, each plane of the codes' bits (widths 8, 4, 2, 1 that add up to the code's; the widest holds the lowest bits) has
`width` 32-bit words an output: word i holds inputs ``i * 32 / width`` and on, the first in its lowest bits. A vector of the
processor reads one word of 8 or 16 outputs at once, so sums never run across a vector, and the same panel, once decoded, is what a
blocked product of many rows wants.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from burnish.core.errors import Unsupported
from burnish.nn import kernels
from burnish.nn.grid import SMALLEST_SCALE, Grid, GridSpec, Quantized

PANEL, UNIT = 16, 32
ROWS_AT_ONCE = 128 * PANEL
"""Outputs of a large table that are packed together."""


def planes(bits: int) -> list[tuple[int, int]]:
    """The planes of a code, as (width, shift)."""
    found, shift = [], 0
    for width in (8, 4, 2, 1):
        if bits & width:
            found.append((width, shift))
            shift += width
    return found


def pack(codes: Tensor, bits: int) -> Tensor:
    """Pack (outputs, inputs) codes into (panels, units, bits, 16) int32 words."""
    rows, columns = codes.shape
    padded = functional.pad(codes, (0, -columns % UNIT, 0, -rows % PANEL))
    panels, units = padded.shape[0] // PANEL, padded.shape[1] // UNIT
    parts = []
    for width, shift in planes(bits):
        fields = 32 // width
        plane = (padded.int() >> shift) & (2**width - 1)
        plane = plane.view(panels, PANEL, units, width, fields)
        words = torch.zeros(plane.shape[:-1], dtype=torch.int32, device=codes.device)
        for field in range(fields):
            words |= plane[..., field] << (width * field)
        parts.append(words.permute(0, 2, 3, 1))
    return torch.cat(parts, 2).contiguous()


def unpack(words: Tensor, rows: int, columns: int) -> Tensor:
    """The codes of packed words: (rows, columns) uint8."""
    panels, units, bits, _ = words.shape
    codes = torch.zeros(panels, PANEL, units, UNIT, dtype=torch.uint8, device=words.device)
    begin = 0
    for width, shift in planes(bits):
        plane = words[:, :, begin : begin + width].permute(0, 3, 1, 2)
        fields = torch.arange(0, 32, width, dtype=torch.int32, device=words.device)
        values = (plane[..., None] >> fields) & (2**width - 1)
        codes |= values.to(torch.uint8).reshape(codes.shape) << shift
        begin += width
    return codes.view(panels * PANEL, units * UNIT)[:rows, :columns]


def _by_panel(values: Tensor) -> Tensor:
    """(outputs, groups) as (panels, groups, 16) in half precision."""
    padded = functional.pad(values, (0, 0, 0, -len(values) % PANEL))
    return padded.half().view(-1, PANEL, values.shape[1]).transpose(1, 2).contiguous()


class PackedLinear(nn.Module):
    """A linear layer whose weight is its codes; it decodes them while it computes.

    Attributes:
        words: (panels, units, bits, 16) int32.
        scale: (panels, groups, 16) float16.
        zero: The same; empty for a symmetric grid.
        bias: (outputs,) float32, zeros where the layer has none.
    """

    words: Tensor
    scale: Tensor
    zero: Tensor
    bias: Tensor

    def __init__(self, in_features: int, out_features: int, bits: int, group: int, kind: str, has_bias: bool) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.bits, self.group, self.kind, self.has_bias = bits, group, kind, has_bias
        panels, units = -(-out_features // PANEL), -(-in_features // UNIT)
        grid = (panels, -(-in_features // group), PANEL)
        self.register_buffer("words", torch.zeros(panels, units, bits, PANEL, dtype=torch.int32))
        self.register_buffer("scale", torch.zeros(grid, dtype=torch.float16))
        self.register_buffer("zero", torch.zeros((0,) if kind == "middle" else grid, dtype=torch.float16))
        self.register_buffer("bias", torch.zeros(out_features))

    @classmethod
    def of(cls, quantized: Quantized, bias: Tensor | None = None) -> PackedLinear:
        """Pack a weight matrix.

        Args:
            quantized: Its codes and grid.
            bias: (outputs,).

        Raises:
            Unsupported: groups that are no multiple of 32 inputs.
        """
        spec, (rows, columns) = quantized.grid.spec, quantized.codes.shape
        group = spec.width(columns)
        if group != columns and group % UNIT:
            raise Unsupported(
                f"packing groups of {group} weights",
                f"a group must hold a multiple of {UNIT}, or a whole row",
                "quantize with --group 32, 64, 128 or -1",
            )
        kind = "middle" if spec.sym else "offset" if spec.float_zero else "integer"
        made = cls(columns, rows, spec.bits, group, kind, bias is not None).to(quantized.codes.device)
        made._fill(slice(None), quantized)
        if bias is not None:
            made.bias.copy_(bias.detach())
        return made

    @classmethod
    def eight_bits(cls, weight: Tensor, bias: Tensor | None = None) -> PackedLinear:
        """Put a weight on the grid of GGUF's Q8_0 (`eight_bits`), part by part: tables of embeddings are large.

        Args:
            weight: (outputs, inputs).
            bias: (outputs,).
        """
        rows, columns = weight.shape
        made = cls(columns, rows, 8, min(UNIT, columns), "middle", bias is not None).to(weight.device)
        for begin in range(0, rows, ROWS_AT_ONCE):
            panels = slice(begin // PANEL, (begin + ROWS_AT_ONCE) // PANEL)
            made._fill(panels, eight_bits(weight[begin : begin + ROWS_AT_ONCE]))
        if bias is not None:
            made.bias.copy_(bias.detach())
        return made

    def _fill(self, panels: slice, quantized: Quantized) -> None:
        self.words[panels] = pack(quantized.codes, self.bits)
        self.scale[panels] = _by_panel(quantized.grid.scale)
        if self.kind != "middle":
            self.zero[panels] = _by_panel(quantized.grid.zero)

    def dequantized(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """The weight, (outputs, inputs): what its grid decodes, to the bit."""
        codes = unpack(self.words, self.out_features, self.in_features).float()
        zero = None if self.kind == "middle" else self._spread(self.zero)
        return self._valued(codes, self._spread(self.scale), zero).to(dtype)

    def _valued(self, codes: Tensor, scale: Tensor, zero: Tensor | None) -> Tensor:
        if zero is None:
            return (codes - 2 ** (self.bits - 1)) * scale
        return codes * scale + zero if self.kind == "offset" else (codes - zero) * scale

    def _spread(self, values: Tensor) -> Tensor:
        flat = values.float().transpose(1, 2).reshape(-1, values.shape[1])[: self.out_features]
        return flat.repeat_interleave(self.group, 1)[:, : self.in_features]

    def forward(self, x: Tensor) -> Tensor:
        """(…, inputs) to (…, outputs), in the dtype of `x`."""
        wanted = x.requires_grad and torch.is_grad_enabled()
        if x.device.type != "cpu" or wanted or kernels.native() is None:
            bias = self.bias.to(x.dtype) if self.has_bias else None
            return functional.linear(x, self.dequantized(x.dtype), bias)
        if x.shape[-1] != self.in_features:
            raise RuntimeError(f"a layer of {self.in_features} inputs was given {x.shape[-1]}")
        flat = x if x.dim() == 2 else x.reshape(-1, self.in_features)
        flat = flat if flat.dtype == torch.float32 else flat.float()
        if torch.compiler.is_compiling():
            kind = kernels.ZERO_KINDS.index(self.kind)
            zero = self.zero if kind else None
            y = kernels.packed_linear(flat, self.words, self.scale, zero, self.bias, self.bits, self.group, kind)
        else:
            y = kernels.apply_packed(flat, self._seen())
        y = y if x.dim() == 2 else y.view(*x.shape[:-1], self.out_features)
        return y if x.dtype == torch.float32 else y.to(x.dtype)

    def _seen(self) -> Any:
        """The library's view, made again where a buffer has moved."""
        places = tuple(buffer.data_ptr() for buffer in self._buffers.values() if buffer is not None)
        held = self.__dict__.get("_held")
        if held is None or held[0] != places:
            held = self.__dict__["_held"] = (places, self.view())
        return held[1]

    def _apply(self, fn: Any, recurse: bool = True) -> PackedLinear:
        """Move with the model, but keep the numbers' types: they are the layout, not the precision of the products."""
        device = fn(torch.empty(0, device=self.words.device)).device
        super()._apply(lambda tensor: tensor.to(device), recurse)
        return self

    def rows(self, ids: Tensor) -> Tensor:
        """Rows of the weight: (…) integers to (…, inputs) float32."""
        flat = ids.reshape(-1)
        if flat.numel() and not 0 <= int(flat.min()) <= int(flat.max()) < self.out_features:
            raise IndexError(f"a row outside 0 to {self.out_features - 1} was asked for")
        if self.words.device.type == "cpu" and (found := kernels.native()) is not None:
            chosen = flat.to(torch.int64).contiguous()
            y = torch.empty(len(chosen), self.in_features, dtype=torch.float32, device="cpu")
            found.functions.burnish_rows(self.view(), chosen.data_ptr(), len(chosen), y.data_ptr())
        else:
            panels, lanes = flat // PANEL, flat % PANEL
            # Each row as a panel of its own, of which the first row counts.
            words = self.words[panels, :, :, lanes][..., None].expand(-1, -1, -1, PANEL)
            codes = unpack(words, len(flat) * PANEL, self.in_features)[::PANEL].float()
            spread = [
                t[panels, :, lanes].float().repeat_interleave(self.group, 1)[:, : self.in_features]
                for t in (self.scale, self.zero)
                if t.numel()
            ]
            y = self._valued(codes, spread[0], spread[1] if len(spread) > 1 else None)
        return y.view(*ids.shape, self.in_features)

    def view(self) -> Any:
        """The library's view of this layer; it stays right while the buffers stay where they are."""
        zero = self.zero.data_ptr() if self.zero.numel() else None
        bias = self.bias.data_ptr() if self.has_bias else None
        sizes = (self.out_features, self.in_features, self.bits, self.group, kernels.ZERO_KINDS.index(self.kind))
        return kernels.Packed(self.words.data_ptr(), self.scale.data_ptr(), zero, bias, *sizes)

    def extra_repr(self) -> str:
        """As torch prints its own layers."""
        sizes = f"in_features={self.in_features}, out_features={self.out_features}"
        return f"{sizes}, bias={self.has_bias}, bits={self.bits}, group={self.group}, zero={self.kind}"

    def __deepcopy__(self, memo: dict[int, Any]) -> PackedLinear:
        with torch.device("meta"):
            made = PackedLinear(self.in_features, self.out_features, self.bits, self.group, self.kind, self.has_bias)
        for name, buffer in self.named_buffers():
            setattr(made, name, memo.get(id(buffer), buffer.clone()))
        return made


class PackedEmbedding(nn.Module):
    """Token embeddings whose table is packed: often the head's own, which it shares."""

    def __init__(self, table: PackedLinear, factor: float = 1.0) -> None:
        super().__init__()
        self.table, self.factor = table, factor
        self.num_embeddings, self.embedding_dim = table.out_features, table.in_features

    def forward(self, ids: Tensor) -> Tensor:
        """(…) token ids to (…, hidden) float32."""
        found = self.table.rows(ids)
        return found if self.factor == 1.0 else found * self.factor


def eight_bits(weight: Tensor, group: int = UNIT) -> Quantized:
    """A weight on the grid of GGUF's Q8_0: 8 bits, symmetric, groups of 32, the step being max|w| / 127.

    What came from Q8_0 is found again to the bit; anything else moves by at most half a step.
    """
    rows, columns = weight.shape
    parts = functional.pad(weight.float(), (0, -columns % group)).view(rows, -1, group)
    scale = (parts.abs().amax(2) / 127).half().float().clamp(min=SMALLEST_SCALE)
    spec = GridSpec(8, sym=True, group=group)
    grid = Grid(spec, scale, torch.full_like(scale, spec.middle))
    return Quantized(grid.encode(weight), grid)
