"""Methods, recipes and claims: everything that is wrong is said at once."""

from __future__ import annotations

from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from burnish.core.claim import judge, settle
from burnish.core.errors import BadInput, BurnishError, MissingExtra, UnknownName
from burnish.core.method import Method
from burnish.core.recipe import Recipe


class Shrink(Method):
    """Make it smaller."""

    bits: Literal[2, 3, 4] = 4
    """Bits."""
    rate: Annotated[float, Field(gt=0)] = 0.5
    """Rate."""

    def __call__(self, model: Model, calib: Dataset, run=None) -> Model:  # noqa: F821
        """Shrink."""


class Measure(Method):
    """Measure it."""

    def __call__(self, model: Model, text: Dataset, against: Model | None = None, run=None) -> Scores:  # noqa: F821
        """Measure."""


METHODS = {"shrink": Shrink, "measure": Measure}


def find(name: str) -> type[Method]:
    if name not in METHODS:
        raise UnknownName("method", name, METHODS)
    return METHODS[name]


def write(tmp_path, text: str):
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    return path


GOOD = """
title = "t"
model = "m"
calib = "c"
text = "x"
[[steps]]
use = "shrink"
bits = 3
[[steps]]
use = "measure"
against = "@model"
"""


def test_goods_are_read_off_the_call() -> None:
    assert [(g.name, g.kind, g.required) for g in Measure.goods()] == [
        ("model", "Model", True),
        ("text", "Dataset", True),
        ("against", "Model", False),
    ]
    assert Measure.gives() == "Scores"


def test_steps_hand_their_goods_on(tmp_path) -> None:
    first, second = Recipe.read(write(tmp_path, GOOD)).plan(find)
    assert first.method == Shrink(bits=3)
    assert first.goods == {"model": "m", "calib": "c"}
    assert second.goods == {"model": 1, "text": "x", "against": "m"}


def test_changes_from_the_command_line(tmp_path) -> None:
    recipe = Recipe.read(write(tmp_path, GOOD), ["steps.1.bits=2", "model=other", "title=my words"])
    first, second = recipe.plan(find)
    assert first.method == Shrink(bits=2)
    assert second.goods["against"] == "other"
    assert recipe.title == "my words"


@pytest.mark.parametrize(
    "change", ["steps.3.bits=2", "steps.x.bits=2", "steps.².bits=2", "nothing.bits=2", "bits", "=2", "title.x=1"]
)
def test_changes_that_lead_nowhere(tmp_path, change: str) -> None:
    with pytest.raises(BadInput, match="--set") as caught:
        Recipe.read(write(tmp_path, GOOD), [change])
    assert caught.value.fix


def test_the_title_tells_what_was_changed(tmp_path) -> None:
    path = write(tmp_path, GOOD)
    assert Recipe.read(path, ["steps.1.bits=2", "model=m"]).title == "t (with steps.1.bits=2)"
    assert Recipe.read(path, ["steps.1.bits=3"]).title == "t"


def test_all_faults_of_all_steps_at_once(tmp_path) -> None:
    text = """
title = "t"
spare = "nobody takes this"
[[steps]]
use = "shrnk"
[[steps]]
use = "shrink"
bits = 5
rate = -1
bitz = 3
[[steps]]
use = "measure"
model = "@9"
"""
    with pytest.raises(BadInput) as caught:
        Recipe.read(write(tmp_path, text)).plan(find)
    said = caught.value.problem
    for part in (
        "did you mean shrink",
        "step 2 (shrink): bits",
        "step 2 (shrink): rate",
        "bitz: there is no such setting; did you mean bits?",
        "step 2 (shrink): needs calib",
        "no earlier step has that number",
        "step 3 (measure): needs text",
        "spare: no step takes",
    ):
        assert part in said, (part, said)


def test_steps_point_only_back_and_only_at_what_fits(tmp_path) -> None:
    steps = """
title = "t"
model = 3
calib = "@1"
[[steps]]
use = "shrink"
model = "@2"
[[steps]]
use = "shrink"
model = "@2"
calib = "@1"
[[steps]]
use = "measure"
model = 7
text = "@model"
"""
    with pytest.raises(BadInput) as caught:
        Recipe.read(write(tmp_path, steps)).plan(find)
    lines = [line.strip() for line in caught.value.problem.splitlines()[1:]]
    assert len(lines) == 7, lines
    for part in (
        "model: a good is named by a text in quotes (you gave 3)",
        "calib = '@1': only a step",
        "step 1 (shrink): model = '@2': no earlier step has that number; a step takes only what one before it gave",
        "step 2 (shrink): model = '@2': no earlier step",
        "step 2 (shrink): calib = '@1': step 1 gives a Model, and a Dataset is needed",
        "step 3 (measure): model: a Model is named by a text in quotes (you gave 7)",
        "step 3 (measure): text = '@model': the recipe has no 'model' at the top",
    ):
        assert any(line.startswith(part) for line in lines), (part, lines)
    assert caught.value.fix


def test_what_is_seen_of_goods_without_loading_them_is_among_the_faults(tmp_path) -> None:
    asked = Recipe.read(write(tmp_path, GOOD), ["steps.1.bits=5"])
    with pytest.raises(BadInput) as caught:
        asked.plan(find, lambda use, cls, goods: [f"{name} is gone" for name in goods if name in ("calib", "text")])
    for part in ("step 1 (shrink): calib is gone", "step 1 (shrink): bits", "step 2 (measure): text is gone"):
        assert part in caught.value.problem


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("title = ", "is not TOML"),
        ("title = 't'", "is not a recipe"),
        ("a = " + "[" * 3000 + "]" * 3000, "nested too deep"),
        ("seed = " + "9" * 5000, "is not TOML"),
        ("#" * 2_000_000, "more than"),
        ("title = 3\nseed = 'x'\nminutes = -1\nsteps = [1, {}]", "(?s)title: .*minutes: .*seed: .*step 1: .*step 2: "),
    ],
)
def test_files_that_are_no_recipe(tmp_path, text: str, match: str) -> None:
    with pytest.raises(BadInput, match=match) as caught:
        Recipe.read(write(tmp_path, text))
    assert caught.value.fix


def test_files_that_are_not_read(tmp_path) -> None:
    (tmp_path / "latin").write_bytes(b"title = '\xff'")
    for path, match in (
        (tmp_path, "is a folder"),
        ("/dev/zero", "more than"),
        (tmp_path / "latin", "UTF-8: byte 0xff"),
    ):
        with pytest.raises(BadInput, match=match) as caught:
            Recipe.read(path)
        assert caught.value.fix


def test_a_byte_order_mark_and_windows_lines_are_no_fault(tmp_path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    assert Recipe.read(path) == Recipe.read(write(tmp_path, GOOD))


def test_a_recipe_that_is_not_there(tmp_path) -> None:
    with pytest.raises(BadInput, match="no recipe file"):
        Recipe.read(tmp_path / "none.toml")


def test_two_bad_settings_are_both_named() -> None:
    with pytest.raises(BadInput) as caught:
        Shrink.build({"bits": 5, "rate": 0})
    assert "bits" in caught.value.problem
    assert "rate" in caught.value.problem
    assert "5" in caught.value.problem


def test_errors_say_what_to_do() -> None:
    assert 'pip install "burnish[chem]"' in MissingExtra("diffms", "chem").fix
    assert UnknownName("method", "boaa", ["boa", "gptq"]).fix == "did you mean boa?"
    assert MissingExtra("x", "chem").exit_code == 3
    assert BurnishError("p", "f").exit_code == 2


@given(st.floats(-5, 5), st.floats(0, 3), st.floats(-5, 5))
def test_verdicts_follow_the_interval(low: float, width: float, margin: float) -> None:
    high = low + width
    below = judge(low, high, margin, "below")
    assert (below == "holds") == (high < margin)
    assert (below == "does not hold") == (low > margin)
    mirrored = judge(-high, -low, -margin, "above")
    assert mirrored == below


def test_a_claim_needs_all_its_criteria() -> None:
    assert settle(["holds", "holds"]) == "holds"
    assert settle(["holds", "undecided"]) == "undecided"
    assert settle(["undecided", "does not hold"]) == "does not hold"
    assert settle([]) == "undecided"
