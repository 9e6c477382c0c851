"""Pretrain: a small Llama from nothing on a text, in full precision or with low-bit weights and activations from its first step.

## How it works

A byte-pair vocabulary is learnt from the text, unless a tokenizer is given. The text's tokens, documents joined by the token
that ends one, are cut into windows; some are held out, the others are read in a random order as often as the steps take.

| part | what |
|---|---|
| model | Llama: RMS norms, rotary positions, gated MLP; no dropout; first matrices N(0, .02²) |
| embedding | larger at first where it is not tied: at small widths the first blocks would drown one of .02 (measured: at a width of 128, 400 steps end at 3.66 in place of 3.94 nats, each with its best rate) |
| optimizer | AdamW (.9, .95), decay of matrices only, gradients clipped at norm 1, weights kept in single precision |
| rate | a warm-up, then half a cosine, or a constant, or a constant that falls linearly at the end ("wsd") |

With a `quantizer` every linear layer of the blocks rounds its weight and its input in every forward pass; embedding, norms and
head stay whole:

| quantizer | grid | gradient passes |
|---|---|---|
| quest | rotated; ends where it is best for a Gaussian of the row's size | where rounding moved a number by at most half a step |
| clip | the same, not rotated | inside the grid |
| ste | the same, not rotated | everywhere |
| lsq, lsq-row | learned step: one a tensor, as published, or one a row of weights | inside the grid |
| pact | learned clip of inputs, learned step of weights | inside the grid |

`losses.jsonl` in the run's folder has a line a step: step, loss, rate, and now and then held, the loss on the held-out windows.
A stopped run goes on at its last checkpoint, and ends with the same weights.

A model without `quantizer`, and one whose inputs stay whole (`a_bits` 16, rounded weights in plain layers), is a plain
folder. One that rounds inputs is written with the model type burnish_llama: burnish loads it, other tools refuse it.

## Differences

The QuEST paper trains on 100 tokens a parameter of C4, with a head that is not tied to the embedding (`--no-tied`), and keeps
weight decay off embeddings; here they decay as other matrices do.

## When not to use it

For a useful model: what a machine at hand trains from nothing is a few million parameters that know one text. It is the bench
on which ways of training are compared. One process trains; data-parallel training is not built in.

## References

Panferov et al. 2025, arXiv 2502.05003 (QuEST). Esser et al. 2020 (LSQ). Choi et al. 2018 (PACT). Bengio et al. 2013
(straight-through). Loshchilov & Hutter 2019 (AdamW). Hu et al. 2024 (warm-up, stable, decay).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from burnish.core.errors import BadInput
from burnish.core.progress import Progress
from burnish.core.run import Run, ensure
from burnish.core.shapes import Trainer
from burnish.data.text import provenance
from burnish.data.windows import windows
from burnish.models import quantized
from burnish.models.estimate import Shape as Sizes
from burnish.models.estimate import training_of
from burnish.models.fresh import Shape, llama_config, new_llama, read_tokenizer, train_tokenizer
from burnish.models.loading import pick_device
from burnish.models.model import Model
from burnish.nn import stream
from burnish.nn.pretrain import Plan, pretrain, window_loss
from burnish.nn.quest_layers import Bits, Quantization, bake

if TYPE_CHECKING:
    from datasets import Dataset

CHECKPOINT, LOSSES = "checkpoint.safetensors", "losses.jsonl"
LOOKS = 10
"""Times, at most, that the held-out windows are read while it trains."""
UNTIED = 0.5
"""Standard deviation of a first embedding that is no head."""
EVERY = 100
"""Steps between two checkpoints."""
QUANTIZERS: dict[str, dict[str, Any]] = {
    "quest": {},
    "clip": {"rotation": "none", "gradient": "clip"},
    "ste": {"rotation": "none", "gradient": "ste"},
    "lsq": {"grid": "lsq"},
    "lsq-row": {"grid": "lsq-row"},
    "pact": {"grid": "pact"},
}
"""Name to the settings of `Quantization`, besides bits."""


class Pretrain(Trainer):
    """Train a small Llama from nothing on a text, in full precision or with low-bit weights and activations."""

    needs: ClassVar[tuple[str, ...]] = ("models",)
    own_type: ClassVar[bool] = True  # a result that rounds activations has a model type that says so

    width: Annotated[int, Field(ge=8)] = 128
    """Width of the residual stream."""
    layers: Annotated[int, Field(ge=1)] = 4
    """Transformer blocks."""
    heads: Annotated[int, Field(ge=1)] = 4
    """Attention heads."""
    mlp: Annotated[int, Field(ge=8)] | None = None
    """Width inside the MLP; by default three times the width."""
    tied: bool = True
    """Whether the head has the weights of the embedding."""
    embedding: Annotated[float, Field(gt=0)] | None = None
    """Standard deviation of the first embedding; by default .02, and .5 where the head has weights of its own."""
    vocabulary: Annotated[int, Field(ge=300)] = 4096
    """Byte-pair tokens that are learnt from the text, at most."""
    tokenizer: str = ""
    """A model's name or folder, whose tokenizer is taken instead."""
    length: Annotated[int, Field(ge=2)] = 128
    """Tokens of a window, and the model's context."""
    held: Annotated[int, Field(ge=1)] = 32
    """Windows that are not trained on."""
    steps: Annotated[int, Field(ge=1)] = 1000
    """Training steps."""
    batch: Annotated[int, Field(ge=1)] = 8
    """Windows in a step."""
    rate: Annotated[float, Field(gt=0)] = 3e-3
    """Peak learning rate; about 3e-3 suits a width of 128, and the wider, the less."""
    schedule: Literal["cosine", "wsd", "constant"] = "cosine"
    """How the rate goes on after its warm-up."""
    warmup: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Share of the steps in which it rises."""
    decay: Annotated[float, Field(gt=0, le=1)] = 0.2
    """Share of the steps in which it falls, for "wsd"."""
    floor: Annotated[float, Field(ge=0, le=1)] = 0.0
    """What it falls to, as a share of the peak."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.1
    """Of matrices."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of products; "auto" is bfloat16 where the processor computes with it."""
    quantizer: Literal["none", "quest", "clip", "ste", "lsq", "lsq-row", "pact"] = "none"
    """How linear layers round; see above."""
    bits: Bits = 16
    """Bits per weight, beside a quantizer; "ternary" has three levels; 16 leaves weights whole."""
    a_bits: Literal[1, 2, 3, 4, 5, 6, 7, 8, 16] = 16
    """Bits per activation, beside a quantizer; 16 leaves activations whole."""
    outer: Annotated[float, Field(gt=0)] = 1.0
    """Multiplies what quest trusts, or the clip."""
    sparse: Literal["", "2:4", "4:8"] = ""
    """Drop half of the weights beside rounding the others (quest, clip, ste): 2 of each 4, or 2 of each 4 pairs."""
    draw: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Seed of the first weights, and of which windows are held out and in which order the others come."""
    on: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where it trains; auto is a GPU where there is one."""

    @model_validator(mode="after")
    def _usable(self) -> Pretrain:
        faults = []
        if self.width % self.heads or (self.width // self.heads) % 2:
            faults.append(f"heads: {self.heads} heads do not divide a width of {self.width} into even parts")
        if self.tokenizer and self._told("vocabulary"):
            faults.append("vocabulary: the tokenizer that is given has its own")
        if self.schedule != "wsd" and self._told("decay"):
            faults.append(f"decay: is for the schedule wsd, and it is {self.schedule}")
        if self.schedule == "constant" and self.floor:
            faults.append("floor: a constant rate does not fall")
        if self.schedule == "wsd" and self.warmup + self.decay > 1:
            faults.append("warmup, decay: together they are more than all steps")
        if self.quantizer != "none":
            faults += self._quantization().faults()
        elif idle := [n for n in ("bits", "a_bits", "outer", "sparse") if n in self.model_fields_set and self._told(n)]:
            faults.append(f"{', '.join(idle)}: choose a quantizer too; without one nothing is rounded")
        if faults:
            raise ValueError("; ".join(faults))
        return self

    def __call__(self, data: Dataset, run: Run | None = None) -> Model:
        """Train.

        Args:
            data: The text.
            run: Its folder gets checkpoints and losses.jsonl; its metrics the loss on held-out windows, and per byte of text.

        Raises:
            BadInput: too little text for the windows, no tokenizer of that name, a loss that is no number.
            Unsupported: a width that the sparse pattern does not divide.
        """
        run = ensure(run)
        device = pick_device(self.on)
        tokenizer = read_tokenizer(self.tokenizer) if self.tokenizer else self._learn(data)
        held, trained = self._windows(tokenizer, data)
        made = new_llama("pretrained", self._shape(), tokenizer, self.length, self.draw, self.tied, self._embedding())
        net: Any = made.net.to(device)
        how = self._quantization() if self.quantizer != "none" else None
        if how is not None:
            how.put(net, quantized.linears(net))
        precision = self._train(net, trained, held, run)
        loss = held_loss(net, held)
        text = sum(len(piece.encode()) for piece in tokenizer.batch_decode(held[:, 1:]))
        run.metric(
            held_loss=loss,
            held_bits_per_byte=loss * held[:, 1:].numel() / text / math.log(2),
            parameters=sum(weight.numel() for weight in net.parameters()),
            vocabulary=len(tokenizer),
            tokens=self.steps * self.batch * self.length,
            passes=round(self.steps * self.batch / len(trained), 2),
            precision=precision,
            text_sha256=provenance(data)["sha256"],
        )
        step = f"trained from nothing for {self.steps} steps"
        if how is None:
            return made.then(step)
        if how.online():
            net = quantized.of(net, how)
        else:
            bake(net)
        return Model(net, tokenizer, made.lineage).then(f"{step} by {self.quantizer}, {how.said()}", how.online())

    def estimate(self, sources: Mapping[str, str]) -> dict[str, str]:
        """Minutes and memory, in words: what `--dry-run` says."""
        vocabulary = len(read_tokenizer(self.tokenizer)) if self.tokenizer else self.vocabulary
        sizes = Sizes.of(llama_config(self._shape(), vocabulary, self.length, self.tied))
        parameters = sizes.blocks * sizes.weights + sizes.embedding
        read, once = self.steps * self.batch * self.length, self.batch * self.length
        return {"parameters": f"about {parameters / 1e6:.2g} million", **training_of(sizes, read, once)}

    def _told(self, name: str) -> bool:
        return bool(getattr(self, name) != type(self).model_fields[name].default)

    def _shape(self) -> Shape:
        return Shape(self.width, self.layers, self.heads, self.mlp or 3 * self.width, self.rate)

    def _embedding(self) -> float | None:
        return self.embedding or (None if self.tied else UNTIED)

    def _quantization(self) -> Quantization:
        return Quantization(self.bits, self.a_bits, outer=self.outer, sparse=self.sparse, **QUANTIZERS[self.quantizer])

    def _learn(self, data: Dataset) -> Any:
        return train_tokenizer(data["text"][:], self.vocabulary)

    def _windows(self, tokenizer: Any, data: Dataset) -> tuple[Tensor, Tensor]:
        """Windows that are held out, and those that are trained on, in the order that the seed gives them."""
        found = windows(tokenizer, data, -1, self.length, seed=self.draw)
        if len(found) <= self.held:
            raise BadInput(
                f"the text gives {len(found)} windows of {self.length} tokens, and {self.held} are held out",
                "give more text, or a smaller --held or --length",
            )
        return found[: self.held], found[self.held :]

    def _train(self, net: Any, trained: Tensor, held: Tensor, run: Run) -> str:
        """Train in place; gives the precision."""
        plan = Plan(
            batch=self.batch,
            rate=self.rate,
            schedule=self.schedule,
            warmup=self.warmup,
            decay=self.decay,
            floor=self.floor,
            passes=math.ceil(self.steps / math.ceil(len(trained) / self.batch)),
            weight_decay=self.weight_decay,
            precision=self.precision,
            seed=self.draw,
            most=self.steps,
        )
        log = _Log(run.folder / LOSSES)
        look = math.ceil(self.steps / LOOKS)
        with Progress("pretrain", self.steps, "steps") as progress:

            def told(step: int, steps: int, loss: float) -> None:
                seen = {"held": held_loss(net, held)} if step % look == 0 or step == steps else {}
                log.add({"step": step, "loss": loss, "rate": plan.rate_at(step - 1, steps), **seen})
                note = f"loss {loss:.3f}" + (f", held out {seen['held']:.3f}" if seen else "")
                progress.advance(step - progress.done, note=note)

            done = pretrain(
                net,
                stream.windows(trained),
                plan,
                checkpoint=run.folder / CHECKPOINT,
                every=EVERY,
                loss=window_loss,
                progress=told,
            )
        return done.precision


class _Log:
    """A line a step; steps that are done again after a stop stand there once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._begun = False

    def add(self, row: dict[str, Any]) -> None:
        if not self._begun:
            self._begun = True
            kept = [line for line in self._lines() if line["step"] < row["step"]]
            self.path.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")
        with self.path.open("a", encoding="utf-8") as out:
            out.write(json.dumps(row) + "\n")

    def _lines(self) -> list[dict[str, Any]]:
        rows = []
        for line in self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else []:
            try:
                rows.append(json.loads(line))
            except ValueError:  # torn by a kill
                break
        return rows


@torch.no_grad()
def held_loss(net: Any, tokens: Tensor, at_once: int = 8) -> float:
    """Mean next-token loss on windows, (rows, length), in nats a token."""
    rows, total = stream.windows(tokens), 0.0
    for begin in range(0, len(tokens), at_once):
        part = rows.rows(torch.arange(begin, min(begin + at_once, len(tokens))), next(net.parameters()).device)
        total += float(window_loss(net, part)) * len(part.ids)
    return total / len(tokens)
