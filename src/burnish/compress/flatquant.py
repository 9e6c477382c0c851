"""FlatQuant: learn, block by block, the affine transforms under which weights and activations are flat enough for 4 bits.

## How it works

An invertible P between two layers changes nothing: (x P)(W P⁻ᵀ)ᵀ = x Wᵀ. FlatQuant learns P for every input of a block so
that both sides round well. Inputs of q, k, v, of gate, up, and of down: a Kronecker product P₁ ⊗ P₂ of two small matrices
with l·r features, l and r near √n, after a diagonal. The input of o: a matrix that mixes heads; values: a matrix of the
head's width, folded into v and o. Keys, when they are rounded: a matrix of the head's width after RoPE, queries its
inverse transpose. Factors are U diag(s) Vᵀ with U, V orthogonal by Cayley's map, so no matrix is inverted. The range of
each weight row and of each activation is clipped at a learned fraction.

A block is trained alone, on the inputs that the unrounded model gives it, to give what it gave unrounded; rounding passes
gradients straight through. Afterwards the diagonals are folded into norms and into up, all matrices into weights; what
stays online is the Kronecker product on three inputs and the mixing of heads. Weights: one symmetric grid a row;
activations: one symmetric grid a token; keys and values: one asymmetric grid a token and head.

## Differences

* Any width works: the released search for factors never ends for n = 2 mod 4. Here they are the most balanced divisors.
* q, k, v share one activation grid, as gate and up do: they read one tensor.
* Query, key and value biases, 1 + w norms (Gemma) and norms of q and k are treated, where the released code knows Llama.
* Weight scales are rounded to half precision, also while training.
* U and V start at rotations drawn evenly (Haar), and Cayley's map is taken relative to them; the released code maps a random
  matrix, so that its start is another, and its weight decay pulls towards the identity, here towards the start.
* The gradient of the zero point of keys' and values' grids also passes straight through its rounding.
* What is learned and all products are in float32 while training; norms, RoPE and the target run in the model's dtype.
  Folding is in float64.
* `weights = "gptq"` goes over the whole model again when all blocks are folded: each block gets what the rounded blocks
  before give it, with its activations on their grids, and columns are rounded in their own order. All moments of a block come
  from one pass, as in gptq; the released code takes them again for o, for gate and up, and for down.

## When not to use it

Training takes minutes a block for a large model. The result needs its online transforms at run time. For weights alone at
4 bits, gptq or boa cost less.

## References

Sun, Liu, Bai, Bao, Zhao, Li, Hu, Yu, Hou, Yuan, Jiang, Liu, Yao. FlatQuant: Flatness Matters for LLM Quantization.
ICML 2025, arXiv 2410.09426. Defaults: 15 epochs, batches of 4, learning rate 5e-3 and 5e-2 for clips, α 0.3 (scripts of
the released code), 128 windows of 2048 tokens.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.utils import parametrize

from burnish.core.errors import BadInput, Unsupported
from burnish.core.method import Paper
from burnish.core.run import Run, ensure
from burnish.core.shapes import Compressor
from burnish.models.calibration import calibration_windows
from burnish.models.composing import require_plain
from burnish.models.flat_block import FlatBits, FlatBlock, attach_stages, switch
from burnish.models.layers import LayerLog
from burnish.models.model import Block, Model
from burnish.models.twins import OriginalWalk
from burnish.models.walk import Walk, record_inputs, second_moments
from burnish.nn.attention import use
from burnish.nn.compensate import compensate
from burnish.nn.grid import GridSpec
from burnish.nn.site import output_error

if TYPE_CHECKING:
    from datasets import Dataset

LAST_RATE = 1e-3
"""The cosine ends at this fraction of the transforms' first learning rate, for clips too (released code)."""


class FlatQuant(Compressor):
    """Learn transforms that flatten weights and activations, then round both to 4 bits."""

    paper: ClassVar[Paper | None] = Paper(
        title="FlatQuant: Flatness Matters for LLM Quantization",
        authors="Sun, Liu, Bai, Bao, Zhao, Li, Hu, Yu, Hou, Yuan, Jiang, Liu, Yao",
        year=2025,
        venue="ICML 2025",
        arxiv="2410.09426",
    )

    bits: Literal[2, 3, 4, 8, 16] = 4
    """Bits per weight; one symmetric grid a row. 16 leaves weights alone."""
    a_bits: Literal[2, 3, 4, 8, 16] = 4
    """Bits per activation; one symmetric grid a token. 16 leaves activations alone."""
    kv_bits: Literal[2, 3, 4, 8, 16] = 4
    """Bits per key and value; 16 leaves them alone, and needs no transform of keys."""
    weights: Literal["rtn", "gptq", "later"] = "rtn"
    """How weights are rounded: to nearest as in training, by GPTQ in a second walk, or by a later step ("later")."""
    matrices: Literal["svd", "free"] = "svd"
    """Parametrization of the factors: orthogonal ones and singular values, or any matrix."""
    alpha: Annotated[float, Field(ge=0, le=1)] = 0.3
    """Exponent of the activations in the diagonals' start, as in SmoothQuant; 1 - alpha is that of the weights."""
    epochs: Annotated[int, Field(ge=0)] = 15
    """Passes over the calibration windows, for each block."""
    batch: Annotated[int, Field(ge=1)] = 4
    """Windows in a step."""
    rate: Annotated[float, Field(gt=0)] = 5e-3
    """Learning rate of matrices and diagonals."""
    clip_rate: Annotated[float, Field(gt=0)] = 5e-2
    """Learning rate of the clips."""
    samples: Annotated[int, Field(ge=1)] = 128
    """Calibration windows; the default takes what a shorter text holds, a number that you give must fit."""
    length: Annotated[int, Field(ge=2)] = 2048
    """Tokens in a calibration window."""
    calib_seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Which windows of the calibration text are taken."""

    copies: ClassVar[int] = 2
    """Activations of a block that are held: what enters it, and what it is to give."""

    @property
    def passes(self) -> float:
        """Forward passes through a block that a calibration token takes; training is worth three (`models.estimate`)."""
        return 5.0 + 3 * self.epochs + (2 if self.weights == "gptq" and self.bits < 16 else 0)

    def __call__(self, model: Model, calib: Dataset, run: Run | None = None) -> Model:
        """Train, fold and round all blocks.

        Args:
            model: A model with gated MLPs and norms without shift; it is not changed.
            calib: Calibration text.
            run: Where progress, finished blocks and the per-layer record go.

        Raises:
            Unsupported: LayerNorm, an MLP without a gate, or a model with online steps.
            BadInput: too little text for the windows, or values or errors that are not finite.
        """
        run = ensure(run)
        require_plain(model, "FlatQuant")
        if not model.adapter.rope:
            raise Unsupported(
                f"FlatQuant on {model.config.model_type}",
                "its norms shift what they give, and its MLP has no gate for a diagonal to pass through",
            )
        fork = model.fork()
        use(fork.net)
        bits = FlatBits(self.bits, self.a_bits, self.kv_bits)
        for block in fork.blocks():
            attach_stages(block, bits)
        log = LayerLog(run)
        tokens = calibration_windows(self, model, calib, run)
        for block in run.chain(OriginalWalk(model, fork, tokens), step="flatquant"):
            flat, losses = self._train(block, bits, run)
            self._fold(block, flat, log, losses)
        for block in fork.blocks():
            switch(block, on=True)
        if self._compensates:
            self._compensate(fork, tokens, log, run)
        log.close()
        return fork.then(
            f"FlatQuant: W{self.bits}A{self.a_bits}KV{self.kv_bits}, {self.epochs} epochs, weights by {self.weights}",
            self._online(),
        )

    def _train(self, block: Block, bits: FlatBits, run: Run) -> tuple[FlatBlock, tuple[float, float]]:
        """What a block learns, and its mean squared error before and after."""
        # Views of the walk's own tensors: only a step's windows are put together, as often as it is taken.
        rows = [row for entering in block.inputs for row in entering.split(1)]
        parts = [
            (batch, block.forward(torch.cat(batch)))
            for batch in (rows[i : i + self.batch] for i in range(0, len(rows), self.batch))
        ]
        generator = torch.Generator().manual_seed(run.seed_of(f"flatquant/{block.key}"))
        flat = FlatBlock(block, bits, _maxima(block), self.alpha, self.matrices, generator)
        optimizer = torch.optim.AdamW(flat.groups(self.rate, self.clip_rate))
        steps = self.epochs * len(parts)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(steps, 1), self.rate * LAST_RATE)
        before = _loss(flat, parts)
        for _ in range(self.epochs):
            for entering, leaving in parts:
                with torch.enable_grad(), parametrize.cached():
                    error = (flat(torch.cat(entering)) - leaving).square().mean()
                    # Divided by itself, the loss has gradients of one size, whatever the block's output is like.
                    (error / error.detach().clamp(min=1e-30)).backward()
                optimizer.step()
                optimizer.zero_grad()
                schedule.step()
        after = _loss(flat, parts)
        if not (math.isfinite(before) and math.isfinite(after)):
            raise BadInput(
                f"the error of {block.name} is {before:g} before training and {after:g} after it",
                "give a lower rate, or --dtype float32; if it is not finite before training, the model is damaged",
            )
        run.event("flatquant-block", block=block.key, before=before, after=after)
        return flat, (before, after)

    @property
    def _compensates(self) -> bool:
        return self.weights == "gptq" and self.bits < 16

    def _fold(self, block: Block, flat: FlatBlock, log: LayerLog, losses: tuple[float, float]) -> None:
        exact = flat.fold(round_weights=self.weights == "rtn")
        if self._compensates:
            return  # the second walk rounds and records
        for site in block.sites():
            figures: dict[str, Any] = {"block_error_before": losses[0], "block_error": losses[1]}
            if site.quantized is not None:
                figures |= output_error(exact[site.role], site.weight, None)
            log.add(site, self.bits, **figures)

    def _compensate(self, fork: Model, tokens: Tensor, log: LayerLog, run: Run) -> None:
        """Round the folded weights by GPTQ, block after block, on what the blocks before give now."""
        spec = GridSpec(self.bits, sym=True, group=-1)
        errors = {event["block"]: event for event in run.events("flatquant-block")}
        for block in run.chain(Walk(fork, tokens), step="flatquant-gptq"):
            sites, learned = block.sites(), errors[block.key]
            seen = second_moments(block, tuple(site.role for site in sites))
            for site in sites:
                hessian, before = seen[site.role].mean(), site.weight
                figures = compensate(site, hessian, spec, search="minmax", act_order=False, damping=0.01)
                figures |= output_error(before, site.weight, hessian)
                figures |= {"block_error_before": learned["before"], "block_error": learned["after"]}
                log.add(site, self.bits, tokens=seen[site.role].tokens, **figures)

    def _online(self) -> tuple[str, ...]:
        found = ["inputs of linear layers pass Kronecker-factored transforms"]
        if self.a_bits < 16:
            found.append(f"inputs of linear layers on {self.a_bits}-bit grids, one a token")
        if self.kv_bits < 16:
            found.append(f"queries and keys pass a matrix, keys and values are on {self.kv_bits}-bit grids")
        return tuple(found)


@torch.no_grad()
def _loss(flat: FlatBlock, parts: list[tuple[list[Tensor], Tensor]]) -> float:
    with parametrize.cached():
        lost = sum(float((flat(torch.cat(x)) - y).square().mean()) * len(x) for x, y in parts)
    return lost / sum(len(x) for x, _ in parts)


def _maxima(block: Block) -> dict[str, Tensor]:
    """The largest size of each feature that enters q, gate and down."""
    largest: dict[str, Tensor] = {}

    def see(role: str, x: Tensor) -> None:
        top = x.flatten(0, -2).abs().amax(0)
        largest[role] = torch.maximum(largest[role], top) if role in largest else top

    wanted = {site.role: site.linear for site in block.sites(("q", "gate", "down"))}
    with torch.no_grad():
        record_inputs(block, wanted, see)
    return largest
