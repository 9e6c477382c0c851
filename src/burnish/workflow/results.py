"""What a run leaves behind: where a result is saved, whether it is still whole, and what is told of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from burnish import catalogue
from burnish.core.files import sha256, write_json
from burnish.core.run import Run, slug

SAVED = "saved.json"
"""Beside a result: the format in which it was saved, and what its files hold."""
PLAIN = "hf"
"""The format of a saved model when none is asked for: an ordinary Hugging Face folder."""


@dataclass(frozen=True)
class Done:
    """What one step of a recipe left behind."""

    name: str
    """Its number and its method, as its part of the run's folder is called."""
    metrics: dict[str, Any]
    minutes: float
    saved: Path | None


@dataclass(frozen=True)
class Result:
    """What a finished run left behind."""

    folder: Path
    metrics: dict[str, Any]
    minutes: float
    saved: Path | None
    """The artifact or table that the method, or the recipe's last step, gave."""
    report: Path
    fresh: bool = True
    """Whether the work was done now; otherwise it was found finished."""
    steps: list[Done] = field(default_factory=list)
    """Of a recipe: what each step gave."""


def default_folder(name: str, goods: Mapping[str, Any] | None = None) -> Path:
    """The folder of a run when none is given: ``runs/<name>-<first good>``."""
    first = next(iter((goods or {}).values()), "")
    return Path("runs") / slug(f"{name}-{first}" if first else name)


def saved_at(folder: Path, gives: str) -> Path | None:
    """Where a result of that kind is written in a run's folder; None for kinds that are not."""
    kind = catalogue.GOODS.get(gives)
    return folder / kind.place if kind is not None and kind.save else None


def keep(result: Any, gives: str, run: Run, format: str = PLAIN) -> None:
    """Write what a method gave into the run's folder, and the figures that its notes hold into the metrics."""
    saved = saved_at(run.folder, gives)
    if saved is not None and format != PLAIN:
        catalogue.reference("burnish.models:export")(result, saved, format)
    elif saved is not None:
        catalogue.reference(catalogue.GOODS[gives].save)(result, saved)
    if saved is not None:
        write_json(run.folder / SAVED, {"format": format, "files": _digests(saved)})
    if gives in ("Scores", "Table") and result.notes:
        run.event("notes", notes=dict(result.notes))
        figures = {name: value for name, value in result.notes.items() if isinstance(value, bool | int | float)}
        run.metric(**{name: value for name, value in figures.items() if name not in run.metrics})


def notes_of(folder: Path) -> dict[str, Any]:
    """What the run in a folder noted about the scores or the table that it gave."""
    found: dict[str, Any] = {}
    try:
        lines = (folder / "events.jsonl").read_text(encoding="utf-8").splitlines()
    except OSError:
        return found
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if event.get("kind") == "notes":
            found = dict(event["notes"])
    return found


def finished(
    folder: Path, request: Mapping[str, Any], seed: int, saved: Path | None, format: str = PLAIN
) -> Result | None:
    """The result of the same request, if the folder holds it whole and saved in that format."""
    try:
        state = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        same = state["request"] == json.loads(json.dumps(request)) and state["seed"] == seed
        if not same or state["status"] != "done":
            return None
        metrics, minutes = dict(state["metrics"]), float(state["minutes"])
        if saved is not None and not (whole(saved) and _format(saved) == format):
            return None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    report = folder / "report.html"
    return Result(folder, metrics, minutes, saved, report if report.exists() else _report(folder), fresh=False)


def _format(saved: Path) -> str:
    """The format in which a result was saved."""
    path = saved.parent / SAVED
    return str(json.loads(path.read_text(encoding="utf-8"))["format"]) if path.exists() else PLAIN


def whole(saved: Path) -> bool:
    """Whether a result is on disk as it was saved; one that was damaged since is made again."""
    path = saved.parent / SAVED
    if not saved.exists() or not path.exists():
        return saved.exists()
    return bool(json.loads(path.read_text(encoding="utf-8")).get("files") == _digests(saved))


def _digests(saved: Path) -> dict[str, str]:
    """SHA-256 of each file of a result, by its path below the result's folder."""
    files = [saved] if saved.is_file() else [path for path in saved.rglob("*") if path.is_file()]
    return {path.relative_to(saved.parent).as_posix(): sha256(path) for path in sorted(files)}


def result_of(run: Run, saved: Path | None) -> Result:
    """The result of a run that has just ended; its report is written."""
    minutes = json.loads((run.folder / "run.json").read_text(encoding="utf-8"))["minutes"]
    kept = saved if saved is not None and saved.exists() else None
    return Result(run.folder, dict(run.metrics), minutes, kept, _report(run.folder))


def _report(folder: Path) -> Path:
    return Path(catalogue.reference("burnish.report:render")([folder], folder / "report.html"))
