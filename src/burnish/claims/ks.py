"""The claim about Kronecker-sparse products: one fused kernel spends less energy than the ways that permute.

## What is compared

The authors' own measurements on a Tesla V100, one factor at a time, batch 25,088: the energy of a call of their kernel and of
the best other way that uses the sparsity (permute and multiply, or einsum), each in its best layout, on every pattern that
both were measured on. Nothing is run again here: the table is counted again, with intervals, and by what a user has to
choose by, which the paper's one median is not: the precision, and whether d = 1 (where the matrix is block-diagonal and
nothing has to be permuted).

A row is a pattern; its measure is the natural logarithm of the energy of a call, so that a difference is the logarithm of a
ratio: -0.163 is 15 % less. Intervals are over patterns, as if they had been drawn from some larger set; the authors chose
them, and each energy is one median on one machine, so that they say how patterns differ and nothing of other machines.

## What must hold

In float32, which the paper's claim is about, the kernel's energy is below the other's with its whole interval: over all
patterns, over those with d > 1, and over those with d = 1. The paper claims the first; that it is so for either kind is
asked here, because it decides whether one kernel will do. What half precision does is shown and decides nothing.

## References

Gonon, Zheng, Carrivain, Le. Fast inference with Kronecker-sparse matrices. ICML 2025, arXiv 2405.15013, abstract; the table
results/1_ksmm_energy.csv of the released code.
"""

from __future__ import annotations

import hashlib
import math
import os
import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from burnish.claims.base import Claim, Measured, Part, Scale
from burnish.claims.decide import Measure
from burnish.core.claim import Arm, Criterion, Evidence, Figure
from burnish.core.errors import BadInput
from burnish.core.method import Paper
from burnish.core.run import Run

FILE = "1_ksmm_energy.csv"
ARMS = ("kernel", "permuting")
PRECISIONS = ("fp32", "fp16")
KINDS = {"d > 1": "d greater than 1", "d = 1": "d equal to 1"}
"""Kinds of patterns, and how a sentence says them."""
ALL = "all patterns"
NEEDS = f"{FILE} (github.com/PascalCarrivain/ksmm, folder results, Apache-2.0), in the folder ksmm of --data or $BURNISH_DATA"


def table() -> Path:
    """The authors' table.

    Raises:
        BadInput: it is not at hand.
    """
    path = Path(os.environ.get("BURNISH_DATA", "")) / "ksmm" / FILE
    if not path.is_file():
        where = str(path.parent) if "BURNISH_DATA" in os.environ else "BURNISH_DATA is not set"
        raise BadInput(f"no {FILE} in the folder ksmm ({where})", f"fetch it: {NEEDS}")
    return path


def rows_of(path: Path) -> list[dict[str, Any]]:
    """A row an arm, pattern and precision, in the cell of its kind and in that of all patterns."""
    from burnish.data.ksmm import compared, read_energy

    found = []
    for row in compared(read_energy(path)):
        kind = "d = 1" if row.pattern[3] == 1 else "d > 1"
        for arm, energy in zip(ARMS, (row.kernel, row.other), strict=True):
            item = {
                "item_id": ",".join(map(str, row.pattern)),
                "arm": arm,
                "precision": row.precision,
                "log_energy": math.log(energy),
                "less": float(row.ratio < 1) if arm == ARMS[0] else float(row.ratio > 1),
            }
            found += [{**item, "patterns": kind}, {**item, "patterns": ALL}]
    return found


class KSClaim(Claim):
    """A claim about a published table; nothing is asked of a model."""

    cells: tuple[str, ...] = ("precision", "patterns")
    measures: tuple[Measure, ...] = (
        Measure(name="energy of a call (geometric mean)", column="log_energy", transform="exp"),
        Measure(name="takes less", column="less"),
    )
    code: tuple[str, ...] = ("burnish.claims.ks", "burnish.claims.decide", "burnish.data.ksmm")
    default_model: str = ""

    def measure(self, model: str, run: Run, scale: Scale, *, device: str = "auto", dtype: str = "auto") -> Measured:
        """Read the table; nothing is loaded or run."""
        path, began = table(), time.monotonic()
        rows = rows_of(path)
        seconds = time.monotonic() - began
        logs: dict[tuple[str, str], dict[str, list[float]]] = {}
        for row in rows:
            some = logs.setdefault((row["precision"], row["patterns"]), {arm: [] for arm in ARMS})
            some[row["arm"]].append(row["log_energy"])
        for (precision, patterns), by_arm in logs.items():
            change = [math.exp(ours - theirs) - 1 for ours, theirs in zip(*by_arm.values(), strict=True)]
            run.metric(**{f"{precision}, {patterns}: median change of energy": statistics.median(change)})
        cells = [{"precision": precision, "patterns": patterns} for precision, patterns in logs]
        return Measured(
            rows=rows,
            parts=[Part(arm, cell, seconds) for arm in ARMS for cell in cells],
            data={path.name: f"SHA-256 {hashlib.sha256(path.read_bytes()).hexdigest()}"},
        )

    def digests(self) -> dict[str, str]:
        """The same without the method `ks`: nothing of it was run for the authors' table."""
        return {name: digest for name, digest in super().digests().items() if name != "ks"}

    def label(self, arm: str, cell: Mapping[str, Any]) -> str:
        """E.g. "kernel, fp32, d > 1"."""
        said = {"kernel": "the kernel", "permuting": "the best that permutes"}
        return ", ".join([said[arm], *map(str, cell.values())])

    def ours(self, evidence: Evidence) -> str:
        """By how much the energy differs in each kind, and how many criteria hold."""
        found: dict[tuple[str, str], dict[str, float]] = {}
        for arm in evidence.arms:
            energy = arm.measures["energy of a call (geometric mean)"]["estimate"]
            found.setdefault((arm.cell["precision"], arm.cell["patterns"]), {})[arm.arm] = energy
        shown = [
            f"{precision}, {patterns} {both['kernel'] / both['permuting'] - 1:+.0%}"
            for (precision, patterns), both in sorted(found.items(), reverse=True)
        ]
        return f"energy, geometric mean: {'; '.join(shown)}; {super().ours(evidence)}"


def _less(patterns: str, said: str) -> Criterion:
    return Criterion(
        name=f"less energy ({patterns})",
        text=f"In float32 the kernel spends less energy than the best way that permutes ({said}; logarithm of the ratio).",
        statistic="difference",
        measure="log_energy",
        arm="kernel",
        against="permuting",
        where={"precision": "fp32", "patterns": patterns},
        side="below",
    )


CLAIM = KSClaim(
    name="ks",
    title="one kernel for Kronecker-sparse products",
    sentence=(
        "In float32 a fused kernel multiplies by a Kronecker-sparse matrix with less energy than the best way that permutes "
        "or calls einsum, whatever the pattern: by the authors' own measurements on a V100."
    ),
    paper=Paper(
        title="Fast inference with Kronecker-sparse matrices",
        authors="Gonon, Zheng, Carrivain, Le",
        year=2025,
        venue="ICML 2025",
        arxiv="2405.15013",
    ),
    figures=(
        Figure(
            where="abstract, FP32, change of energy (median)", numbers={"kernel": -0.15}, measure="change of energy"
        ),
        Figure(
            where="abstract, FP32, speed-up (median)",
            numbers={"kernel": 1.4},
            measure="speed-up over the other ways",
        ),
    ),
    arms=(Arm(name="kernel", use="ks"), Arm(name="permuting", use="ks", baseline=True)),
    criteria=(_less(ALL, ALL), *(_less(kind, said) for kind, said in KINDS.items())),
    needs_data=NEEDS,
)
