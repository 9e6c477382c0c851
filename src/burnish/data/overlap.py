"""Which lines of a test set a training text holds: the same line, a long n-gram of it, or nearly all its words.

Only the test set is indexed and the training text streams past, so memory follows the test set. N-grams are numbered, not
hashed: an n-gram is the number of its first n-1 words and the last word, so two different n-grams never meet. MinHash only
proposes; the words of every proposed pair are compared.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from burnish.core.extras import require

CHUNK = 50_000
"""Training lines that are looked at at once."""
_WORD = re.compile(r"\w+")
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    "\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Japanese, Chinese
)
_ANY_WORD = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+")
_PERMUTATIONS, _BANDS = 64, 16
"""16 bands of 4: a pair at Jaccard .8 is proposed with probability .9998, one at .7 with .988."""
_SLACK = 0.25
"""Pairs whose estimated similarity is this much below the threshold are not looked at: four standard deviations."""
_BAND_SEED = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x27D4EB2F165667C5], dtype=np.uint64)

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


def words(line: str) -> list[str]:
    """The words of a line in small letters; in scripts that put no blanks between words, every character is one."""
    if line.isascii():
        return _WORD.findall(line.lower())
    return _ANY_WORD.findall(unicodedata.normalize("NFC", line).lower())


@dataclass(frozen=True)
class Overlap:
    """What a training text holds of each line of one side of a test set; arrays are (lines,)."""

    exact: Bools
    """The line itself is a training line (blanks at its ends aside)."""
    ngram: Bools
    """One of its n-grams stands in the training text."""
    share: NDArray[np.float64]
    """Of its words, the share that lies in an n-gram which stands in the training text."""
    near: Bools
    """A training line has nearly the same words."""
    common: Bools
    """Its n-grams, or itself, count as boilerplate: they occur in too many test lines, and the cut takes them out."""
    short: Bools
    """It has fewer than n words, and so no n-gram."""
    shown: list[str]
    """The matched n-gram that the fewest test lines have; empty for none."""
    test_lines: Ints
    """In how many test lines that n-gram occurs: its document frequency."""
    train_lines: Ints
    """In how many training lines it does."""
    kept: Bools
    """exact, ngram or near, and not only through boilerplate."""
    kept_ngram: Bools
    """ngram, not only through boilerplate, and with the share of its words that is asked for."""
    training: int
    """Training lines that were read."""


class NgramIndex:
    """All n-grams of some lines of words, numbered from 1."""

    def __init__(self, lines: Sequence[Sequence[str]], n: int) -> None:
        self.n = n
        self._words: dict[str, int] = {}
        for word in itertools.chain.from_iterable(lines):
            self._words.setdefault(word, len(self._words) + 1)
        self._levels: list[Ints] = []
        ids, self._line_of = self._flat(lines)
        self.places, ranks = np.flatnonzero(ids), ids[ids > 0]
        for length in range(2, n + 1):
            self.places, keys = self._longer(ids, self.places, ranks, length)
            level, inverse = np.unique(keys, return_inverse=True)
            self._levels.append(level)
            ranks = inverse.astype(np.int64) + 1
        self.ranks = ranks
        """The n-gram that begins at each of `places`."""
        self.lines = self._line_of[self.places]
        """The line of each of `places`."""
        self.count = int(ranks.max(initial=0))
        self.document_frequency = self._by_line(ranks, self.lines)
        """In how many lines each n-gram occurs, (count + 1,)."""

    def frequencies(self, lines: Sequence[Sequence[str]]) -> Ints:
        """In how many of some other lines each n-gram occurs, (count + 1,)."""
        ids, line_of = self._flat(lines)
        places, ranks = np.flatnonzero(ids), ids[ids > 0]
        for length, level in enumerate(self._levels, 2):
            places, keys = self._longer(ids, places, ranks, length)
            if not len(level):
                return np.zeros(self.count + 1, dtype=np.int64)
            at = np.minimum(np.searchsorted(level, keys), len(level) - 1)
            known = level[at] == keys
            places, ranks = places[known], at[known].astype(np.int64) + 1
        return self._by_line(ranks, line_of[places])

    def text(self, lines: Sequence[Sequence[str]], place: int) -> str:
        """The words of the n-gram that begins at one of `places`."""
        line = int(self._line_of[place])
        start = place - int(np.searchsorted(self._line_of, line))
        return " ".join(lines[line][start : start + self.n])

    def _flat(self, lines: Sequence[Sequence[str]]) -> tuple[Ints, Ints]:
        """Words as numbers, 0 for those that the index does not know and after each line; and the line of each."""
        get = self._words.get
        flat: list[int] = []
        for line in lines:
            flat += [get(word, 0) for word in line]
            flat.append(0)
        lengths = [len(line) + 1 for line in lines]
        return np.array(flat, dtype=np.int64), np.repeat(np.arange(len(lines)), lengths)

    def _longer(self, ids: Ints, places: Ints, ranks: Ints, length: int) -> tuple[Ints, Ints]:
        """Where (length - 1)-grams go on by a word, and the key of each: its number and that word."""
        following = ids[np.minimum(places + length - 1, len(ids) - 1)]
        goes_on = following > 0
        return places[goes_on], ranks[goes_on] * (len(self._words) + 1) + following[goes_on]

    def _by_line(self, ranks: Ints, lines: Ints) -> Ints:
        pairs = np.unique(lines * (self.count + 1) + ranks)
        return np.bincount(pairs % (self.count + 1), minlength=self.count + 1)

    def covered(self, hit: Bools) -> NDArray[np.float64]:
        """The share of each line's words that lie in one of the chosen n-grams, (lines,).

        Args:
            hit: Which of `places` are chosen.
        """
        lines = int(self._line_of[-1]) + 1
        words = np.bincount(self._line_of, minlength=lines) - 1
        inside = np.bincount(
            self._line_of, weights=self._under(self.places[hit])[: len(self._line_of)], minlength=lines
        )
        return inside / np.maximum(words, 1)

    def _under(self, places: Ints) -> Bools:
        """Which words of the flat text lie in an n-gram that begins at one of `places`."""
        steps = np.zeros(len(self._line_of) + self.n + 1, dtype=np.int64)
        np.add.at(steps, places, 1)
        np.add.at(steps, places + self.n, -1)
        return np.cumsum(steps) > 0

    def boilerplate(self, most: int) -> Bools:
        """Which of `places` share a word with an n-gram that occurs in more than `most` lines."""
        frequent = self.places[self.document_frequency[self.ranks] > most]
        covered = np.concatenate([[0], np.cumsum(self._under(frequent))])
        return covered[self.places + self.n] > covered[self.places]


class NearIndex:
    """Sets of words, to be found again where most of the words are the same (needs rensa)."""

    def __init__(self, lines: Sequence[Sequence[str]], threshold: float, seed: int = 0) -> None:
        require("MinHash overlap", "overlap")
        self.threshold, self.seed = threshold, seed
        self._sets = [frozenset(line) for line in lines]
        self._full = np.array([number for number, line in enumerate(self._sets) if line], dtype=np.int64)
        self._digests = self._digest([sorted(self._sets[number]) for number in self._full])
        bands = _bands(self._digests)
        self._order = [np.argsort(band, kind="stable") for band in bands.T]
        self._sorted = [band[order] for band, order in zip(bands.T, self._order, strict=True)]

    def _digest(self, sets: Sequence[Sequence[str]]) -> NDArray[np.uint32]:
        import rensa

        if not sets:
            return np.zeros((0, _PERMUTATIONS), dtype=np.uint32)
        return np.array(rensa.RMinHash.digests_from_token_sets(sets, _PERMUTATIONS, self.seed), dtype=np.uint32)

    def mark(self, lines: Sequence[Sequence[str]], found: Bools) -> None:
        """Set `found` where one of `lines` has a Jaccard similarity of at least the threshold."""
        sets = [line for line in lines if line]
        if not len(self._full) or not sets:
            return
        digests = self._digest(sets)
        parts = zip(_bands(digests).T, self._sorted, self._order, strict=True)
        pairs = np.concatenate([_meetings(*part) for part in parts])
        places, numbers = pairs // len(sets), pairs % len(sets)
        for start in range(0, len(pairs), CHUNK):
            place, number = places[start : start + CHUNK], numbers[start : start + CHUNK]
            # The share of equal minima estimates the similarity; its standard deviation is at most 1/16.
            likely = (self._digests[place] == digests[number]).mean(axis=1) >= self.threshold - _SLACK
            for line, other in zip(self._full[place[likely]].tolist(), number[likely].tolist(), strict=True):
                if not found[line]:
                    found[line] = self._jaccard(self._sets[line], sets[other]) >= self.threshold

    @staticmethod
    def _jaccard(one: frozenset[str], other: Iterable[str]) -> float:
        theirs = set(other)
        return len(one & theirs) / len(one | theirs)


def _bands(digests: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """A number for each band of minima, (lines, bands): equal minima, equal numbers."""
    rows = digests.astype(np.uint64).reshape(len(digests), _BANDS, -1)
    return (rows * _BAND_SEED[: rows.shape[2]]).sum(axis=2, dtype=np.uint64)


def _meetings(band: NDArray[np.uint64], ordered: NDArray[np.uint64], order: NDArray[np.intp]) -> Ints:
    """Every pair of equal numbers, as (place before ordering) times (lines of the band) plus (line of the band)."""
    left, right = np.searchsorted(ordered, band, "left"), np.searchsorted(ordered, band, "right")
    counts = right - left
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    lines = np.repeat(np.arange(len(band)), counts)
    return order[np.repeat(left, counts) + within].astype(np.int64) * len(band) + lines


def overlap(
    test: Sequence[str],
    train: Iterable[str],
    n: int,
    most: int,
    near: float | None = None,
    least: float = 0.0,
) -> Overlap:
    """Compare the lines of a test set with those of a training text.

    Args:
        test: Lines.
        train: Lines, any number.
        n: Words of an n-gram.
        most: An n-gram, or a line, that occurs in more test lines than that is boilerplate, and so is any n-gram that
            shares a word with it in the same line.
        near: The least Jaccard similarity of two lines' words that makes them nearly the same; None looks for none.
        least: The share of a line's words that must lie in n-grams of the training text, boilerplate aside, before it is
            kept for them.
    """
    split = [words(line) for line in test]
    index = NgramIndex(split, n)
    alike = NearIndex(split, near) if near is not None else None
    wanted = Counter(line.strip() for line in test)
    del wanted[""]
    there: set[str] = set()
    in_train = np.zeros(index.count + 1, dtype=np.int64)
    found_near = np.zeros(len(test), dtype=bool)
    read = 0
    source = iter(train)
    while chunk := list(itertools.islice(source, CHUNK)):
        read += len(chunk)
        there.update(line for line in map(str.strip, chunk) if line in wanted)
        cut = [words(line) for line in chunk]
        in_train += index.frequencies(cut)
        if alike is not None:
            alike.mark(cut, found_near)
    exact = np.array([line.strip() in there for line in test], dtype=bool)
    hit = in_train[index.ranks] > 0
    boilerplate = index.boilerplate(most)
    ngram, kept_ngram, common = (np.zeros(len(test), dtype=bool) for _ in range(3))
    ngram[index.lines[hit]] = True
    kept_ngram[index.lines[hit & ~boilerplate]] = True
    common[index.lines[boilerplate]] = True
    kept_ngram &= index.covered(hit & ~boilerplate) >= least
    repeated = np.array([wanted[line.strip()] > most for line in test], dtype=bool)
    shown = _rarest(index, split, hit, boilerplate, in_train)
    return Overlap(
        exact=exact,
        ngram=ngram,
        share=index.covered(hit),
        near=found_near,
        common=common | repeated,
        short=np.array([len(line) < n for line in split], dtype=bool),
        **shown,
        kept=kept_ngram | ((exact | found_near) & ~repeated),
        kept_ngram=kept_ngram,
        training=read,
    )


def _rarest(
    index: NgramIndex, split: Sequence[Sequence[str]], hit: Bools, boilerplate: Bools, in_train: Ints
) -> dict[str, Any]:
    """For each line the matched n-gram that is no boilerplate, if any is not, and that the fewest test lines have."""
    texts = [""] * len(split)
    frequencies = np.zeros((2, len(split)), dtype=np.int64)
    at = np.flatnonzero(hit)
    order = np.lexsort((index.document_frequency[index.ranks[at]], boilerplate[at], index.lines[at]))
    ordered = at[order]
    first = np.flatnonzero(np.diff(index.lines[ordered], prepend=-1))
    for number in ordered[first].tolist():
        line, rank = int(index.lines[number]), int(index.ranks[number])
        texts[line] = index.text(split, int(index.places[number]))
        frequencies[:, line] = index.document_frequency[rank], in_train[rank]
    return {"shown": texts, "test_lines": frequencies[0], "train_lines": frequencies[1]}
