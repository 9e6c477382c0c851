"""Showing what a run would do, and what it did."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from burnish.cli import look
from burnish.cli.threads import default_threads
from burnish.workflow import Plan, Result


def show(result: Result) -> None:
    """Metrics, and where everything is."""
    if not result.fresh:
        look.say(f"This run was finished before; nothing was done again. Its result, of {result.minutes:.1f} minutes:")
    if result.metrics:
        look.table(("measure", "value"), _measured(result.metrics))
    places: dict[str, Any] = {"saved": result.saved, "run": result.folder, "report": result.report}
    if result.fresh:
        places = {"minutes": f"{result.minutes:.1f}", **places}
    look.pairs({name: value for name, value in places.items() if value is not None})


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
