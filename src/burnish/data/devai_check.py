"""Where DevAI's verdict files disagree with the tasks, with one another, and with their own summaries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from burnish.data.devai import Judgments, Task, absent, circles

FIELDS = ("criteria", "category", "prerequisites")


@dataclass(frozen=True)
class Inconsistency:
    """One disagreement, and every verdict file that has it."""

    task: str
    field: str
    requirement: int | None
    """None for what concerns the task as a whole."""
    expected: str
    """What the task file says, or what follows from the rows."""
    found: str
    files: tuple[str, ...]
    """"agent, judge" of each."""

    def row(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "task": self.task,
            "requirement": self.requirement,
            "field": self.field,
            "expected": self.expected,
            "found": self.found,
            "files": "; ".join(self.files),
        }


def inconsistencies(judgments: Judgments) -> list[Inconsistency]:
    """Every disagreement, in the order of tasks and requirements; the same one in several files is one."""
    grouped: dict[tuple[str, int, str, str, str], list[str]] = {}

    def note(task: str, field: str, requirement: int | None, expected: Any, found: Any, file: str) -> None:
        key = (task, -1 if requirement is None else requirement, field, str(expected), str(found))
        grouped.setdefault(key, []).append(file)

    everyone = {name for judged in judgments.verdicts.values() for name in judged} | set(judgments.tasks)
    for (agent, judge), judged in judgments.verdicts.items():
        file = f"{agent}, {judge}"
        for name in everyone - set(judged):
            note(name, "file", None, "a verdict file", "none", file)
        for name, task in judged.items():
            for fault in absent(task.prerequisites):
                note(name, "prerequisites", None, "requirements of the task", fault, file)
            if circle := circles(task.prerequisites):
                note(name, "prerequisites", None, "no circle", f"requirements {circle} build on themselves", file)
            for flag, derived, stated in _flags(task):
                note(name, flag, None, derived, stated, file)
            if judgments.tasks and name not in judgments.tasks:
                note(name, "file", None, "a task file", "none", file)
            elif judgments.tasks:
                for field, number, expected, found in _against(judgments.tasks[name], task):
                    note(name, field, number, expected, found, file)
    return [
        Inconsistency(task, field, None if number < 0 else number, expected, found, tuple(sorted(files)))
        for (task, number, field, expected, found), files in sorted(grouped.items())
    ]


def _flags(task: Task) -> list[tuple[str, bool, Any]]:
    """Summaries that do not follow from the rows: name, what follows, what is stated."""
    rows = {
        "satisfied_all_requirements": tuple(task.verdicts.values()),
        "satisfied_all_preferences": task.preferences,
    }
    found = []
    for flag, stated in (task.flags or {}).items():
        # Of rows without a verdict nothing follows, unless one of them is false.
        if rows[flag] and (None not in rows[flag] or False in rows[flag]):
            derived = all(value is True for value in rows[flag])
            if stated is not derived:
                found.append((flag, derived, stated))
    return found


def _against(asked: Task, judged: Task) -> list[tuple[str, int | None, Any, Any]]:
    """Where a judged task is not the task that was set: field, requirement, there, here."""
    there = {one.number: one for one in asked.requirements}
    here = {one.number: one for one in judged.requirements}
    found: list[tuple[str, int | None, Any, Any]] = []
    if asked.query != judged.query:
        found.append(("query", None, asked.query, judged.query))
    found += [("requirement", n, "none", here[n].criteria) for n in here if n not in there]
    found += [("requirement", n, there[n].criteria, "none") for n in there if n not in here]
    found += [
        (field, n, getattr(there[n], field), getattr(here[n], field))
        for n in here
        if n in there
        for field in FIELDS
        if getattr(there[n], field) != getattr(here[n], field)
    ]
    return found
