"""From per-item rows to findings: each criterion's estimate, its interval, and the verdict on it.

Two arms are compared on the same items: their rows are matched on ``item_id`` and on every cell column (bits, seed,
data …) that both have, one to one. Intervals are Student's t over items (`burnish.stats.student`), which covers a few
dozen skewed items better than the bootstrap; a ratio's is Fieller's, the same test of a - r b, so that a ratio and a
difference never contradict each other.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from burnish.core.claim import ArmResult, Criterion, Finding, Frozen, judge
from burnish.core.errors import BadInput

Row = dict[str, Any]
Key = tuple[Any, ...]

_LEVEL = 0.95
"""Level of the intervals of single arms; a criterion has its own."""
_SHOWN = 5
"""Items that one fault lists before it says how many more there are."""


class Measure(Frozen):
    """A figure to show for each arm: the mean of a column of the per-item rows, or a function of it."""

    name: str
    column: str
    transform: Literal["mean", "exp"] = "mean"
    """"exp" turns a mean loss in nats into a perplexity."""


def decide(criteria: Sequence[Criterion], rows: Sequence[Row], cells: Sequence[str]) -> list[Finding]:
    """Find out about each criterion.

    Args:
        criteria: What to find out.
        rows: One for each item of each arm: ``item_id``, ``arm``, the measures, and those of the cell columns on which
            the arm depends.
        cells: Names of the cell columns.

    Raises:
        BadInput: rows that do not pair or cannot be used, for all criteria at once; items are named.
    """
    findings: list[Finding] = []
    faults: list[str] = []
    by_arm: dict[str, list[Row]] = {}
    for row in rows:
        by_arm.setdefault(row["arm"], []).append(row)
    for criterion in criteria:
        wrong: list[str] = []
        ours, theirs = _paired(criterion, by_arm, cells, wrong)
        if wrong:
            faults += [f"{criterion.name}: {fault}" for fault in wrong]
        else:
            findings.append(_find(criterion, ours, theirs))
    if faults:
        raise BadInput.of("the rows do not answer the criteria", faults)
    return findings


def summarize(
    rows: Iterable[Row],
    cells: Sequence[str],
    measures: Sequence[Measure],
    *,
    label: Callable[[str, Mapping[str, Any]], str],
) -> list[ArmResult]:
    """How each arm did in each of its cells, in the order in which they first occur; seconds and weights are not known.

    Args:
        rows: As for `decide`; a measure that an arm's rows lack is left out of its result.
        cells: Names of the cell columns.
        measures: What to show.
        label: Arm and cell to a name for people.
    """
    groups: dict[Key, list[Row]] = {}
    for row in rows:
        groups.setdefault((row["arm"], *((name, row[name]) for name in cells if name in row)), []).append(row)
    from burnish.stats.student import student_mean  # SciPy takes its time

    results = []
    for (arm, *pairs), members in groups.items():
        cell = dict(pairs)
        shown = {}
        for measure in measures:
            if all(measure.column in row for row in members):
                found = student_mean([float(row[measure.column]) for row in members], level=_LEVEL)
                ends = {"estimate": found.estimate, "low": found.low, "high": found.high}
                carried = math.exp if measure.transform == "exp" else float
                shown[measure.name] = {end: carried(value) for end, value in ends.items()}
        results.append(ArmResult(arm=arm, label=label(arm, cell), cell=cell, measures=shown, seconds=0.0))
    return results


def _paired(
    criterion: Criterion, by_arm: Mapping[str, list[Row]], cells: Sequence[str], wrong: list[str]
) -> tuple[list[Row], list[Row]]:
    """Rows of the two arms, matched one to one; what keeps them from it is added to `wrong`."""
    sides = (criterion.arm, criterion.against)
    if unknown := sorted(set(criterion.where) - set(cells)):
        wrong.append(f"no column {', '.join(map(repr, unknown))} to choose rows by; there are {', '.join(cells)}")
    found = [[row for row in by_arm.get(side, []) if _stands_in(row, criterion.where)] for side in sides]
    where = ", ".join(f"{name} {value}" for name, value in criterion.where.items()) or "any cell"
    wrong += [f"no rows of {side!r} for {where}" for side, rows in zip(sides, found, strict=True) if not rows]
    if wrong:
        return [], []
    shared = [name for name in cells if all(name in row for rows in found for row in rows)]
    keyed: list[dict[Key, Row]] = []
    for side, rows in zip(sides, found, strict=True):
        counts = Counter(_key(row, shared) for row in rows)
        if twice := [key for key, count in counts.items() if count > 1]:
            wrong.append(f"{side!r} has several rows for {_listed(twice, shared)}")
        keyed.append({_key(row, shared): row for row in rows})
        for column in _columns(criterion):
            bad = [_key(row, shared) for row in rows if not _is_finite(row.get(column))]
            if bad:
                wrong.append(f"{side!r} has no finite {column!r} for {_listed(bad, shared)}")
    ours, theirs = keyed
    for side, has, lacks in ((criterion.arm, theirs, ours), (criterion.against, ours, theirs)):
        if missing := [key for key in has if key not in lacks]:
            wrong.append(f"{side!r} has no row to match {_listed(missing, shared)}")
    if len(ours) < 2 and not wrong:
        wrong.append("only 1 item, and an interval needs at least 2")
    return list(ours.values()), [theirs[key] for key in ours if key in theirs]


def _find(criterion: Criterion, ours: list[Row], theirs: list[Row]) -> Finding:
    from burnish.stats.student import student_mean, student_ratio

    a, b = (np.array([row[criterion.measure] for row in rows], dtype=np.float64) for rows in (ours, theirs))
    if criterion.statistic == "excess_ratio":
        base = f"base_{criterion.measure}"
        a = a - np.array([row[base] for row in ours], dtype=np.float64)
        b = b - np.array([row[base] for row in theirs], dtype=np.float64)
    # An item that occurs in several cells is one item: its rows are drawn together.
    items = [row["item_id"] for row in ours]
    clusters = items if len(set(items)) < len(items) else None
    note = ""
    try:
        if criterion.statistic == "difference":
            found = student_mean(a - b, level=criterion.level, clusters=clusters)
        else:
            found = student_ratio(a, b, level=criterion.level, clusters=clusters)
        estimate, low, high, note = found.estimate, found.low, found.high, found.note
    except BadInput as error:
        # The rows were checked before, so this says that the ratio means nothing on them: nothing is known of it.
        estimate = float(a.mean() / b.mean()) if b.mean() else math.inf
        low, high = -math.inf, math.inf
        note = f"no bounds, since what is divided by is not clearly above 0: {error.problem.splitlines()[0]}"
    return Finding(
        criterion=criterion.name,
        text=criterion.text,
        estimate=estimate,
        low=low,
        high=high,
        level=criterion.level,
        margin=criterion.margin,
        side=criterion.side,
        items=len(set(items)),
        verdict=judge(low, high, criterion.margin, criterion.side),
        note=note,
        measure=criterion.measure,
        statistic=criterion.statistic,
        sides={criterion.arm: float(a.mean()), criterion.against: float(b.mean())},
    )


def _columns(criterion: Criterion) -> list[str]:
    base = [f"base_{criterion.measure}"] if criterion.statistic == "excess_ratio" else []
    return [criterion.measure, *base]


def _stands_in(row: Row, where: Mapping[str, Any]) -> bool:
    """Whether a row is in a cell; an arm without a column does not depend on it, and so is in every cell of it."""
    return all(name not in row or row[name] == value for name, value in where.items())


def _key(row: Row, shared: Sequence[str]) -> Key:
    return (row["item_id"], *(row[name] for name in shared))


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _listed(keys: Sequence[Key], shared: Sequence[str]) -> str:
    shown = [
        f"{key[0]!r}" + "".join(f", {name} {value}" for name, value in zip(shared, key[1:], strict=True))
        for key in keys[:_SHOWN]
    ]
    more = f" and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else ""
    return "item " + "; item ".join(shown) + more
