"""Ratings of other systems' translations of a source, and the guard that keeps the answer out of them.

Leaving the rated system out by its name is not enough: one translation may be listed under several names
(``X_with_refA``, ``X_with_refB``), and two systems may give the same translation. In a public set of 2023 both happen.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from burnish.core.errors import BadInput
from burnish.data.mqm import Error, Rating

Mode = Literal["strict", "lenient"]
Rater = Literal["any", "same", "other"]
Codes = Mapping[str, int]
"""Severity, in small letters, to a number: the heavier the larger, from 1."""


class Leak(BadInput):
    """An example gives away the rating that is to be predicted."""


def base_system(system: str) -> str:
    """The system behind a name: what stands before ``_with_``."""
    return system.partition("_with_")[0]


def leak(rated: Rating, offered: Rating, mode: Mode = "strict") -> str:
    """Why an offered rating gives the answer away; empty when it does not.

    Args:
        rated: The rating that is to be predicted.
        offered: What might be shown or copied.
        mode: "lenient" looks at the system's name alone; it exists to measure what that hides.
    """
    if offered.system == rated.system:
        return f"{offered.system} is the rated system"
    if mode == "lenient":
        return ""
    if base_system(offered.system) == base_system(rated.system):
        return f"{offered.system} is another name of {rated.system}"
    if offered.hypothesis.strip() == rated.hypothesis.strip():
        return f"{offered.system} gave the same translation as {rated.system}"
    return ""


def guard(rated: Rating, offered: Iterable[Rating]) -> None:
    """Refuse examples that give the answer away.

    Raises:
        Leak: listing each of them.
    """
    found = [f"{one.item_id}: {why}" for one in offered if (why := leak(rated, one))]
    if found:
        raise Leak.of(f"examples for {rated.item_id} hold its answer", found, "take them from a `Bank`")


class Bank:
    """Ratings by segment."""

    def __init__(self, ratings: Iterable[Rating]) -> None:
        # What `leak` compares is worked out once: a table asks for millions of comparisons.
        self._segments: dict[str, list[tuple[Rating, str, str]]] = defaultdict(list)
        for one in ratings:
            self._segments[one.segment].append((one, base_system(one.system), one.hypothesis.strip()))

    @property
    def segments(self) -> list[str]:
        """In order of first appearance."""
        return list(self._segments)

    def elsewhere(self) -> dict[str, list[str]]:
        """Each segment to those of other sources: test sets hold one sentence several times."""
        sources = {segment: rows[0][0].source.strip() for segment, rows in self._segments.items()}
        return {
            segment: [other for other, theirs in sources.items() if theirs != source]
            for segment, source in sources.items()
        }

    def ratings(self, segment: str) -> list[Rating]:
        """All ratings of a segment."""
        return [one for one, _, _ in self._segments.get(segment, [])]

    def others(self, rated: Rating, mode: Mode = "strict", rater: Rater = "any", segment: str = "") -> list[Rating]:
        """Ratings of other systems that do not give away `rated`, in the file's order.

        Args:
            rated: What is to be predicted.
            mode: See `leak`.
            rater: Whose: anybody's, those of the rater of `rated`, or all but that rater's.
            segment: Of which source; by default the same one.
        """
        base, text = base_system(rated.system), rated.hypothesis.strip()
        return [
            one
            for one, theirs, translation in self._segments.get(segment or rated.segment, [])
            if (one.system != rated.system if mode == "lenient" else theirs != base and translation != text)
            and (rater == "any" or (one.rater == rated.rater) == (rater == "same"))
        ]


def severity_codes(severities: Mapping[str, float]) -> dict[str, int]:
    """Number severities, given their weights, so that the heavier one is larger."""
    ordered = sorted({name.casefold(): weight for name, weight in severities.items()}.items(), key=lambda one: one[1])
    return {name: number for number, (name, _) in enumerate(ordered, 1)}


def paint(errors: Iterable[Error], length: int, codes: Codes) -> NDArray[np.int8]:
    """The severity of each character of a translation, (length,): 0 for none, else its code; the heavier one wins."""
    painted = np.zeros(length, dtype=np.int8)
    for error in errors:
        if error.side == "target" and error.end > error.start:
            part = painted[error.start : error.end]
            np.maximum(part, codes[error.severity.casefold()], out=part)
    return painted


def copy_spans(hypothesis: str, bank: Sequence[Rating], codes: Codes) -> list[Error]:
    """Predict errors without a model: mark again, wherever it occurs, every string that is marked in the bank.

    The severity of a character is that of most of the bank's spans that gave it, the heavier one when two are equal.
    Neighbouring characters of one severity are one error, of the commonest category among the spans that reach into it.

    Args:
        hypothesis: The translation.
        bank: Ratings of other translations.
        codes: Of all severities in the bank.
    """
    severities: dict[str, Counter[int]] = defaultdict(Counter)
    categories: dict[str, Counter[str]] = defaultdict(Counter)
    for rating in bank:
        for error in rating.errors:
            # Most strings stand nowhere in it: asking first saves most of the time.
            if error.side == "target" and error.text in hypothesis:
                severities[error.text][codes[error.severity.casefold()]] += 1
                categories[error.text][error.category] += 1
    votes = np.zeros((max(codes.values()) + 1, len(hypothesis)), dtype=np.int32)
    places = [(start, start + len(text), text) for text in severities for start in _occurrences(text, hypothesis)]
    if not places:
        return []
    for start, end, text in places:
        for code, count in severities[text].items():
            votes[code, start:end] += count
    # Counted from the heaviest, so that the first of several largest is the heavier one.
    winner = len(votes) - 1 - votes[::-1].argmax(axis=0)
    winner[~votes.any(axis=0)] = 0
    found = runs(winner)
    owner = np.zeros(len(hypothesis), dtype=np.int32)
    for number, (start, end, _) in enumerate(found):
        owner[start:end] = number
    kinds: list[Counter[str]] = [Counter() for _ in found]
    for start, end, text in places:
        for number in range(owner[start], owner[end - 1] + 1):
            kinds[number].update(categories[text])
    names = {code: name.capitalize() for name, code in codes.items()}
    return [
        Error(start, end, kind.most_common(1)[0][0], names[code], text=hypothesis[start:end])
        for (start, end, code), kind in zip(found, kinds, strict=True)
    ]


def _occurrences(text: str, within: str) -> list[int]:
    """Where a text begins, overlapping ones too; nowhere when it is blank."""
    found: list[int] = []
    start = within.find(text) if text.strip() else -1
    while start >= 0:
        found.append(start)
        start = within.find(text, start + 1)
    return found


def runs(codes: NDArray[np.integer]) -> list[tuple[int, int, int]]:
    """(start, end, code) of each longest run of one code other than 0."""
    edges = np.flatnonzero(np.diff(codes)) + 1
    starts, ends = [0, *edges.tolist()], [*edges.tolist(), len(codes)]
    return [(start, end, int(codes[start])) for start, end in zip(starts, ends, strict=True) if codes[start:end].any()]
