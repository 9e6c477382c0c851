"""A site: one linear layer of a block, with what a quantizer does to it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from burnish.core.errors import BadInput
from burnish.nn.activation import InputStage, attach
from burnish.nn.grid import Grid, GridSpec, Quantized, Search, find_grid


@dataclass(frozen=True)
class Site:
    """One linear layer.

    Attributes:
        name: Its full path in the model, e.g. "model.layers.3.mlp.up_proj".
        role: q, k, v, o, gate, up, down, fc1 or fc2.
        linear: The layer itself; its weight is replaced, never written into, so that a fork leaves its model alone.
    """

    name: str
    role: str
    linear: nn.Linear

    @property
    def weight(self) -> Tensor:
        """(outputs, inputs), as the model holds it."""
        return self.linear.weight.detach()

    def checked(self) -> Tensor:
        """The weight in float32.

        Raises:
            BadInput: it holds NaN or infinity.
        """
        weight = self.weight.float()
        if not torch.isfinite(weight).all():
            count = int((~torch.isfinite(weight)).sum())
            raise BadInput(
                f"the weight of {self.name} holds {count} values that are NaN or infinite", "the model is damaged"
            )
        return weight

    def replace(self, weight: Tensor) -> None:
        """Give the layer another weight of the same shape, in the dtype that it had."""
        old = self.linear.weight
        self.linear.weight = nn.Parameter(weight.to(old.device, old.dtype), requires_grad=False)
        if self.quantized is not None:
            del self.linear.quantized

    @property
    def quantized(self) -> Quantized | None:
        """The grid and codes that the weight lies on, once it was rounded."""
        return getattr(self.linear, "quantized", None)

    def set_codes(self, codes: Tensor, grid: Grid) -> None:
        """Put the weight on a grid: it becomes what the codes decode to."""
        quantized = Quantized(codes, grid)
        self.replace(quantized.weight())
        object.__setattr__(self.linear, "quantized", quantized)

    def round(self, spec: GridSpec, search: Search = "minmax", hessian: Tensor | None = None) -> None:
        """Round to nearest."""
        weight = self.checked()
        grid = find_grid(weight, spec, search, hessian)
        self.set_codes(grid.encode(weight), grid)

    def stage(self, stage: InputStage) -> None:
        """Let the layer's input pass through `stage` from now on."""
        attach(self.linear, stage)


def output_error(before: Tensor, after: Tensor, hessian: Tensor | None) -> dict[str, float]:
    """How much of a layer's output (and of its weight) an approximation loses.

    Args:
        before: (outputs, inputs).
        after: The same shape.
        hessian: (inputs, inputs), second moments of the inputs; None when they are not known.

    Returns:
        "error": tr(D H D') / tr(W H W') with D = after - before; "weight_error": the same with H = I.
    """
    before, change = before.float(), (after - before).float()
    found = {"weight_error": float(change.square().sum() / before.square().sum().clamp(min=1e-30))}
    if hessian is not None:
        metric = hessian.float()
        spent, whole = (((t @ metric) * t).sum() for t in (change, before))
        found["error"] = float(spent / whole.clamp(min=1e-30))
    return found
