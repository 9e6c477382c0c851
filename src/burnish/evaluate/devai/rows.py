"""What rows of verdicts come to: dependent scores, the headline figures, and a line for each verdict."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from burnish.data.devai import Task, dependent
from burnish.evaluate.devai.prompts import RUBRIC
from burnish.evaluate.devai.rates import rate
from burnish.llm.client import shorten

SAID = 100
"""Verdicts that a run's page lists."""
REASON = 160
"""Characters of a reason that it shows."""


def with_dependents(task: Task, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of one task, each with whether its requirement is satisfied together with what it builds on."""
    verdicts = {
        one.number: None if row["satisfied"] is None else bool(row["satisfied"])
        for one, row in zip(task.requirements, rows, strict=True)
    }
    both = {
        f"satisfied_{kind}": dependent(verdicts, task.prerequisites, transitive=kind == "transitive")
        for kind in ("direct", "transitive")
    }
    return [
        {
            **row,
            **{
                name: None if found[one.number] is None else int(bool(found[one.number]))
                for name, found in both.items()
            },
        }
        for one, row in zip(task.requirements, rows, strict=True)
    ]


def summary(rows: Sequence[dict[str, Any]], level: float) -> dict[str, Any]:
    """Alignment where the truth is known, requirements met, what it cost, and a line for each verdict."""
    tasks = [row["cluster"] for row in rows]
    found: dict[str, Any] = {}
    for name, column in (
        ("alignment", "aligned"),
        ("I", "satisfied"),
        ("D_direct", "satisfied_direct"),
        ("D_transitive", "satisfied_transitive"),
    ):
        interval = rate([row[column] for row in rows], tasks, level)
        if interval is not None:
            found[name] = {"estimate": interval.estimate, "low": interval.low, "high": interval.high}
    found |= {
        "requirements": len(rows),
        "tasks": len(set(tasks)),
        "unscored": sum(row["status"] == "unscored" for row in rows),
    }
    if any(row["truth"] is not None for row in rows):
        for name, truth, said in (("tp", 1, 1), ("fp", 0, 1), ("fn", 1, 0), ("tn", 0, 0)):
            found[name] = sum(row["truth"] == truth and row["satisfied"] == said for row in rows)
    for name in ("calls", "prompt_tokens", "completion_tokens"):
        found[name] = sum(row.get(name) or 0 for row in rows)
    costs = [row["cost"] for row in rows if row.get("cost") is not None]
    found |= {"dollars": sum(costs)} if costs else {}
    more = [f"and {len(rows) - SAID} more in items.parquet"] if len(rows) > SAID else []
    return {**found, "verdicts": [*map(line, rows[:SAID]), *more]}


def line(row: dict[str, Any]) -> str:
    """A verdict for people: what was said, whether that is so where it is known, why, and what was looked at."""
    said = {None: "unscored", 0: "not satisfied", 1: "satisfied"}[row["satisfied"]]
    known = "" if row["truth"] is None else " (right)" if row["aligned"] else " (wrong)"
    seen = [one["path"] for one in json.loads(row["evidence"])]
    why = row["why_unscored"] or row["reason"]
    for label in RUBRIC.labels:
        why = why.removeprefix(RUBRIC.tag(label)).lstrip()
    looked = f" (looked at {', '.join(seen)})" if seen else ""
    return f"{row['item_id']}: {said}{known}: {shorten(why, REASON)}{looked}"
