"""One block in FlatQuant's training: its transforms and clips, how the block runs with them, and how they are folded."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from burnish.models.fold import put
from burnish.models.model import Block
from burnish.nn.cache_stage import attach_cache_stage
from burnish.nn.flat import (
    Clip,
    FlatStage,
    FlatTap,
    LearnedGrid,
    Parametrization,
    TokenClip,
    Transform,
    attach_after,
    attach_before,
    round_weight,
    weight_scale,
)
from burnish.nn.grid import Grid, GridSpec
from burnish.nn.kronecker import balanced

SMALLEST = 1e-5
"""Diagonals, and the maxima that they start from, are at least this large."""


@dataclass(frozen=True)
class FlatBits:
    """Widths of the grids; 16 for none."""

    weights: int
    activations: int
    cache: int


class FlatBlock(nn.Module):
    """What FlatQuant learns in one block.

    Args:
        block: A block whose stages were attached (`attach_stages`).
        bits: Widths of the grids.
        maxima: Role to the largest size of each input feature in calibration, for q, gate and down.
        alpha: How much of the activations' outliers the diagonals move into the weights at the start: 0 none, 1 all.
        parametrization: Of the factors.
        generator: Of the random start, on the CPU: every device starts with the same numbers.
    """

    def __init__(
        self,
        block: Block,
        bits: FlatBits,
        maxima: Mapping[str, Tensor],
        alpha: float,
        parametrization: Parametrization,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.block, self.bits, self.heads = block, bits, block.model.heads
        self.linears = {site.role: site.linear for site in block.sites()}
        self.masters = {role: linear.weight.detach().float() for role, linear in self.linears.items()}
        self.norms = {roles[0]: block.at(path) for path, roles in block.model.adapter.feeds.items()}
        self.reads = {role: roles[0] for roles in block.model.adapter.feeds.values() for role in roles}

        def features(role: str) -> Transform:
            readers = [other for other in self.linears if self.reads.get(other, other) == role]
            columns = torch.stack([self.masters[other].abs().amax(0) for other in readers]).amax(0)
            start = columns.clamp(min=SMALLEST) ** (1 - alpha) / maxima[role].float().clamp(min=SMALLEST) ** alpha
            return Transform.of(len(start), parametrization, generator, start.clamp(min=SMALLEST))

        width = self.heads.width
        transforms = {
            "q": features("q"),
            "gate": features("gate"),
            "down": features("down"),
            "o": Transform((self.heads.query, 1), parametrization, generator, width=self.heads.query * width),
            "v": Transform((1, width), parametrization, generator),
        }
        if bits.cache < 16:
            transforms["k"] = Transform((1, width), parametrization, generator)
        self.transforms = nn.ModuleDict(transforms)
        self.weight_clips = nn.ModuleDict({role: Clip(len(weight)) for role, weight in self.masters.items()})
        self.input_clips = nn.ModuleDict(
            {role: TokenClip(bits.activations, True) for role in ("q", "gate", "down", "o")}
        )
        self.cache_clips = nn.ModuleDict({role: TokenClip(bits.cache, False) for role in ("k", "v")})
        self.to(device_of(block))

    def groups(self, rate: float, clip_rate: float) -> list[dict[str, Any]]:
        """Parameters for an optimizer: transforms at one learning rate, clips at another."""
        clips = [*self.weight_clips.parameters(), *self.input_clips.parameters(), *self.cache_clips.parameters()]
        return [
            {"params": list(self.transforms.parameters()), "lr": rate},
            {"params": clips, "lr": clip_rate},
        ]

    # -- weights ------------------------------------------------------------------------------------------------------

    def transformed(self, role: str) -> tuple[Tensor, Tensor | None]:
        """The weight, (outputs, inputs), and the bias that a layer has between transformed neighbours; not rounded."""
        master = self.masters[role].to(self._dtype)
        own = self.linears[role].bias
        bias: Tensor | None = None if own is None else own.detach().to(self._dtype)
        weight: Tensor
        if role == "o":
            turned: Any = self._of("v").matrices()[1].right
            weight = (master.view(len(master), self.heads.query, -1) @ turned).reshape(master.shape)
            weight = self._of("o").matrices()[1](weight)
        else:
            weight = self._of(self.reads.get(role, role)).weight(master)
        if self.bits.weights < 16:
            clip: Any = self.weight_clips[role]
            weight = clip.clamp(weight)
        if role == "v":
            turn: Any = self._of("v").matrices()[0].right
            weight = (turn.T @ weight.view(self.heads.kv, self.heads.width, -1)).reshape(weight.shape)
            bias = None if bias is None else (bias.view(self.heads.kv, -1) @ turn).reshape(bias.shape)
        if role == "up":  # the down projection's diagonal passes through the gate
            scale: Any = self._of("down").diagonal
            weight, bias = weight * scale[:, None], None if bias is None else bias * scale
        return weight, bias

    def rounded(self, role: str) -> tuple[Tensor, Tensor | None]:
        """The same on its grid, with gradients passing through the rounding."""
        weight, bias = self.transformed(role)
        return (weight if self.bits.weights == 16 else round_weight(weight, self.bits.weights)), bias

    # -- running ------------------------------------------------------------------------------------------------------

    def forward(self, hidden: Tensor) -> Tensor:
        """The block's output with everything that has been learned so far: (batch, tokens, hidden) in and out."""
        with self._held(), self._substituted():
            out = self.block.module(hidden, **self.block.context)
        return out[0] if isinstance(out, tuple) else out

    @contextmanager
    def _held(self) -> Iterator[None]:
        with ExitStack() as stack:
            for role in self.transforms:
                stack.enter_context(self._of(role).held())
            yield

    @contextmanager
    def _substituted(self) -> Iterator[None]:
        handles = [norm.register_forward_hook(self._input(role, diagonal=True)) for role, norm in self.norms.items()]
        attention = self.block.at(self.block.model.adapter.attention)
        if self.bits.cache < 16:
            attention.tap = self._tap  # the stage that stands there is off
        for role, linear in self.linears.items():
            weight, bias = self.rounded(role)
            before = self._input(role, diagonal=False) if role in ("o", "down") else None
            # In the instance's own dictionary it comes before the method.
            linear.__dict__["forward"] = _linear(weight, bias, before)
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
            if self.bits.cache < 16:
                del attention.tap
            for linear in self.linears.values():
                del linear.__dict__["forward"]

    def _input(self, role: str, *, diagonal: bool) -> Callable[..., Tensor]:
        """What happens to an input, as a hook on the norm that gives it or on the tensor itself."""
        transform, clip = self._of(role), self.input_clips[role]
        # The down projection's diagonal stands in the rows of up.
        product = transform.matrices()[0]

        def change(*given: Any) -> Tensor:
            x = given[-1]
            if diagonal:
                x = x * transform.diagonal
            found: Tensor = clip(product(x))
            return found

        return change

    def _tap(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        turn, back = (product.right for product in self._of("k").matrices())
        assert turn is not None
        assert back is not None
        return query @ back, self.cache_clips["k"](key @ turn), self.cache_clips["v"](value)

    # -- folding ------------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def fold(self, round_weights: bool = True) -> dict[str, Tensor]:
        """Write what was learned into the block: weights and norms in double precision, and its stages.

        Args:
            round_weights: Put the weights on their grids; otherwise a later step does.

        Returns:
            Role to the transformed weight before it was rounded, float32.
        """
        wide = self.double()
        with wide._held():
            return self._write(wide, round_weights)

    def _write(self, wide: FlatBlock, round_weights: bool) -> dict[str, Tensor]:
        exact = {}
        for role, linear in self.linears.items():
            weight, bias = wide.transformed(role)
            exact[role] = weight.float()
            if self.bits.weights < 16 and round_weights:
                self._set(role, weight)
            else:
                put(linear, "weight", weight)
            if bias is not None:
                put(linear, "bias", bias)
        offset = self.block.model.adapter.norm_offset
        for role, norm in self.norms.items():
            put(norm, "weight", (norm.weight.double() + offset) * wide._of(role).diagonal - offset)
        for role, stage in stages(self.block).items():
            stage.fill(wide._of(role).matrices()[0], self._grid(self.input_clips[role]))
        if self.bits.cache < 16:
            pair = wide._of("k").matrices()
            stage = self.block.at(self.block.model.adapter.attention).cache_stage
            stage.fill(tuple(p.right for p in pair), *(self._grid(self.cache_clips[role]) for role in ("k", "v")))
        return exact

    def double(self) -> FlatBlock:
        """A copy that computes in double precision; only what is learned is copied."""
        shared = {name: self.__dict__.pop(name) for name in ("block", "linears", "norms", "masters")}
        try:
            wide = copy.deepcopy(self)
        finally:
            self.__dict__.update(shared)
        wide.__dict__.update(shared)
        return nn.Module.double(wide)

    def _set(self, role: str, weight: Tensor) -> None:
        site = next(site for site in self.block.sites((role,)))
        spec = GridSpec(self.bits.weights, sym=True, group=-1)
        scale = weight_scale(weight, self.bits.weights)
        top = 2 ** (self.bits.weights - 1)
        codes = ((weight / scale).round().clamp(-top, top - 1) + top).to(torch.uint8)
        site.set_codes(codes, Grid(spec, scale.float(), torch.full_like(scale, top).float()))

    def _of(self, role: str) -> Transform:
        found = self.transforms[role]
        assert isinstance(found, Transform)
        return found

    @staticmethod
    def _grid(clip: nn.Module) -> LearnedGrid | None:
        assert isinstance(clip, TokenClip)
        return clip.grid()

    @property
    def _dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype


def _linear(
    weight: Tensor, bias: Tensor | None, before: Callable[[Tensor], Tensor] | None
) -> Callable[[Tensor], Tensor]:
    def forward(x: Tensor) -> Tensor:
        return functional.linear(x if before is None else before(x), weight, bias)

    return forward


def attach_stages(block: Block, bits: FlatBits) -> None:
    """Give a block the stages that will hold what is learned, switched off: a resumed run fills them from its blobs.

    Raises:
        Unsupported: the block has a stage already.
    """
    heads, adapter = block.model.heads, block.model.adapter
    linears = {site.role: site.linear for site in block.sites()}
    for path, roles in adapter.feeds.items():
        size = balanced(linears[roles[0]].in_features)
        attach_after(block.at(path), FlatStage(size, left=size[0] > 1, right=True, bits=bits.activations))
    size = balanced(linears["down"].in_features)
    attach_before(linears["down"], FlatStage(size, left=size[0] > 1, right=True, bits=bits.activations))
    attach_before(linears["o"], FlatStage((heads.query, heads.width), left=True, right=False, bits=bits.activations))
    if bits.cache < 16:
        attach_cache_stage(block.at(adapter.attention), FlatTap(heads.width, bits.cache))
    for module in block.module.modules():
        if isinstance(module, FlatStage | FlatTap):
            module.to(device_of(block))
    switch(block, on=False)


def device_of(block: Block) -> torch.device:
    """Where a block's weights are."""
    return block.sites()[0].weight.device


def stages(block: Block) -> dict[str, FlatStage]:
    """The stages of a block, by the first role that reads them."""
    found = {roles[0]: block.at(path).output_stage for path, roles in block.model.adapter.feeds.items()}
    return found | {site.role: getattr(site.linear, "input_stage") for site in block.sites(("o", "down"))}  # noqa: B009


def switch(block: Block, *, on: bool) -> None:
    """Let a block's stages work, or not."""
    for module in block.module.modules():
        if isinstance(module, FlatStage | FlatTap):
            module.on = on
