"""A pydantic field on the command line: its flag, what its value looks like, and its value from a text."""

from __future__ import annotations

import difflib
import enum
import json
import types
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

_MANY = (list, tuple, set, frozenset)
_BOUNDS = {"gt": "over", "ge": "at least", "lt": "below", "le": "at most", "multiple_of": "a multiple of"}


def flag(name: str) -> str:
    """A field's name as a flag; an underscore at its end, which keeps it off a method's name, is dropped."""
    return "--" + name.rstrip("_").replace("_", "-")


def type_text(annotation: Any) -> str:
    """What a value of a type looks like: ``2|3|4|8``, ``int``, ``float|none``, ``text…`` (may be repeated)."""
    origin, args = get_origin(annotation), get_args(annotation)
    if annotation is None or annotation is type(None):
        return "none"
    if origin is Annotated:
        return type_text(args[0])
    if origin is Literal:
        return "|".join(map(str, args))
    if origin in (Union, types.UnionType):
        return "|".join(dict.fromkeys(type_text(arg) for arg in args))
    if origin in _MANY or annotation in _MANY:
        inner = [arg for arg in args if arg is not Ellipsis]
        return ("|".join(dict.fromkeys(type_text(arg) for arg in inner)) or "text") + "…"
    if origin is dict or annotation is dict:
        return "json"
    if isinstance(annotation, type):
        if issubclass(annotation, enum.Enum):
            return "|".join(str(member.value) for member in annotation)
        names = {"str": "text", "bool": "yes|no", "Path": "path"}
        return names.get(annotation.__name__, annotation.__name__ if annotation in (int, float) else "json")
    return "text"


def bounds_text(field: FieldInfo) -> str:
    """The limits of a number, in words; empty when it has none."""
    found = [
        f"{word} {getattr(part, name)}"
        for part in field.metadata
        for name, word in _BOUNDS.items()
        if getattr(part, name, None) is not None
    ]
    return " and ".join(found)


def default_text(field: FieldInfo) -> str:
    """A field's default, as it would be typed; empty when the field has none."""
    if field.is_required():
        return ""
    value = field.get_default(call_default_factory=True)
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, enum.Enum):
        return str(value.value)
    if isinstance(value, _MANY):
        return ", ".join(map(str, value)) or "none"
    return str(value)


def is_many(annotation: Any) -> bool:
    """Whether a flag of this type may be repeated."""
    return any(get_origin(part) in _MANY or part in _MANY for part in _parts(annotation))


def is_switch(annotation: Any) -> bool:
    """Whether a flag of this type is given without a value."""
    return annotation is bool


def from_text(annotation: Any, text: Any) -> Any:
    """The value that a text stands for, as far as that is plain; pydantic reads, or refuses, what is left as it is."""
    if isinstance(text, list):
        inner = [arg for part in _parts(annotation) for arg in get_args(part) if arg is not Ellipsis]
        of: Any = Union[tuple(inner)] if inner else str  # noqa: UP007
        return [from_text(of, one.strip()) for word in text for one in word.split(",")]
    if not isinstance(text, str):
        return text
    parts = _parts(annotation)
    for part in parts:
        if get_origin(part) is Literal:
            for option in get_args(part):
                if text == str(option):
                    return option
    if text.lower() in ("none", "null") and type(None) in parts:
        return None
    if type_text(annotation) in ("json", "json|none") and text[:1] in "[{":
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text


def split_words(words: Sequence[str], known: Iterable[str], places: int = 0) -> tuple[list[str], list[str]]:
    """Arguments, at most `places`, and a line for each flag and argument too many; offers the nearest known flag.

    The word after an unknown flag is taken to be its value.
    """
    flags = [name.lstrip("-") for name in known]
    arguments: list[str] = []
    lines: list[str] = []
    value = False
    for word in words:
        if word.startswith("-") and not _is_number(word):
            name, equals, _ = word.partition("=")
            near = difflib.get_close_matches(name.lstrip("-"), flags, n=1, cutoff=0.6)
            lines.append(f"{name}: there is no such flag" + (f"; did you mean --{near[0]}?" if near else ""))
            value = not equals
        elif value:
            value = False
        elif len(arguments) < places:
            arguments.append(word)
        else:
            lines.append(f"{word!r}: there is no place for this argument")
    return arguments, lines


def _parts(annotation: Any) -> list[Any]:
    if get_origin(annotation) is Annotated:
        return _parts(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return [part for arg in get_args(annotation) for part in _parts(arg)]
    return [annotation]


def _is_number(token: str) -> bool:
    try:
        float(token)
    except ValueError:
        return False
    return True
