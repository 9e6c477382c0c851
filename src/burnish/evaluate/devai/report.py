"""DevAI's published verdicts, counted again: alignment, requirements met, and what the files get wrong.

## How it works

Verdicts of a judge and of the reference (people, in consensus) are matched by task and requirement number. With h and
j in {0, 1} for the two verdicts on a requirement:

* alignment is the mean of [h = j]; tp, fp, fn, tn count (h, j) = (1, 1), (0, 1), (1, 0), (0, 0). A requirement that the
  judge leaves unscored is not aligned, and in none of the four
* I is the mean of h (or of j)
* D is the mean of h together with h of every prerequisite: the *direct* ones, or *transitive*ly all
* the judge's shift is mean(j) - mean(h); the paper prints its absolute value
* Cohen's kappa and Matthews' correlation discount what a judge gets right by always saying no

Requirements of one task are not independent, so every interval takes tasks as the unit of sampling.

## Differences

* The paper gives no intervals, and no measure that discounts the share of negatives (78 % for MetaGPT).
* Everything is counted from the requirement rows, over the requirements that the verdict files hold (366: one task has
  a fifth requirement there). Summary flags are not trusted; where they, or the task files, say otherwise, that is listed.
* The paper's D follows from direct prerequisites alone; the transitive variant stands beside it.

## When not to use it

With a handful of tasks, intervals over tasks are too narrow; the note on each says so.

## References

Zhuge et al., Agent-as-a-Judge: Evaluate Agents with Agents, ICML 2025, arXiv 2410.10934, tables 2 and 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from burnish.core.errors import BadInput, UnknownName
from burnish.core.run import Run, ensure
from burnish.core.shapes import Analysis
from burnish.data.devai import Judgments, Task, Verdict, dependent, read_judgments
from burnish.data.devai_check import Inconsistency, inconsistencies
from burnish.data.scores import Table
from burnish.evaluate.devai import PAPER
from burnish.evaluate.devai.rates import rate
from burnish.stats.bootstrap import bootstrap, paired
from burnish.stats.interval import Interval

REPORTED: dict[tuple[str, str, str], float] = {
    ("MetaGPT", "", "reference_D_direct"): 0.0655,
    ("GPT-Pilot", "", "reference_D_direct"): 0.2896,
    ("OpenHands", "", "reference_D_direct"): 0.2868,
    ("GPT-Pilot", "", "reference_I"): 0.4480,
    ("OpenHands", "agent_as_a_judge/gray_box", "alignment"): 0.9016,
}
"""What the paper prints: agent, judge (none for the reference), measure. Its alignments of the judge without
trajectories (88.52, 83.88 and 90.44 %) belong to verdicts that are not published."""
FIRST = ("alignment", "kappa")
"""What a reader wants to see first."""
ROUNDING = 0.0001
"""The paper prints hundredths of a percent, some cut off and some rounded."""


class Report(Analysis):
    """DevAI's verdicts counted again: alignment, requirements met, intervals over tasks, and faults of the files."""

    paper = PAPER

    reference: str = "human_as_a_judge"
    """The judge that the others are held against: the folder's name; people in consensus, as the archive calls them."""
    level: Annotated[float, Field(gt=0, lt=1)] = 0.95
    """Confidence level of the intervals; the usual one."""
    interval: Literal["bayes", "miller", "inspect-t", "inspect-wilson", "cluster-bootstrap"] = "inspect-wilson"
    """How intervals of shares are found, over tasks (see burnish.stats.clustered). In simulations shaped like these data
    (55 tasks of 5 to 9 requirements, shares from 0.07 to 0.9) bayes missed on one side alone; this one on both. Shift,
    kappa and mcc take the bootstrap over tasks."""

    def __call__(self, verdicts: Path, run: Run | None = None) -> Table:
        """Count the verdicts of every judge on every developing agent.

        Args:
            verdicts: A folder or an archive (.tar, .tar.gz, .zip) with ``judgment/<agent>/<judge>/<task>.json``, and
                best with ``instances/<task>.json`` beside.
            run: Where rows and figures go; its ``items.parquet`` has a row for each requirement.

        Returns:
            A row for each agent, judge and measure: estimate, its bounds where it has any, what the paper prints.

        Raises:
            BadInput: files that cannot be read as verdicts, all listed.
            UnknownName: there are no verdicts of the reference.
        """
        run = ensure(run)
        judgments = read_judgments(verdicts)
        self._check_reference(judgments)
        rows: list[dict[str, Any]] = []
        items: list[dict[str, Any]] = []
        shown: dict[str, dict[str, Any]] = {name: {} for name in FIRST}
        for (agent, judge), judged in sorted(judgments.verdicts.items()):
            reference = judgments.verdicts.get((agent, self.reference))
            if judge == self.reference or reference is None:
                continue
            pairs = _pairs(agent, judge, reference, judged)
            measured = self._measures(pairs)
            rows += [{"agent": agent, "judge": judge, **row, **_paper(agent, judge, row)} for row in measured]
            items += pairs
            for name, value in _shown(measured).items():
                shown.setdefault(name, {})[agent if _only(judgments, agent) else f"{agent}, {judge}"] = value
        found = inconsistencies(judgments)
        lines = [_line(one, len(judgments.verdicts)) for one in found]
        run.items(items)
        run.metric(**{name: values for name, values in shown.items() if values})
        run.metric(beside_the_paper=[_beside(row) for row in rows if row["paper"] is not None], inconsistencies=lines)
        return Table.of(rows, inconsistencies=[one.row() for one in found])

    def _check_reference(self, judgments: Judgments) -> None:
        judges = {judge for _, judge in judgments.verdicts}
        others = {agent for agent, judge in judgments.verdicts if judge != self.reference}
        if self.reference not in judges or not others:
            raise UnknownName("judge to hold others against", self.reference, judges)

    def _measures(self, pairs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        scored = [row for row in pairs if row["reference"] is not None and row["judged"] is not None]
        found = [
            _count("n", len(pairs)),
            _count("tasks", len({row["cluster"] for row in pairs})),
            _count("unscored", len(pairs) - len(scored)),
            self._rate("alignment", pairs, "aligned"),
        ]
        for name, human, judge in (("tp", 1, 1), ("fp", 0, 1), ("fn", 1, 0), ("tn", 0, 0)):
            found.append(_count(name, sum(row["reference"] == human and row["judged"] == judge for row in scored)))
        for side, prefix in (("reference", "reference"), ("judged", "judge")):
            found.append(self._rate(f"{prefix}_I", pairs, side))
            found += [self._rate(f"{prefix}_D_{kind}", pairs, f"{side}_{kind}") for kind in ("direct", "transitive")]
            found.append(_count(f"{prefix}_solved", _solved(pairs, side)))
        if scored:
            a, b = (np.array([row[side] for row in scored], dtype=float) for side in ("reference", "judged"))
            tasks = [row["cluster"] for row in scored]
            if len(set(tasks)) > 1:
                found.append(_row("shift", paired(a, b, clusters=tasks, level=self.level)))
            both = np.column_stack([a * b, a, b])
            for name, statistic in (("kappa", kappa), ("mcc", matthews)):
                found.append(_row(name, self._function(both, statistic, tasks)))
            found.append(_count("always_no", float(1 - a.mean())))
        return found

    def _rate(self, name: str, pairs: Sequence[dict[str, Any]], column: str) -> dict[str, Any]:
        values = [row[column] for row in pairs]
        found = rate(values, [row["cluster"] for row in pairs], self.level, self.interval)
        if found is None:
            return _count(name, None)
        return {**_row(name, found), "count": sum(value for value in values if value is not None)}

    def _function(self, values: Any, statistic: Any, tasks: list[str]) -> Interval | None:
        """None where the statistic is not defined: on a single task, or when one side says the same of everything."""
        try:
            return bootstrap(values, statistic, clusters=tasks, level=self.level)
        except BadInput:
            return None


def kappa(means: Any) -> Any:
    """Cohen's kappa from the means of h j, h and j."""
    both, human, judge = means
    agree = 1 - human - judge + 2 * both
    chance = human * judge + (1 - human) * (1 - judge)
    return (agree - chance) / (1 - chance)


def matthews(means: Any) -> Any:
    """Matthews' correlation coefficient from the means of h j, h and j."""
    both, human, judge = means
    return (both - human * judge) / np.sqrt(human * (1 - human) * judge * (1 - judge))


def _pairs(agent: str, judge: str, reference: dict[str, Task], judged: dict[str, Task]) -> list[dict[str, Any]]:
    """A row for each requirement that both have."""
    rows = []
    for name in sorted(reference.keys() & judged.keys()):
        sides = {"reference": reference[name], "judged": judged[name]}
        columns: dict[str, dict[int, Verdict]] = {}
        for side, task in sides.items():
            columns[side] = task.verdicts
            for kind in ("direct", "transitive"):
                columns[f"{side}_{kind}"] = dependent(
                    task.verdicts, task.prerequisites, transitive=kind == "transitive"
                )
        for one in reference[name].requirements:
            if one.number not in judged[name].verdicts:
                continue
            values = {column: _bit(found[one.number]) for column, found in columns.items()}
            aligned = None if values["reference"] is None else int(values["reference"] == values["judged"])
            rows.append(
                {
                    "item_id": f"{agent}/{name}/{one.number}",
                    "model": judge,
                    "cluster": name,
                    "subset": agent,
                    "category": one.category,
                    "aligned": aligned,
                    **values,
                }
            )
    return rows


def _bit(verdict: Verdict) -> int | None:
    return None if verdict is None else int(verdict)


def _solved(pairs: Sequence[dict[str, Any]], side: str) -> int:
    """Tasks of which every requirement is satisfied."""
    tasks: dict[str, bool] = {}
    for row in pairs:
        tasks[row["cluster"]] = tasks.get(row["cluster"], True) and row[side] == 1
    return sum(tasks.values())


def _count(name: str, value: float | None) -> dict[str, Any]:
    estimate = None if value is None else float(value)
    blank = {"low": None, "high": None, "count": None, "n": None, "n_tasks": None, "method": "", "note": ""}
    return {"measure": name, "estimate": estimate, **blank}


def _row(name: str, interval: Interval | None) -> dict[str, Any]:
    if interval is None:
        return {**_count(name, None), "note": "not defined: a single task, or a side that says the same of everything"}
    return {
        "measure": name,
        "estimate": interval.estimate,
        "low": interval.low,
        "high": interval.high,
        "count": None,
        "n": interval.n,
        "n_tasks": interval.n_clusters,
        "method": interval.method,
        "note": interval.note,
    }


def _paper(agent: str, judge: str, row: dict[str, Any]) -> dict[str, Any]:
    own = "" if row["measure"].startswith("reference") else judge
    printed = REPORTED.get((agent, own, row["measure"]))
    if printed is None or row["estimate"] is None:
        return {"paper": printed, "differs": None}
    return {"paper": printed, "differs": abs(row["estimate"] - printed) > ROUNDING}


def _only(judgments: Judgments, agent: str) -> bool:
    return sum(one == agent for one, _ in judgments.verdicts) == 2


def _shown(measured: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """For the run's metrics: counts as whole numbers, the rest with their bounds."""
    found: dict[str, Any] = {}
    for row in measured:
        estimate = row["estimate"]
        if estimate is None:
            continue
        if row["low"] is None:
            found[row["measure"]] = int(estimate) if row["measure"] != "always_no" else estimate
        else:
            found[row["measure"]] = {end: row[end] for end in ("estimate", "low", "high")}
    return found


def _beside(row: dict[str, Any]) -> str:
    verdict = "differs" if row["differs"] else "agrees"
    measure = row["measure"].replace("_", " ")
    return f"{row['agent']}, {measure}: {row['estimate']:.2%} here, {row['paper']:.2%} in the paper: {verdict}"


def _line(one: Inconsistency, files: int) -> str:
    where = one.task if one.requirement is None else f"{one.task}, requirement {one.requirement}"
    expected, found = _differing(one.expected, one.found)
    which = "; ".join(one.files) if len(one.files) < files else "every judge's file"
    return f"{where}: {one.field} is {found}, not {expected} ({which})"


def _differing(expected: str, found: str, most: int = 60) -> tuple[str, str]:
    """Two texts from a little before the place where they part."""
    place = next((i for i, (a, b) in enumerate(zip(expected, found, strict=False)) if a != b), 0)
    start = max(0, place - 20)

    def cut(text: str) -> str:
        part = text[start : start + most]
        return ("…" if start else "") + part + ("…" if len(text) > start + most else "")

    return (repr(cut(expected)), repr(cut(found))) if expected != found else (expected, found)
