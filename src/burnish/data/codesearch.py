"""Searching a workspace's code for what a sentence speaks of: by name, by words, and by meaning."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from burnish.data.codegraph import CodeGraph, Tag
from burnish.data.workspace import Refused, Workspace

FUZZY = 70
"""Likeness of two names, of 100, from which one is taken for the other; the paper's code."""
LINES = 40
"""Of a definition that are shown and searched."""
MOST_DEFINITIONS = 20_000

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{2,}")
_PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")
Embed = Callable[[Sequence[str]], Any]


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

    @cached_property
    def _index(self) -> tuple[Any, frozenset[str]]:
        """The BM25 index, and the words that it knows."""
        import bm25s

        documents = [_words(f"{tag.path} {tag.name} {text}") for tag, text in zip(self.tags, self.texts, strict=True)]
        index = bm25s.BM25()
        index.index(documents, show_progress=False)
        return index, frozenset(word for document in documents for word in document)

    @cached_property
    def _vectors(self) -> Any:
        """A vector for each definition, (definitions, hidden)."""
        assert self.embed is not None
        return self.embed(self.texts)

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
        index, known = self._index
        asked = [word for word in dict.fromkeys(_words(query)) if word in known]
        if not asked:
            return []
        places, scores = index.retrieve([asked], k=min(most, len(self.tags)), show_progress=False)
        return [int(place) for place, score in zip(places[0], scores[0], strict=True) if score > 0]

    def _by_meaning(self, query: str, most: int) -> list[int]:
        if self.embed is None:
            return []
        import numpy as np

        likeness = self._vectors @ self.embed([query])[0]
        return [int(place) for place in np.argsort(-likeness, kind="stable")[:most]]


def _words(text: str) -> list[str]:
    """The parts of words and of compound names, in small letters."""
    return [part.lower() for word in _WORD.findall(text) for part in _PART.findall(word)]


def _lines(workspace: Workspace, path: str) -> list[str]:
    try:
        with os.fdopen(workspace.open(path), "rb") as file:
            return file.read(2**20).decode(errors="replace").splitlines()
    except Refused:
        return []
