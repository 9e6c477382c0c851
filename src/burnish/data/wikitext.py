"""The layout of WikiText files: where articles begin, and how word-level text becomes ordinary text again.

WikiText (Merity et al. 2016, "Pointer Sentinel Mixture Models") puts one paragraph on a line and spaces between words
and punctuation. Perplexities that people publish are measured on that text as it is, so nothing here is applied to it
unasked; `detokenize` is for calibration, where text should look like what a model meets in use.
"""

from __future__ import annotations

import re
from itertools import pairwise

_TITLE = re.compile(r" = [^=].* = ?")
_HEADING = re.compile(r"((?:= )+)(.+?)((?: =)+)")
_NUMBER = re.compile(r"[\d.,]*\d")
_JOINS = {"@-@": "-", "@,@": ",", "@.@": "."}
_TIGHT = frozenset("/⁄‑°")  # no space on either side
_CLOSING = frozenset([*",.;:!?%)]}”…′″♭♯", "...", "....", "n't"])  # no space before
_OPENING = frozenset("([{“‘$£₤€")  # no space after
_CONTRACTIONS = frozenset(["s", "t", "re", "ve", "ll", "d", "m"])
_NO_OWNERS = frozenset(["as", "is", "was", "has", "his", "this", "thus"])  # after these, ' opens a quotation


def articles(text: str) -> list[str]:
    """Cut a WikiText file into its articles; put together again, they are `text`, character for character.

    An article begins at the blank line before a title: a line `` = Title = `` between two blank lines. Text before
    the first title goes with the first article.
    """
    lines = text.split("\n")
    starts = [
        at - 1
        for at in range(1, len(lines) - 1)
        if _TITLE.fullmatch(lines[at]) and not lines[at - 1].strip() and not lines[at + 1].strip()
    ]
    bounds = [0, *starts[1:], len(lines)]
    parts = ["\n".join(lines[low:high]) for low, high in pairwise(bounds)]
    return [part + "\n" for part in parts[:-1]] + parts[-1:]


def detokenize(text: str) -> str:
    """Undo the spacing of word-level text: ``a 3 @.@ 5 @-@ fold ( or so ) .`` becomes ``a 3.5-fold (or so).``

    Each line is treated by itself and keeps its place. ``<unk>`` stays: the word is not known. Quotation marks are
    paired within the line; a ``'`` after a plural, or one without a partner, is taken for an apostrophe.
    """
    return "\n".join(_line(line.split()) for line in text.split("\n"))


def _line(words: list[str]) -> str:
    heading = _HEADING.fullmatch(" ".join(words))
    if heading:
        left, title, right = heading.groups()
        return f"{left.replace(' ', '')} {_line(title.split())} {right.replace(' ', '')}"
    out: list[str] = []
    tight = True  # whether the next word follows without a space
    quoted = {'"': False, "'": False}
    for at, word in enumerate(words):
        before, after = _spaces(words, at, quoted)
        out.append(("" if tight or not before else " ") + _JOINS.get(word, word))
        tight = not after
    return "".join(out)


def _spaces(words: list[str], at: int, quoted: dict[str, bool]) -> tuple[bool, bool]:
    """Whether a space belongs before and after ``words[at]``; `quoted` says which quotation marks are open."""
    word = words[at]
    previous = words[at - 1] if at else ""
    following = words[at + 1] if at + 1 < len(words) else ""
    if word in _JOINS or word in _TIGHT:
        return False, False
    if word == "’" or (word == "'" and not quoted[word] and following in _CONTRACTIONS):
        return False, following not in _CONTRACTIONS
    if word in ("–", "-") and _NUMBER.fullmatch(previous) and _NUMBER.fullmatch(following):
        return False, False
    if word in quoted:
        if word == "'" and not quoted[word] and _is_apostrophe(words, at):
            return False, True
        quoted[word] = not quoted[word]
        return quoted[word], not quoted[word]
    if word in _CLOSING or (word.startswith("'") and len(word) > 1):
        return False, True
    return True, word not in _OPENING


def _is_apostrophe(words: list[str], at: int) -> bool:
    """Whether the ``'`` at ``words[at]``, where no quotation is open, belongs to the word before it."""
    if not at or _NUMBER.match(words[min(at + 1, len(words) - 1)]):  # the '70s
        return False
    owner = words[at - 1].endswith("s") and words[at - 1].lower() not in _NO_OWNERS
    return owner or "'" not in words[at + 1 :]
