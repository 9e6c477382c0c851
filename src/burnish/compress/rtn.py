"""Round-to-nearest: the baseline that every weight quantizer has to beat.

## How it works

Each row of a weight matrix (or each group of `group` weights in a row) gets a step Δ and a zero point z; every weight
is replaced by the nearest of the 2^bits points (q − z)Δ. With `qparam = "minmax"` the grid spans the whole range of the
weights; with `"mmse"` the range shrinks until Σ|error|^2.4 is smallest, which cuts off rare large weights to place the
many small ones more finely. No calibration text is needed.

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

from typing import TYPE_CHECKING, ClassVar, Literal

from burnish.core.run import Run, ensure
from burnish.models.layers import LayerLog
from burnish.models.model import Model
from burnish.models.rounding_settings import WeightRounding
from burnish.models.walk import Walk, second_moments
from burnish.nn.site import output_error

if TYPE_CHECKING:
    from datasets import Dataset


class RTN(WeightRounding):
    """Round every weight to the nearest grid point."""

    baseline: ClassVar[bool] = True

    qparam: Literal["minmax", "mmse"] = "minmax"
    """How the grid is chosen: the whole range, or the range with the smallest weight error."""

    def __call__(self, model: Model, calib: Dataset | None = None, run: Run | None = None) -> Model:
        """Round all linear layers of the blocks.

        Args:
            model: Any supported architecture; it is not changed.
            calib: Only to report each layer's output error on this text (8 windows of 512 tokens).
            run: Where progress and the per-layer record go.

        Raises:
            Unsupported: an architecture without plain linear layers.
            BadInput: a weight that is not finite.
        """
        run = ensure(run)
        model = model.fork()
        log = LayerLog(run)
        for block in run.chain(self._blocks(model, calib), step="rtn"):
            sites = block.sites(self.layers)
            seen = second_moments(block, tuple(site.role for site in sites)) if block.inputs else {}
            for site in sites:
                before = site.weight
                site.round(self.spec, self.qparam)
                hessian = seen[site.role].mean() if seen else None
                log.add(site, self.bits, **output_error(before, site.weight, hessian))
        log.close()
        return model.then(self.describe())

    def _blocks(self, model: Model, calib: Dataset | None) -> Walk | list:
        if calib is None:
            return model.blocks()
        from burnish.data.windows import windows

        return Walk(model, windows(model.tokenizer, calib, 8, 512, seed=0))
