"""From names to results: load the goods, run the method or the recipe, save what it gives, write the report.

Nothing is loaded before everything that can be checked without loading was found right, and nothing that is finished
is done again: the same request in the same folder gives the result that is there.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from burnish import catalogue
from burnish.core.errors import BadInput, BurnishError, UnknownName, Unsupported
from burnish.core.extras import missing, require
from burnish.core.files import require_folder, sha256, write_json
from burnish.core.journal import Journal
from burnish.core.method import Method
from burnish.core.recipe import Planned, Recipe
from burnish.core.run import Run, slug
from burnish.core.shapes import Compressor

SAVED = "saved.json"
"""Beside a result: the format in which it was saved, and what its files hold."""
LARGEST = 2**63
"""Whole numbers from here on do not fit into 64 bits."""
PLAIN = "hf"
"""The format of a saved model when none is asked for: an ordinary Hugging Face folder."""


@dataclass(frozen=True)
class Place:
    """How models are loaded; see `burnish.models.load`."""

    device: str = "auto"
    dtype: str = "auto"
    notify: Callable[[str], None] | None = None
    """Is told, in a line, what is fetched and under which licence."""

    def options(self) -> dict[str, Any]:
        """Keywords for the loader: those that differ from its defaults."""
        return {name: value for name, value in vars(self).items() if value not in ("auto", None)}


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


@dataclass(frozen=True)
class Plan:
    """What a run would do."""

    folder: Path
    seed: int
    steps: list[dict[str, Any]] = field(default_factory=list)
    """For each step: use, settings, goods (name to source), gives, estimate."""


def default_folder(name: str, goods: Mapping[str, Any] | None = None) -> Path:
    """The folder of a run when none is given: ``runs/<name>-<first good>``."""
    first = next(iter((goods or {}).values()), "")
    return Path("runs") / slug(f"{name}-{first}" if first else name)


def folder_of(use: str, method: Method, goods: Mapping[str, str]) -> Path:
    """The folder of a method's run when none is given.

    What gives a table is quick and asked in many ways: each way has a folder of its own, named by its settings.
    """
    if type(method).gives() != "Table":
        return default_folder(use, goods)
    asked = json.dumps([method.settings(), dict(goods)], sort_keys=True)
    name = [
        use,
        *(Path(source.partition("\n")[0]).name for source in goods.values()),
        hashlib.sha256(asked.encode()).hexdigest()[:8],
    ]
    return Path("runs") / slug("-".join(name))


# -- one method -------------------------------------------------------------------------------------------------


def run_method(
    use: str,
    method: Method,
    goods: Mapping[str, str],
    out: str | Path | None = None,
    *,
    seed: int = 0,
    format: str = PLAIN,
    reload: bool = True,
    place: Place = Place(),
) -> Result:
    """Run one method on goods that are named by strings.

    Args:
        use: The method's name in the catalogue.
        method: The method with its settings.
        goods: Name of a parameter of ``method.__call__`` to a source: a model's name, a path, …
        out: The run's folder; by default `folder_of`.
        seed: The run's seed.
        format: How a model that the method gives is saved: "hf" or another format of `burnish.models.export`. It is no
            part of the request: the same folder with another format saves anew what was computed before.
        reload: Load a saved model in a fresh process with the tool that its format is for, and compare.
        place: Device and dtype.

    Raises:
        BadInput: goods that are missing or unknown; a folder that holds another run.
        MissingExtra: the method or its goods need one.
        Mismatch: the saved model, loaded anew, is not the one that was made.
    """
    step = Planned(use=use, method=method, goods=dict(goods))
    check([step], format)
    folder = require_folder(Path(out) if out is not None else folder_of(use, method, goods))
    request = {"use": use, "settings": method.settings(), "goods": dict(goods), "burnish": version("burnish")}
    if place.dtype != "auto":
        request["dtype"] = place.dtype
    gives = type(method).gives()
    again = getattr(method, "repeats", False)
    if not again and (found := _finished(folder, request, seed, _saved(folder, gives), format)) is not None:
        return found
    with Run(folder, request, seed=seed) as run:
        _keep(_call(step, {}, _Shelf(place), run), gives, run, format)
        if gives == "Model" and reload:
            prove(run, place.notify)
    return _result(run, _saved(folder, gives))


def plan_method(
    use: str,
    method: Method,
    goods: Mapping[str, str],
    out: str | Path | None = None,
    *,
    seed: int = 0,
    format: str = PLAIN,
) -> Plan:
    """What `run_method` would do; everything is checked and nothing is loaded."""
    step = Planned(use=use, method=method, goods=dict(goods))
    check([step], format)
    return _plan([step], Path(out) if out is not None else folder_of(use, method, goods), seed)


# -- a recipe ---------------------------------------------------------------------------------------------------


def run_recipe(
    recipe: Recipe, out: str | Path | None = None, *, seed: int | None = None, place: Place = Place()
) -> Result:
    """Run a recipe's steps, each in a part of the run; a step that was finished before is not done again.

    Args:
        recipe: What to do.
        out: The run's folder; by default `default_folder` of the recipe's title.
        seed: Instead of the recipe's.
        place: Device and dtype.

    Raises:
        BadInput: listing the faults of all steps.
        MissingExtra: a step needs one.
    """
    steps = steps_of(recipe)
    folder = require_folder(Path(out) if out is not None else default_folder(recipe.title))
    request: dict[str, Any] = {"recipe": recipe.model_dump(mode="json", exclude_none=True)}
    if place.dtype != "auto":
        request["dtype"] = place.dtype
    seed = recipe.seed if seed is None else seed
    last = folder / "parts" / _part(len(steps), steps[-1])
    saved = _saved(last, type(steps[-1].method).gives())
    if (found := _finished(folder, request, seed, saved)) is None:
        with Run(folder, request, seed=seed) as run:
            _Chain(steps, run, place).go()
        found = _result(run, saved)
    return replace(found, steps=_done(folder, steps))


def steps_of(recipe: Recipe) -> list[Planned]:
    """A recipe's steps, found right as far as that can be seen without loading anything.

    Raises:
        BadInput: listing the faults of all steps.
        MissingExtra: a step needs one.
    """
    steps = recipe.plan(catalogue.load, goods_faults)
    check(steps)
    return steps


def plan_recipe(recipe: Recipe, out: str | Path | None = None, *, seed: int | None = None) -> Plan:
    """What `run_recipe` would do; everything is checked and nothing is loaded."""
    steps = steps_of(recipe)
    folder = Path(out) if out is not None else default_folder(recipe.title)
    return _plan(steps, folder, recipe.seed if seed is None else seed)


class _Chain:
    """The steps of one recipe. What was done before is read back only when a step that is not done needs it."""

    def __init__(self, steps: Sequence[Planned], run: Run, place: Place) -> None:
        self.steps, self.run = steps, run
        self.shelf = _Shelf(place)
        self.journal = Journal(run.folder / "steps.jsonl")
        self.results: dict[int, Any] = {}

    def go(self) -> None:
        """Do what is not done; the figures of all steps become the run's, with the step's number where two clash."""
        figures: dict[str, Any] = {}
        for number, step in enumerate(self.steps, 1):
            name = _part(number, step)
            if not self._is_done(number):
                self.result(number)
            for figure, value in self.journal[name]["metrics"].items():
                figures[f"{figure}_{number}" if figure in figures else figure] = value
            self.run.metric(**figures)

    def result(self, number: int) -> Any:
        """What a step gives: as it is in memory, else as it was saved, else by doing the step."""
        if number not in self.results:
            step = self.steps[number - 1]
            gives = type(step.method).gives()
            part = self.run.sub(_part(number, step))
            saved = _saved(part.folder, gives)
            if saved is not None and saved.exists() and self._is_done(number):
                self.results[number] = self.shelf.take(gives, str(saved))
            else:
                self.results[number] = self._do(number, step, part)
        return self.results[number]

    def _is_done(self, number: int) -> bool:
        step = self.steps[number - 1]
        name = _part(number, step)
        if name not in self.journal:
            return False
        saved = _saved(self.run.sub(name).folder, type(step.method).gives())
        return saved is None or not self.journal[name]["kept"] or _whole(saved)

    def _do(self, number: int, step: Planned, part: Run) -> Any:
        began = time.monotonic()
        earlier = {source: self.result(source) for source in step.goods.values() if isinstance(source, int)}
        result = _call(step, earlier, self.shelf, part)
        try:
            _keep(result, type(step.method).gives(), part)
            kept = True
        except Unsupported as error:
            # Later steps take it from memory, and a rerun does this step again, from its own journals.
            part.event("not saved", why=error.problem)
            kept = False
        minutes = round((time.monotonic() - began) / 60, 4)
        self.journal.add(_part(number, step), {"metrics": part.metrics, "minutes": minutes, "kept": kept})
        return result


def _part(number: int, step: Planned) -> str:
    return slug(f"{number}-{step.use}")


def _done(folder: Path, steps: Sequence[Planned]) -> list[Done]:
    """What the steps of a finished recipe left behind."""
    journal = Journal(folder / "steps.jsonl")
    found = []
    for number, step in enumerate(steps, 1):
        name = _part(number, step)
        if name not in journal:
            continue
        kept = journal[name]
        saved = _saved(folder / "parts" / name, type(step.method).gives())
        there = saved if saved is not None and saved.exists() else None
        found.append(Done(name, kept["metrics"], kept["minutes"], there))
    return found


# -- what both share --------------------------------------------------------------------------------------------


def check(steps: Sequence[Planned], format: str = PLAIN) -> None:
    """Find everything that is wrong with the steps and can be found without loading anything.

    Raises:
        MissingExtra: a method, or a kind of good, needs an extra that is not installed.
        BadInput: goods that are missing, unknown, of a kind that cannot be named by a string, or not there.
        BurnishError: the model that the last step gives cannot be saved in `format`.
    """
    for step in steps:
        cls = type(step.method)
        kinds = [*(good.kind for good in cls.goods() if good.name in step.goods), cls.gives()]
        brought = [extra for kind in kinds if kind in catalogue.GOODS for extra in catalogue.GOODS[kind].extras]
        require(step.use, *dict.fromkeys([*cls.needs, *brought]))
    faults = []
    for step in steps:
        cls = type(step.method)
        faults += goods_faults(step.use, cls, step.goods)
        lacking = [good for good in cls.goods() if good.required and good.name not in step.goods]
        faults += [f"{step.use} needs {good.name} ({good.kind})" for good in lacking]
        large = [name for name, value in step.method if isinstance(value, int) and not -LARGEST <= value < LARGEST]
        faults += [f"{name}: is too large; generators and files take 64 bits, so less than {LARGEST}" for name in large]
    if faults:
        raise BadInput.of("this cannot be run", faults, f"`burnish show {steps[0].use}` says what it takes")
    last = steps[-1].method
    if type(last).gives() == "Model":
        catalogue.reference("burnish.models:check_export")(last, format)


def goods_faults(use: str, cls: type[Method], goods: Mapping[str, str | int]) -> list[str]:
    """A line for each given good that is unknown, or of which it is seen without loading it that it cannot be loaded."""
    known = {good.name: good for good in cls.goods()}
    lines = []
    for name in sorted(goods.keys() - known.keys()):
        error = UnknownName(f"good of {use}", name, known)
        lines.append(f"{error.problem}; {error.fix}")
    for name, good in known.items():
        source = goods.get(name)
        if not isinstance(source, str):
            continue
        if good.kind not in catalogue.GOODS:
            lines.append(f"{name}: {use} takes a {good.kind}, which only Python can give")
        elif good.kind == "Path" and not Path(source).exists():
            lines.append(f"{name}: there is nothing at {source}")
        elif fault := _source_fault(good.kind, source):
            lines.append(f"{name}: {fault}")
    return lines


def _source_fault(kind: str, source: str) -> str:
    """What is seen to be wrong with a source without loading it; empty when nothing is."""
    how = catalogue.GOODS[kind]
    if how.check and not any(map(missing, how.extras)):
        try:
            catalogue.reference(how.check)(source)
        except BurnishError as error:
            problem = " ".join(error.problem.split())
            return f"{problem}; {error.fix}" if error.fix else problem
    return ""


class _Shelf:
    """Loads each source once."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._loaded: dict[tuple[str, str], Any] = {}

    def take(self, kind: str, source: str, method: type[Method] = Method) -> Any:
        """The good of that kind and source, for a method."""
        if (kind, source) not in self._loaded:
            options = self.place.options() if kind == "Model" else {}
            if admit := catalogue.GOODS[kind].admit:
                catalogue.reference(admit)(source, method, **options)
            self._loaded[kind, source] = catalogue.reference(catalogue.GOODS[kind].load)(source, **options)
        return self._loaded[kind, source]


def _call(step: Planned, earlier: Mapping[int, Any], shelf: _Shelf, run: Run) -> Any:
    """Load the goods of one step, the quickest first, and call its method."""
    kinds = {good.name: good.kind for good in type(step.method).goods()}
    order = list(catalogue.GOODS)
    goods: dict[str, Any] = {}
    for name, source in sorted(step.goods.items(), key=lambda pair: order.index(kinds[pair[0]])):
        goods[name] = earlier[source] if isinstance(source, int) else shelf.take(kinds[name], source, type(step.method))
    act: Any = step.method
    return act(**goods, run=run)


def _keep(result: Any, gives: str, run: Run, format: str = PLAIN) -> None:
    """Write what a method gave into the run's folder, and the figures that its notes hold into the metrics."""
    saved = _saved(run.folder, gives)
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


def prove(run: Run, notify: Callable[[str], None] | None = None) -> None:
    """Load a run's artifact in a fresh process, with the tool that its format is for, and compare.

    Where that tool is not installed, the run's events and `notify` say so.

    Raises:
        Mismatch: it is not the model that was made.
    """
    tell = notify or (lambda line: None)
    try:
        found = catalogue.reference("burnish.models.reload:compare")(run.folder / "artifact")
    except Unsupported as error:
        run.event("not reloaded", why=error.problem)
        tell(f"the saved model was not loaded for a check: {error.problem}; {error.fix}")
        return
    found.require(run.folder)
    run.metric(reload_loader=found.loader, reload_logit_difference=found.logits, reload_kl=found.kl)
    tell(found.said())


def _saved(folder: Path, gives: str) -> Path | None:
    """Where a result of that kind is written in a run's folder; None for kinds that are not."""
    kind = catalogue.GOODS.get(gives)
    return folder / kind.place if kind is not None and kind.save else None


def _finished(
    folder: Path, request: Mapping[str, Any], seed: int, saved: Path | None, format: str = PLAIN
) -> Result | None:
    """The result of the same request, if the folder holds it whole and saved in that format."""
    try:
        state = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        same = state["request"] == json.loads(json.dumps(request)) and state["seed"] == seed
        if not same or state["status"] != "done":
            return None
        metrics, minutes = dict(state["metrics"]), float(state["minutes"])
        if saved is not None and not (_whole(saved) and _format(saved) == format):
            return None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    report = folder / "report.html"
    return Result(folder, metrics, minutes, saved, report if report.exists() else _report(folder), fresh=False)


def _format(saved: Path) -> str:
    """The format in which a result was saved."""
    path = saved.parent / SAVED
    return str(json.loads(path.read_text(encoding="utf-8"))["format"]) if path.exists() else PLAIN


def _whole(saved: Path) -> bool:
    """Whether a result is on disk as it was saved; one that was damaged since is made again."""
    path = saved.parent / SAVED
    if not saved.exists() or not path.exists():
        return saved.exists()
    return bool(json.loads(path.read_text(encoding="utf-8")).get("files") == _digests(saved))


def _digests(saved: Path) -> dict[str, str]:
    """SHA-256 of each file of a result, by its path below the result's folder."""
    files = [saved] if saved.is_file() else [path for path in saved.rglob("*") if path.is_file()]
    return {path.relative_to(saved.parent).as_posix(): sha256(path) for path in sorted(files)}


def _result(run: Run, saved: Path | None) -> Result:
    minutes = json.loads((run.folder / "run.json").read_text(encoding="utf-8"))["minutes"]
    kept = saved if saved is not None and saved.exists() else None
    return Result(run.folder, dict(run.metrics), minutes, kept, _report(run.folder))


def _report(folder: Path) -> Path:
    return Path(catalogue.reference("burnish.report:render")([folder], folder / "report.html"))


def _plan(steps: Iterable[Planned], folder: Path, seed: int) -> Plan:
    rows = []
    for step in steps:
        sources = {name: source for name, source in step.goods.items() if isinstance(source, str)}
        estimate: dict[str, Any] = {}
        own = getattr(step.method, "estimate", None)
        if own is None and isinstance(step.method, Compressor) and "model" in sources:
            own = partial(catalogue.reference("burnish.models.estimate:estimate"), step.method)
        if own is not None:
            try:
                estimate = dict(own(sources))
            except BurnishError as error:
                estimate = {"estimate": f"none: {error.problem}"}
        rows.append(
            {
                "use": step.use,
                "settings": step.method.settings(),
                "goods": {k: v if isinstance(v, str) else f"the result of step {v}" for k, v in step.goods.items()},
                "gives": type(step.method).gives(),
                "estimate": estimate,
            }
        )
    return Plan(folder, seed, rows)
