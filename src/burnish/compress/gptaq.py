"""GPTAQ: GPTQ that calibrates against the original model's layer outputs, not against those on rounded inputs.

## How it works

When GPTQ reaches a layer, its inputs X already come from rounded layers, but its target W X uses them too, so what the
layers before have lost is never made up for. GPTAQ's target is W X̃ with the inputs X̃ of the original model. With the
drift ΔX = X̃ − X, rounding column q leaves two things to the later columns: its rounding error, as in GPTQ, and w_q ΔX_q.
With H⁻¹ = UᵀU the second adds w_q P_q to them, P = α triu(ΔX Xᵀ Uᵀ, 1) U. Both models walk through the calibration text side
by side, block after block, and inside a block layers that share an input are rounded together: q, k, v first, then o,
then gate and up, then down. Each group's moments and drift are taken when the groups before it are rounded.

## Differences

* Factor and loop are in float64, and a Hessian that cannot be factorized raises the damping by name, as in gptq.
* `sequential` off takes all moments and drifts of a block from one pass over the block as it was, as gptq takes its
  Hessians. That is faster, and blind to what rounding q, k and v does to the input of o in the same block.

`target_error` in the record is the error against GPTAQ's own target, `‖W X̃ − Q X‖² / ‖W X̃‖²`; `error` is GPTQ's.

## When not to use it

It holds the activations of two models, and goes four times through each block of both. Where the layers before lose
little (4 bits and more), so does it gain little.

## References

Li, Yin, Lee, Xiao, Panda. GPTAQ: Efficient Finetuning-Free Quantization for Asymmetric Calibration. ICML 2025,
arXiv 2504.02692. Default: α = 0.25, that of the released code.
"""

from __future__ import annotations

from dataclasses import dataclass
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
from burnish.models.walk import record_inputs
from burnish.nn.asymmetric import pull, round_rows
from burnish.nn.compensate import ordered_factor, zero_dead
from burnish.nn.grid import find_grid
from burnish.nn.hessian import Gram, damp
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
    sequential: bool = True
    """Take moments and drift of each group of layers after the groups before it in the block were rounded."""

    copies: ClassVar[int] = 2
    """Activations of a block that are held: those of the two models."""
    moments: ClassVar[float] = 4.0
    """Second moments that are summed, in units of one that is symmetric (`models.estimate`): two such, and the drift's."""

    @property
    def passes(self) -> float:
        """Forward passes through a block that a calibration token takes, the original's among them (`models.estimate`)."""
        return 5.0 if self.sequential else 4.0

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
            groups = by_input(block, block.sites(self.layers))
            for together in groups if self.sequential else [[site for group in groups for site in group]]:
                seen = drift(walk.original, block, [site.role for site in together])
                for site in together:
                    found, before = seen[site.role], site.weight
                    hessian = found.gram.mean()
                    figures = self._round(site, hessian, found.cross)
                    figures |= output_error(before, site.weight, hessian)
                    figures["target_error"] = found.target_error(before, site.weight)
                    log.add(site, self.bits, tokens=found.gram.tokens, **figures)
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


@dataclass
class Drift:
    """What enters a layer: x in the rounded model, x̃ in the original one.

    Attributes:
        gram: Second moments of x.
        moved: Second moments of x̃ − x.
        total: Sum of (x̃ − x) xᵀ, (inputs, inputs), float64.
    """

    gram: Gram
    moved: Gram
    total: Tensor

    @classmethod
    def none(cls, width: int, device: torch.device) -> Drift:
        """Nothing seen yet."""
        total = torch.zeros(width, width, dtype=torch.float64, device=device)
        return cls(Gram(width, device), Gram(width, device), total)

    def add(self, original: Tensor, now: Tensor) -> None:
        """Add a batch of inputs, (…, width) each."""
        x = now.reshape(-1, now.shape[-1]).float()
        change = original.reshape(x.shape).float() - x
        self.gram.add(now)
        self.moved.add(change)
        self.total += change.T @ x

    @property
    def cross(self) -> Tensor:
        """E[(x̃ − x) xᵀ], (inputs, inputs)."""
        return self.total / max(self.gram.tokens, 1)

    def target_error(self, before: Tensor, after: Tensor) -> float:
        """‖W X̃ − Q X‖² / ‖W X̃‖² of a weight W, (outputs, inputs), that became Q."""
        weight, change = before.double(), (before - after).double()
        x, cross, moved = self.gram.mean(), self.cross, self.moved.mean()

        def size(part: Tensor) -> float:
            """E‖part x + W (x̃ − x)‖²."""
            own = (part @ x * part).sum() + 2 * (weight @ cross * part).sum()
            return float(own + (weight @ moved * weight).sum())

        return size(change) / max(size(weight), 1e-30)


def by_input(block: Block, sites: list[Site]) -> list[list[Site]]:
    """Sites in groups that read one tensor, in the order in which data passes them."""
    feeds = {role: fed[0] for fed in block.model.adapter.feeds.values() for role in fed}
    groups: dict[str, list[Site]] = {}
    for site in sites:
        groups.setdefault(feeds.get(site.role, site.role), []).append(site)
    return list(groups.values())


def drift(original: Block, block: Block, roles: list[str]) -> dict[str, Drift]:
    """How the inputs of a block's linear layers have moved, by role; layers with one input share theirs.

    Args:
        original: The block as it was, with the inputs of the original model.
        block: The same block with the inputs of the rounded model.
        roles: Which layers.
    """
    groups = by_input(block, block.sites(tuple(roles)))
    found = {group[0].role: Drift.none(group[0].linear.in_features, block.inputs[0].device) for group in groups}
    # One batch at a time through both, so that only one batch of inputs of each layer is held.
    for before, now in zip(original.inputs, block.inputs, strict=True):
        theirs, ours = _inputs(original, before, list(found)), _inputs(block, now, list(found))
        for role, seen in found.items():
            seen.add(theirs[role], ours[role])
    return {site.role: found[group[0].role] for group in groups for site in group}


def _inputs(block: Block, hidden: Tensor, roles: list[str]) -> dict[str, Tensor]:
    """What enters some of a block's linear layers when `hidden` enters the block."""
    seen: dict[str, Tensor] = {}
    linears = {site.role: site.linear for site in block.sites() if site.role in roles}
    single = Block(block.model, block.name, block.module, [hidden], block.context)
    with torch.no_grad():
        record_inputs(single, linears, lambda role, x: seen.__setitem__(role, x))
    return seen
