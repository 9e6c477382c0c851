"""Every method of the catalogue passes the admission checks, and every recipe that comes with burnish plans."""

from __future__ import annotations

import pytest

from burnish import catalogue
from burnish.core.recipe import Recipe
from burnish.testing import checks_for

QUICK = {"quarot": {"weights": "gptq"}, "flatquant": {"epochs": 1}, "quest": {"steps": 2}}
"""Settings that reach a method's own loop, where its defaults would not."""

CASES = [
    pytest.param(name, check, id=f"{name}-{check.__name__}")
    for name in catalogue.METHODS
    for check in checks_for(catalogue.load(name))
]


@pytest.mark.parametrize(("name", "check"), CASES)
def test_method(name: str, check) -> None:
    check(catalogue.load(name), QUICK.get(name, {}))


@pytest.mark.parametrize("path", sorted(catalogue.RECIPES.glob("*/*.toml")), ids=lambda path: path.stem)
def test_recipe_plans(path) -> None:
    recipe = Recipe.read(path)
    steps = recipe.plan(catalogue.load)
    assert recipe.minutes
    assert steps[0].use.replace(" ", "-") == path.stem


def test_every_paper_method_has_a_recipe() -> None:
    compressors = {name for name, target in catalogue.METHODS.items() if target.startswith("burnish.compress")}
    assert compressors <= {path.stem for path in catalogue.RECIPES.glob("*/*.toml")}
