"""GPTQ: round column after column, and let the columns to come make up for the error.

## How it works

A linear layer's output error on calibration inputs X is tr(ΔW H ΔWᵀ) with H = E[x xᵀ]. With U the upper Cholesky factor
of H⁻¹ (H⁻¹ = UᵀU), GPTQ walks over the columns j: it rounds w_j, and takes (w_j − q_j)/U_jj · U_j,l off every later
column l. Columns with a large H_jj go first (act-order); the grids are chosen beforehand and stay with the columns
(static groups), so the order costs nothing at run time. Blocks are treated in order, and each sees what the blocks
before it, already rounded, give; inside a block all Hessians come from one pass.

## Differences

* Factor and loop are in float64 (the released code: float32): sequential rounding amplifies the last bit, and this
  keeps the codes equal between machines. Scales are rounded to half precision first.
* If the damped Hessian cannot be factorized, the damping is raised step by step and the layer is named in the record;
  the released code stops with an error.
* `qparam = "hessian"` chooses each row's range by the same quadratic form (as BoA does); the paper's own is "minmax".
* Inside a block the released code can also go layer by layer ("true sequential"); this one does not.

## When not to use it

Below a few thousand calibration tokens H is poor: the record says so. For q, k and v at 2 or 3 bits, see boa.

## References

Frantar, Ashkboos, Hoefler, Alistarh. GPTQ: Accurate Post-Training Quantization for Generative Pre-trained Transformers.
ICLR 2023, arXiv 2210.17323. Defaults: damping 1 %, 128 calibration windows of 2048 tokens (section 4).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from burnish.core.method import Paper
from burnish.core.run import Run, ensure
from burnish.models.calibration import calibration_windows
from burnish.models.layers import LayerLog
from burnish.models.model import Model
from burnish.models.rounding_settings import CalibratedRounding
from burnish.models.walk import Walk, second_moments
from burnish.nn.compensate import compensate
from burnish.nn.site import output_error

if TYPE_CHECKING:
    from datasets import Dataset


class GPTQ(CalibratedRounding):
    """Round weights column by column, compensating each error in the columns to come."""

    paper: ClassVar[Paper | None] = Paper(
        title="GPTQ: Accurate Post-Training Quantization for Generative Pre-trained Transformers",
        authors="Frantar, Ashkboos, Hoefler, Alistarh",
        year=2023,
        venue="ICLR 2023",
        arxiv="2210.17323",
    )
    baseline: ClassVar[bool] = True

    qparam: Literal["minmax", "mmse", "hessian"] = "minmax"
    """How the grid is chosen: the whole range, the smallest weight error, or the smallest output error."""
    act_order: bool = True
    """Round the columns with the largest inputs first; the grids stay where they were (static groups)."""
    damping: Annotated[float, Field(gt=0, le=1)] = 0.01
    """Fraction of the Hessian's mean diagonal that is added to it."""

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
        model = model.fork()
        log = LayerLog(run)
        for block in run.chain(Walk(model, calibration_windows(self, model, calib, run)), step="gptq"):
            sites = block.sites(self.layers)
            seen = second_moments(block, tuple(site.role for site in sites))
            for site in sites:
                hessian, before = seen[site.role].mean(), site.weight
                figures = compensate(
                    site, hessian, self.spec, search=self.qparam, act_order=self.act_order, damping=self.damping
                )
                figures |= output_error(before, site.weight, hessian)
                log.add(site, self.bits, tokens=seen[site.role].tokens, **figures)
        log.close()
        return model.then(self.describe())
