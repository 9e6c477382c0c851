"""Moving a scale or a rotation from one layer into its neighbours, without changing what the model computes.

Every function works on a fork and replaces parameters, never writes into them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from burnish.models.adapters import Heads, at
from burnish.models.model import Block, Model


def put(module: nn.Module, name: str, value: Tensor) -> None:
    """Replace a parameter by `value`, in the dtype and on the device that it had; codes of the old weight are dropped."""
    old = getattr(module, name)
    setattr(module, name, nn.Parameter(value.to(old.device, old.dtype), requires_grad=False))
    if name == "weight":
        module.__dict__.pop("quantized", None)


def divide_outputs(module: Any, scale: Tensor, offset: float = 0.0) -> None:
    """Divide each output feature of a norm or a linear layer by `scale`.

    Args:
        module: A norm, whose weight has one value a feature, or a linear layer.
        scale: (features,), positive.
        offset: The norm multiplies by (offset + weight).
    """
    weight = module.weight.detach().double()
    wide = scale.double() if weight.dim() == 1 else scale.double()[:, None]
    put(module, "weight", (weight + offset) / wide - offset)
    if getattr(module, "bias", None) is not None:
        put(module, "bias", module.bias.detach().double() / scale.double())


def multiply_inputs(linear: nn.Linear, scale: Tensor) -> None:
    """Multiply each input feature of a linear layer by `scale`, (features,)."""
    put(linear, "weight", linear.weight.detach().double() * scale.double())


def untie_head(model: Model) -> None:
    """Give the head weights of its own, if it shares the embedding's."""
    head = model.net.get_output_embeddings()
    if head.weight is model.net.get_input_embeddings().weight:
        head.weight = nn.Parameter(head.weight.detach().clone(), requires_grad=False)
    model.config.tie_word_embeddings = False


def fuse_norms(model: Model) -> None:
    """Move the weight of every norm before a linear layer into that layer; the norms then only normalize."""
    adapter = model.adapter
    untie_head(model)
    pairs = [(at(model.net, adapter.final_norm), [model.net.get_output_embeddings()])]
    for block in model.blocks():
        for path, roles in adapter.feeds.items():
            pairs.append((block.at(path), [site.linear for site in block.sites(roles)]))
    for norm, linears in pairs:
        gain = norm.weight.detach().double() + adapter.norm_offset
        for linear in linears:
            multiply_inputs(linear, gain)
        put(norm, "weight", torch.full_like(norm.weight, 1.0 - adapter.norm_offset))


def rotate_inputs(linear: nn.Linear, rotation: Tensor) -> None:
    """Make a linear layer expect x R instead of x; R is orthogonal, (inputs, inputs)."""
    put(linear, "weight", linear.weight.detach().double() @ rotation)


def rotate_outputs(linear: nn.Linear, rotation: Tensor) -> None:
    """Make a linear layer give y R instead of y; R is orthogonal, (outputs, outputs)."""
    put(linear, "weight", rotation.T @ linear.weight.detach().double())
    if linear.bias is not None:
        put(linear, "bias", linear.bias.detach().double() @ rotation)


def rotate_residual(model: Model, rotation: Tensor) -> None:
    """Rotate the residual stream: everything that writes to it and everything that reads from it.

    Norm weights must have been fused before: a norm with weights does not commute with a rotation.
    """
    for path in model.adapter.embeddings:
        embedding = at(model.net, path)
        put(embedding, "weight", embedding.weight.detach().double() @ rotation)
    rotate_inputs(model.net.get_output_embeddings(), rotation)
    readers = {role for roles in model.adapter.feeds.values() for role in roles}
    for site in model.sites():
        if site.role in readers:
            rotate_inputs(site.linear, rotation)
        elif site.role in ("o", "down", "fc2"):
            rotate_outputs(site.linear, rotation)


def rotate_values(block: Block, rotation: Tensor) -> None:
    """Rotate each head's values, and let o expect them so; R is (head_dim, head_dim)."""
    shape = block.model.heads
    value, output = block.sites(("v",))[0].linear, block.sites(("o",))[0].linear
    rotate_outputs(value, torch.block_diag(*[rotation] * shape.kv))
    rotate_inputs(output, torch.block_diag(*[rotation] * shape.query))


@dataclass(frozen=True)
class Junction:
    """A place in a block where a scale can pass from a module into the linear layers that read it.

    Attributes:
        roles: Of the linear layers.
        before: The norm or linear layer that is divided.
        linears: The layers whose inputs are multiplied.
        offset: A norm multiplies by (offset + weight).
        heads: Between v and o: the shape of attention. A value feature serves several inputs of o when queries are
            grouped.
    """

    roles: tuple[str, ...]
    before: nn.Module
    linears: tuple[nn.Linear, ...]
    offset: float = 0.0
    heads: Heads | None = None

    def narrow(self, features: Tensor, reduce: Callable[[Tensor], Tensor]) -> Tensor:
        """A figure for each output of `before` from one for each input of the layers; `reduce` takes dimension 1."""
        if self.heads is None:
            return features
        return reduce(features.view(self.heads.kv, self.heads.group, self.heads.width)).flatten()

    def widen(self, scale: Tensor) -> Tensor:
        """For each input of the layers, the scale of the output that it comes from."""
        if self.heads is None:
            return scale
        return scale.view(self.heads.kv, 1, self.heads.width).expand(-1, self.heads.group, -1).flatten()

    def apply(self, scale: Tensor) -> None:
        """Divide what comes out of `before` by `scale`, and make the layers expect that."""
        divide_outputs(self.before, scale, self.offset)
        for linear in self.linears:
            multiply_inputs(linear, self.widen(scale))


def junctions(block: Block) -> list[Junction]:
    """Every junction of a block. An MLP whose activation is not ReLU and has no gate passes no scale on: it has none."""
    linears = {site.role: site.linear for site in block.sites()}
    adapter = block.model.adapter
    found = [
        Junction(roles, block.at(path), tuple(linears[role] for role in roles), adapter.norm_offset)
        for path, roles in adapter.feeds.items()
    ]
    found.append(Junction(("o",), linears["v"], (linears["o"],), heads=block.model.heads))
    if "down" in linears:
        found.append(Junction(("down",), linears["up"], (linears["down"],)))
    elif getattr(block.module, "activation_fn", None).__class__ is nn.ReLU:
        found.append(Junction(("fc2",), linears["fc1"], (linears["fc2"],)))
    return found
