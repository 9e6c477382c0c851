"""Putting fake quantizers into a model, described once for all methods that train with them; and taking them out again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from burnish.core.errors import Unsupported
from burnish.nn.gaussian import TERNARY
from burnish.nn.quest import LSQ, PACT, PATTERNS, Pattern, QuantizedLinear, Quantizer, Rotation, Rule, rotate
from burnish.nn.quest_packed import WIDEST, PackedLinear

WHOLE = 16
"""Bits that stand for not rounding."""
Grid = Literal["quest", "lsq", "lsq-row", "pact"]
Bits = Literal[1, "ternary", 2, 3, 4, 5, 6, 7, 8, 16]


@dataclass(frozen=True)
class Quantization:
    """What is rounded in a linear layer, and how gradients pass.

    Attributes:
        bits: Of weights.
        a_bits: Of the input.
        grid: QuEST's (`Quantizer`); a learned step (`LSQ`), for weights one in all or one a row; or learned clips of inputs
            beside a learned step of weights (`PACT`).
        rotation: Of QuEST's grid, as `Quantizer` has it.
        gradient: Of QuEST's grid; the rule of `Quantizer`.
        outer: Multiplies what is trusted, or the clip.
        sparse: A pattern in which weights are dropped beside rounding the others.
    """

    bits: Bits = 4
    a_bits: int = 4
    grid: Grid = "quest"
    rotation: Rotation = "half"
    gradient: Rule = "trust"
    outer: float = 1.0
    sparse: Pattern = ""

    def faults(self) -> list[str]:
        """A line for each setting that would do nothing beside the others."""
        found = []
        if self.grid != "quest":
            plain = Quantization()
            idle = [n for n in ("rotation", "gradient", "outer", "sparse") if getattr(self, n) != getattr(plain, n)]
            found += [f"{name}: belongs to the grid quest, and the grid is {self.grid}" for name in idle]
            if self.bits == "ternary":
                found.append(f"bits: three levels are of the grid quest, and the grid is {self.grid}")
        elif self.gradient == "ste" and self.outer != 1.0:
            found.append("outer: with gradient ste every gradient passes, and there is nothing to multiply")
        if self.bits == WHOLE and self.sparse:
            found.append("sparse: is for weights that are rounded, and bits is 16")
        if self.bits == self.a_bits == WHOLE:
            found.append("bits, a_bits: nothing is rounded when both are 16")
        return found

    def put(self, net: nn.Module, names: Iterable[str]) -> None:
        """Let linear layers compute with rounded weights and inputs, in place; they keep their weights.

        Args:
            net: Whose layers.
            names: Their paths.

        Raises:
            Unsupported: a width that the sparse pattern does not divide.
        """
        chosen = {name: net.get_submodule(name) for name in names}
        for name, linear in chosen.items():
            assert isinstance(linear, nn.Linear)
            if self.sparse:
                _, of, unit = PATTERNS[self.sparse]
                if linear.in_features % (of * unit):
                    reason = f"the inputs of {name}, {linear.in_features}, are no multiple of {of * unit}"
                    raise Unsupported(f"a {self.sparse} pattern", reason, "leave sparse out")
            put(net, name, QuantizedLinear.of(linear, self._of_weights(len(linear.weight)), self._of_inputs()))

    @property
    def packs(self) -> bool:
        """Whether the layers can be computed with 8-bit integers."""
        return self.grid == "quest" and max(_number(self.bits), self.a_bits) <= WIDEST

    def said(self) -> str:
        """In a word, e.g. "W4A4"."""
        return f"W{'1.58' if self.bits == 'ternary' else self.bits}A{self.a_bits}"

    def online(self) -> tuple[str, ...]:
        """What it does to activations while a model runs, in words; empty where it leaves them whole."""
        if self.a_bits == WHOLE:
            return ()
        turned = "rotated and " if self.grid == "quest" and self.rotation != "none" else ""
        return (f"inputs of linear layers are {turned}rounded to {self.a_bits} bits, their weights as they are used",)

    def _of_weights(self, rows: int) -> nn.Module:
        bits = _number(self.bits)
        if self.grid != "quest" and bits < WHOLE:
            return LSQ(int(bits), rows if self.grid == "lsq-row" else 0)
        return self._fixed(bits, self.sparse)

    def _of_inputs(self) -> nn.Module:
        if self.grid != "quest" and self.a_bits < WHOLE:
            return PACT(self.a_bits) if self.grid == "pact" else LSQ(self.a_bits)
        return self._fixed(self.a_bits, "")

    def _fixed(self, bits: float, sparse: Pattern) -> Quantizer:
        made = Quantizer(bits, self.rotation if self.grid == "quest" else "none", self.gradient, sparse=sparse)
        made.width *= self.outer
        return made


def put(net: nn.Module, path: str, module: nn.Module) -> None:
    """Let a module take the place at a path."""
    parent, _, name = path.rpartition(".")
    setattr(net.get_submodule(parent), name, module)


def pack(net: nn.Module) -> None:
    """Let every `QuantizedLinear` of a model compute with 8-bit integers, in place.

    Raises:
        Unsupported: as `PackedLinear.of`.
    """
    for name, layer in _layers(net).items():
        put(net, name, PackedLinear.of(layer))


@torch.no_grad()
def bake(net: nn.Module) -> None:
    """Put a plain linear layer with the rounded weight in the place of every `QuantizedLinear` that leaves inputs whole."""
    for name, layer in _layers(net).items():
        weight, inputs = layer.weight_quantizer(layer.weight), layer.input_quantizer
        assert isinstance(inputs, Quantizer)
        assert inputs.bits >= WHOLE
        # What leaves the quantizer rotated is multiplied with a rotated input: H is its own inverse.
        weight = rotate(weight) if inputs.rotation == "half" else weight
        plain = nn.Linear(layer.in_features, layer.out_features, layer.bias is not None, device="meta")
        plain.weight = nn.Parameter(weight.detach().clone(), requires_grad=False)
        plain.bias = layer.bias
        put(net, name, plain)


def _layers(net: nn.Module) -> dict[str, QuantizedLinear]:
    return {name: module for name, module in net.named_modules() if isinstance(module, QuantizedLinear)}


def _number(bits: Bits) -> float:
    return TERNARY if bits == "ternary" else bits
