"""Running the steps of a recipe, each once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from burnish import catalogue
from burnish.core.errors import Unsupported
from burnish.core.files import require_folder
from burnish.core.journal import Journal
from burnish.core.recipe import Planned, Recipe
from burnish.core.run import Run, slug
from burnish.workflow.goods import ANYWHERE, Place, Shelf, call, check, goods_faults
from burnish.workflow.plan import Plan, plan_of
from burnish.workflow.results import Done, Result, default_folder, finished, keep, result_of, saved_at, whole


def run_recipe(
    recipe: Recipe, out: str | Path | None = None, *, seed: int | None = None, place: Place = ANYWHERE
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
    last = folder / "parts" / part_name(len(steps), steps[-1])
    saved = saved_at(last, type(steps[-1].method).gives())
    if (found := finished(folder, request, seed, saved)) is None:
        with Run(folder, request, seed=seed) as run:
            _Chain(steps, run, place).go()
        found = result_of(run, saved)
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
    return plan_of(steps, folder, recipe.seed if seed is None else seed)


class _Chain:
    """The steps of one recipe. What was done before is read back only when a step that is not done needs it."""

    def __init__(self, steps: Sequence[Planned], run: Run, place: Place) -> None:
        self.steps, self.run = steps, run
        self.shelf = Shelf(place)
        self.journal = Journal(run.folder / "steps.jsonl")
        self.results: dict[int, Any] = {}

    def go(self) -> None:
        """Do what is not done; the figures of all steps become the run's, with the step's number where two clash."""
        figures: dict[str, Any] = {}
        for number, step in enumerate(self.steps, 1):
            name = part_name(number, step)
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
            part = self.run.sub(part_name(number, step))
            saved = saved_at(part.folder, gives)
            if saved is not None and saved.exists() and self._is_done(number):
                self.results[number] = self.shelf.take(gives, str(saved))
            else:
                self.results[number] = self._do(number, step, part)
        return self.results[number]

    def _is_done(self, number: int) -> bool:
        step = self.steps[number - 1]
        name = part_name(number, step)
        if name not in self.journal:
            return False
        saved = saved_at(self.run.sub(name).folder, type(step.method).gives())
        return saved is None or not self.journal[name]["kept"] or whole(saved)

    def _do(self, number: int, step: Planned, part: Run) -> Any:
        began = time.monotonic()
        earlier = {source: self.result(source) for source in step.goods.values() if isinstance(source, int)}
        result = call(step, earlier, self.shelf, part)
        try:
            keep(result, type(step.method).gives(), part)
            kept = True
        except Unsupported as error:
            # Later steps take it from memory, and a rerun does this step again, from its own journals.
            part.event("not saved", why=error.problem)
            kept = False
        minutes = round((time.monotonic() - began) / 60, 4)
        self.journal.add(part_name(number, step), {"metrics": part.metrics, "minutes": minutes, "kept": kept})
        return result


def part_name(number: int, step: Planned) -> str:
    """What a step's part of the run is called."""
    return slug(f"{number}-{step.use}")


def _done(folder: Path, steps: Sequence[Planned]) -> list[Done]:
    """What the steps of a finished recipe left behind."""
    journal = Journal(folder / "steps.jsonl")
    found = []
    for number, step in enumerate(steps, 1):
        name = part_name(number, step)
        if name not in journal:
            continue
        kept = journal[name]
        saved = saved_at(folder / "parts" / name, type(step.method).gives())
        there = saved if saved is not None and saved.exists() else None
        found.append(Done(name, kept["metrics"], kept["minutes"], there))
    return found
