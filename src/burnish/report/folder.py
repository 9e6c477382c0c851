"""Reading a run's folder for its report: whatever is there, and a note for whatever is damaged."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, TypeAdapter, ValidationError

from burnish.core.claim import Evidence
from burnish.core.errors import BadInput

if TYPE_CHECKING:
    from burnish.data.scores import Scores, Table

M = TypeVar("M", bound=BaseModel)


class Lenient(BaseModel):
    """Base of what is read from a folder: unknown keys are of a later version and left alone."""

    model_config = ConfigDict(extra="ignore", coerce_numbers_to_str=True)


class Manifest(Lenient):
    """What ``run.json`` says."""

    status: str = "unknown"
    request: dict[str, Any] = Field(default_factory=dict)
    seed: int | None = None
    metrics: dict[str, Any] = Field(default_factory=dict)
    minutes: FiniteFloat | None = None
    peak_memory_mb: FiniteFloat | None = None
    environment: dict[str, str] = Field(default_factory=dict)
    command: list[str] = Field(default_factory=list)
    updated: str = ""
    error: str = ""


class LayerRow(Lenient):
    """How well one linear map of one block was rounded by one arm."""

    arm: str = ""
    block: int
    role: str
    site: str = ""
    error: float | None = None
    """Relative output error tr(dW H dWᵀ) / tr(W H Wᵀ); methods that see no text have none."""
    weight_error: float | None = None
    """‖dW‖² / ‖W‖²."""
    bits: float | None = None
    damping: float | None = None
    note: str = ""


class Event(Lenient):
    """One finished link of sequential work."""

    kind: str
    step: str
    key: str
    seconds: FiniteFloat
    part: str = ""


@dataclass(frozen=True)
class RunFolder:
    """What a run's folder holds; parts that are absent are None or empty."""

    folder: Path
    manifest: Manifest
    evidence: Evidence | None = None
    items: Scores | None = None
    table: Table | None = None
    layers: list[LayerRow] = field(default_factory=list)
    sizes: dict[str, float] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What could not be read, and why."""

    @property
    def name(self) -> str:
        """The folder's own name."""
        return self.folder.resolve().name


def read(folder: Path) -> RunFolder:
    """Read one run's folder.

    Raises:
        BadInput: there is no such folder, or it holds no run.
    """
    if not (folder / "run.json").is_file():
        what = "there is no folder" if not folder.is_dir() else "there is no run.json in"
        raise BadInput(f"{what} {folder}", "give the folder of a run, as it was named with --out")
    notes: list[str] = []
    parts = sorted(path for path in (folder / "parts").glob("*") if path.is_dir())
    layers = _layers(folder / "layers.json", notes) or [
        row for part in parts for row in _layers(part / "layers.json", notes)
    ]
    events = _events(folder / "events.jsonl", "", notes)
    for part in parts:
        events += _events(part / "events.jsonl", part.name, notes)
    return RunFolder(
        folder=folder,
        manifest=_manifest(folder / "run.json", notes),
        evidence=_evidence(folder / "evidence.json", notes),
        items=_items(folder / "items.parquet", notes),
        table=_noted(_table(folder / "table.parquet", notes), folder / "events.jsonl"),
        layers=layers,
        sizes=_sizes(folder / "sizes.json", notes),
        events=events,
        notes=notes,
    )


def _load(path: Path, notes: list[str]) -> Any:
    """The JSON of a file; None, with a note if it is there, when it cannot be read."""
    if not path.exists():
        return None
    try:
        return _parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        notes.append(f"{path.name} is damaged and was left out: {_first_line(error)}")
        return None


def _parse(text: str) -> Any:
    """The value that JSON text stands for.

    Raises:
        ValueError: it is not JSON, or holds half a character (an escaped lone surrogate), which no page can show.
    """
    value = json.loads(text)
    json.dumps(value, ensure_ascii=False).encode("utf-8")
    return value


def _manifest(path: Path, notes: list[str]) -> Manifest:
    raw = _load(path, notes)
    if raw is None:
        return Manifest()
    if not isinstance(raw, dict):
        notes.append(f"{path.name} is damaged and was left out: it holds no table of names and values")
        return Manifest()
    try:
        return Manifest.model_validate(raw)
    except ValidationError as error:
        wrong = {str(fault["loc"][0]) for fault in error.errors()}
        notes.append(f"{path.name}: these parts are damaged and were left out: {', '.join(sorted(wrong))}")
        return Manifest.model_validate({key: value for key, value in raw.items() if key not in wrong})


def _evidence(path: Path, notes: list[str]) -> Evidence | None:
    raw = _load(path, notes)
    if raw is None:
        return None
    try:
        return Evidence.model_validate(raw)
    except ValidationError as error:
        notes.append(f"{path.name} is damaged and was left out: {_faults(error)}")
        return None


def _layers(path: Path, notes: list[str]) -> list[LayerRow]:
    raw = _load(path, notes)
    if raw is None:
        return []
    if not isinstance(raw, list):
        notes.append(f"{path.name} is damaged and was left out: it is not a list")
        return []
    return _rows(LayerRow, raw, path.name, notes)


def _events(path: Path, part: str, notes: list[str]) -> list[Event]:
    """Lines of finished links; other kinds of events are passed over, and so is a torn last line."""
    if not path.exists():
        return []
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        notes.append(f"{path.name} cannot be read: {_first_line(error)}")
        return []
    raw, damaged = [], 0
    for number, line in enumerate(lines, 1):
        try:
            row = _parse(line)
        except (ValueError, RecursionError):
            damaged += number < len(lines)
            continue
        if isinstance(row, dict) and row.get("kind") == "link":
            raw.append({**row, "part": part})
    if damaged:
        notes.append(f"{path.name}: {damaged} damaged lines were left out")
    return _rows(Event, raw, path.name, notes)


def _noted(table: Table | None, path: Path) -> Table | None:
    """A table with what its run noted about it: the last event of that kind; without notes where there is none."""
    if table is None or not path.is_file():
        return table
    for line in reversed(path.read_text(encoding="utf-8", errors="replace").splitlines()):
        try:
            event = _parse(line) if '"notes"' in line else None
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict) and event.get("kind") == "notes" and isinstance(event.get("notes"), dict):
            return replace(table, notes=event["notes"])
    return table


def _rows(model: type[M], raw: Sequence[Any], name: str, notes: list[str]) -> list[M]:
    good: list[M] = []
    first = ""
    for row in raw:
        try:
            good.append(model.model_validate(row))
        except ValidationError as error:
            first = first or _faults(error)
    if first:
        notes.append(f"{name}: {len(raw) - len(good)} of {len(raw)} rows are damaged and were left out: {first}")
    return good


def _sizes(path: Path, notes: list[str]) -> dict[str, float]:
    raw = _load(path, notes)
    if raw is None:
        return {}
    try:
        return TypeAdapter(dict[str, FiniteFloat]).validate_python(raw)
    except ValidationError as error:
        notes.append(f"{path.name} is damaged and was left out: {_faults(error)}")
        return {}


def _items(path: Path, notes: list[str]) -> Scores | None:
    import pyarrow as pa

    from burnish.data.scores import read_scores

    if not path.is_file():
        return None
    try:
        return read_scores(path)
    except (BadInput, pa.ArrowException) as error:
        notes.append(f"{path.name} is damaged and was left out: {_first_line(error).replace(str(path), 'it')}")
        return None


def _table(path: Path, notes: list[str]) -> Table | None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from burnish.data.scores import Table

    if not path.is_file():
        return None
    try:
        return Table(pq.read_table(path))
    except (pa.ArrowException, OSError) as error:
        notes.append(f"{path.name} is damaged and was left out: {_first_line(error)}")
        return None


def _faults(error: ValidationError) -> str:
    fault = error.errors()[0]
    more = f" (and {error.error_count() - 1} more faults)" if error.error_count() > 1 else ""
    return f"{'.'.join(map(str, fault['loc'])) or 'it'}: {fault['msg']}{more}"


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
