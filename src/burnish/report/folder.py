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
    """What ``run.json`` says; a run that says it is running while nobody holds its folder was killed."""

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


class Loss(Lenient):
    """One step of a training, as ``losses.jsonl`` has it."""

    step: int
    loss: FiniteFloat
    held: FiniteFloat | None = None


@dataclass(frozen=True)
class Made:
    """A model that a run saved."""

    folder: Path
    format: str
    file: str = ""
    """The file that holds it whole, where its format is one file."""


@dataclass(frozen=True)
class StepFolder:
    """What one step of a recipe left."""

    name: str
    """Such as "2: divergence"."""
    metrics: dict[str, Any]
    minutes: float | None
    items: Scores | None = None
    table: Table | None = None
    layers: list[LayerRow] = field(default_factory=list)

    @property
    def measures(self) -> bool:
        """Whether the step measured something, rather than made something."""
        return self.items is not None or self.table is not None


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
    steps: list[StepFolder] = field(default_factory=list)
    """Of a recipe, in their order."""
    losses: dict[str, list[Loss]] = field(default_factory=dict)
    """Of each training, by its part; that of the folder itself has no name."""
    made: list[Made] = field(default_factory=list)
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
    parts = sorted((path for path in (folder / "parts").glob("*") if path.is_dir()), key=_order)
    layers = _layers(folder / "layers.json", notes) or [
        row for part in parts for row in _layers(part / "layers.json", notes)
    ]
    events = _events(folder / "events.jsonl", "", notes)
    for part in parts:
        events += _events(part / "events.jsonl", part.name, notes)
    manifest = _manifest(folder / "run.json", notes)
    return RunFolder(
        folder=folder,
        manifest=manifest.model_copy(update={"status": status_of(folder, manifest.status)}),
        evidence=_evidence(folder / "evidence.json", notes),
        items=_items(folder / "items.parquet", notes),
        table=_noted(_table(folder / "table.parquet", notes), folder / "events.jsonl"),
        layers=layers,
        sizes=_sizes(folder / "sizes.json", notes),
        events=events,
        steps=_steps(folder, notes),
        losses={
            "" if place == folder else place.name: losses
            for place in (folder, *parts)
            if (losses := _rows(Loss, _lines(place / "losses.jsonl", notes), "losses.jsonl", notes))
        },
        made=[made for place in (folder, *parts) if (made := _made(place / "artifact", notes))],
        notes=notes,
    )


def _order(part: Path) -> tuple[int, str]:
    """The steps of a recipe by their number, other parts by their name."""
    number = part.name.partition("-")[0]
    return (int(number) if number.isdecimal() and len(number) < 6 else 0, part.name)


def _steps(folder: Path, notes: list[str]) -> list[StepFolder]:
    """The finished steps of a recipe, as its journal and their parts tell."""
    path = folder / "steps.jsonl"
    found = []
    for row in _lines(path, notes):
        name, value = row.get("key"), row.get("value")
        value = value if isinstance(value, dict) else {}
        metrics = value.get("metrics")
        if not isinstance(name, str) or not isinstance(metrics, dict) or Path(name).name != name:
            notes.append(f"{path.name}: a damaged line was left out")
            continue
        part, minutes = folder / "parts" / name, value.get("minutes")
        number, _, use = name.partition("-")
        found.append(
            StepFolder(
                name=f"{number}: {use}",
                metrics=metrics,
                minutes=minutes if isinstance(minutes, int | float) else None,
                items=_items(part / "items.parquet", notes),
                table=_table(part / "table.parquet", notes),
                layers=_layers(part / "layers.json", notes),
            )
        )
    return found


def _made(folder: Path, notes: list[str]) -> Made | None:
    """The model in a folder, if burnish wrote one there."""
    raw = _load(folder / "burnish.json", notes)
    if not isinstance(raw, dict) or not isinstance(raw.get("format"), str):
        return None
    single = next(iter(sorted(path.name for path in folder.glob("*.gguf"))), "")
    return Made(folder, raw["format"], single)


def status_of(folder: Path, status: str) -> str:
    """The status that a run's folder notes, or "killed" where it is "running" and no process holds the folder's lock."""
    try:
        import fcntl

        with (folder / ".lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except (ImportError, OSError):  # no locks on this system, no lock in this folder, or somebody has it
        return status
    return "killed" if status == "running" else status


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
    """Lines of finished links; other kinds of events are passed over."""
    raw = [{**row, "part": part} for row in _lines(path, notes) if row.get("kind") == "link"]
    return _rows(Event, raw, path.name, notes)


def _lines(path: Path, notes: list[str]) -> list[dict[str, Any]]:
    """The objects of a file of JSON lines; a torn last line is passed over."""
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
        if isinstance(row, dict):
            raw.append(row)
    if damaged:
        notes.append(f"{path.name}: {damaged} damaged lines were left out")
    return raw


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
