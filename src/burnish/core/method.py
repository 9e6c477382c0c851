"""A method: a frozen, typed bag of settings that can be called on goods.

The settings are pydantic fields: from them come the command's flags, the docs page and the recipe's keys. The goods
(a model, a dataset, scores …) are the parameters of ``__call__``: from them come the command's arguments. Nothing is
kept on ``self`` and inputs are never changed.
"""

from __future__ import annotations

import ast
import inspect
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from burnish.core.errors import BadInput


class Paper(BaseModel):
    """Where a method comes from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str
    authors: str
    """As in a citation: "Frantar, Ashkboos, Hoefler, Alistarh"."""
    year: int
    venue: str
    arxiv: str = ""
    """The arXiv number, without a version."""

    @property
    def url(self) -> str:
        """Where to read it; empty when the paper has no arXiv number."""
        return f"https://arxiv.org/abs/{self.arxiv}" if self.arxiv else ""

    def cite(self) -> str:
        """One line for a reference list."""
        where = f"{self.venue}, arXiv {self.arxiv}" if self.arxiv else self.venue
        return f"{self.authors}. {self.title}. {where} ({self.year})."


@dataclass(frozen=True)
class Good:
    """One thing that a method is called on, read off a parameter of ``__call__``."""

    name: str
    kind: str
    """The name of its class: "Model", "Dataset", "LLM", "Scores", "Table", "Problem", "Path"."""
    required: bool


class Method(BaseModel):
    """Base of every method. Subclasses add fields, each with a docstring, and ``__call__``."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, validate_default=True)

    paper: ClassVar[Paper | None] = None
    needs: ClassVar[tuple[str, ...]] = ()
    """Extras that must be installed, e.g. ("models",)."""

    @classmethod
    def build(cls, settings: Mapping[str, Any]) -> Self:
        """Make the method from plain values, as a recipe or the command line has them.

        Raises:
            BadInput: listing every fault of every setting.
        """
        try:
            return cls(**settings)
        except ValidationError as error:
            raise BadInput.of(f"the settings of {cls.__name__} are wrong", faults(error, cls)) from None

    @classmethod
    def goods(cls) -> tuple[Good, ...]:
        """What ``__call__`` takes besides the run, in its order."""
        found = []
        for parameter in list(inspect.signature(cls.__call__).parameters.values())[1:]:
            if parameter.name == "run":
                continue
            kinds, optional = _kinds(parameter.annotation)
            if not kinds:
                continue
            required = parameter.default is parameter.empty and not optional
            found.append(Good(parameter.name, kinds[0], required))
        return tuple(found)

    @classmethod
    def gives(cls) -> str:
        """The kind of good that ``__call__`` returns; empty when it returns none."""
        kinds, _ = _kinds(inspect.signature(cls.__call__).return_annotation)
        return kinds[0] if kinds else ""

    def settings(self) -> dict[str, Any]:
        """Every field's value, as TOML can hold it (fields that are None are left out)."""
        return self.model_dump(mode="json", exclude_none=True)


def _kinds(annotation: Any) -> tuple[list[str], bool]:
    """Class names in an annotation such as ``Dataset | None``, and whether None is among them."""
    if annotation is inspect.Parameter.empty:
        return [], False
    if isinstance(annotation, str):
        tree = ast.parse(annotation, mode="eval").body
        names = [_last_name(part) for part in _union(tree)]
    elif isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        names = [getattr(part, "__name__", str(part)) for part in typing.get_args(annotation)]
    else:
        names = [getattr(annotation, "__name__", str(annotation))]
    kinds = [name for name in names if name not in ("None", "NoneType")]
    return kinds, len(kinds) < len(names)


def _union(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return [*_union(node.left), *_union(node.right)]
    return [node]


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Subscript):
        return _last_name(node.value)
    if isinstance(node, ast.Attribute):
        return node.attr
    return ast.unparse(node)


def faults(error: ValidationError, model: type[BaseModel] | None = None) -> list[str]:
    """One readable line for each fault that pydantic found, with the value that was given."""
    import difflib

    lines = []
    for fault in error.errors():
        where = ".".join(map(str, fault["loc"])) or "together"
        if fault["type"] == "extra_forbidden" and model is not None:
            known = list(model.model_fields)
            near = difflib.get_close_matches(where, known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}?" if near else "known: " + ", ".join(known)
            lines.append(f"{where}: there is no such setting; {hint}")
            continue
        text = fault["msg"].removeprefix("Input ").removeprefix("Value error, ")
        given = "" if where == "together" else f" (you gave {fault['input']!r})"
        lines.append(f"{where}: {text}{given}")
    return lines
