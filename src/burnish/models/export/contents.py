"""What a model holds that a file format must say: rounded layers, activation grids, and what cannot be said."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from burnish.core.errors import Mismatch, Unsupported
from burnish.models.export.intent import MEASURE_HERE, NO_FORMAT
from burnish.models.model import Model
from burnish.nn.activation import InputStage, TokenGrid
from burnish.nn.grid import GridSpec, Quantized


@dataclass(frozen=True)
class Rounded:
    """A linear layer whose weight lies on a grid."""

    name: str
    linear: nn.Linear
    quantized: Quantized
    tokens: TokenGrid | None
    """The grid of its input."""

    @property
    def spec(self) -> GridSpec:
        """The kind of grid."""
        return self.quantized.grid.spec

    @property
    def divisible(self) -> bool:
        """Whether all groups of a row are whole."""
        return self.spec.group == -1 or self.linear.in_features % self.spec.group == 0


@dataclass(frozen=True)
class Contents:
    """The linear layers of a model, by what they hold."""

    rounded: tuple[Rounded, ...]
    floating: tuple[str, ...]
    """Names of the linear layers that were not rounded, the head among them."""

    @classmethod
    def of(cls, model: Model, format: str, activations: bool = False) -> Contents:
        """Look through a model.

        Args:
            model: The model.
            format: What it is to be written in, for errors.
            activations: Whether that format has grids for the inputs of linear layers.

        Raises:
            Unsupported: the model does something while it runs that the format cannot say, or has no rounded layer.
            Mismatch: a layer's weight is no longer what its codes stand for.
        """
        rounded, floating, grids = [], [], set()
        for name, module in model.net.named_modules():
            if not isinstance(module, nn.Linear):
                continue
            stage = getattr(module, "input_stage", None)
            grid = stage.grid if isinstance(stage, InputStage) and not stage.rotate else None
            if grid is not None:
                grids.add(grid)
            if (quantized := getattr(module, "quantized", None)) is not None:
                if not torch.equal(module.weight, quantized.weight().to(module.weight)):
                    raise Mismatch(f"the weight of {name} was changed after it was rounded", "round it last")
                rounded.append(Rounded(name, module, quantized, grid))
            else:
                floating.append(name)
                if stage is not None:
                    raise Unsupported(
                        f"{format} for {model.name}", f"the input of {name} is rounded, its weight is not"
                    )
        what = f"{format} for {model.name}"
        # Activation grids are one entry of `online`; whatever stands beside them is something else.
        if len(model.online) > bool(grids):
            raise Unsupported(what, f"{'; '.join(model.online)}, and {NO_FORMAT}", MEASURE_HERE)
        if grids and not activations:
            why = f"it changes activations while it runs ({'; '.join(model.online)}), which {format} cannot say"
            raise Unsupported(what, why, "use --format compressed-tensors")
        if not rounded:
            raise Unsupported(what, "none of its linear layers lies on a grid", "compress it first, or use --format hf")
        return cls(tuple(rounded), tuple(floating))

    def single_spec(self, model: Model, format: str) -> GridSpec:
        """The one kind of grid that all rounded layers have.

        Raises:
            Unsupported: there are several.
        """
        specs = {layer.spec for layer in self.rounded}
        if len(specs) > 1:
            kinds = ", ".join(sorted(f"{s.bits} bits, group {s.group}" for s in specs))
            raise Unsupported(
                f"{format} for {model.name}",
                f"its layers lie on several kinds of grid ({kinds})",
                "use one kind for all",
            )
        return specs.pop()
