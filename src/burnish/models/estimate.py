"""What a compression will cost, before it starts: minutes and memory, from the model's shape and this machine's speed.

The minutes count the floating-point operations of the calibration walk (a method's forward passes through each block, the
second moments of what enters its layers, what attention does with them) and of the rounding, at the speed of one matrix
product that is timed here and now. Read them as "about": loops over columns and what else the machine is doing are not in
them. A method says as a property `passes` how often a calibration token goes through a block (two where it does not say: to
look, and to go on), as `moments` how many second moments it sums, as `copies` how many activations of a block it holds,
and as `trains` that it trains the whole model.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from burnish.core.method import Method
from burnish.models.adapters import heads
from burnish.models.resolve import resolve, shelf_rows

PROBE = 1024
"""Side of the matrices whose product is timed."""
SEARCHED = {"minmax": 1, "mmse": 30, "hessian": 60}
"""Grids that a search tries for each row."""
TRY = 400.0
"""Operations that trying a grid on one weight is worth (measured: it is bound by memory, not by arithmetic)."""
PASSES = 2
"""Forward passes through a block that a calibration token takes, where the method does not say."""
TRAINED = 4
"""Numbers for each weight that is trained: the weight, its gradient, and two that AdamW keeps."""
REST = 1.25
"""Measured over counted time: norms, activations and the loops' own steps are not counted."""
BACKWARD = 3
"""Tensors of the size of what enters or leaves a layer that its backward pass needs, quantizers and norms counted in."""
LIBRARIES = 0.6e9
"""Bytes that Python and its libraries take."""
ABSENT = {"estimate": "none: the model is not on this machine yet"}
"""What is said of a model whose shape is not known."""


@dataclass(frozen=True)
class Shape:
    """The sizes of a model's blocks.

    Attributes:
        blocks: How many there are.
        inputs: Width of the input of each group of linear layers that share one, and the rows of the group.
        hidden: Width of the residual stream.
        embedding: Weights outside the blocks.
        query: Query heads.
        kv: Key/value heads.
        head: Width of a head.
        vocabulary: Tokens that the head tells apart.
    """

    blocks: int
    inputs: tuple[tuple[int, int], ...]
    hidden: int
    embedding: int
    query: int
    kv: int
    head: int
    vocabulary: int = 0

    @classmethod
    def of(cls, config: Any) -> Shape:
        """Read it off a transformers configuration."""
        shape, hidden = heads(config), int(config.hidden_size)
        inner = int(getattr(config, "intermediate_size", None) or config.ffn_dim)
        gated = 1 if config.model_type == "opt" else 2
        attention = shape.query * shape.width
        groups = (
            (hidden, attention + 2 * shape.kv * shape.width),
            (attention, hidden),
            (hidden, gated * inner),
            (inner, hidden),
        )
        tied = 1 if getattr(config, "tie_word_embeddings", False) else 2
        outside = tied * int(config.vocab_size) * hidden
        return cls(
            int(config.num_hidden_layers),
            groups,
            hidden,
            outside,
            shape.query,
            shape.kv,
            shape.width,
            int(config.vocab_size),
        )

    @property
    def weights(self) -> int:
        """Weights of the linear layers of one block."""
        return sum(width * rows for width, rows in self.inputs)


def estimate(method: Method, sources: Mapping[str, str]) -> dict[str, str]:
    """Minutes and memory of a compressor on a model, in words; a reason where that cannot be said.

    Args:
        method: The compressor with its settings.
        sources: Its goods, by name; "model" is among them.
    """
    shape = shape_of(sources.get("model", ""))
    if shape is None:
        return ABSENT
    tokens = read_by(method) if "calib" in sources else 0
    return _said(REST * operations(method, shape, tokens), memory(shape, tokens, method))


def estimate_all(methods: Sequence[Method], model: str, test: int) -> dict[str, str]:
    """Minutes and memory of compressing a model by each of some methods, one after the other, and measuring each result.

    Args:
        methods: The compressors with their settings.
        model: Its name.
        test: Tokens that the original and each result read to be compared.
    """
    shape = shape_of(model)
    if shape is None:
        return ABSENT
    read = [read_by(method) for method in methods]
    rounding = REST * sum(operations(method, shape, tokens) for method, tokens in zip(methods, read, strict=True))
    measuring = REST * len(methods) * 2 * test * 2 * (shape.blocks * shape.weights + shape.embedding)
    held = [memory(shape, tokens, method) for method, tokens in zip(methods, read, strict=True)]
    return _said(rounding + measuring, max(held, default=memory(shape, 0)))


def training(model: str, tokens: int, at_once: int) -> dict[str, str]:
    """Minutes and memory of training all weights of a model, in words; a reason where that cannot be said.

    Args:
        model: Its name.
        tokens: Tokens that are read in all.
        at_once: Tokens of one step, whose activations are held.
    """
    shape = shape_of(model)
    return ABSENT if shape is None else training_of(shape, tokens, at_once)


def training_of(shape: Shape, tokens: int, at_once: int) -> dict[str, str]:
    """As `training`, of a shape: six operations a weight and token; weights, gradients, two moments, and activations."""
    weights = shape.blocks * shape.weights + shape.embedding
    kept = sum(width + rows for width, rows in shape.inputs) * shape.blocks * BACKWARD
    held = LIBRARIES + TRAINED * 4 * weights + 4 * at_once * (kept + 3 * shape.vocabulary)
    return _said(REST * 6 * weights * tokens, held)


def _said(work: float, held: float) -> dict[str, str]:
    minutes = float(f"{work / speed() / 60:.2g}")
    return {"minutes": f"about {minutes:g}", "memory": f"about {held / 1e9:.2g} GB"}


def shape_of(model: str) -> Shape | None:
    """The sizes of a model; None where it is not on this machine yet."""
    from transformers import AutoConfig

    absent = {row["name"] for row in shelf_rows() if not row["present"]}
    if model in absent or ("/" in model and not Path(model).exists()):
        return None
    return Shape.of(AutoConfig.from_pretrained(resolve(model).folder, local_files_only=True))


def read_by(method: Method) -> int:
    """Calibration tokens that a compressor reads, if it is given a text."""
    reads = getattr(method, "reads_calibration", True)
    return int(getattr(method, "samples", 0)) * int(getattr(method, "length", 0)) if reads else 0


def operations(method: Method, shape: Shape, tokens: int) -> float:
    """Floating-point operations of a compression, or what is worth as many.

    Args:
        method: The compressor.
        shape: Of the model.
        tokens: Calibration tokens.
    """
    length = int(getattr(method, "length", 1))
    attention = 4 * shape.query * shape.head * length
    passes = getattr(method, "passes", PASSES) * (2 * shape.weights + attention)
    if getattr(method, "trains", False):  # then the head is computed too
        passes += getattr(method, "passes", PASSES) * 2 * shape.embedding / shape.blocks
    moments = getattr(method, "moments", 1) * sum(2 * width**2 for width, _ in shape.inputs)
    compensated = "damping" in type(method).model_fields or getattr(method, "weights", "") == "gptq"
    summed = compensated or getattr(method, "qparam", "") == "hessian" or hasattr(method, "moments")
    each = passes + (moments if summed else 0)
    if getattr(method, "block_v", False):
        each += shape.query * length**2 + 2 * shape.kv * shape.hidden * (length + shape.hidden)
    searched = SEARCHED[getattr(method, "qparam", "minmax")] * TRY * shape.weights
    # Double precision runs at half the speed.
    factors = 2 * sum(2 * width**3 for width, _ in shape.inputs) if compensated else 0
    loops = 2 * sum(rows * width**2 for width, rows in shape.inputs) if compensated else 0
    return shape.blocks * (each * tokens + searched + factors + loops)


def memory(shape: Shape, tokens: int, method: Method | None = None) -> float:
    """Bytes at the peak: the model, its rounded blocks and their codes, activations, one block's second moments.

    Args:
        shape: Of the model.
        tokens: Calibration tokens.
        method: The compressor.
    """
    whole = 4 * (shape.blocks * shape.weights + shape.embedding)
    if getattr(method, "trains", False):
        batch = int(getattr(method, "batch", 1)) * int(getattr(method, "length", 1))
        inner = sum(width + rows for width, rows in shape.inputs)
        return LIBRARIES + (1 + TRAINED) * whole + 4 * batch * shape.blocks * inner
    widest = max(width for width, _ in shape.inputs)
    held = int(getattr(method, "copies", 1)) * 4 * tokens * shape.hidden
    return LIBRARIES + whole + 5 * shape.blocks * shape.weights + held + 4 * 8 * widest**2


def speed() -> float:
    """Floating-point operations a second of a product of two single-precision matrices, timed for a moment."""
    a = torch.randn(PROBE, PROBE)
    best = 0.0
    for _ in range(4):
        began = time.perf_counter()
        a @ a
        best = max(best, 2 * PROBE**3 / (time.perf_counter() - began))
    return best
