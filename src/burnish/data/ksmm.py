"""The authors' measurements of energy for products by Kronecker-sparse matrices (github.com/PascalCarrivain/ksmm).

Columns of ``results/1_ksmm_energy.csv``: ``pattern`` ("[[a, b, c, d]]"), ``batch-size``, ``algo`` (kernel, monarch, einsum,
dense), ``bs_position`` (bs_first or bs_last), ``precision`` (fp32, fp16), ``device_name``, ``median`` (energy of `nruns`
calls), ``nruns``, ``ecs``. Energy of a call is median / nruns.
"""

from __future__ import annotations

import ast
import csv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from burnish.core.errors import BadInput

OURS, OTHERS = "kernel", ("monarch", "einsum")
"""The paper's kernel, and the other ways that use the sparsity; "monarch" permutes and multiplies."""
COLUMNS = ("pattern", "batch-size", "algo", "bs_position", "precision", "median", "nruns")

Pattern = tuple[int, int, int, int]


@dataclass(frozen=True)
class Energy:
    """One row: the energy of a call."""

    pattern: Pattern
    algorithm: str
    layout: str
    precision: str
    energy: float


@dataclass(frozen=True)
class Comparison:
    """The kernel and the best other way on one pattern, each in its best layout."""

    pattern: Pattern
    precision: str
    kernel: float
    other: float
    dense: float | None

    @property
    def ratio(self) -> float:
        """Energy of the kernel for one of the other way."""
        return self.kernel / self.other


def read_energy(path: Path) -> list[Energy]:
    """Read the table.

    Raises:
        BadInput: it is not at hand, lacks a column, or holds a row that cannot be read; the first such row is named.
    """
    if not path.is_file():
        raise BadInput(f"there is no file {path}", "fetch results/1_ksmm_energy.csv of github.com/PascalCarrivain/ksmm")
    with path.open(encoding="utf-8", newline="") as lines:
        table = csv.DictReader(lines)
        if lacks := sorted(set(COLUMNS) - set(table.fieldnames or ())):
            raise BadInput(f"{path} has no column {', '.join(lacks)}", "give the authors' results/1_ksmm_energy.csv")
        return [_row(row, f"{path}, line {table.line_num}") for row in table]


def _row(row: dict[str, str], where: str) -> Energy:
    try:
        ((a, b, c, d),) = ast.literal_eval(row["pattern"])
        energy = float(row["median"]) / float(row["nruns"])
        sizes = int(a), int(b), int(c), int(d)
    except (ValueError, SyntaxError, TypeError, ZeroDivisionError) as error:
        raise BadInput(f"{where} cannot be read: {error}") from None
    if not 0 < energy < float("inf") or min(sizes) < 1:
        raise BadInput(f"{where}: an energy of {energy:g} for the pattern {sizes}")
    return Energy(sizes, row["algo"], row["bs_position"], row["precision"], energy)


def compared(rows: Iterable[Energy]) -> list[Comparison]:
    """The patterns that the kernel and another way were both measured on, in their order; a pattern a precision."""
    best: dict[tuple[Pattern, str], dict[str, float]] = {}
    for row in rows:
        found = best.setdefault((row.pattern, row.precision), {})
        found[row.algorithm] = min(row.energy, found.get(row.algorithm, row.energy))
    return [
        Comparison(
            pattern, precision, found[OURS], min(found[name] for name in OTHERS if name in found), found.get("dense")
        )
        for (pattern, precision), found in best.items()
        if OURS in found and any(name in found for name in OTHERS)
    ]
