"""Moving a scale or a rotation from one layer into its neighbours, without changing what the model computes.

Every function works on a fork and replaces parameters, never writes into them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from burnish.models.adapters import at
from burnish.models.model import Block, Model


def put(module: nn.Module, name: str, value: Tensor) -> None:
    """Replace a parameter by `value`, in the dtype and on the device that it had."""
    old = getattr(module, name)
    setattr(module, name, nn.Parameter(value.to(old.device, old.dtype), requires_grad=False))


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
