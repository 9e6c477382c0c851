"""Scaling law: how much less a parameter counts when a model is trained in low precision (or in any other way).

## How it works

From a table of training runs, L(N, D, arm) = A / (N · eff)^α + B / D^β + E is fitted, with one efficiency for each arm and
1 for the reference. An efficiency of 0.7 at 4 bits says that a model of N parameters trained at 4 bits ends where one of
0.7 N ends in full precision; times 16/4, that is 2.8 times the quality of 16 bits for the same memory. The fit is by least
squares of log-losses, in which far runs count linearly, from several starts, of which the best is kept. Intervals of
efficiencies resample runs within each arm; an arm with a single run has none. E is given as the largest value that fits about
as well (by its profile).

At one size an arm that counts half and one with a steeper law look alike, so some arm must have been run at two sizes. What
else the runs leave open (one number of tokens, or one ratio of tokens to parameters; a fit that ends at a bound) is noted.

## Differences

* The released notebook keeps the last of its starts, not the best, and scales residuals so that its Huber loss is plain
  least squares.
* E runs to its lower bound 0 on the paper's runs, and the cost rises slowly above it: it is a bound, not an estimate of
  the entropy of text.

## When not to use it

Efficiencies are of one recipe (learning rates, tokens a parameter) and hold inside the range of sizes that was run.

## References

Panferov, Chen, Tabesh, Castro, Nikdan, Alistarh. QuEST: Stable Training of LLMs with 1-Bit Weights and Activations.
ICML 2025, arXiv 2502.05003, section 5. Form of the law: Hoffmann et al. 2022, arXiv 2203.15556.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from burnish.core.errors import BadInput
from burnish.core.method import Paper
from burnish.core.run import Run, ensure
from burnish.core.shapes import Analysis
from burnish.data.rows import read_rows
from burnish.data.scores import Table
from burnish.stats.scaling import EFFICIENCIES, HIGH, LOW, FloatArray, Law, Runs, fit, highest_floor, resampled

MOST = 5
"""Faults that are listed."""
ALIKE = 1e-3
"""Relative difference up to which sizes, or ratios of tokens to parameters, are one."""


class ScalingLaw(Analysis):
    """Fit a scaling law with an efficiency of each arm to a table of training runs."""

    paper: ClassVar[Paper | None] = Paper(
        title="QuEST: Stable Training of LLMs with 1-Bit Weights and Activations",
        authors="Panferov, Chen, Tabesh, Castro, Nikdan, Alistarh",
        year=2025,
        venue="ICML 2025",
        arxiv="2502.05003",
    )

    by: tuple[str, ...] = ("arm",)
    """Columns whose values together name an arm."""
    reference: str = ""
    """The arm whose efficiency is 1: its values, joined by blanks; needed when there are several arms."""
    parameters: str = "parameters"
    """Column of the numbers of parameters."""
    tokens: str = "tokens"
    """Column of the numbers of training tokens."""
    loss: str = "loss"
    """Column of the final losses, in nats."""
    draws: Annotated[int, Field(ge=40)] = 200
    """Resamples of the runs."""
    level: Annotated[float, Field(gt=0, lt=1)] = 0.95
    """Confidence level of the intervals."""

    def __call__(self, runs: Path, run: Run | None = None) -> Table:
        """Fit the law.

        Args:
            runs: A table of training runs: JSON, JSON Lines, CSV or Parquet.
            run: Where figures go.

        Returns:
            A row an arm (measure, label, estimate, low, high, level, method, n: its efficiency), and one for E.

        Raises:
            BadInput: columns that are not there or not numbers, runs without an arm, too few runs, or none at two sizes.
            UnknownName: no such reference.
        """
        run = ensure(run)
        rows = read_rows(Path(runs))
        columns = {name for row in rows for name in row}
        wanted = [*self.by, self.parameters, self.tokens, self.loss]
        if absent := [name for name in wanted if name not in columns]:
            raise BadInput(
                f"{runs} has no column {', '.join(map(repr, absent))}",
                "name its columns by --by, --parameters, --tokens and --loss; it has: " + ", ".join(sorted(columns)),
            )
        figures = self._figures(rows)
        arms = [" ".join(str(row[name]) for name in self.by) for row in rows]
        known = Runs.of(*figures, arms, reference=self.reference)
        _require_sizes(known)
        law = fit(known)
        drawn = resampled(known, law, self.draws, run.rng("scaling-law"))
        found = self._rows(known, law, drawn)
        top = highest_floor(known, law, self.level)
        found.append(
            self._row("loss", "irreducible loss E (an upper bound)", law.floor, 0.0, top, "profile", len(arms))
        )
        run.metric(alpha=law.exponents[0], beta=law.exponents[1], a=law.amplitudes[0], b=law.amplitudes[1], e=law.floor)
        open_ = [*_left_open(known), *_at_bounds(law)]
        return Table.of(found, reference=known.arms[0], runs=len(arms), cost=law.cost, left_open=open_)

    def _figures(self, rows: list[dict[str, Any]]) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Parameters, tokens and losses of all runs."""
        names = (self.parameters, self.tokens, self.loss)
        faults = [
            f"row {number}: {name} is {row.get(name)!r}"
            for number, row in enumerate(rows)
            for name in names
            if isinstance(row.get(name), bool) or not isinstance(row.get(name), int | float)
        ]
        faults += [
            f"row {number}: {name} is not given"
            for number, row in enumerate(rows)
            for name in self.by
            if row.get(name) is None or row[name] == ""
        ]
        if faults:
            more = [f"and {len(faults) - MOST} more"] if len(faults) > MOST else []
            raise BadInput.of(
                "figures that are no numbers, or runs without an arm:", [*faults[:MOST], *more], "leave such runs out"
            )
        first, second, third = (np.array([float(row[name]) for row in rows]) for name in names)
        return first, second, third

    def _rows(self, known: Runs, law: Law, drawn: np.ndarray) -> list[dict[str, Any]]:
        tail = (1 - self.level) / 2
        low, high = np.quantile(drawn, [tail, 1 - tail], axis=0)
        counts = np.bincount(known.arm, minlength=len(known.arms))
        found = []
        for i, (name, n) in enumerate(zip(known.arms, counts.tolist(), strict=True)):
            single = n == 1 and i > 0
            method = "none: a single run" if single else "bootstrap over runs"
            bottom, top = (None, None) if single else (float(low[i]), float(high[i]))
            found.append(self._row("efficiency", name, law.efficiency[name], bottom, top, method, n))
        return found

    def _row(
        self, measure: str, label: str, estimate: float, low: float | None, high: float | None, method: str, n: int
    ) -> dict[str, Any]:
        return {
            "measure": measure,
            "label": label,
            "estimate": estimate,
            "low": low,
            "high": high,
            "level": self.level,
            "method": method,
            "n": n,
        }


def _require_sizes(known: Runs) -> None:
    """Refuse runs in which no arm has two sizes: α and the efficiencies could be anything."""
    if all(_one(known.parameters[known.arm == arm]) for arm in range(len(known.arms))):
        raise BadInput(
            "every arm was run at one size only: efficiencies cannot be told", "give runs of two sizes at least"
        )


def _left_open(known: Runs) -> list[str]:
    """What these runs cannot tell apart, a line each."""
    if _one(known.tokens):
        return ["all runs read as many tokens: B, β and E cannot be told apart, efficiencies can"]
    if _one(known.tokens / known.parameters):
        return [
            "all runs read as many tokens a parameter: the two terms differ by their curvature alone, trust neither"
        ]
    return []


def _at_bounds(law: Law) -> list[str]:
    """Where the fit ended at a bound of its search, a line each; that E ends at 0 is usual, and stands in its row."""
    names = ("log A", "α", "log B", "β")
    near = [
        name
        for name, value, low, high in zip(names, law.solution, LOW, HIGH, strict=False)
        if min(value - low, high - value) < 1e-3 * min(1.0, high - low)
    ]
    efficiencies = law.efficiency.items()
    near += [f"the efficiency of {n}" for n, value in efficiencies if min(abs(np.log(value) - EFFICIENCIES)) < 1e-3]
    return [f"{name} ended at a bound of the search: the runs do not settle it" for name in near]


def _one(values: FloatArray) -> bool:
    return bool(values.max() <= values.min() * (1 + ALIKE))
