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

from burnish.data.mqm import Error

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


def locate(claims: Iterable[Claimed], hypothesis: str, source: str) -> tuple[list[Error], int]:
    """Find claimed spans in the translation, and count those that are not there.

    The same span claimed again is its next occurrence. An omission may quote what is missing from the source, or nothing.

    Args:
        claims: What was claimed.
        hypothesis: The translation.
        source: What was translated.

    Returns:
        The errors in the order of the claims, and the number of invented spans.
    """
    errors: list[Error] = []
    invented = 0
    used: Counter[str] = Counter()
    for claim in claims:
        severity, span = claim.severity.capitalize(), claim.span.strip()
        omission = "omission" in claim.category.casefold()
        if not span:
            errors += [Error(0, 0, claim.category, severity)] if omission else []
            invented += not omission
            continue
        start = -1
        for _ in range(used[span] + 1):
            start = hypothesis.find(span, start + 1)
            if start < 0:
                break
        if start >= 0:
            used[span] += 1
            errors.append(Error(start, start + len(span), claim.category, severity, "target", span))
        elif omission and (start := source.find(span)) >= 0:
            errors.append(Error(start, start + len(span), claim.category, severity, "source", span))
        else:
            invented += 1
    return errors, invented
