"""The baseline that a judge has to beat: does what a requirement names exist, is it not empty, does it parse?

## How it works

Paths are read off the requirement's text. Every file among them must exist, hold something, and be what its suffix says
(Python and JSON parse; other formats begin as they should); every folder must hold a file with content. No model is
asked. A requirement that names no path is unscored, unless `unnamed` says otherwise.

## Differences

The paper has no such baseline, and many of its requirements ask for little more than that something is saved somewhere.

## When not to use it

It says nothing about what a file does, so it is a baseline and no judge.

## References

Zhuge et al., Agent-as-a-Judge: Evaluate Agents with Agents, ICML 2025, arXiv 2410.10934.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from burnish.core.run import Run, ensure
from burnish.core.shapes import Evaluation
from burnish.data.devai import Requirement, Task, read_tasks
from burnish.data.documents import fault
from burnish.data.scores import Scores
from burnish.data.workspace import Refused, Workspace, named_paths
from burnish.evaluate.devai import PAPER
from burnish.evaluate.devai.places import workspaces_of
from burnish.evaluate.devai.rows import summary, with_dependents

_UNNAMED = {"unscored": None, "satisfied": 1, "unsatisfied": 0}
_NO_PATH = "the requirement names no path"


class Precheck(Evaluation):
    """The baseline without a model: what a requirement names exists, is not empty, and is what its suffix says."""

    paper = PAPER

    unnamed: Literal["unscored", "satisfied", "unsatisfied"] = "unscored"
    """The verdict on a requirement that names no path. Unscored counts as not aligned; where a judge is compared with this
    baseline, that would be a handicap."""
    level: Annotated[float, Field(gt=0, lt=1)] = 0.95
    """Confidence level of the intervals."""

    def __call__(self, tasks: Path, workspaces: Path, run: Run | None = None) -> Scores:
        """Check every requirement of every task.

        Args:
            tasks: A task's JSON file, or a folder or an archive of them; `satisfied` is taken for the truth if given.
            workspaces: A folder that holds, for each task, a folder of its name; for a single task also that folder.
            run: Where verdicts and figures go.

        Returns:
            A row a requirement, with the columns of `devai judge`.

        Raises:
            BadInput: tasks or workspaces that cannot be used, all listed.
        """
        run = ensure(run)
        every = read_tasks(tasks)
        places = workspaces_of(every, workspaces)
        rows = []
        for task in run.track(every, "precheck", unit="tasks"):
            workspace = Workspace(places[task.name])
            rows += with_dependents(task, [self._check(task, one, workspace) for one in task.requirements])
        run.items(rows)
        run.metric(**summary(rows, self.level))
        return Scores.of(rows, workflow="precheck")

    def _check(self, task: Task, requirement: Requirement, workspace: Workspace) -> dict[str, Any]:
        names = named_paths(requirement.criteria)
        problems, seen = [], []
        for name in names:
            try:
                path = workspace.resolve(name)
                why = _folder(workspace, path) if path.endswith("/") else fault(workspace, path)
                seen.append({"path": path, "by": "precheck", "tokens": 0, "cut": False})
            except Refused as error:
                why = str(error)
            problems += [{"path": name, "why": why}] if why else []
        satisfied = int(not problems) if names else _UNNAMED[self.unnamed]
        truth = requirement.satisfied
        return {
            "item_id": f"{task.name}/{requirement.number}",
            "model": "precheck",
            "cluster": task.name,
            "status": "unscored" if satisfied is None else "scored",
            "satisfied": satisfied,
            "truth": None if truth is None else int(truth),
            "aligned": None if truth is None else int(satisfied == int(truth)),
            "reason": "; ".join(f"{one['path']}: {one['why']}" for one in problems)
            or ("all is there" if names else _NO_PATH),
            "why_unscored": _NO_PATH if satisfied is None else "",
            "evidence": json.dumps(seen),
            "problems": json.dumps(problems),
        }


def _folder(workspace: Workspace, path: str) -> str:
    return "" if any(found.size for found in workspace.inside(path)) else "it holds no file with content"
