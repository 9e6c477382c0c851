"""A recipe: a TOML file that names methods, their settings and their goods, checked before anything runs.

    title = "BoA at 3 bits, and what it costs"
    model = "smollm2-135m"
    minutes = 8

    [[steps]]
    use = "boa"
    bits = 3
    calib = "builtin:calibration"

    [[steps]]
    use = "divergence"
    text = "builtin:test"
    against = "@model"

A step's goods are found by name: its own key, else the recipe's key of that name, else, for a good of the kind that the
step before gives, that step's result. ``@model`` is the recipe's own good of that name and ``@1`` the result of step 1.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from burnish.core.errors import BadInput, BurnishError
from burnish.core.method import Good, Method, faults


class Step(BaseModel):
    """One method of a recipe; every key but `use` is a setting or a good."""

    model_config = ConfigDict(extra="allow", frozen=True)

    use: str

    @property
    def given(self) -> dict[str, Any]:
        """Settings and goods, as written."""
        return dict(self.model_extra or {})


class Planned(BaseModel):
    """A step that was found right: its method, and where each good comes from."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    use: str
    method: Method
    goods: dict[str, str | int]
    """Good's name to a source to load, or to the number (from 1) of the step that gives it."""


class Recipe(BaseModel):
    """Title, goods and steps."""

    model_config = ConfigDict(extra="allow", frozen=True, use_attribute_docstrings=True)

    title: str
    """What it does, for people."""
    minutes: float | None = None
    """About how long it takes on two CPU cores."""
    seed: int = 0
    steps: list[Step] = Field(min_length=1)

    @classmethod
    def read(cls, path: str | Path, changes: Iterable[str] = ()) -> Recipe:
        """Read a recipe file; `changes` are like ``steps.1.bits=2`` (steps count from 1).

        Raises:
            BadInput: naming the file and every fault.
        """
        path = Path(path)
        try:
            raw = tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise BadInput(
                f"there is no recipe file {path}", "`burnish list` names the recipes that come with burnish"
            ) from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise BadInput(f"{path} is not TOML: {error}") from None
        for change in changes:
            _apply(raw, change)
        try:
            return cls.model_validate(raw)
        except ValidationError as error:
            raise BadInput.of(f"{path} is not a recipe", faults(error)) from None

    @property
    def goods(self) -> dict[str, str]:
        """Goods that stand at the top of the recipe, by name."""
        return {name: str(value) for name, value in (self.model_extra or {}).items()}

    def plan(self, load: Callable[[str], type[Method]]) -> list[Planned]:
        """Build every step's method and find every good.

        Args:
            load: Name to method class.

        Raises:
            BadInput: listing all faults of all steps.
        """
        planned: list[Planned] = []
        wrong: list[str] = []
        kinds: list[str] = []
        used: set[str] = set()
        for number, step in enumerate(self.steps, 1):
            where = f"step {number} ({step.use})"
            try:
                cls = load(step.use)
            except BurnishError as error:
                wrong.append(f"{where}: {error.problem}" + (f"; {error.fix}" if error.fix else ""))
                kinds.append("")
                continue
            given = step.given
            goods: dict[str, str | int] = {}
            for good in cls.goods():
                source = self._source(good, given.pop(good.name, None), kinds, used)
                if isinstance(source, BadInput):
                    wrong.append(f"{where}: {source.problem}")
                elif source is not None:
                    goods[good.name] = source
                elif good.required:
                    wrong.append(
                        f"{where}: needs {good.name} ({good.kind}); give `{good.name} = …` in the step or at the top"
                    )
            try:
                method = cls.build(given)
            except BadInput as error:
                wrong += [f"{where}: {line.strip()}" for line in error.problem.splitlines()[1:]]
            else:
                planned.append(Planned(use=step.use, method=method, goods=goods))
            kinds.append(cls.gives())
        wrong += [f"{name}: no step takes a good of this name" for name in self.goods if name not in used]
        if wrong:
            raise BadInput.of(f"the recipe {self.title!r} has {len(wrong)} fault{'s' * (len(wrong) > 1)}", wrong)
        return planned

    def _source(self, good: Good, own: Any, kinds: list[str], used: set[str]) -> str | int | BadInput | None:
        if isinstance(own, str) and own.startswith("@"):
            name = own[1:]
            if name.isdigit():
                if 1 <= int(name) <= len(kinds):
                    return int(name)
                return BadInput(f"{good.name} = {own!r}: no earlier step has that number")
            if name not in self.goods:
                return BadInput(f"{good.name} = {own!r}: the recipe has no {name!r} at the top")
            used.add(name)
            return self.goods[name]
        if own is not None:
            return str(own)
        if kinds and good.kind in kinds:
            last = len(kinds) - kinds[::-1].index(good.kind)
            if good.name in self.goods:
                used.add(good.name)
            return last
        if good.name in self.goods:
            used.add(good.name)
            return self.goods[good.name]
        return None


def _apply(raw: dict[str, Any], change: str) -> None:
    key, equals, text = change.partition("=")
    if not equals:
        raise BadInput(f"--set {change}: there is no = in it", "write it as steps.1.bits=2")
    try:
        value = tomllib.loads(f"v = {text}")["v"]
    except tomllib.TOMLDecodeError:
        value = text
    at: Any = raw
    *way, last = key.strip().split(".")
    for part in way:
        at = _into(at, part, change)
    if isinstance(at, list):
        at[_index(at, last, change)] = value
    else:
        at[last] = value


def _into(at: Any, part: str, change: str) -> Any:
    if isinstance(at, list):
        return at[_index(at, part, change)]
    if isinstance(at, Mapping) and part in at:
        return at[part]
    raise BadInput(f"--set {change}: there is no {part!r} in the recipe")


def _index(at: list[Any], part: str, change: str) -> int:
    if part.isdigit() and 1 <= int(part) <= len(at):
        return int(part) - 1
    raise BadInput(f"--set {change}: {part!r} is no step", f"steps count from 1 to {len(at)}")
