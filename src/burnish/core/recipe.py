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

import difflib
import math
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from burnish.core.errors import BadInput, BurnishError, UnknownName
from burnish.core.method import Good, Method

LARGEST = 1_000_000
"""Bytes of the largest recipe; a larger file is something else."""
EXAMPLE = "`burnish recipe copy boa my.toml` writes a recipe that works"
"""What to do about a file that is none."""
MOST_SHOWN = 80
"""Characters of a wrong value that are shown."""


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
        """Read a recipe file; `changes` are like ``steps.1.bits=2`` (steps count from 1), and the title tells of them.

        Raises:
            BadInput: naming the file and every fault.
        """
        raw = _parsed(Path(path))
        made, wrong = [], []
        for change in changes:
            try:
                made += [change] if _apply(raw, change) else []
            except BadInput as error:
                wrong.append(f"--set {change}: {error.problem}; {error.fix}")
        wrong += _form_faults(raw)
        if wrong:
            raise BadInput.of(f"{path} is not a recipe that can be run", wrong, f"mend them; {EXAMPLE}")
        if made and not any(change.startswith("title=") for change in made):
            raw["title"] += f" (with {', '.join(made)})"
        return cls.model_validate(raw)

    @property
    def goods(self) -> dict[str, str]:
        """Goods that stand at the top of the recipe, by name; those that name nothing are left out."""
        extra = (self.model_extra or {}).items()
        return {name: value for name, value in extra if isinstance(value, str) and not value.startswith("@")}

    def plan(
        self,
        load: Callable[[str], type[Method]],
        check: Callable[[str, type[Method], Mapping[str, str | int]], list[str]] = lambda use, cls, goods: [],
    ) -> list[Planned]:
        """Build every step's method and find every good.

        Args:
            load: Name to method class.
            check: A line for each fault of a step's goods that can be seen without loading them.

        Raises:
            BadInput: listing all faults of all steps.
        """
        planned: list[Planned] = []
        wrong = self._top_faults()
        kinds: list[str | None] = []
        used: set[str] = set()
        for number, step in enumerate(self.steps, 1):
            where = f"step {number} ({step.use})"
            try:
                cls = load(step.use)
            except BurnishError as error:
                wrong.append(f"{where}: {error.problem}" + (f"; {error.fix}" if error.fix else ""))
                kinds.append(None)
                continue
            given = step.given
            goods: dict[str, str | int] = {}
            for good in cls.goods():
                used.add(good.name)
                source = self._source(good, given.pop(good.name, None), kinds, used)
                if isinstance(source, BadInput):
                    wrong.append(f"{where}: {source.problem}")
                elif source is not None:
                    goods[good.name] = source
                elif good.required and good.name not in (self.model_extra or {}):
                    wrong.append(
                        f"{where}: needs {good.name} ({good.kind}); give `{good.name} = …` in the step or at the top"
                    )
            wrong += [f"{where}: {line}" for line in check(step.use, cls, goods)]
            try:
                method = cls.build(given)
            except BadInput as error:
                wrong += [f"{where}: {line.strip()}" for line in error.problem.splitlines()[1:]]
            else:
                planned.append(Planned(use=step.use, method=method, goods=goods))
            kinds.append(cls.gives())
        wrong += [f"{name}: no step takes a good of this name" for name in self.goods if name not in used]
        if wrong:
            raise BadInput.of(
                f"the recipe {self.title!r} has {len(wrong)} fault{'s' * (len(wrong) > 1)}",
                wrong,
                "mend them in the file, or by --set steps.1.KEY=VALUE; `burnish show METHOD` lists a method's settings and goods",
            )
        return planned

    def _top_faults(self) -> list[str]:
        """A line for each key at the top that names no good."""
        lines = []
        for name, value in (self.model_extra or {}).items():
            near = difflib.get_close_matches(name, type(self).model_fields, n=1, cutoff=0.6)
            if not isinstance(value, str):
                hint = f"did you mean {near[0]}?" if near else "settings stand below [[steps]]"
                lines.append(f"{name}: a good is named by a text in quotes (you gave {_shown(value)}); {hint}")
            elif value.startswith("@"):
                lines.append(f"{name} = {value!r}: only a step can take another step's result; name a source here")
        return lines

    def _source(self, good: Good, own: Any, kinds: list[str | None], used: set[str]) -> str | int | BadInput | None:
        """Where a good comes from; `kinds` are what the steps before give, None where that is not known."""
        if own is not None and not isinstance(own, str):
            return BadInput(f"{good.name}: a {good.kind} is named by a text in quotes (you gave {_shown(own)})")
        if own is not None and own.startswith("@"):
            name = own[1:]
            if name.isascii() and name.isdigit():
                return self._of_step(good, own, kinds)
            if name not in self.goods:
                return BadInput(f"{good.name} = {own!r}: the recipe has no {name!r} at the top")
            used.add(name)
            return self.goods[name]
        if own is not None:
            return own
        if good.kind in kinds:
            return len(kinds) - kinds[::-1].index(good.kind)
        return self.goods.get(good.name)

    def _of_step(self, good: Good, own: str, kinds: list[str | None]) -> int | BadInput:
        """The number of an earlier step whose result is meant, if that is of the right kind."""
        known = {str(number): number for number in range(1, len(self.steps) + 1)}
        number = known.get(own[1:].lstrip("0"))
        if number is None or number > len(kinds):
            what = f"there are {len(known)} steps" if number is None else "a step takes only what one before it gave"
            return BadInput(f"{good.name} = {own!r}: no earlier step has that number; {what}")
        gives = kinds[number - 1]
        if gives is None or gives == good.kind or (gives, good.kind) == ("Scores", "Table"):
            return number
        return BadInput(
            f"{good.name} = {own!r}: step {number} gives {f'a {gives}' if gives else 'nothing'}, and a {good.kind} is needed"
        )


def _parsed(path: Path) -> dict[str, Any]:
    """What a TOML file holds."""
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except FileNotFoundError:
        raise BadInput(
            f"there is no recipe file {path}", "`burnish recipe list` names the recipes that come with burnish"
        ) from None
    except IsADirectoryError:
        raise BadInput(f"{path} is a folder, and a recipe is a TOML file", EXAMPLE) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise BadInput(f"{path} cannot be read: {reason}", "check the path and its permissions") from None
    if len(data) > LARGEST:
        raise BadInput(f"{path} holds more than {LARGEST:,} bytes, and so is no recipe", EXAMPLE)
    try:
        return tomllib.loads(data.decode("utf-8-sig").replace("\r\n", "\n"))
    except UnicodeDecodeError as error:
        raise BadInput(
            f"{path} is not text in UTF-8: byte 0x{data[error.start]:02x} at offset {error.start}", "save it as UTF-8"
        ) from None
    except RecursionError:
        raise BadInput(f"{path} is no recipe: its values are nested too deep", EXAMPLE) from None
    except ValueError as error:
        raise BadInput(f"{path} is not TOML: {error}", f"mend that place; {EXAMPLE}") from None


def _form_faults(raw: Mapping[str, Any]) -> list[str]:
    """A line for each part of a recipe that has not the form of one; what the steps say is not looked at."""
    lines = []
    title, minutes, seed, steps = raw.get("title"), raw.get("minutes"), raw.get("seed", 0), raw.get("steps")
    if not isinstance(title, str) or not title.strip():
        given = "" if title is None else f" (you gave {_shown(title)})"
        lines.append(f'title: say what the recipe does, as in title = "BoA at 3 bits"{given}')
    if minutes is not None and not (_is_number(minutes) and 0 <= minutes < math.inf):
        lines.append(f"minutes: give a number of at least 0, or leave it out (you gave {_shown(minutes)})")
    if isinstance(seed, bool) or not isinstance(seed, int):
        lines.append(f"seed: give a whole number, or leave it out (you gave {_shown(seed)})")
    if not isinstance(steps, list) or not steps:
        lines.append('steps: there are none; write each as [[steps]] with use = "METHOD" below it')
    else:
        for number, step in enumerate(steps, 1):
            if not isinstance(step, Mapping):
                lines.append(f"step {number}: give settings below [[steps]] (you gave {_shown(step)})")
            elif not isinstance(step.get("use"), str):
                lines.append(f'step {number}: names no method; write use = "METHOD" below [[steps]]')
    return lines


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= MOST_SHOWN else text[: MOST_SHOWN - 1] + "…"


def _apply(raw: dict[str, Any], change: str) -> bool:
    """Make one change; returns whether anything is different now."""
    key, equals, text = change.partition("=")
    way = key.strip().split(".")
    if not equals or not all(way):
        raise BadInput("that is not KEY=VALUE", "write it as steps.1.bits=2")
    try:
        value = tomllib.loads(f"v = {text}")["v"]
    except (ValueError, RecursionError):
        value = text
    at: Any = raw
    for part in way[:-1]:
        at = _into(at, part)
    last: Any = _index(at, way[-1]) if isinstance(at, list) else way[-1]
    if not isinstance(at, list | dict):
        raise BadInput(f"{'.'.join(way[:-1])} has no parts", "write it as steps.1.bits=2")
    before = at[last] if isinstance(at, list) else at.get(last)
    at[last] = value
    return bool(before != value)


def _into(at: Any, part: str) -> Any:
    if isinstance(at, list):
        return at[_index(at, part)]
    if isinstance(at, Mapping) and part in at:
        return at[part]
    fix = UnknownName("key", part, at).fix if isinstance(at, Mapping) and at else "write it as steps.1.bits=2"
    raise BadInput(f"there is no {part!r} in the recipe", fix)


def _index(at: list[Any], part: str) -> int:
    known = {str(number): number - 1 for number in range(1, len(at) + 1)}
    if part in known:
        return known[part]
    raise BadInput(f"{part!r} is no step", f"steps count from 1 to {len(at)}")
