"""QuaRot: rotate the hidden states by Hadamard matrices, so that 4 bits are enough for weights, activations and cache.

## How it works

An orthogonal matrix R between two layers changes nothing if the first layer gives y R and the second expects it, and a
randomized Hadamard matrix spreads an outlier over all features. The norms' weights are first moved into the layers that
follow (a norm without weights commutes with a rotation). Then:

* R1 rotates the residual stream: embedding, o and down write x R1; q, k, v, gate, up and the head read it.
* R2 rotates the values of each head: folded into v and o.
* R3 rotates queries and keys after RoPE, online, when keys are quantized: their products are unchanged.
* R4 rotates the input of down, online; its inverse is folded into down's weight.

Weights: one symmetric grid a row, by round-to-nearest with a range search or by GPTQ on the rotated model. Activations:
one symmetric grid a token over 0.9 of its range. Keys and values: one asymmetric grid a token and head over 0.95.

## Differences

* The released code also mixes the heads of o's input by an online Hadamard transform; here o's input is rotated within
  each head only (R2), which needs no online work.
* Widths that are no power of two use a stored Hadamard matrix for the odd part (576 = 36·16, 1536 = 12·128).
* The rotations are applied in float64.

## When not to use it

The result needs its online rotations at run time, and no file format that other tools read can say so yet: it can be
measured here, not exported. Gemma 3 normalizes the outputs of attention and MLP before they join the residual stream,
and OPT uses LayerNorm: both are refused, because R1 does not commute with them.

## References

Ashkboos, Mohtashami, Croci, Li, Cameron, Jaggi, Alistarh, Hoefler, Hensman. QuaRot: Outlier-Free 4-Bit Inference in
Rotated LLMs. NeurIPS 2024, arXiv 2404.00456. Defaults: clip ratios 0.9 and 0.95 (section 5), per-token activations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from burnish.core.errors import BadInput, Unsupported
from burnish.core.method import Paper
from burnish.core.run import Run, ensure
from burnish.core.shapes import Compressor
from burnish.models.calibration import calibration_windows, require_float64
from burnish.models.composing import require_plain
from burnish.models.fold import fuse_norms, put, rotate_residual, rotate_values
from burnish.models.layers import LayerLog
from burnish.models.model import Model
from burnish.models.walk import Walk, second_moments
from burnish.nn import hadamard
from burnish.nn.activation import InputStage, KVStage, TokenGrid
from burnish.nn.attention import use
from burnish.nn.cache_stage import attach_cache_stage
from burnish.nn.compensate import compensate
from burnish.nn.grid import GridSpec
from burnish.nn.site import output_error

if TYPE_CHECKING:
    from datasets import Dataset

Bits = Literal[2, 3, 4, 8, 16]


class QuaRot(Compressor):
    """Rotate away outliers by Hadamard matrices, then round weights, activations and cache to 4 bits."""

    paper: ClassVar[Paper | None] = Paper(
        title="QuaRot: Outlier-Free 4-Bit Inference in Rotated LLMs",
        authors="Ashkboos, Mohtashami, Croci, Li, Cameron, Jaggi, Alistarh, Hoefler, Hensman",
        year=2024,
        venue="NeurIPS 2024",
        arxiv="2404.00456",
    )
    baseline: ClassVar[bool] = True

    bits: Bits = 4
    """Bits per weight; 16 leaves weights alone."""
    a_bits: Bits = 4
    """Bits per activation; 16 leaves activations alone."""
    kv_bits: Bits = 4
    """Bits per key and value; 16 leaves them alone, and needs no R3."""
    weights: Literal["rtn", "gptq"] = "gptq"
    """How weights are rounded: to nearest with a range search, or by GPTQ."""
    a_clip: Annotated[float, Field(gt=0, le=1)] = 0.9
    """Fraction of a token's range that its activation grid covers."""
    kv_clip: Annotated[float, Field(gt=0, le=1)] = 0.95
    """Fraction of the range that a key's or value's grid covers."""
    rotation_seed: int = 0
    """Signs of the randomized Hadamard matrix R1."""
    samples: Annotated[int, Field(ge=1)] = 128
    """Calibration windows (GPTQ only); the default takes what a shorter text holds, a number that you give must fit."""
    length: Annotated[int, Field(ge=2)] = 2048
    """Tokens in a calibration window."""
    calib_seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Which windows of the calibration text are taken."""

    def __call__(self, model: Model, calib: Dataset | None = None, run: Run | None = None) -> Model:
        """Rotate, round, and attach what happens online.

        Args:
            model: A Llama-like model with RMSNorm; it is not changed.
            calib: Calibration text, for GPTQ.
            run: Where progress, finished blocks and the per-layer record go.

        Raises:
            Unsupported: norms that a rotation does not commute with, or a model with online steps.
            BadInput: GPTQ without calibration text, or too little of it.
        """
        run = ensure(run)
        require_plain(model, "QuaRot")
        model = model.fork()
        rotate(model, self.rotation_seed)
        use(model.net)
        down = {site.name: InputStage(rotate=True) for site in model.sites() if site.role == "down"}
        for site in model.sites():
            if site.name in down:
                site.stage(down[site.name])
        if self.bits < 16:
            self._round(model, calib, run)
        for block in model.blocks():
            if self.a_bits < 16:
                for site in block.sites():
                    grid = TokenGrid(self.a_bits, clip=self.a_clip)
                    if site.name in down:
                        site.linear.input_stage = InputStage(grid, rotate=True)
                    else:
                        site.stage(InputStage(grid))
            if self.kv_bits < 16:
                grid = TokenGrid(self.kv_bits, sym=False, clip=self.kv_clip)
                attach_cache_stage(block.at(model.adapter.attention), KVStage(grid, grid, rotate=True))
        return model.then(
            f"QuaRot: rotated, W{self.bits}A{self.a_bits}KV{self.kv_bits}, weights by {self.weights}", self._online()
        )

    def _round(self, model: Model, calib: Dataset | None, run: Run) -> None:
        spec, log = GridSpec(self.bits, sym=True), LayerLog(run)
        if self.weights == "rtn":
            for site in model.sites():
                before = site.checked()
                site.round(spec, "mmse")
                log.add(site, self.bits, **output_error(before, site.weight, None))
        else:
            if calib is None:
                raise BadInput("GPTQ needs calibration text", "give --calib, or --weights rtn")
            tokens = calibration_windows(self, model, calib, run)
            for block in run.chain(Walk(model, tokens), step="quarot"):
                sites = block.sites()
                seen = second_moments(block, tuple(site.role for site in sites))
                for site in sites:
                    hessian, before = seen[site.role].mean(), site.weight
                    figures = compensate(site, hessian, spec, search="mmse", act_order=True, damping=0.01)
                    log.add(site, self.bits, **figures, **output_error(before, site.weight, hessian))
        log.close()

    def _online(self) -> tuple[str, ...]:
        found = ["the input of down_proj is rotated by a Hadamard matrix"]
        if self.a_bits < 16:
            found.append(f"inputs of linear layers on {self.a_bits}-bit grids, one a token")
        if self.kv_bits < 16:
            found.append(f"queries and keys are rotated, keys and values on {self.kv_bits}-bit grids")
        return tuple(found)


def rotate(model: Model, seed: int) -> None:
    """Apply R1, R2 and the offline half of R4 to a fork.

    Raises:
        Unsupported: the architecture's norms do not commute with R1.
    """
    adapter = model.adapter
    kind = model.config.model_type
    if adapter.branch_norms:
        raise Unsupported(
            f"QuaRot on {kind}", "it normalizes the outputs of attention and MLP before they join the residual stream"
        )
    if not adapter.rope:
        raise Unsupported(
            f"QuaRot on {kind}", "its LayerNorm subtracts the mean, which does not commute with a rotation"
        )
    require_float64(model)
    fuse_norms(model)
    rotate_residual(model, hadamard.randomized(model.config.hidden_size, seed).to(model.device))
    within = hadamard.hadamard(model.heads.width).to(model.device)
    for block in model.blocks():
        rotate_values(block, within)
        down = block.sites(("down",))[0].linear
        put(down, "weight", hadamard.apply(down.weight.detach().double()))
