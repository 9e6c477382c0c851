"""Counting and cutting text by tokens, where no tokenizer is at hand or where the cut must not depend on one.

A prompt that is cut by the tokenizer of the model that reads it is another prompt for every model, and no recording of
one could be replayed. So texts are cut by one count for all, which is meant to be no less than what the byte-pair
tokenizers of current models (vocabularies of 49,000 and more) make of English and of program text: four small letters a
token, two capitals, every digit and sign its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_PIECE = re.compile(r"[A-Z]?[a-z]{1,4}|[A-Z]{1,2}|[0-9]| (?=[A-Za-z])|\s{1,8}|[^\sA-Za-z0-9]")
LEFT_OUT = "\n[… left out …]\n"
"""What stands where a text was cut."""


def count_tokens(text: str) -> int:
    """How many tokens a text takes, at most."""
    return sum(cost for _, cost in _pieces(text))


def keep_head(text: str, most: int) -> str:
    """The beginning of a text in no more than `most` tokens, its mark of what is left out included."""
    if count_tokens(text) <= most:
        return text
    room = most - count_tokens(LEFT_OUT)
    return text[: _reach(text, room)] + LEFT_OUT if room > 0 else ""


def keep_tail(text: str, most: int) -> str:
    """The end of a text in no more than `most` tokens, its mark of what is left out included."""
    if count_tokens(text) <= most:
        return text
    room = most - count_tokens(LEFT_OUT)
    return LEFT_OUT + _ending(text, room) if room > 0 else ""


def keep_ends(text: str, most: int) -> str:
    """The beginning and the end of a text in no more than `most` tokens, without what is in the middle."""
    if count_tokens(text) <= most:
        return text
    room = most - count_tokens(LEFT_OUT)
    if room < 2:
        return ""
    return text[: _reach(text, room - room // 2)] + LEFT_OUT + _ending(text, room // 2)


def share(sizes: list[int], most: int) -> list[int]:
    """How much each of several texts may keep of `most` tokens in all: small ones everything, large ones equal parts."""
    allowed = [0] * len(sizes)
    left = most
    order = sorted(range(len(sizes)), key=lambda place: sizes[place])
    for done, place in enumerate(order):
        allowed[place] = min(sizes[place], left // (len(order) - done))
        left -= allowed[place]
    return allowed


def _pieces(text: str) -> Iterator[tuple[int, int]]:
    """Where each piece of a text ends, and its tokens. A space before a word is part of the word's token."""
    for match in _PIECE.finditer(text):
        piece = match[0]
        # A character outside ASCII may be written byte by byte; half a surrogate pair, which JSON may hold, counts too.
        size = len(piece.encode(errors="surrogatepass"))
        cost = 0 if piece == " " and text[match.end() : match.end() + 1].isalpha() else size
        yield match.end(), cost if len(piece) == 1 else 1


def _reach(text: str, room: int) -> int:
    """Characters at the beginning that fit."""
    place = spent = 0
    for end, cost in _pieces(text):
        spent += cost
        if spent > room:
            break
        place = end
    return place


def _ending(text: str, room: int) -> str:
    """The longest end that fits."""
    pieces = list(_pieces(text))
    start, spent = len(text), 0
    for number in range(len(pieces) - 1, -1, -1):
        spent += pieces[number][1]
        if spent > room:
            break
        start = pieces[number - 1][0] if number else 0
    found = text[start:]
    # Where a text begins decides how its first word is cut; at worst by a token more.
    while found and count_tokens(found) > room:
        found = found[1:]
    return found
