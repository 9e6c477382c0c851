"""GPTAQ: GPTQ that calibrates against the original model's layer outputs, not against those on rounded inputs.

## How it works

When GPTQ reaches a layer, its inputs X already come from rounded layers, but its target W X uses them too, so what the
layers before have lost is never made up for. GPTAQ's target is W X̃ with the inputs X̃ of the original model. With the
drift ΔX = X̃ − X, rounding column q leaves two things to the later columns: its rounding error, as in GPTQ, and w_q ΔX_q.
With H⁻¹ = UᵀU the second adds w_q P_q to them, P = α triu(ΔX Xᵀ Uᵀ, 1) U. Both models walk through the calibration text side
by side, block after block.

## Differences

* Factor and loop are in float64, and a Hessian that cannot be factorized raises the damping by name, as in gptq.
* Inside a block all drifts come from one pass over the block as it was, as gptq takes its Hessians; the released code
  goes layer by layer.

## When not to use it

It holds the activations of two models. Where the layers before lose little (4 bits and more), so does it gain little.

## References

Li, Yin, Lee, Xiao, Panda. GPTAQ: Efficient Finetuning-Free Quantization for Asymmetric Calibration. ICML 2025,
arXiv 2504.02692. Default: α = 0.25, that of the released code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from burnish.core.method import Paper
from burnish.core.run import Run, ensure
from burnish.models.calibration import calibration_windows
from burnish.models.layers import LayerLog
from burnish.models.model import Block, Model
from burnish.models.rounding_settings import CalibratedRounding
from burnish.models.twins import TwinWalk
from burnish.models.walk import record_inputs, second_moments
from burnish.nn.asymmetric import pull, round_rows
from burnish.nn.compensate import ordered_factor, zero_dead
from burnish.nn.grid import find_grid
from burnish.nn.hessian import damp
from burnish.nn.site import Site, output_error

if TYPE_CHECKING:
    from datasets import Dataset


class GPTAQ(CalibratedRounding):
    """Round weights as GPTQ does, and make up for the error that has piled up in the layers before."""

    paper: ClassVar[Paper | None] = Paper(
        title="GPTAQ: Efficient Finetuning-Free Quantization for Asymmetric Calibration",
        authors="Li, Yin, Lee, Xiao, Panda",
        year=2025,
        venue="ICML 2025",
        arxiv="2504.02692",
    )
    baseline: ClassVar[bool] = True

    qparam: Literal["minmax", "mmse", "hessian"] = "minmax"
    """How the grid is chosen: the whole range, the smallest weight error, or the smallest output error."""
    act_order: bool = True
    """Round the columns with the largest inputs first; the grids stay where they were (static groups)."""
    damping: Annotated[float, Field(gt=0, le=1)] = 0.01
    """Fraction of the Hessian's mean diagonal that is added to it."""
    alpha: Annotated[float, Field(ge=0, le=1)] = 0.25
    """Fraction of the drift that is made up for; 0 is GPTQ."""

    def __call__(self, model: Model, calib: Dataset, run: Run | None = None) -> Model:
        """Round all linear layers of the blocks.

        Args:
            model: Any supported architecture; it is not changed.
            calib: Calibration text.
            run: Where progress, finished blocks and the per-layer record go.

        Raises:
            Unsupported: an architecture without plain linear layers.
            BadInput: too little text for the windows, or values that are not finite.
        """
        run = ensure(run)
        fork = model.fork()
        log = LayerLog(run)
        walk = TwinWalk(model, fork, calibration_windows(self, model, calib, run))
        for block in run.chain(walk, step="gptaq"):
            sites = block.sites(self.layers)
            seen = second_moments(block, tuple(site.role for site in sites))
            drifted = drift(walk.original, block, [site.role for site in sites])
            for site in sites:
                hessian, before = seen[site.role].mean(), site.weight
                figures = self._round(site, hessian, drifted[site.role])
                figures |= output_error(before, site.weight, hessian)
                log.add(site, self.bits, tokens=seen[site.role].tokens, **figures)
        log.close()
        return fork.then(self.describe())

    def _round(self, site: Site, hessian: Tensor, drifted: Tensor) -> dict[str, Any]:
        weight = zero_dead(site.checked(), hessian)
        grid = find_grid(
            weight, self.spec, self.qparam, damp(hessian, self.damping) if self.qparam == "hessian" else None
        )
        order, columns = ordered_factor(site.name, hessian, self.act_order, self.damping)
        if order is not None:
            drifted = drifted[order][:, order]
        codes = round_rows(weight, columns.upper, pull(columns.upper, drifted, self.alpha), grid, order)
        site.set_codes(codes, grid)
        return {"damping": columns.damping, "note": columns.note}


def drift(original: Block, block: Block, roles: list[str]) -> dict[str, Tensor]:
    """E[(x̃ − x) xᵀ] of the inputs of a block's linear layers, by role: (inputs, inputs), float64.

    Args:
        original: The block as it was, with the inputs of the original model.
        block: The same block with the inputs of the rounded model.
        roles: Which layers; layers with one input share theirs.
    """
    feeds = {role: fed[0] for fed in block.model.adapter.feeds.values() for role in fed}
    first: dict[str, str] = {}
    for role in roles:
        first.setdefault(feeds.get(role, role), role)
    wanted = list(first.values())
    total: dict[str, Tensor] = {}
    tokens = 0
    # One batch at a time through both, so that only one batch of inputs of each layer is held.
    for before, now in zip(original.inputs, block.inputs, strict=True):
        theirs, ours = _inputs(original, before, wanted), _inputs(block, now, wanted)
        for role in wanted:
            x = ours[role].reshape(-1, ours[role].shape[-1]).float()
            moved = theirs[role].reshape(x.shape).float() - x
            product = (moved.T @ x).double()
            total[role] = total[role] + product if role in total else product
        tokens += now.shape[0] * now.shape[1]
    return {role: total[first[feeds.get(role, role)]] / tokens for role in roles}


def _inputs(block: Block, hidden: Tensor, roles: list[str]) -> dict[str, Tensor]:
    """What enters some of a block's linear layers when `hidden` enters the block."""
    seen: dict[str, Tensor] = {}
    linears = {site.role: site.linear for site in block.sites() if site.role in roles}
    single = Block(block.model, block.name, block.module, [hidden], block.context)
    with torch.no_grad():
        record_inputs(single, linears, lambda role, x: seen.__setitem__(role, x))
    return seen
