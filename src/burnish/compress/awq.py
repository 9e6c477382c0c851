"""AWQ: scale up the weights that meet large activations, so that rounding to nearest hurts them less.

## How it works

One weight in a hundred matters most: those whose input is large. Multiplying the column of input j by s_j, and dividing
the input by it, makes the column's rounding error smaller by about s_j. The scales are s = mean|x|^α, normalized so that
their largest and smallest multiply to 1; α is the best of 20 values from 0 to 0.95 by the mean squared error of what the
rounded layers are there for: attention's output for q, k, v, the MLP's for gate and up, the layer's own elsewhere. The
division is folded into the norm or layer before. Then each group's range is shrunk, in steps of 5 % down to 55 %, to
where the layer's output error is smallest (not for q and k), and the weights are rounded to nearest.

## Differences

* The released code leaves out the scale between v and o when queries are grouped; here a value feature takes the mean
  over the inputs of o that it serves.
* The error of a clipped group is the quadratic form of its inputs' second moments over all calibration tokens; the
  released code samples 512 of them.
* Scales of the grid are rounded to half precision first, as everywhere in burnish.
* An MLP without a gate whose activation is not ReLU passes no scale on: its last layer is only clipped.

## When not to use it

It moves no weight to make up for another: at 3 bits and below gptq and boa are better. The searches run up to 20 forward
passes of attention and of the MLP a block, which is several times what gptq takes; a scale that has lost more than the
best one is given up before the end of the text, which changes nothing in the result.

## References

Lin, Tang, Tang, Yang, Chen, Wang, Xiao, Dang, Gan, Han. AWQ: Activation-aware Weight Quantization for On-Device LLM
Compression and Acceleration. MLSys 2024, arXiv 2306.00978. Defaults: a grid of 20 (section 3.2), 128 windows of 512
tokens (released code).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from burnish.core.errors import BadInput
from burnish.core.method import Paper
from burnish.core.run import Run, ensure
from burnish.models.calibration import calibration_windows
from burnish.models.composing import require_plain
from burnish.models.fold import Junction, junctions
from burnish.models.layers import LayerLog
from burnish.models.model import Block, Model
from burnish.models.rounding_settings import CalibratedRounding
from burnish.models.twins import OriginalWalk
from burnish.models.walk import record_inputs
from burnish.nn.clip import clipped_grid
from burnish.nn.grid import GridSpec, find_grid
from burnish.nn.hessian import Gram
from burnish.nn.site import Site, output_error

if TYPE_CHECKING:
    from datasets import Dataset

SMALLEST = 1e-4
"""Scales are at least this large before they are normalized (released code)."""
PART = 512
"""Tokens after which a search asks whether a scale is still worth trying; what they become fits in a cache."""
UNCLIPPED = ("q", "k")
"""Their outputs meet in a product, which the error of a single layer does not describe."""


class AWQ(CalibratedRounding):
    """Scale weights by the size of their activations, clip, and round to nearest."""

    paper: ClassVar[Paper | None] = Paper(
        title="AWQ: Activation-aware Weight Quantization for On-Device LLM Compression and Acceleration",
        authors="Lin, Tang, Tang, Yang, Chen, Wang, Xiao, Dang, Gan, Han",
        year=2024,
        venue="MLSys 2024",
        arxiv="2306.00978",
    )
    baseline: ClassVar[bool] = True

    length: Annotated[int, Field(ge=2)] = 512
    """Tokens in a calibration window."""
    grid: Annotated[int, Field(ge=1)] = 20
    """Values of α that are tried, from 0 in equal steps below 1."""
    clip: bool = True
    """Search each group's range after scaling."""

    copies: ClassVar[int] = 3
    """Activations of a block that are held: what enters it, and what enters and leaves attention or the MLP."""
    moments: ClassVar[float] = 1.0
    """Second moments that are summed, for the clips (`models.estimate`)."""

    @property
    def passes(self) -> float:
        """Forward passes through a block that a calibration token takes (`models.estimate`)."""
        return 4.0 + 0.75 * self.grid  # a quarter of the search is given up early (measured on SmolLM2-135M)

    def __call__(self, model: Model, calib: Dataset, run: Run | None = None) -> Model:
        """Scale and round all linear layers of the blocks.

        Args:
            model: Any supported architecture; it is not changed.
            calib: Calibration text.
            run: Where progress, finished blocks and the per-layer record go.

        Raises:
            Unsupported: an architecture without plain linear layers, or a model with online steps.
            BadInput: too little text for the windows, or values that are not finite.
        """
        run = ensure(run)
        require_plain(model, "AWQ")
        fork = model.fork()
        log = LayerLog(run)
        for block in run.chain(OriginalWalk(model, fork, calibration_windows(self, model, calib, run)), step="awq"):
            sites = block.sites(self.layers)
            seen = Inputs(block, sites)
            for site in sites:
                site.checked()
            roles = {site.role for site in sites}
            chosen = [
                (junction, *self._search(block, junction, seen))
                for junction in junctions(block)
                if set(junction.roles) <= roles
            ]
            alphas: dict[str, float] = {}
            wide: dict[str, Tensor] = {}
            for junction, alpha, scale in chosen:
                junction.apply(scale)
                for role in junction.roles:
                    alphas[role], wide[role] = alpha, junction.widen(scale)
            for site in sites:
                scaled = seen.grams[seen.source[site.role]].mean()
                if site.role in wide:
                    scaled = scaled / torch.outer(wide[site.role], wide[site.role])
                weight = site.checked()
                found = (
                    clipped_grid(weight, self.spec, scaled)
                    if self.clip and site.role not in UNCLIPPED
                    else find_grid(weight, self.spec)
                )
                site.set_codes(found.encode(weight), found)
                figures: dict[str, Any] = output_error(weight, site.weight, scaled)
                if site.role in alphas:
                    figures["alpha"] = alphas[site.role]
                log.add(site, self.bits, tokens=seen.grams[seen.source[site.role]].tokens, **figures)
        log.close()
        return fork.then(self.describe())

    def _search(self, block: Block, junction: Junction, seen: Inputs) -> tuple[float, Tensor]:
        """The best α of a junction, and its scale, (outputs of the module before,)."""
        size = junction.narrow(seen.sizes[seen.source[junction.roles[0]]], lambda t: t.mean(1))
        error = _error_of(block, junction, seen)
        best, found = (float("inf"), 0.0), torch.ones_like(size)
        # From the middle outwards: the best is mostly there, and what is worse is given up after part of the text.
        for step in sorted(range(self.grid), key=lambda step: abs(2 * step - self.grid)):
            alpha = step / self.grid
            scale = size.pow(alpha).clamp(min=SMALLEST)
            scale = (scale / (scale.max() * scale.min()).sqrt()).float()
            wide = junction.widen(scale)
            lost = error([_rounded(linear.weight.detach(), wide, self.spec) for linear in junction.linears], best[0])
            if (lost, alpha) < best:
                best, found = (lost, alpha), scale
        if best[0] == float("inf"):
            raise BadInput(
                f"no scale of {', '.join(junction.roles)} in {block.name} gives a finite output",
                "the calibration text or the weights hold NaN or infinity, or the model needs --dtype float32",
            )
        return best[1], found


class Inputs:
    """What enters the linear layers of a block: second moments and mean sizes, one for each that share an input.

    Attributes:
        grams: Role to second moments.
        sizes: Role to mean |x| of each feature, (inputs,).
        source: Role to the role that stands for its input.
    """

    def __init__(self, block: Block, sites: Sequence[Site]) -> None:
        feeds = {role: fed[0] for fed in block.model.adapter.feeds.values() for role in fed}
        first: dict[str, str] = {}
        self.source = {site.role: first.setdefault(feeds.get(site.role, site.role), site.role) for site in sites}
        linears = {site.role: site.linear for site in sites if site.role in first.values()}
        self.grams = {role: Gram(linear.in_features, linear.weight.device) for role, linear in linears.items()}
        totals = {role: linear.weight.new_zeros(linear.in_features).double() for role, linear in linears.items()}

        def see(role: str, x: Tensor) -> None:
            self.grams[role].add(x)
            totals[role] += x.flatten(0, -2).abs().double().sum(0)

        record_inputs(block, linears, see)
        self.sizes = {role: total / self.grams[role].tokens for role, total in totals.items()}


def _rounded(weight: Tensor, wide: Tensor, spec: GridSpec) -> Tensor:
    """The weight that a layer is left with when it is rounded at a scale and the scale undone."""
    scaled = weight.float() * wide
    grid = find_grid(scaled, spec)
    return grid.decode(grid.encode(scaled)).div_(wide).to(weight.dtype)


def _error_of(block: Block, junction: Junction, seen: Inputs) -> Callable[[list[Tensor], float], float]:
    """How far a junction's layers, with other weights, are from what they were: the squared error of their output.

    Returns:
        A function of the weights and of a limit: an error above it need not be known in full.
    """
    module = _around(block, junction)
    if module is None:
        (linear,), (role,) = junction.linears, junction.roles
        moments = seen.grams[seen.source[role]].mean().float()

        def own(weights: list[Tensor], limit: float) -> float:
            change = weights[0].float() - linear.weight.detach().float()
            return float(((change @ moments) * change).sum())

        return own
    calls = _calls(block, module)

    @torch.no_grad()
    def through(weights: list[Tensor], limit: float) -> float:
        held, total = [linear.weight for linear in junction.linears], 0.0
        for linear, weight in zip(junction.linears, weights, strict=True):
            linear.weight = nn.Parameter(weight, requires_grad=False)
        try:
            for args, kwargs, output in calls:
                total += float((_first(module(*args, **kwargs)) - output).float().square().sum())
                if total > limit:
                    break
        finally:
            for linear, weight in zip(junction.linears, held, strict=True):
                linear.weight = weight
        return total

    return through


def _around(block: Block, junction: Junction) -> nn.Module | None:
    """The module whose output tells what a junction's layers are there for; None where that is the layer itself."""
    if "q" in junction.roles:
        found: nn.Module = block.at(block.model.adapter.attention)
        return found
    return block.at("mlp") if "gate" in junction.roles else None


def _calls(block: Block, module: nn.Module) -> list[tuple[tuple[Any, ...], dict[str, Any], Tensor]]:
    """Arguments and output of each call of a module on the block's calibration inputs, about PART tokens at a time."""
    calls: list[tuple[tuple[Any, ...], dict[str, Any], Tensor]] = []

    def keep(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        calls.append((args, kwargs, _first(output)))

    handle = module.register_forward_hook(keep, with_kwargs=True)
    try:
        for hidden in block.inputs:
            for part in hidden.split(max(1, PART // hidden.shape[1])):
                block.forward(part)
    finally:
        handle.remove()
    return calls


def _first(output: Any) -> Tensor:
    found: Tensor = output[0] if isinstance(output, tuple) else output
    return found
