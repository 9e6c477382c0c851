"""Round-to-nearest: the baseline that every weight quantizer has to beat.

## How it works

Each row of a weight matrix (or each group of `group` weights in a row) gets a step Δ and a zero point z; every weight
is replaced by the nearest of the 2^bits points (q − z)Δ. With `qparam = "minmax"` the grid spans the whole range of the
weights; with `"mmse"` the range shrinks until Σ|error|^2.4 is smallest, which cuts off rare large weights to place the
many small ones more finely; neither needs calibration text. With `"hessian"` the range is the one with the smallest
output error on calibration text, as in BoA: the same grid without compensation, and so the fair baseline for it.

## Differences

None worth naming: there is no paper. Scales are rounded to half precision before the weights are, so that what is
measured is what every file format stores.

## When not to use it

At 4 bits and more with small groups it costs little and is the right first try. At 3 bits and fewer, or with one grid
a row, the methods that look at activations (gptq, boa) lose far less.

## References

The exponent of the "mmse" search follows the released code of GPTQ (Frantar et al. 2023).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from burnish.core.errors import BadInput
from burnish.core.run import Run, ensure
from burnish.models.calibration import calibration_windows
from burnish.models.layers import LayerLog
from burnish.models.model import Model
from burnish.models.rounding_settings import CalibratedRounding
from burnish.models.walk import Walk, second_moments
from burnish.nn.hessian import damp
from burnish.nn.site import output_error

if TYPE_CHECKING:
    from datasets import Dataset

DAMPING = 0.01
"""Fraction of a Hessian's mean diagonal that is added to it, as GPTQ and BoA do by default."""


class RTN(CalibratedRounding):
    """Round every weight to the nearest grid point."""

    baseline: ClassVar[bool] = True

    qparam: Literal["minmax", "mmse", "hessian"] = "minmax"
    """How the grid is chosen: the whole range, the smallest weight error, or (with calib) the smallest output error."""
    samples: Annotated[int, Field(ge=1)] = 16
    """Calibration windows, where there is calibration text."""
    length: Annotated[int, Field(ge=2)] = 512
    """Tokens in a calibration window."""

    @property
    def reads_calibration(self) -> bool:
        """Whether the result depends on calibration text."""
        return self.qparam == "hessian"

    def __call__(self, model: Model, calib: Dataset | None = None, run: Run | None = None) -> Model:
        """Round all linear layers of the blocks.

        Args:
            model: Any supported architecture; it is not changed.
            calib: For the grid of least output error; with the other grids only to report each layer's error.
            run: Where progress and the per-layer record go.

        Raises:
            Unsupported: an architecture without plain linear layers.
            BadInput: a weight that is not finite, or qparam hessian without calibration text.
        """
        if calib is None and self.reads_calibration:
            raise BadInput("qparam hessian needs calibration text", "give --calib, or take qparam mmse")
        run = ensure(run)
        model = model.fork()
        log = LayerLog(run)
        blocks = model.blocks() if calib is None else Walk(model, calibration_windows(self, model, calib, run))
        for block in run.chain(blocks, step="rtn"):
            sites = block.sites(self.layers)
            seen = second_moments(block, tuple(site.role for site in sites)) if block.inputs else {}
            for site in sites:
                before = site.weight
                hessian = seen[site.role].mean() if seen else None
                site.round(self.spec, self.qparam, None if hessian is None else damp(hessian, DAMPING))
                log.add(site, self.bits, **output_error(before, site.weight, hessian))
        log.close()
        return model.then(self.describe())
