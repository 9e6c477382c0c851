"""Showing what a run would do, and what it did."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from burnish import catalogue, workflow
from burnish.cli import look
from burnish.cli.threads import default_threads
from burnish.workflow import Plan, Result

BOUNDS = ("label", "estimate", "low", "high")
"""Columns of a table whose rows are estimates with intervals."""
MOST_PLACES = 8
"""Decimals after which numbers are written with a power of ten."""


def show(result: Result, *, json: bool = False) -> None:
    """Metrics, or the table of estimates that the run gave, and where everything is."""
    if json:
        look.as_json(_facts(result))
        return
    if not result.fresh:
        look.say(f"This run was finished before; nothing was done again. Its result, of {result.minutes:.1f} minutes:")
    for step in result.steps:
        took = catalogue.reference("burnish.report.words:duration")(60 * step.minutes)
        look.heading(f"Step {step.name.replace('-', ': ', 1)}, {took}")
        _gave(step.metrics, step.saved)
        if step.saved is not None:
            look.say(f"saved: {step.saved}")
    if result.steps:
        look.say()
    else:
        _gave(result.metrics, result.saved)
    saved = result.saved if not result.steps else None
    places: dict[str, Any] = {"saved": saved, "run": result.folder, "report": result.report}
    if result.fresh:
        places = {"minutes": f"{result.minutes:.1f}", **places}
    look.pairs({name: value for name, value in places.items() if value is not None})


def _gave(metrics: Mapping[str, Any], saved: Path | None) -> None:
    """The estimates that were saved, or else the metrics, and what those mean whose names do not say it."""
    rows = _rows(saved)
    if saved is not None and rows and set(BOUNDS) <= rows[0].keys():
        _estimates(rows, workflow.notes_of(saved.parent))
        if besides := {name: value for name, value in metrics.items() if _bounded(value)}:
            look.table(("besides", "value"), _measured(besides))
    elif metrics:
        shown = catalogue.reference("burnish.report.words:folded")(metrics)
        look.table(("measure", "value"), _measured(shown))
        meanings = catalogue.reference("burnish.report.words:COUNTS")
        for name in shown.keys() & meanings.keys():
            look.say(f"{name}: {meanings[name]}", "dim")


def _rows(saved: Path | None) -> list[dict[str, Any]]:
    """The rows of a saved table; none when something else was saved."""
    if saved is None or saved.name != catalogue.GOODS["Table"].place:
        return []
    rows: list[dict[str, Any]] = catalogue.reference("burnish.data.scores:read_table")(saved).rows()
    return rows


def _facts(result: Result) -> dict[str, Any]:
    """A run's result for programs; what is no number is null."""
    rows = [
        {name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in row.items()}
        for row in _rows(result.saved)
    ]
    notes = workflow.notes_of(result.saved.parent if result.saved is not None else result.folder)
    places = {"run": str(result.folder), "report": str(result.report)}
    return {"rows": rows, "notes": notes, **places} if rows else {"metrics": result.metrics, **places}


def _estimates(rows: list[dict[str, Any]], notes: Mapping[str, Any]) -> None:
    """Estimates with their intervals, why they were found so, and what has to be known about them."""
    level = rows[0].get("level") or math.nan
    compared = {"p_better", "verdict"} <= rows[0].keys()
    rows = [row for row in rows if all(isinstance(row[name], int | float) for name in BOUNDS[1:])]
    columns = ["", "estimate", f"{100 * level:.3g} % interval" if math.isfinite(level) else "interval", "n", "method"]
    table = []
    for row in rows:
        form = _form(row["high"] - row["low"])
        shown = [format(row[name], form) for name in BOUNDS[1:]]
        cells = [row["label"], shown[0], f"[{shown[1]}, {shown[2]}]", row.get("n"), row.get("method")]
        table.append([*cells, *([f"{row['p_better']:.4f}", row["verdict"]] if compared else [])])
    look.table([*columns, *(["P(A > B)", "verdict"] if compared else [])], table)
    for told in dict.fromkeys(f"{row.get('method', '')}: {row['why']}" for row in rows if row.get("why")):
        look.say(told)
    for name in ("baseline", "together", "exported"):
        if name in notes:
            look.say(f"{name}: {notes[name]}")
    warnings = [f"warning: {text}" for text in notes.get("warnings", [])]
    warnings += catalogue.reference("burnish.report.words:gathered")(
        (row["label"], row.get("warnings") or "") for row in rows
    )
    for text in warnings:
        look.say(text, "yellow")


def _form(width: float) -> str:
    """How to write numbers so that two digits of an interval's width show, and at least three decimals."""
    if not (math.isfinite(width) and width > 0):
        return "z.3f"
    places = 1 - math.floor(math.log10(width))
    return f"z.{max(3, places)}f" if places <= MOST_PLACES else ".3g"


def _bounded(value: Any) -> bool:
    return isinstance(value, Mapping) and {"estimate", "low", "high"} <= set(value)


def _measured(metrics: Mapping[str, Any], before: str = "") -> list[tuple[str, str]]:
    """Names and figures; what is nested has a dotted name."""
    rows = []
    for name, value in metrics.items():
        if isinstance(value, Mapping) and "estimate" not in value:
            rows += _measured(value, f"{before}{name}.")
        else:
            rows.append((f"{before}{name}", look.figure(value)))
    return rows


def show_plan(plan: Plan) -> None:
    """What would be done, step by step, with every setting."""
    look.say("Nothing is done: this is the plan.")
    look.pairs({"run": plan.folder, "seed": plan.seed, "threads": default_threads()})
    for number, step in enumerate(plan.steps, 1):
        look.heading(f"{number}. {step['use']}" if len(plan.steps) > 1 else step["use"])
        gives = f"a {step['gives']}" if step["gives"] else "nothing"
        look.pairs({**step["goods"], "gives": gives, **step["estimate"]})
        if step["settings"]:
            look.table(("setting", "value"), step["settings"].items())
