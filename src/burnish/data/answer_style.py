"""How an answer looks: its length and its Markdown, the things that style control holds equal.

Markdown is counted outside fenced code, for a line of a program may begin with # or hold two underscores.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_FENCE = re.compile(r"^[ \t]*(```|~~~)")
_HEADER = re.compile(r"^ {0,3}#{1,6}\s", re.MULTILINE)
_LIST = re.compile(r"^[ \t]*(?:[-*+]|\d+[.)])[ \t]", re.MULTILINE)
_BOLD = re.compile(r"\*\*(?=\S)[^*\n]+?\*\*|(?<!\w)__(?=\S)[^_\n]+?__(?!\w)")
_TOKEN = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class AnswerStyle:
    """What is counted in one answer."""

    tokens: int
    headers: int
    lists: int
    """Items of ordered and unordered lists."""
    bold: int


def answer_style(text: str, tokens: int | None = None) -> AnswerStyle:
    """Count the Markdown of an answer, and its tokens unless the caller knows their number."""
    prose = outside_code(text)
    return AnswerStyle(
        tokens=count_tokens(text) if tokens is None else tokens,
        headers=len(_HEADER.findall(prose)),
        lists=len(_LIST.findall(prose)),
        bold=len(_BOLD.findall(prose)),
    )


def count_tokens(text: str) -> int:
    """Words and marks: a length in a unit that no model's vocabulary decides. Code counts too."""
    return len(_TOKEN.findall(text))


def outside_code(text: str) -> str:
    """The lines that are not in fenced code; a fence that is never closed runs to the end, as Markdown has it."""
    kept, fence = [], ""
    for line in text.split("\n"):
        found = _FENCE.match(line)
        if found and fence in ("", found[1]):
            fence = "" if fence else found[1]
        elif not fence:
            kept.append(line)
    return "\n".join(kept)


def length_difference(ours: AnswerStyle, theirs: AnswerStyle) -> float:
    """(a - b) / (a + b) of the tokens, in [-1, 1]; 0 for two empty answers."""
    total = ours.tokens + theirs.tokens
    return (ours.tokens - theirs.tokens) / total if total else 0.0


def markdown_differences(ours: AnswerStyle, theirs: AnswerStyle) -> tuple[float, float, float]:
    """(a - b) / (a + b + 1) of the headers, list items and bold phrases a token, as Arena-Hard-Auto computes it."""
    found = []
    for a, b in ((ours.headers, theirs.headers), (ours.lists, theirs.lists), (ours.bold, theirs.bold)):
        first, second = a / (ours.tokens + 1), b / (theirs.tokens + 1)
        found.append((first - second) / (first + second + 1))
    return found[0], found[1], found[2]
