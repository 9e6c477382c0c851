"""Commands for recipes: run, and recipe list, copy and check."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated

from cyclopts import App, Group, Parameter

from burnish import catalogue
from burnish.cli import look
from burnish.cli.flags import (
    OPTIONS,
    DeviceFlag,
    DryRunFlag,
    DtypeFlag,
    JsonFlag,
    OutFlag,
    ThreadsFlag,
)
from burnish.core.errors import BadInput
from burnish.core.files import write_text


def register(app: App, do: Group) -> None:
    """Add these commands; `do` is the group of those that work."""
    app.command(run, group=do)
    group = App(name="recipe", help="List, copy and check recipes.", help_format="plaintext")
    group.command(list_, name="list")
    group.command(copy)
    group.command(check)
    app.command(group)


SetFlag = Annotated[
    list[str] | None,
    Parameter(name="--set", help="Change a key, such as steps.1.bits=2; may be repeated.", negative=""),
]


def run(
    file: str,
    /,
    *,
    changes: SetFlag = None,
    out: OutFlag = None,
    seed: Annotated[int | None, Parameter(help="Instead of the recipe's seed.", group=OPTIONS)] = None,
    device: DeviceFlag = "auto",
    dtype: DtypeFlag = "auto",
    threads: ThreadsFlag = None,
    dry_run: DryRunFlag = False,
) -> None:
    """Run a recipe: several methods, one after the other.

    Parameters
    ----------
    file
        A TOML file, or the name of a recipe that comes with burnish.
    """
    from burnish import workflow
    from burnish.cli import results
    from burnish.core.recipe import Recipe

    recipe = Recipe.read(path := _find(file), changes or ())
    folder = out or workflow.default_folder(path.stem)
    if dry_run:
        results.show_plan(workflow.plan_recipe(recipe, folder, seed=seed))
        return
    look.note(f"run folder: {folder}")
    place = workflow.Place(device, dtype, look.note)
    results.show(workflow.run_recipe(recipe, folder, seed=seed, place=place))


def list_(*, json: JsonFlag = False) -> None:
    """List the recipes that come with burnish."""
    rows = []
    for name, path in catalogue.recipes().items():
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
        steps = " → ".join(step["use"] for step in raw["steps"])
        rows.append({"recipe": name, "title": raw["title"], "steps": steps, "minutes": raw.get("minutes")})
    if json:
        look.as_json(rows)
    elif rows:
        look.records(rows)
    else:
        look.say("this version of burnish comes with no recipes")


def copy(name: str, file: Path, /) -> None:
    """Copy a recipe that comes with burnish, to change it.

    Parameters
    ----------
    name
        The recipe.
    file
        The new file.
    """
    if file.exists() or file.is_symlink():
        raise BadInput(f"{file} is there already", "choose another file")
    write_text(file, catalogue.recipe(name).read_text(encoding="utf-8"))
    look.say(f"{file}: run it with `burnish run {file}`")


def check(file: str, /, *, changes: SetFlag = None) -> None:
    """Find everything that is wrong with a recipe, without running it.

    Parameters
    ----------
    file
        A TOML file, or the name of a recipe that comes with burnish.
    """
    from burnish import workflow
    from burnish.core.recipe import Recipe

    steps = workflow.steps_of(Recipe.read(_find(file), changes or ()))
    look.say(f"{file}: {len(steps)} step{'s' * (len(steps) != 1)}, no faults")


def _find(file: str) -> Path:
    """The recipe's path: a file, or one that comes with burnish, which a folder of the same name does not hide."""
    path = Path(file)
    known = file.replace(" ", "-") in catalogue.recipes()
    if (path.exists() and not (known and path.is_dir())) or path.suffix or len(path.parts) > 1:
        return path
    return catalogue.recipe(file)
