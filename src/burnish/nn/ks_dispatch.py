"""Which way to compute a Kronecker-sparse product: a rule from the paper, and a small table that was measured.

## The rule

Of what a product costs, two parts decide: the multiplications, N·abcd for N vectors, and the numbers that are moved,
N·ad(b+c); the second divided by the first is the paper's h(b, c) = (b+c)/(bc). Where d = 1 the matrix is block-diagonal, and
batched products read their inputs where they lie: nothing has to be permuted, in either layout, and such a product (or, for
a small matrix, the dense one) is taken. Where d > 1 the inputs of a small matrix lie d apart, and a way that permutes them
moves everything three times. The larger h, the more that matters. With the batch last (features × batch) products can be
computed in place; a caller who has it first pays two transpositions, once for a whole chain of factors.

## The table

A way takes ``call + matrix · a d + product · multiplications + number · numbers moved`` nanoseconds, and the way is taken
that takes least. `COSTS` holds the four figures of each, fitted to times by ``benchmarks/ks_dispatch.py``, which prints the
table; they were taken in one thread on a CPU. A dtype without figures takes those of float32: only the order counts.

On a GPU nothing was measured: there d = 1 takes the batched product and d > 1 permutes, and the Triton kernel is for those
who ask for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import torch

from burnish.nn import kernels
from burnish.nn.ks_pattern import Pattern

Layout = Literal["first", "last"]
"""Where the batch is: (batch, features), or (features, batch)."""
Algorithm = Literal["auto", "strided", "permute", "einsum", "block", "dense", "compiled", "triton"]
"""strided: products in place with the batch last (with it first, between two transpositions). permute: gather each small
matrix's inputs, one batched product, scatter. einsum: what torch makes of it. block: a batched product in place, for d = 1.
dense: the whole matrix. compiled: the kernel of `burnish-kernels`, vectors along d, for float32 with the batch first. triton: the kernel of `burnish.nn.ks_triton`, for CUDA. auto: the quickest by `choose`."""

MEASURED: tuple[Algorithm, ...] = ("strided", "permute", "einsum", "block", "dense", "compiled")
"""What `choose` picks from, where it is supported."""
THINNEST = 8
"""Least d for which vectors along it are of use."""
DENSEST = 2**28
"""Entries of a whole matrix, above which "dense" is no choice (1 GiB in float32)."""

# torch 2.13, AVX2, one thread; other work ran at low priority. Other machines: benchmarks/ks_dispatch.py prints the table.
COSTS: dict[str, dict[tuple[Layout, Algorithm], tuple[float, float, float, float]]] = {
    "float32": {
        ("first", "strided"): (47000.0, 55.9, 0.0339, 1.54),
        ("first", "permute"): (37500.0, 8.77, 0.0294, 1.28),
        ("first", "einsum"): (44900.0, 1.14, 0.0322, 1.24),
        ("first", "dense"): (39300.0, 0.0, 0.0264, 0.359),
        ("last", "strided"): (36200.0, 65.1, 0.029, 0.4),
        ("last", "permute"): (25800.0, 10.2, 0.0328, 0.365),
        ("last", "einsum"): (39300.0, 3.62, 0.0298, 0.438),
        ("last", "dense"): (32100.0, 0.0, 0.0229, 0.377),
        ("first", "compiled"): (50700.0, 0.399, 0.0662, 0.482),
        ("first", "block"): (28400.0, 880.0, 0.0246, 0.882),
        ("last", "block"): (22300.0, 0.0, 0.0264, 0.184),
    },
}
"""dtype to layout and way to nanoseconds of a call, a small matrix, a multiplication, a number moved."""
TRANSPOSITION = (4140.0, 0.852)
"""Nanoseconds of a transposition, and of a number in it."""


def supported(algorithm: Algorithm, pattern: Pattern) -> bool:
    """Whether a way can compute products of a pattern at all (whatever that takes)."""
    if algorithm == "block":
        return pattern.d == 1
    if algorithm == "dense":
        return pattern.rows * pattern.columns <= DENSEST
    return algorithm != "compiled" or pattern.d >= THINNEST


def offered(pattern: Pattern, dtype: torch.dtype, layout: Layout) -> list[Algorithm]:
    """The ways that a CPU has for a pattern, a dtype and a layout."""
    ways: tuple[Algorithm, ...] = ("block", "dense") if pattern.d == 1 else MEASURED
    compiled = dtype == torch.float32 and layout == "first" and kernels.native() is not None
    return [way for way in ways if supported(way, pattern) and (way != "compiled" or compiled)]


def features(pattern: Pattern, batch: int, algorithm: Algorithm) -> tuple[float, float, float, float]:
    """What a product's time is linear in: (1, small matrices or gathered weights, multiplications, numbers moved)."""
    if algorithm == "dense":
        whole = pattern.rows * pattern.columns
        return 1.0, 0.0, float(batch * whole), float(batch * (pattern.rows + pattern.columns) + whole)
    moved = batch * (pattern.rows + pattern.columns)
    if algorithm == "compiled":  # weights are gathered once a call, and the last vector along d may be partly empty
        whole = pattern.nonzeros // pattern.d * -(-pattern.d // THINNEST) * THINNEST
        return 1.0, float(whole), float(batch * whole), float(moved)
    return 1.0, float(pattern.matrices), float(batch * pattern.nonzeros), float(moved)


def cost(pattern: Pattern, batch: int, dtype: torch.dtype, layout: Layout, algorithm: Algorithm) -> float:
    """Nanoseconds that a product is expected to take on a CPU."""
    table = COSTS.get(str(dtype).removeprefix("torch."), COSTS["float32"])
    figures = table.get((layout, algorithm), COSTS["float32"][layout, algorithm])
    return sum(figure * count for figure, count in zip(figures, features(pattern, batch, algorithm), strict=True))


@lru_cache(maxsize=4096)
def choose(pattern: Pattern, batch: int, dtype: torch.dtype, layout: Layout, device: str = "cpu") -> Algorithm:
    """The way that is expected to be quickest.

    Args:
        pattern: Of the matrix.
        batch: Vectors that are multiplied.
        dtype: Theirs.
        layout: Where the batch is.
        device: The kind of device, e.g. "cpu".
    """
    if device != "cpu":
        return "block" if pattern.d == 1 else "permute"
    return min(offered(pattern, dtype, layout), key=lambda algorithm: cost(pattern, batch, dtype, layout, algorithm))


@lru_cache(maxsize=4096)
def choose_layout(patterns: Sequence[Pattern], batch: int, dtype: torch.dtype, device: str = "cpu") -> Layout:
    """In which layout a chain is computed for a caller who has the batch first: last pays two transpositions.

    Args:
        patterns: A tuple, in the order in which the factors are applied.
        batch: Vectors that are multiplied.
        dtype: Theirs.
        device: The kind of device.
    """
    if device != "cpu" or all(one.d == 1 for one in patterns):
        return "first"
    total = {
        layout: sum(cost(one, batch, dtype, layout, choose(one, batch, dtype, layout)) for one in patterns)
        for layout in ("first", "last")
    }
    call, number = TRANSPOSITION
    total["last"] += 2 * call + number * batch * (patterns[0].columns + patterns[-1].rows)
    return "last" if total["last"] < total["first"] else "first"
