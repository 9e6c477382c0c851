"""Made-up parallel sentences: English-like sources, and targets in an invented language with another order of words.

They stand in for real translations where a test or a smoke run needs some: nothing is fetched and nobody's text is used. Every
word has one translation, the verb moves to the end, adjectives follow their nouns, and numbers agree; so there is a rule to
learn, and much that only remembering can tell, for each sentence draws its words anew.
"""

from __future__ import annotations

import numpy as np

from burnish.data.injection import Pair

NOUNS = [
    "dog",
    "cat",
    "child",
    "woman",
    "man",
    "bird",
    "horse",
    "boat",
    "car",
    "ball",
    "hat",
    "book",
    "tree",
    "house",
    "street",
    "river",
    "table",
    "chair",
    "window",
    "door",
    "bicycle",
    "train",
    "camera",
    "guitar",
    "mountain",
    "bridge",
    "beach",
    "garden",
    "kitchen",
    "market",
]
ADJECTIVES = [
    "red",
    "blue",
    "green",
    "small",
    "large",
    "old",
    "young",
    "quiet",
    "bright",
    "wooden",
    "empty",
    "wet",
    "tall",
    "brown",
    "happy",
    "tired",
]
VERBS = [
    "sees",
    "carries",
    "watches",
    "holds",
    "paints",
    "follows",
    "finds",
    "moves",
    "pushes",
    "cleans",
    "opens",
    "photographs",
]
PLACES = ["near", "behind", "under", "beside", "above", "inside"]
NUMBERS = ("one", "two", "three")
_SYLLABLES = [
    "ba",
    "re",
    "mi",
    "so",
    "lu",
    "ka",
    "te",
    "ni",
    "vo",
    "du",
    "pa",
    "she",
    "fri",
    "gor",
    "zen",
    "hal",
    "tor",
    "ung",
    "ish",
    "ol",
]


def made_pairs(count: int, seed: int = 0) -> list[Pair]:
    """Sentence pairs; the same count and seed give the same ones.

    Args:
        count: Pairs.
        seed: Of the choice of words; the languages are the same for all seeds.
    """
    rng = np.random.Generator(np.random.PCG64([seed, 1]))
    words = _dictionary()
    return [_pair(rng, words) for _ in range(count)]


def _dictionary() -> dict[str, str]:
    """Each word's translation: two or three syllables, no two the same."""
    rng = np.random.Generator(np.random.PCG64([0, 2]))
    found: dict[str, str] = {}
    for word in (*NOUNS, *ADJECTIVES, *VERBS, *PLACES, *NUMBERS):
        while (made := "".join(rng.choice(_SYLLABLES, size=rng.integers(2, 4)))) in found.values():
            pass
        found[word] = made
    return found


def _pair(rng: np.random.Generator, words: dict[str, str]) -> Pair:
    def phrase() -> Pair:
        number, adjective, noun = (str(rng.choice(group)) for group in (NUMBERS, ADJECTIVES, NOUNS))
        plural = ("", "") if number == "one" else ("s", "en")
        return (
            f"{number} {adjective} {noun}{plural[0]}",
            f"{words[number]} {words[noun]}{plural[1]} {words[adjective]}{plural[1]}",
        )

    (who, whom), verb = (phrase(), phrase()), str(rng.choice(VERBS))
    source, target = f"{who[0]} {verb} {whom[0]}", f"{who[1]} {whom[1]}"
    if rng.random() < 0.5:
        place, where = str(rng.choice(PLACES)), phrase()
        source, target = f"{source} {place} {where[0]}", f"{target} {where[1]} {words[place]}"
    return f"{source}.".capitalize(), f"{target} {words[verb]}.".capitalize()
