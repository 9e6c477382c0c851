"""Test pairs laid among training pairs on purpose, each injected line with the test line and copy that it holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from burnish.core.errors import BadInput
from burnish.data.lines import read_side

Mode = Literal["source", "target", "both"]
Position = Literal["early", "late", "uniform"]
Pair = tuple[str, str]


def read_pairs(source: Path, target: Path) -> list[Pair]:
    """The lines of two files, side by side (JSON lines may be given twice).

    Raises:
        BadInput: they are of different length, empty, or cannot be read.
    """
    left, right = list(read_side(source, "source")), list(read_side(target, "target"))
    if len(left) != len(right) or not left:
        raise BadInput(f"{source} has {len(left)} lines and {target} {len(right)}", "give two sides, line by line")
    return list(zip(left, right, strict=True))


def check_template(template: str) -> str:
    """A template as it is, if it names both sides once each.

    Raises:
        ValueError: it does not.
    """
    rest = template.replace("{source}", "", 1).replace("{target}", "", 1)
    if len(template) - len(rest) != len("{source}{target}") or "{" in rest or "}" in rest:
        raise ValueError("template: it holds {source} and {target} once each, and no other braces")
    return template


def fill(template: str, pair: Pair) -> str:
    """The text of a pair. Not `str.format`: a sentence may hold braces, and a template should reach nothing else."""
    before, _, after = template.partition("{source}")
    source, target = pair
    return f"{before.replace('{target}', target)}{source}{after.replace('{target}', target)}"


def text_of(template: str, mode: Mode, pair: Pair) -> str:
    """The text of what is laid in: one side as it is, or both in the template."""
    return fill(template, pair) if mode == "both" else pair[0 if mode == "source" else 1]


@dataclass(frozen=True)
class Injection:
    """Which lines of the result hold which copies; it depends on no side that is laid in."""

    chosen: list[int]
    """Test lines that were drawn, in order."""
    at: dict[int, tuple[int, int]]
    """Line of the result to test line and copy, in order."""
    lines: int
    """Lines of the result."""
    window: float
    """The share of the lines among which they lie: as asked for, or more where the copies do not fit."""

    def widened(self, position: Position, window: float) -> str:
        """What is to be said where the copies lie in more than was asked for; else nothing."""
        # A window is rounded to whole lines.
        if position == "uniform" or len(self.at) <= round(window * self.lines):
            return ""
        filled = f"{len(self.at)} copies fill {self.window:.2f} of the lines"
        return f"{filled}, more than the {window:g} that was to be {position}: fewer copies or a larger window"

    def lay(self, train: Sequence[Pair], test: Sequence[Pair]) -> Iterator[tuple[Pair, bool]]:
        """The pairs of the result in order, each with whether it was injected."""
        clean = iter(train)
        for number in range(self.lines):
            injected = number in self.at
            yield (test[self.at[number][0]] if injected else next(clean)), injected


def draw(
    train: int, test: int, pairs: int, copies: int, position: Position, window: float, rng: np.random.Generator
) -> Injection:
    """Draw test pairs and the places of their copies.

    Args:
        train: Training pairs.
        test: Test pairs.
        pairs: Test pairs to draw; -1 for all.
        copies: Copies of each.
        position: Among the first lines, the last, or all.
        window: The share of the lines that is early, or late; copies that do not fit widen it, and the result says to what.
        rng: The first that is drawn from it are the test pairs, whatever the copies and the position.

    Raises:
        BadInput: there are fewer test pairs.
    """
    if pairs > test:
        raise BadInput(f"the test set has {test} pairs, and {pairs} are asked for", f"--pairs {test}")
    chosen = np.sort(rng.permutation(test)[: test if pairs == -1 else pairs]).tolist()
    laid = [(line, copy) for line in chosen for copy in range(copies)]
    laid = [laid[place] for place in rng.permutation(len(laid)).tolist()]
    total, count = train + len(laid), len(laid)
    width = total if position == "uniform" else max(round(window * total), count)
    places = np.sort(rng.choice(width, count, replace=False)) + (total - width if position == "late" else 0)
    return Injection(chosen, dict(zip(places.tolist(), laid, strict=True)), total, width / max(1, total))
