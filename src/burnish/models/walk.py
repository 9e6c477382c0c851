"""The calibration walk: block after block, each with the hidden states that really enter it.

Only one block's activations are held. When a block has been rewritten (or restored from an earlier run), its inputs are
sent through it once more, so that the next block sees what the rewritten model gives: the walk is sequential over
blocks, as GPTQ and BoA define it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from burnish.core.errors import BadInput
from burnish.models.model import Block, Model
from burnish.nn.attention import tapped
from burnish.nn.hessian import Gram

BATCH_TOKENS = 4096
"""Tokens that one forward pass of a block holds at most."""


class Walk:
    """Iterates over the blocks of `model`, which is rewritten in place: give it a fork.

    Args:
        model: A fork of the model to calibrate.
        tokens: Calibration windows, (samples, length), without padding.
    """

    def __init__(self, model: Model, tokens: Tensor) -> None:
        self.model = model
        self.tokens = tokens
        self._blocks = model.blocks()

    def __len__(self) -> int:
        return len(self._blocks)

    @torch.no_grad()
    def __iter__(self) -> Iterator[Block]:
        with tapped(self.model.net):
            hidden, contexts = self._enter()
            if not all(torch.isfinite(entering).all() for entering in hidden):
                raise BadInput(
                    f"the embeddings of {self.model.name} hold NaN or infinity",
                    "give a checkpoint whose weights are sound",
                )
            for block, context in zip(self._blocks, contexts, strict=True):
                block.inputs, block.context = hidden, context
                yield block
                if block is not self._blocks[-1]:
                    for i, entering in enumerate(hidden):
                        hidden[i] = block.forward(entering)
                block.inputs = []

    def _enter(self) -> tuple[list[Tensor], list[dict[str, Any]]]:
        """The hidden states that enter the first block, and each block's other arguments."""
        net, blocks = self.model.net, self._blocks
        first: list[Tensor] = []
        contexts: list[dict[str, Any]] = [{} for _ in blocks]

        def recorder(number: int) -> Callable[..., Tensor]:
            def record(hidden: Tensor, *args: Any, **kwargs: Any) -> Tensor:
                if number == 0:
                    first.append(hidden)
                kwargs.update(use_cache=False, cache=None)
                contexts[number] = kwargs
                return hidden

            return record

        rows = max(1, BATCH_TOKENS // self.tokens.shape[1])
        for number, block in enumerate(blocks):
            block.module.forward = recorder(number)
        try:
            # The last batch is a single row, so that the recorded arguments broadcast over batches of any size.
            for batch in [*self.tokens.split(rows), self.tokens[:1]]:
                net.base_model(input_ids=batch.to(self.model.device), use_cache=False)
        finally:
            for block in blocks:
                del block.module.forward
        return first[:-1], contexts


class _Enough(Exception):
    """Ends a forward pass once everything that was asked for has been seen."""


def record_inputs(block: Block, linears: dict[str, nn.Linear], see: Callable[[str, Tensor], None]) -> None:
    """Run a block on its calibration inputs and show the input of some of its linear layers.

    The pass ends as soon as the last of them was reached: its product, and what follows, is not computed.

    Args:
        block: A block of a walk.
        linears: Name to layer, in the order in which data passes them.
        see: Called with the name and the input, (batch, tokens, features), of each layer in each batch.
    """
    last = list(linears)[-1]

    def hook(name: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        def show(_: nn.Module, args: tuple[Tensor, ...]) -> None:
            see(name, args[0])
            if name == last:
                raise _Enough

        return show

    hooks = [linear.register_forward_pre_hook(hook(name)) for name, linear in linears.items()]
    try:
        for hidden in block.inputs:
            with suppress(_Enough):
                block.forward(hidden)
    finally:
        for handle in hooks:
            handle.remove()


def second_moments(block: Block, roles: tuple[str, ...]) -> dict[str, Gram]:
    """Second moments of the inputs of a block's linear layers, by role; layers with one input share theirs.

    Args:
        block: A block of a walk.
        roles: Which layers.
    """
    sites = {site.role: site for site in block.sites(roles)}
    shared = {role: fed[0] for fed in block.model.adapter.feeds.values() for role in fed}
    first: dict[str, str] = {}
    for role in sites:
        first.setdefault(shared.get(role, role), role)
    grams = {role: Gram(sites[role].linear.in_features, block.inputs[0].device) for role in first.values()}
    record_inputs(block, {role: sites[role].linear for role in grams}, lambda role, x: grams[role].add(x))
    return {role: grams[first[shared.get(role, role)]] for role in sites}
