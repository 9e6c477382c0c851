"""SmoothQuant: move the outliers of activations into the weights, then round both to 8 bits.

## How it works

Some input features of a layer are a hundred times larger than the others, and one grid a token cannot hold them. Each
feature j is divided by s_j = max|X_j|^α / max|W_j|^(1−α), and the matching weight column multiplied by it: the product is
unchanged, the activations are flatter, the weights a little less flat. The division costs nothing, because it is folded
into what comes before: the norm (for q, k, v and for gate, up), up_proj (for down), v_proj (for o). Then weights are
rounded to nearest on one symmetric grid a row, and every layer's input on one symmetric grid a token, chosen anew as
the model runs.

## Differences

* The paper's released code smooths only after norms; here o and down are smoothed too. With grouped-query attention a
  value feature serves several inputs of o, and takes the largest maxima among them.
* An MLP whose activation is not ReLU and has no gate (fc1, fc2) cannot pass the scale on: fc2 is then left alone, and
  the record says so.
* The products inside attention (scores, and their use on values) stay in floating point, as in every format that an
  export could be read from; the paper rounds their inputs too.
* Weights have one grid a row, where the paper's fastest variants have one a matrix.

## When not to use it

At 4 bits for activations it is a weak baseline: see quarot. For weights alone it does nothing.

## References

Xiao, Lin, Seznec, Wu, Demouth, Han. SmoothQuant: Accurate and Efficient Post-Training Quantization for Large Language
Models. ICML 2023, arXiv 2211.10438. Defaults: α = 0.5 (section 4.2), 512 calibration sequences (section 5.1).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from burnish.core.method import Paper
from burnish.core.run import Run, ensure
from burnish.core.shapes import Compressor
from burnish.models.calibration import calibration_windows
from burnish.models.composing import require_plain
from burnish.models.fold import junctions
from burnish.models.layers import LayerLog
from burnish.models.model import Block, Model
from burnish.models.walk import Walk, record_inputs
from burnish.nn.activation import InputStage, TokenGrid
from burnish.nn.grid import GridSpec
from burnish.nn.site import output_error

if TYPE_CHECKING:
    from datasets import Dataset

SMALLEST = 1e-5
"""Scales and maxima are at least this large."""


class SmoothQuant(Compressor):
    """Round weights and activations to 8 bits, after moving activation outliers into the weights."""

    paper: ClassVar[Paper | None] = Paper(
        title="SmoothQuant: Accurate and Efficient Post-Training Quantization for Large Language Models",
        authors="Xiao, Lin, Seznec, Wu, Demouth, Han",
        year=2023,
        venue="ICML 2023",
        arxiv="2211.10438",
    )
    baseline: ClassVar[bool] = True

    bits: Literal[4, 8] = 8
    """Bits per weight; one symmetric grid a row."""
    a_bits: Literal[4, 8, 16] = 8
    """Bits per activation; one symmetric grid a token. 16 leaves activations alone."""
    alpha: Annotated[float, Field(ge=0, le=1)] = 0.5
    """How much of the outliers moves into the weights: 0 none, 1 all."""
    samples: Annotated[int, Field(ge=1)] = 512
    """Calibration windows; the default takes what a shorter text holds, a number that you give must fit."""
    length: Annotated[int, Field(ge=2)] = 512
    """Tokens in a calibration window."""
    calib_seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Which windows of the calibration text are taken."""

    def __call__(self, model: Model, calib: Dataset, run: Run | None = None) -> Model:
        """Smooth and round all linear layers of the blocks.

        Args:
            model: Any supported architecture; it is not changed.
            calib: Calibration text; only the largest size of each feature is taken from it.
            run: Where progress, smoothed blocks and the per-layer record go.

        Raises:
            Unsupported: an architecture without plain linear layers, or a model with online steps.
            BadInput: too little text for the windows, or values that are not finite.
        """
        run = ensure(run)
        require_plain(model, "SmoothQuant")
        model = model.fork()
        tokens = calibration_windows(self, model, calib, run)
        for block in run.chain(Walk(model, tokens), step="smooth"):
            left_out = smooth(block, self.alpha)
            if left_out:
                run.event("layer-note", site=block.name, note=left_out)
        log = LayerLog(run)
        for site in model.sites():
            before = site.checked()
            site.round(GridSpec(self.bits, sym=True))
            log.add(site, self.bits, **output_error(before, site.weight, None))
            if self.a_bits < 16:
                site.stage(InputStage(TokenGrid(self.a_bits)))
        log.close()
        online = (f"inputs of linear layers on {self.a_bits}-bit grids, one a token",) if self.a_bits < 16 else ()
        return model.then(f"SmoothQuant: alpha {self.alpha:g}, W{self.bits}A{self.a_bits}", online)


def smooth(block: Block, alpha: float) -> str:
    """Balance the inputs of a block's linear layers against their weights, in place.

    Returns:
        What could not be smoothed, in words; usually empty.
    """
    sites = {site.role: site for site in block.sites()}
    largest: dict[str, Tensor] = {}

    def see(role: str, x: Tensor) -> None:
        top = x.flatten(0, -2).abs().amax(0).double()
        largest[role] = torch.maximum(largest[role], top) if role in largest else top

    record_inputs(block, {role: site.linear for role, site in sites.items()}, see)
    for junction in junctions(block):
        inputs = junction.narrow(largest[junction.roles[0]], lambda t: t.amax(1))
        weights = junction.narrow(_column_maxima(junction.linears), lambda t: t.amax(1))
        junction.apply(_scale(inputs, weights, alpha))
    smoothed = {role for junction in junctions(block) for role in junction.roles}
    if left := [role for role in sites if role not in smoothed]:
        return f"{', '.join(left)} is not smoothed: the activation before it does not pass a scale on"
    return ""


def _column_maxima(linears: Iterable[nn.Linear]) -> Tensor:
    return torch.stack([linear.weight.detach().abs().amax(0).double() for linear in linears]).amax(0)


def _scale(inputs: Tensor, weights: Tensor, alpha: float) -> Tensor:
    return (inputs.clamp(min=SMALLEST) ** alpha / weights.clamp(min=SMALLEST) ** (1 - alpha)).clamp(min=SMALLEST)
