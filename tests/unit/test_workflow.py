"""Recipes and the workflow, with made-up methods that need no torch."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from made_up import CALLS, Burnish, Count, Halve, Longest, burnish, methods

from burnish import catalogue, workflow
from burnish.core.errors import BadInput, MissingExtra
from burnish.core.recipe import Recipe
from burnish.core.run import Run
from burnish.data.scores import Scores

__all__ = ["burnish", "methods"]
"""Fixtures; `methods` is used by every test here."""

# -- recipes ----------------------------------------------------------------------------------------------------

RECIPE = """
title = "Count, then look"
file = "t.txt"

[[steps]]
use = "count"
least = 2

[[steps]]
use = "longest"
"""


@pytest.fixture
def recipe() -> str:
    Path("r.toml").write_text(RECIPE)
    return "r.toml"


def test_a_recipe_hands_results_on_and_keeps_each_steps_own(recipe: str, burnish: Burnish) -> None:
    code, _, err = burnish("run", recipe)
    assert code == 0, err
    assert "run folder: runs/r" in err
    state = json.loads(Path("runs/r/run.json").read_text())
    assert state["metrics"] == {"words": 3, "mean": 17 / 3, "letters": 9, "words_2": 1, "mean_2": 17 / 3}
    assert state["request"]["recipe"]["steps"][0] == {"use": "count", "least": 2}
    for part in ("1-count", "2-longest"):
        assert Path("runs/r/parts", part, "items.parquet").exists()
    assert "finished before" in burnish("run", recipe)[1]
    assert CALLS == ["count t.txt", "longest"]


def test_a_stopped_recipe_does_not_do_its_finished_steps_again(recipe: str) -> None:
    asked = Recipe.read(recipe)
    real = Longest.__call__
    try:
        Longest.__call__ = _stop  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            workflow.run_recipe(asked, "r")
    finally:
        Longest.__call__ = real  # type: ignore[method-assign]
    assert workflow.run_recipe(asked, "r").metrics["letters"] == 9
    assert CALLS == ["count t.txt", "longest"]


def _stop(self: Longest, scores: Scores, run: Run | None = None) -> Scores:
    raise KeyboardInterrupt


@pytest.mark.parametrize("harm", [Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:-9])])
def test_a_finished_step_whose_result_is_gone_or_damaged_is_done_again(recipe: str, harm) -> None:
    asked = Recipe.read(recipe)
    workflow.run_recipe(asked, "r")
    for part in ("1-count", "2-longest"):
        harm(Path("r/parts", part, "items.parquet"))
    assert workflow.run_recipe(asked, "r").metrics["letters"] == 9
    assert CALLS == ["count t.txt", "longest"] * 2


def test_a_model_that_cannot_be_saved_is_still_handed_on() -> None:
    Path("m.txt").write_text("unsaveable " * 8)
    steps = [{"use": "halve"}, {"use": "halve"}, {"use": "halve"}]
    asked = Recipe.model_validate({"title": "Halve", "model": "m.txt", "steps": steps})
    result = workflow.run_recipe(asked, "r")
    assert result.fresh
    assert result.saved is None
    assert "not saved" in Path("r/parts/1-halve/events.jsonl").read_text()
    assert CALLS == ["halve"] * 3


def test_all_faults_of_a_recipe_are_said_before_anything_runs(recipe: str, burnish: Burnish) -> None:
    code, _, err = burnish("run", recipe, "--set", "steps.1.bits=7", "--set", "steps.2.use=cuont")
    assert code == 2
    assert "bits" in err
    assert "cuont" in err
    assert CALLS == []
    for command in (["recipe", "check"], ["run"]):
        code, _, err = burnish(*command, recipe, "--set", "file=nowhere.txt", "--set", "steps.2.scores=gone")
        assert code == 2
        assert "step 1 (count): file: there is nothing at nowhere.txt" in err
        assert "step 2 (longest): scores: no scores at gone" in err
    assert CALLS == []


def test_recipes_are_listed_copied_and_checked(
    recipe: str, burnish: Burnish, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "comes with no recipes" in burnish("recipe", "list")[1] or catalogue.recipes()
    monkeypatch.setattr(catalogue, "RECIPES", tmp_path / "recipes")
    path = tmp_path / "recipes" / "evaluate" / "look.toml"
    path.parent.mkdir(parents=True)
    path.write_text(RECIPE)
    assert json.loads(burnish("recipe", "list", "--json")[1])[0]["steps"] == "count → longest"
    assert burnish("recipe", "copy", "look", "mine.toml")[0] == 0
    assert Path("mine.toml").read_text() == RECIPE
    assert burnish("recipe", "copy", "look", "mine.toml")[0] == 2
    assert "2 steps, no faults" in burnish("recipe", "check", "mine.toml")[1]
    assert burnish("run", "look", "--dry-run")[0] == 0
    assert CALLS == []


# -- the workflow from Python -----------------------------------------------------------------------------------


def test_goods_that_are_missing_or_unknown_are_named() -> None:
    with pytest.raises(BadInput) as caught:
        workflow.run_method("count", Count(), {"fiel": "t.txt", "other": "gone"}, "r")
    for text in ("no good of count called 'fiel'; did you mean file?", "there is nothing at gone", "count needs file"):
        assert text in caught.value.problem
    assert not Path("r").exists()


def test_an_extra_that_a_good_needs_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(catalogue.EXTRAS, "models", ("no_such_torch",))
    kind = catalogue.GoodKind("light_parts:read", "light_parts:write", "artifact", ("models",))
    monkeypatch.setitem(catalogue.GOODS, "Model", kind)
    with pytest.raises(MissingExtra):
        workflow.run_method("halve", Halve(), {"model": "t.txt"}, "r")


def test_device_and_dtype_reach_the_loader_only_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, Any]] = []
    monkeypatch.setattr(sys.modules["light_parts"], "read", lambda source, **options: seen.append(options) or "abcd")
    workflow.run_method("halve", Halve(), {"model": "t.txt"}, "a")
    workflow.run_method("halve", Halve(), {"model": "t.txt"}, "b", place=workflow.Place("cpu", "float16"))
    assert seen == [{}, {"device": "cpu", "dtype": "float16"}]
    assert json.loads(Path("b/run.json").read_text())["request"]["dtype"] == "float16"


def test_what_each_step_gave_is_shown(recipe: str, burnish: Burnish) -> None:
    out = burnish("run", recipe)[1]
    first, second = out.index("Step 1: count"), out.index("Step 2: longest")
    assert first < out.index("saved: runs/r/parts/1-count/items.parquet") < second
    assert second < out.index("saved: runs/r/parts/2-longest/items.parquet")


def test_the_changes_of_a_recipe_stand_in_its_title(recipe: str) -> None:
    asked = Recipe.read(recipe, ["steps.1.least=3"])
    assert asked.title == "Count, then look (with steps.1.least=3)"


def test_a_folder_does_not_hide_a_recipe_that_comes_with_burnish(burnish: Burnish) -> None:
    Path("interval").mkdir()
    assert burnish("recipe", "check", "interval")[0] == 0
    assert "is a folder" in burnish("recipe", "check", ".")[2]


def test_a_recipe_is_called_like_its_method_with_hyphens() -> None:
    for name, path in catalogue.recipes().items():
        uses = [step.use for step in Recipe.read(path).steps]
        verbs = {use.replace(" ", "-"): catalogue.find(use).verb for use in uses}
        assert verbs[name] == path.parent.name
