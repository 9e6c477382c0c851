"""QuEST: train a model on with 1- to 8-bit weights and activations, so that it is used to them.

## How it works

Every linear layer of the blocks computes with rounded weights and rounded inputs while the model is trained on. Both are
rotated by block-diagonal Hadamard matrices, which cancel in the product; a rotated row is nearly Gaussian, and its grid ends
at the multiple of its root mean square that is best for a Gaussian. 2^b levels lie evenly, half a step off zero. The
gradient of a number passes where rounding moved it by at most half a step ("trust"), and is dropped elsewhere, seen in the
rotated domain. Embeddings, norms and head are trained too, and not rounded.

Training is in single precision, without dropout, whatever the model's own dtype. The run records the loss on text that is
not trained on: of the full-precision model, of the model rounded before any training, of the trained one, and of the same
computed with 8-bit integers, which layer by layer is the same product (over the whole model a number that lies between two
levels may be rounded the other way).

## Differences

* The paper trains from nothing; here a model that is trained already goes on (its released code cannot). Learning rate and
  steps are therefore burnish's own.
* Blocks are the largest power of two up to 128 that divides a width; the released code needs a multiple of 128.
* The released code's LSQ forgets after loading that its step was set; here that is saved. As there, and as
  published, one step serves a whole tensor, while QuEST's grids follow each row and token: "lsq-row" is the fairer baseline.
* At 7 and 8 bits the released clips are not the best (best: 3.611, 3.922); they are kept. Three levels take the best clip.

## When not to use it

It needs gradients of the whole model, about four times its memory in full precision. With rounded activations the result
computes with online rotations and grids, which no file format that other tools read can say yet: it can be measured here, not
exported. With `a_bits` 16 the rounded weights are put into plain layers, in floating point, and any tool loads them.

## References

Panferov, Chen, Tabesh, Castro, Nikdan, Alistarh. QuEST: Stable Training of LLMs with 1-Bit Weights and Activations.
ICML 2025, arXiv 2502.05003. Defaults: half Hadamard, trust within half a step, 4 bits (section 3), AdamW (.9, .95), weight
decay .1, cosine with 10 % warm-up, clipping at 1.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from burnish.core.method import Paper
from burnish.core.progress import Progress
from burnish.core.run import Run, ensure
from burnish.core.shapes import Compressor
from burnish.models.calibration import calibration_windows
from burnish.models.composing import require_plain
from burnish.models.estimate import training
from burnish.models.model import Model
from burnish.nn.pretrain import Plan, pretrain, window_loss
from burnish.nn.quest_layers import Bits, Grid, Quantization, bake, pack
from burnish.nn.stream import Stream, windows

if TYPE_CHECKING:
    from datasets import Dataset

EVERY = 25
"""Steps between two checkpoints."""
HELD = 8
"""One window in so many is not trained on: the losses are of these."""


class QuEST(Compressor):
    """Train on with low-bit weights and activations: rotated, on the best grid, with trusted gradients."""

    paper: ClassVar[Paper | None] = Paper(
        title="QuEST: Stable Training of LLMs with 1-Bit Weights and Activations",
        authors="Panferov, Chen, Tabesh, Castro, Nikdan, Alistarh",
        year=2025,
        venue="ICML 2025",
        arxiv="2502.05003",
    )

    bits: Bits = 4
    """Bits per weight; "ternary" has the three levels -1, 0 and 1; 16 leaves weights alone."""
    a_bits: Literal[1, 2, 3, 4, 5, 6, 7, 8, 16] = 4
    """Bits per activation; 16 leaves activations alone."""
    grid: Grid = "quest"
    """Kind of grid: QuEST's; a learned step (LSQ), one in all or one a row of weights ("lsq-row"); or learned clips of
    activations beside a learned step of weights (PACT)."""
    rotation: Literal["half", "full", "none"] = "half"
    """QuEST's rotation: cancelled in the product ("half"), undone after rounding ("full"), or left out."""
    gradient: Literal["trust", "clip", "ste"] = "trust"
    """Where gradients pass: where rounding moved little, inside the clip, or everywhere (straight-through)."""
    outer: Annotated[float, Field(gt=0)] = 1.0
    """Multiplies what is trusted, or the clip; the paper's figure 10 tries 1.05 to 1.5 at 1 bit."""
    sparse: Literal["", "2:4", "4:8"] = ""
    """Drop half of the weights beside rounding the others: 2 of each 4, or 2 of each 4 pairs (what 4-bit kernels want)."""
    steps: Annotated[int, Field(ge=1)] = 200
    """Training steps."""
    batch: Annotated[int, Field(ge=1)] = 4
    """Windows in a step."""
    rate: Annotated[float, Field(gt=0)] = 2e-5
    """Peak learning rate."""
    samples: Annotated[int, Field(ge=2)] = 512
    """Windows of text; the default takes what a shorter text holds, a number that you give must fit."""
    length: Annotated[int, Field(ge=2)] = 512
    """Tokens in a window."""
    calib_seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Which windows of the text are taken, and their order."""

    trains: ClassVar[bool] = True
    """The whole model is trained (`models.estimate`)."""

    @property
    def passes(self) -> float:
        """Forward passes through a block that a token of the text takes; a step of training is worth three."""
        return 3 * self.steps * self.batch / self.samples + 4 / HELD

    @model_validator(mode="after")
    def _usable(self) -> QuEST:
        if faults := self._quantization().faults():
            raise ValueError("; ".join(faults))
        return self

    def __call__(self, model: Model, calib: Dataset, run: Run | None = None) -> Model:
        """Put all linear layers of the blocks on grids, and train.

        Args:
            model: Any supported architecture; it is not changed.
            calib: Text to train on.
            run: Where progress, checkpoints and losses go.

        Raises:
            Unsupported: an architecture without plain linear layers, a model with online steps, or a width that the sparse
                pattern does not divide.
            BadInput: too little text for the windows, or a loss that is no number.
        """
        run = ensure(run)
        require_plain(model, "QuEST")
        names, how = [site.name for site in model.sites()], self._quantization()
        tokens = calibration_windows(self, model, calib, run)
        held, trained = tokens[::HELD], tokens[[i for i in range(len(tokens)) if i % HELD]]
        losses = {"loss_full_precision": _loss(model.net, held)}
        net: Any = copy.deepcopy(model.net)
        dtype = next(net.parameters()).dtype
        net.float()  # half precision would lose most of a step as small as these
        how.put(net, names)
        _loss(net, trained[: self.batch])  # learned grids begin with text that is trained on
        losses["loss_rounded_untrained"] = _loss(net, held)
        plan = Plan(batch=self.batch, rate=self.rate, warmup=0.1, floor=0.0, seed=self.calib_seed)
        with Progress("quest", self.steps, "steps") as progress:
            done = pretrain(
                net,
                self._stream(trained),
                plan,
                checkpoint=run.folder / "quest.safetensors",
                every=EVERY,
                loss=window_loss,
                progress=lambda step, _, loss: progress.advance(step - progress.done, note=f"loss {loss:.3f}"),
            )
        net.to(dtype)
        losses["loss_rounded"] = _loss(net, held)
        if how.packs:
            packed = copy.deepcopy(net)
            pack(packed)
            losses["loss_packed"] = _loss(packed, held)
        if not how.online():
            bake(net)
        run.metric(**losses, precision=done.precision)
        found = replace(model, net=net)
        return found.then(f"QuEST: trained on for {self.steps} steps with {how.said()}", how.online())

    def estimate(self, sources: Mapping[str, str]) -> dict[str, str]:
        """Minutes and memory, in words: what `--dry-run` says."""
        return training(sources.get("model", ""), self.steps * self.batch * self.length, self.batch * self.length)

    def _quantization(self) -> Quantization:
        return Quantization(self.bits, self.a_bits, self.grid, self.rotation, self.gradient, self.outer, self.sparse)

    def _stream(self, tokens: Tensor) -> Stream:
        """As many windows as all steps take, passing over the text as often as that needs."""
        draw = torch.Generator().manual_seed(self.calib_seed)
        wanted = self.steps * self.batch
        passes = -(-wanted // len(tokens))
        order = torch.cat([torch.randperm(len(tokens), generator=draw) for _ in range(passes)])[:wanted]
        return windows(tokens[order])


@torch.no_grad()
def _loss(net: Any, tokens: Tensor) -> float:
    """Mean next-token loss on windows, (rows, length), in nats a token."""
    rows = windows(tokens)
    parts = [rows.rows(torch.tensor([row]), net.device) for row in range(len(tokens))]
    return sum(float(window_loss(net, part)) for part in parts) / len(parts)
