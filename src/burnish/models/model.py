"""A model handle: the plain transformers model, its tokenizer, where its parts are and where it comes from."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from burnish.models import adapters
from burnish.models.adapters import Architecture, Heads
from burnish.nn.grid import Grid, GridSpec
from burnish.nn.site import Site


@dataclass(frozen=True)
class Lineage:
    """Where a model comes from.

    Attributes:
        name: What it was loaded as.
        source: Facts about the files: kind, digest, the quantization that they came with.
        steps: What was done to it since, in words, oldest first.
    """

    name: str
    source: Mapping[str, Any] = field(default_factory=dict)
    steps: tuple[str, ...] = ()

    def then(self, step: str) -> Lineage:
        """The same, one step on."""
        return replace(self, steps=(*self.steps, step))

    def lines(self) -> list[str]:
        """For people: one fact or step a line."""
        note = self.source.get("note")
        return [self.name, *([str(note)] if note else []), *self.steps]


@dataclass(frozen=True)
class Model:
    """A handle, not a wrapper: `net` is an ordinary transformers model in evaluation mode.

    Attributes:
        net: The model.
        tokenizer: Its tokenizer.
        lineage: Where it comes from.
        online: What happens to activations while it runs (grids, rotations), in words; empty for a plain model.
    """

    net: Any
    tokenizer: Any
    lineage: Lineage
    online: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What it was loaded as."""
        return self.lineage.name

    @property
    def config(self) -> Any:
        """The transformers configuration."""
        return self.net.config

    @property
    def device(self) -> torch.device:
        """Where its weights are."""
        return next(self.net.parameters()).device

    @property
    def adapter(self) -> Architecture:
        """Where its parts are. Raises Unsupported for an architecture that burnish does not know."""
        return adapters.architecture(self.config)

    @property
    def heads(self) -> Heads:
        """Attention's shape."""
        return adapters.heads(self.config)

    def at(self, path: str) -> Any:
        """The submodule at a dotted path."""
        return adapters.at(self.net, path)

    def fork(self) -> Model:
        """A copy whose modules are new and whose weights are shared until one is replaced."""
        tensors = [*self.net.parameters(), *self.net.buffers()]
        memo: dict[int, Any] = {id(tensor): tensor for tensor in tensors}
        return replace(self, net=copy.deepcopy(self.net, memo))

    def then(self, step: str, online: tuple[str, ...] = ()) -> Model:
        """The same handle with one more step in its lineage."""
        return replace(self, lineage=self.lineage.then(step), online=(*self.online, *online))

    def blocks(self) -> list[Block]:
        """Its transformer blocks, first to last."""
        path = self.adapter.blocks
        return [Block(self, f"{path}.{i}", module) for i, module in enumerate(self.at(path))]

    def sites(self) -> Iterator[Site]:
        """The linear layers of all blocks."""
        for block in self.blocks():
            yield from block.sites()


@dataclass
class Block:
    """One transformer block.

    Attributes:
        model: The model that it is part of.
        name: Its path, e.g. "model.layers.3".
        module: The block itself.
        inputs: In a calibration walk: the hidden states that enter it, a list of (batch, tokens, hidden).
        context: In a calibration walk: the other arguments of its forward (mask, positions).
    """

    model: Model
    name: str
    module: nn.Module
    inputs: list[Tensor] = field(default_factory=list)
    context: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._before = {name: id(p) for name, p in self.module.named_parameters()}

    @property
    def key(self) -> str:
        """Its name, the same in every run."""
        return self.name

    @property
    def number(self) -> int:
        """Its place, from 0."""
        return int(self.name.rsplit(".", 1)[1])

    def sites(self, roles: tuple[str, ...] = ()) -> list[Site]:
        """Its linear layers, or those with the given roles."""
        found = adapters.sites(self.module, self.name, self.model.config)
        return [site for site in found if not roles or site.role in roles]

    def at(self, path: str) -> Any:
        """The submodule at a dotted path inside the block."""
        return adapters.at(self.module, path)

    @torch.no_grad()
    def forward(self, hidden: Tensor) -> Tensor:
        """Run the block on hidden states of a calibration walk: (batch, tokens, hidden) in and out."""
        out = self.module(hidden, **self.context)
        return out[0] if isinstance(out, tuple) else out

    def state(self) -> dict[str, Tensor]:
        """What was changed: codes and grids of rounded layers, and every other weight that was replaced."""
        state: dict[str, Tensor] = {}
        rounded = set()
        for site in self.sites():
            if site.quantized is not None:
                inside = site.name.removeprefix(self.name + ".")
                rounded.add(inside + ".weight")
                grid = site.quantized.grid
                state[f"codes/{inside}"] = site.quantized.codes
                state[f"scale/{inside}"], state[f"zero/{inside}"] = grid.scale, grid.zero
                kind = (grid.spec.bits, grid.spec.sym, grid.spec.group, grid.spec.zero == "float")
                state[f"grid/{inside}"] = torch.tensor([int(x) for x in kind])
        for name, parameter in self.module.named_parameters():
            if id(parameter) != self._before.get(name) and name not in rounded:
                state[f"weight/{name}"] = parameter.detach()
        return state

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Put back what `state` gave."""
        device = next(self.module.parameters()).device
        sites = {site.name.removeprefix(self.name + "."): site for site in self.sites()}
        for key, value in state.items():
            kind, _, name = key.partition("/")
            if kind == "weight":
                path, _, attribute = name.rpartition(".")
                setattr(self.at(path), attribute, nn.Parameter(value.to(device), requires_grad=False))
            elif kind == "codes":
                bits, sym, group, floats = state[f"grid/{name}"].tolist()
                spec = GridSpec(bits, bool(sym), group, "float" if floats else "integer")
                grid = Grid(spec, state[f"scale/{name}"].to(device), state[f"zero/{name}"].to(device))
                sites[name].set_codes(value.to(device), grid)


def weight_hash(model: Model) -> str:
    """SHA-256 over the names and values of all weights: equal hashes, equal models."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.net.state_dict().items()):
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()
