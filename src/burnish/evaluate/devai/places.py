"""Where a task's workspace and trajectory are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from burnish.core.errors import BadInput
from burnish.data.devai import Task


def workspaces_of(tasks: Sequence[Task], folder: Path) -> dict[str, Path]:
    """Task name to the folder of that name; a single task may have `folder` itself.

    Raises:
        BadInput: listing the tasks whose folder is missing, or whose name is no name of a folder.
    """
    found, faults = {}, []
    for task in tasks:
        if not _is_name(task.name):
            faults.append(f"the task's name {task.name!r} is no name of a folder")
            continue
        place = folder / task.name
        if len(tasks) == 1 and not place.is_dir() and folder.is_dir():
            place = folder
        if place.is_symlink() or not place.is_dir():
            faults.append(f"there is no folder {place}")
        found[task.name] = place
    if faults:
        raise BadInput.of(f"{folder} lacks workspaces", faults, "give a folder with one folder a task, of its name")
    return found


def trajectory_of(task: Task, folder: Path | None) -> Path | None:
    """The file with a task's steps, where there is one."""
    if folder is None:
        return None
    if folder.is_file():
        return folder
    path = folder / f"{task.name}.json"
    return path if _is_name(task.name) and path.is_file() and not path.is_symlink() else None


def _is_name(name: str) -> bool:
    return name not in ("", ".", "..") and not set(name) & set("/\\\0:")
