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
        self._segments: dict[str, list[Rating]] = defaultdict(list)
        for rating in ratings:
            self._segments[rating.segment].append(rating)

    @property
    def segments(self) -> list[str]:
        """In order of first appearance."""
        return list(self._segments)

    def others(self, rated: Rating, mode: Mode = "strict", rater: Rater = "any", segment: str = "") -> list[Rating]:
        """Ratings of other systems that do not give away `rated`, in the file's order.

        Args:
            rated: What is to be predicted.
            mode: See `leak`.
            rater: Whose: anybody's, those of the rater of `rated`, or all but that rater's.
            segment: Of which source; by default the same one.
        """
        return [
            one
            for one in self._segments.get(segment or rated.segment, [])
            if (rater == "any" or (one.rater == rated.rater) == (rater == "same")) and not leak(rated, one, mode)
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
    given: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
    for rating in bank:
        for error in rating.errors:
            if error.side == "target" and error.text.strip():
                given[error.text][error.severity, error.category] += 1
    votes = np.zeros((max(codes.values(), default=0) + 1, len(hypothesis)), dtype=np.int32)
    places: list[tuple[int, int, Counter[str]]] = []
    for text, counts in given.items():
        start = hypothesis.find(text)
        while start >= 0:
            end = start + len(text)
            for (severity, _), count in counts.items():
                votes[codes[severity.casefold()], start:end] += count
            places.append((start, end, _categories(counts)))
            start = hypothesis.find(text, start + 1)
    if not places:
        return []
    # Counted from the heaviest, so that the first of several largest is the heavier one.
    winner = len(votes) - 1 - votes[::-1].argmax(axis=0)
    winner[votes.sum(axis=0) == 0] = 0
    names = {code: name for name, code in codes.items()}
    return [
        Error(start, end, _commonest(places, start, end), names[code].capitalize(), "target", hypothesis[start:end])
        for start, end, code in runs(winner)
    ]


def runs(codes: NDArray[np.integer]) -> list[tuple[int, int, int]]:
    """(start, end, code) of each longest run of one code other than 0."""
    edges = np.flatnonzero(np.diff(codes)) + 1
    starts, ends = [0, *edges.tolist()], [*edges.tolist(), len(codes)]
    return [(start, end, int(codes[start])) for start, end in zip(starts, ends, strict=True) if codes[start : end].any()]


def _categories(counts: Counter[tuple[str, str]]) -> Counter[str]:
    found: Counter[str] = Counter()
    for (_, category), count in counts.items():
        found[category] += count
    return found


def _commonest(places: Iterable[tuple[int, int, Counter[str]]], start: int, end: int) -> str:
    found: Counter[str] = Counter()
    for first, last, categories in places:
        if first < end and last > start:
            found.update(categories)
    return found.most_common(1)[0][0]
