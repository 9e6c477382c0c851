"""Error spans as a language model writes them: JSON, often broken, and spans that may not be there.

What can be read is kept and what cannot is counted: a list that was cut off still holds whole objects, and a span that does
not stand in the translation is an invention, not an error of the translation.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from burnish.data.mqm import Error, Kind

Status = Literal["ok", "partial", "unscored"]

_THOUGHT = re.compile(r"^.*</think>", re.DOTALL)
_DECODER = json.JSONDecoder()


@dataclass(frozen=True)
class Claimed:
    """One error as a model claims it."""

    span: str
    category: str
    severity: str


@dataclass(frozen=True)
class Read:
    """What could be read of a reply."""

    claims: list[Claimed]
    status: Status
    """ok: all of it; partial: some objects of it; unscored: nothing, which is not the same as no errors."""
    malformed: int = 0
    """Objects that lack a span or have a severity that is none."""


def read_reply(text: str, severities: Collection[str] = ("major", "minor")) -> Read:
    """Read a reply that should be ``[{"span": …, "category": …, "severity": …}, …]``.

    A list or an object around one (``{"errors": […]}``) counts wherever it stands in the reply; when there is none that is
    whole, its whole objects count.

    Args:
        text: The reply.
        severities: Those that exist, in small letters.
    """
    text = _THOUGHT.sub("", text)
    found = _whole(text)
    if found is None:
        loose = [value for value in _values(text, "{") if isinstance(value, dict) and "span" in value]
        claims = [claim for value in loose if (claim := _claim(value, severities))]
        return Read(claims, "partial" if claims else "unscored", len(loose) - len(claims))
    claims = [claim for value in found if (claim := _claim(value, severities))]
    lost = len(found) - len(claims)
    if lost and not claims:
        return Read([], "unscored", lost)
    return Read(claims, "partial" if lost else "ok", lost)


def _whole(text: str) -> list[Any] | None:
    """The items of the first list of objects, or None. An empty list says that there are no errors."""
    for value in _values(text, "[{"):
        if isinstance(value, dict):
            if "span" in value:
                continue  # an error by itself; a list in it is not the list of errors
            inside = [part for part in value.values() if isinstance(part, list) and _is_list(part)]
            if inside:
                return inside[0]
        elif isinstance(value, list) and _is_list(value):
            return value
    return None


def _is_list(value: Sequence[Any]) -> bool:
    return not value or any(isinstance(part, dict) for part in value)


def _values(text: str, openers: str) -> Iterable[Any]:
    """Every JSON value that begins with one of `openers`, those inside a value that was given left out."""
    place = 0
    while place < len(text):
        if text[place] in openers:
            try:
                value, place = _DECODER.raw_decode(text, place)
            except (ValueError, RecursionError):
                place += 1
                continue
            yield value
        else:
            place += 1


def _claim(value: Any, severities: Collection[str]) -> Claimed | None:
    if not isinstance(value, dict) or not isinstance(value.get("span"), str):
        return None
    severity = str(value.get("severity", "")).strip().casefold()
    if severity not in severities:
        return None
    category = value.get("category")
    return Claimed(value["span"], category.strip() if isinstance(category, str) else "", severity)


@dataclass(frozen=True)
class Located:
    """Claimed errors that are there, and how many are not."""

    errors: list[Error]
    """In the order of the claims."""
    invented: int = 0
    """Spans that do not stand in the translation."""
    repeated: int = 0
    """Spans that were claimed once more than they stand in it."""


def locate(claims: Iterable[Claimed], hypothesis: str, source: str) -> Located:
    """Find claimed spans in the translation; those that are not there are dropped and counted.

    The same span claimed again is its next occurrence. An omission may quote what is missing from the source, or nothing,
    and an error of the source (a category that begins with "Source") stands there.

    Args:
        claims: What was claimed.
        hypothesis: The translation.
        source: What was translated.
    """
    errors: list[Error] = []
    invented = repeated = 0
    next_place: Counter[tuple[str, str]] = Counter()
    for claim in claims:
        severity, span, category = claim.severity.capitalize(), claim.span.strip(), claim.category.casefold()
        omission = "omission" in category
        if not span:
            errors += [Error(0, 0, claim.category, severity)] if omission else []
            invented += not omission
            continue
        sides: list[tuple[Kind, str]] = [("target", hypothesis)]
        if omission or category.startswith("source"):
            sides.append(("source", source))
        side, text = next(((side, text) for side, text in sides if span in text), ("target", ""))
        if not text:
            invented += 1
            continue
        start = text.find(span, next_place[side, span])
        if start < 0:
            repeated += 1
            continue
        next_place[side, span] = start + 1
        errors.append(Error(start, start + len(span), claim.category, severity, side, span))
    return Located(errors, invented, repeated)
