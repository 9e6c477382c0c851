"""Searching a workspace's code for what a sentence speaks of: by name, by words, and by meaning."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from burnish.data.codegraph import CodeGraph, Tag
from burnish.data.workspace import Refused, Workspace

FUZZY = 70
"""Likeness of two names, of 100, from which one is taken for the other; the paper's code."""
LINES = 40
"""Of a definition that are shown and searched."""
MOST_DEFINITIONS = 20_000

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{2,}")
_PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")
Embed = Callable[[Sequence[str]], "object"]


@dataclass(frozen=True)
class Snippet:
    """A definition that was found."""

    tag: Tag
    text: str
    how: str
    """"name", "words" or "meaning"."""


class CodeSearch:
    """An index over the definitions of a workspace.

    Args:
        workspace: Where the files are.
        graph: Its code graph.
        embed: Texts to vectors of length one, for the search by meaning; None does without.
    """

    def __init__(self, workspace: Workspace, graph: CodeGraph, embed: Embed | None = None) -> None:
        self.tags = graph.definitions()[:MOST_DEFINITIONS]
        lines: dict[str, list[str]] = {}
        self.texts = []
        for tag in self.tags:
            if tag.path not in lines:
                lines[tag.path] = _lines(workspace, tag.path)
            self.texts.append("\n".join(lines[tag.path][tag.line - 1 : min(tag.end, tag.line - 1 + LINES)]))
        self.embed = embed

    def find(self, query: str, most: int = 3) -> list[Snippet]:
        """The definitions that fit a sentence best: `most` by name, by words (BM25) and by meaning; each once."""
        if not self.tags:
            return []
        found: dict[int, str] = {}
        for how, places in (
            ("name", self._by_name(query, most)),
            ("words", self._by_words(query, most)),
            ("meaning", self._by_meaning(query, most)),
        ):
            for place in places:
                found.setdefault(place, how)
        return [Snippet(self.tags[place], self.texts[place], how) for place, how in found.items()]

    def _by_name(self, query: str, most: int) -> list[int]:
        from rapidfuzz import fuzz, process

        names = [tag.name.lower().replace("_", " ") for tag in self.tags]
        scores: dict[int, float] = {}
        for word in {word.lower().replace("_", " ") for word in _WORD.findall(query)}:
            for _, score, place in process.extract(word, names, scorer=fuzz.ratio, score_cutoff=FUZZY, limit=most):
                scores[place] = max(scores.get(place, 0.0), score)
        return sorted(scores, key=lambda place: (-scores[place], place))[:most]

    def _by_words(self, query: str, most: int) -> list[int]:
        import bm25s

        documents = [_words(f"{tag.path} {tag.name} {text}") for tag, text in zip(self.tags, self.texts, strict=True)]
        asked = [word for word in dict.fromkeys(_words(query)) if any(word in document for document in documents)]
        if not asked:
            return []
        index = bm25s.BM25()
        index.index(documents, show_progress=False)
        places, scores = index.retrieve([asked], k=min(most, len(documents)), show_progress=False)
        return [int(place) for place, score in zip(places[0], scores[0], strict=True) if score > 0]

    def _by_meaning(self, query: str, most: int) -> list[int]:
        if self.embed is None:
            return []
        import numpy as np

        vectors = np.asarray(self.embed([query, *self.texts]))
        return [int(place) for place in np.argsort(-(vectors[1:] @ vectors[0]), kind="stable")[:most]]


def _words(text: str) -> list[str]:
    """The parts of words and of compound names, in small letters."""
    return [part.lower() for word in _WORD.findall(text) for part in _PART.findall(word)]


def _lines(workspace: Workspace, path: str) -> list[str]:
    try:
        with os.fdopen(workspace.open(path), "rb") as file:
            return file.read(2**20).decode(errors="replace").splitlines()
    except Refused:
        return []
