"""DevAI's files: tasks whose requirements build on one another, and verdicts on them.

A task file (``instances/<task>.json``) holds a query, requirements with prerequisites, and preferences. A verdict file
(``judgment/<agent>/<judge>/<task>.json``; a judge may be two folders deep) is a task file in which a judge has filled in
`satisfied`. Both are read from a folder or straight from an archive (.tar, .tar.gz, .zip), of which nothing is unpacked.
"""

from __future__ import annotations

import json
import re
import tarfile
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from burnish.core.errors import BadInput

MOST_BYTES = 16 * 2**20
"""Of one JSON file; a task takes a few thousand."""
MOST_FILES = 100_000

_TASK = re.compile(r"(?:^|.*/)instances/([^/]+)\.json")
_VERDICT = re.compile(r"(?:^|.*/)judge?ments?/([^/]+)/([^/]+(?:/[^/]+)?)/([^/]+)\.json")

Verdict = bool | None
"""Satisfied, not satisfied, or None: not judged."""


@dataclass(frozen=True)
class Requirement:
    """One thing that a task asks for."""

    number: int
    criteria: str
    prerequisites: tuple[int, ...] = ()
    """Numbers of the requirements that it builds on directly."""
    category: str = ""
    satisfied: Verdict = None
    """What a judge says; None in a task file, unless the truth is known."""


@dataclass(frozen=True)
class Task:
    """A query to a developing agent, and what must be true of what it leaves behind."""

    name: str
    query: str
    requirements: tuple[Requirement, ...]
    preferences: tuple[Verdict, ...] = ()
    """Verdicts on the preferences, which are wishes and count for nothing."""
    flags: Mapping[str, Any] | None = None
    """Summaries that a verdict file states beside its rows, such as ``satisfied_all_requirements``."""

    @property
    def verdicts(self) -> dict[int, Verdict]:
        """Requirement number to verdict."""
        return {one.number: one.satisfied for one in self.requirements}

    @property
    def prerequisites(self) -> dict[int, tuple[int, ...]]:
        """Requirement number to the numbers of those that it builds on."""
        return {one.number: one.prerequisites for one in self.requirements}


@dataclass(frozen=True)
class Judgments:
    """Every task and verdict file that a place holds."""

    tasks: dict[str, Task]
    """Task name to the task as it was set."""
    verdicts: dict[tuple[str, str], dict[str, Task]]
    """(agent, judge) to task name to the judged task."""


# -- the requirement graph ----------------------------------------------------------------------------------------


def dependent(
    satisfied: Mapping[int, Verdict], prerequisites: Mapping[int, Sequence[int]], *, transitive: bool = False
) -> dict[int, Verdict]:
    """Whether each requirement is satisfied together with what it builds on.

    One that is not satisfied makes the whole not satisfied; else one without a verdict (or that is not there) leaves it
    without one.

    Args:
        satisfied: Number to verdict.
        prerequisites: Number to those that it builds on directly.
        transitive: Take also what those build on, and so on; the paper's figures follow from the direct ones alone.
    """
    found = {}
    for number in satisfied:
        needed = closure(number, prerequisites) if transitive else {number, *prerequisites.get(number, ())}
        values = {satisfied.get(one) for one in needed}
        found[number] = False if False in values else None if None in values else True
    return found


def closure(number: int, prerequisites: Mapping[int, Sequence[int]]) -> set[int]:
    """A requirement and all that it builds on, directly or not."""
    found, todo = {number}, [number]
    while todo:
        fresh = set(prerequisites.get(todo.pop(), ())) - found
        found |= fresh
        todo += fresh
    return found


def absent(prerequisites: Mapping[int, Sequence[int]]) -> list[str]:
    """A line for each prerequisite that is not there."""
    return [
        f"requirement {number} builds on {other}, which is not there"
        for number, others in prerequisites.items()
        for other in others
        if other not in prerequisites
    ]


def circles(prerequisites: Mapping[int, Sequence[int]]) -> list[int]:
    """Requirements that build on themselves, directly or through others: each of a circle needs all of it."""
    return [
        number
        for number, others in prerequisites.items()
        if any(number in closure(other, prerequisites) for other in others)
    ]


# -- reading ------------------------------------------------------------------------------------------------------


def read_judgments(place: str | Path) -> Judgments:
    """Every task and verdict file of a folder or an archive; files that are neither are passed over.

    Raises:
        BadInput: there is nothing to read, or listing the files that cannot be used.
    """
    place = Path(place)
    tasks: dict[str, Task] = {}
    verdicts: dict[tuple[str, str], dict[str, Task]] = {}
    faults: list[str] = []
    for path, raw in _json_files(place):
        of_task, of_verdict = _TASK.fullmatch(path), _VERDICT.fullmatch(path)
        if not (of_task or of_verdict):
            continue
        task = _parse(path, raw, faults)
        if task is None:
            continue
        if of_verdict:
            verdicts.setdefault((of_verdict[1], of_verdict[2]), {})[of_verdict[3]] = task
        elif of_task:
            tasks[of_task[1]] = task
    if faults:
        raise BadInput.of(f"{place} holds files that cannot be used", faults[:20], "mend or remove them")
    if not verdicts:
        raise BadInput(
            f"{place} holds no verdicts", "give a folder or an archive with judgment/<agent>/<judge>/<task>.json"
        )
    return Judgments(tasks, verdicts)


def read_tasks(place: str | Path) -> list[Task]:
    """Tasks to be judged, by name: those of one JSON file, of a folder's JSON files, or of an archive's ``instances/``.

    Raises:
        BadInput: there is nothing to read, or listing the files that cannot be used and prerequisites that are not
            there. Circles of them are let pass: DevAI has one, and its scores are defined.
    """
    place = Path(place)
    if place.is_file() and place.suffix == ".json":
        found = [(place.name, _small(place))]
    else:
        every = list(_json_files(place))
        found = [(path, raw) for path, raw in every if _TASK.fullmatch(path)]
        found = found or [(path, raw) for path, raw in every if "/" not in path]
    tasks: list[Task] = []
    faults: list[str] = []
    for path, raw in found:
        task = _parse(path, raw, faults)
        if task is not None:
            faults += [f"{path}: {fault}" for fault in absent(task.prerequisites)]
            tasks.append(task)
    faults += [f"the task {name} is there twice" for name, n in Counter(task.name for task in tasks).items() if n > 1]
    if faults:
        raise BadInput.of(f"{place} holds tasks that cannot be used", faults[:20], "mend or remove them")
    if not tasks:
        raise BadInput(f"{place} holds no tasks", "give a task's JSON file, or a folder of them")
    return sorted(tasks, key=lambda task: task.name)


def _json_files(place: Path) -> Iterator[tuple[str, bytes | str]]:
    """Path inside `place` and content of every JSON file, in the order of paths; a content that is a string is a fault."""
    if place.is_dir():
        root = place.resolve()
        for path in sorted(place.rglob("*.json")):
            if path.is_file() and path.resolve().is_relative_to(root):
                yield path.relative_to(place).as_posix(), _small(path)
        return
    if not place.exists():
        raise BadInput(f"there is nothing at {place}", "give a folder or an archive")
    try:
        yield from sorted(_zipped(place) if zipfile.is_zipfile(place) else _tarred(place))
    except (tarfile.TarError, zipfile.BadZipFile, OSError, EOFError) as error:
        raise BadInput(f"{place} cannot be read: {error}", "give a folder, a .tar, .tar.gz or .zip") from None


def _tarred(place: Path) -> Iterator[tuple[str, bytes | str]]:
    with tarfile.open(place) as archive:
        for number, member in enumerate(archive):
            if number > MOST_FILES:
                raise BadInput(f"{place} holds more than {MOST_FILES} files", "unpack what is needed of it")
            if member.isfile() and member.name.endswith(".json"):
                file = archive.extractfile(member) if member.size <= MOST_BYTES else None
                yield member.name.removeprefix("./"), _TOO_LARGE if file is None else file.read()


def _zipped(place: Path) -> Iterator[tuple[str, bytes | str]]:
    with zipfile.ZipFile(place) as archive:
        for member in archive.infolist()[:MOST_FILES]:
            if member.filename.endswith(".json"):
                yield member.filename, _TOO_LARGE if member.file_size > MOST_BYTES else archive.read(member)


_TOO_LARGE = f"is larger than {MOST_BYTES} bytes"


def _small(path: Path) -> bytes | str:
    return path.read_bytes() if path.stat().st_size <= MOST_BYTES else _TOO_LARGE


def _parse(path: str, raw: bytes | str, faults: list[str]) -> Task | None:
    """One file as a task; what is wrong with it is added to `faults`."""
    if isinstance(raw, str):
        faults.append(f"{path}: {raw}")
        return None
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError) as error:
        faults.append(f"{path}: not JSON: {error}")
        return None
    if not isinstance(value, dict) or not isinstance(value.get("requirements"), list):
        faults.append(f"{path}: no list of requirements")
        return None
    wrong: list[str] = []
    requirements = [_requirement(number, row, wrong) for number, row in enumerate(value["requirements"])]
    kept = [one for one in requirements if one is not None]
    wrong += [f"requirement {n} is there twice" for n, many in Counter(r.number for r in kept).items() if many > 1]
    wrong += [] if requirements else ["no requirements"]
    if wrong:
        faults += [f"{path}: {fault}" for fault in wrong]
        return None
    wishes = value.get("preferences")
    preferences = tuple(
        _verdict(one.get("satisfied")) for one in (wishes if isinstance(wishes, list) else []) if isinstance(one, dict)
    )
    flags = {key: value[key] for key in ("satisfied_all_requirements", "satisfied_all_preferences") if key in value}
    name = value.get("name")
    name = name if isinstance(name, str) and name else Path(path).stem
    return Task(name, str(value.get("query", "")), tuple(kept), preferences, flags)


def _requirement(place: int, row: Any, wrong: list[str]) -> Requirement | None:
    if not isinstance(row, dict):
        wrong.append(f"requirement at place {place} is no object")
        return None
    number, others, said = row.get("requirement_id"), row.get("prerequisites", []), row.get("satisfied")
    found = [] if _is_whole(number) else [f"requirement at place {place}: requirement_id is {number!r}, no number"]
    if not isinstance(others, list) or not all(map(_is_whole, others)):
        found.append(f"requirement {number}: prerequisites is {others!r}, no list of numbers")
    if not isinstance(row.get("criteria"), str) or not row["criteria"].strip():
        found.append(f"requirement {number}: criteria is no text")
    if said is not None and not isinstance(said, bool):
        found.append(f"requirement {number}: satisfied is {said!r}, not true, false or null")
    wrong += found
    if found:
        return None
    return Requirement(
        row["requirement_id"], row["criteria"], tuple(others), str(row.get("category") or ""), _verdict(said)
    )


def _verdict(value: Any) -> Verdict:
    return value if isinstance(value, bool) else None


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
