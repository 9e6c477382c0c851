"""QuEST's layers as integers: what a quantized product computes without a floating-point weight.

The levels are multiples of half a step (odd ones; even ones of three levels, and 0 for what a sparse pattern drops), so
weight and input are integers and their product is exact in 32-bit integers; two scales, one a row of the weight and one a
token, make it the fake-quantized product.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from burnish.core.errors import Unsupported
from burnish.nn.quest import QuantizedLinear, Quantizer, rotate

WIDEST = 7
"""Bits whose integers fit into eight: ±(2^bits - 1)."""
ALIGNED = 8
"""Rows and columns that integer products ask for a multiple of."""


class PackedLinear(nn.Module):
    """A `QuantizedLinear` whose weight is kept as 8-bit integers.

    Attributes:
        codes: (outputs, inputs) int8.
        scale: (outputs,) half of each row's step.
    """

    codes: Tensor
    scale: Tensor
    bias: Tensor | None

    def __init__(
        self, codes: Tensor, scale: Tensor, bias: Tensor | None, inputs: Quantizer, inner_rotation: bool
    ) -> None:
        super().__init__()
        self.register_buffer("codes", codes)
        self.register_buffer("scale", scale)
        self.register_buffer("bias", bias)
        self.inputs, self.rotated = inputs, inner_rotation

    @classmethod
    def of(cls, layer: QuantizedLinear) -> PackedLinear:
        """Pack a layer.

        Raises:
            Unsupported: quantizers without a fixed grid, bits that do not fit, or a weight and an input that are rounded
                in two bases.
        """
        weights, inputs = layer.weight_quantizer, layer.input_quantizer
        if not (isinstance(weights, Quantizer) and isinstance(inputs, Quantizer)):
            raise Unsupported("packing a layer", "its grids are learned, and follow no known step")
        for quantizer in (weights, inputs):
            if quantizer.bits > WIDEST:
                reason = f"{quantizer} has levels beyond integers of 8 bits"
                raise Unsupported("packing a layer", reason, f"use 1 to {WIDEST} bits")
        if (weights.rotation == "none") != (inputs.rotation == "none"):
            raise Unsupported("packing a layer", "only one of weight and input is rounded in the rotated basis")
        turned = weights.rotation != "none"
        codes, scale = integers(rotate(layer.weight.detach()) if turned else layer.weight.detach(), weights)
        bias = None if layer.bias is None else layer.bias.detach()
        return cls(codes, scale[:, 0], bias, inputs, turned)

    def forward(self, x: Tensor) -> Tensor:
        """(…, inputs) to (…, outputs)."""
        tokens, step = integers(rotate(x) if self.rotated else x, self.inputs)
        product = _integer_product(tokens.flatten(0, -2), self.codes).view(*x.shape[:-1], -1)
        found = product.float() * step * self.scale
        return (found if self.bias is None else found + self.bias).to(x.dtype)

    def extra_repr(self) -> str:
        """For printing the model."""
        return f"{self.codes.shape[1]}, {self.codes.shape[0]}"


def integers(turned: Tensor, quantizer: Quantizer) -> tuple[Tensor, Tensor]:
    """A tensor that is rotated already, as integers (int8) and half a step a row, (…, 1)."""
    wide = turned.float()
    half = quantizer.scale(wide) / (round(2**quantizer.bits) - 1)
    return (quantizer.rounded(wide) / half).round().to(torch.int8), half


def _integer_product(left: Tensor, right: Tensor) -> Tensor:
    """left rightᵀ of int8 matrices, in int32; sides are padded to what the product asks for."""
    rows, columns, inner = len(left), len(right), left.shape[1]
    grow = [-size % ALIGNED for size in (rows, columns, inner)]
    # A product of a few rows is computed with more of them: some kernels ask for at least 17.
    tall = max(0, 32 - rows - grow[0])
    left = nn.functional.pad(left, (0, grow[2], 0, grow[0] + tall))
    right = nn.functional.pad(right, (0, grow[2], 0, grow[1]))
    return torch._int_mm(left.contiguous(), right.T.contiguous())[:rows, :columns]
