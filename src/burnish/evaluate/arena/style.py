"""Style control: how much longer and more marked up a model's answer is than the baseline's, game by game."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from burnish.core.errors import BadInput
from burnish.data.answer_style import AnswerStyle, answer_style, length_difference, markdown_differences
from burnish.data.arena_hard import Answer, Game
from burnish.stats.items import FloatArray

Texts = Mapping[str, Mapping[str, Answer]]
"""Answers by model and by prompt."""

_MARKDOWN = ("header", "list", "bold")
RECORDED, COUNTED = "as recorded", "counted as words and marks"


def covariates(
    games: Sequence[Game], texts: Texts, control: Collection[str], weights: FloatArray
) -> dict[str, FloatArray]:
    """Style differences, model minus baseline, in standard deviations over these games.

    Args:
        games: The games of one category.
        texts: Answers of their models and of the baseline.
        control: "length", "markdown", both or neither.
        weights: How often each game counts, (games,).

    Returns:
        Name to values, (games,); a difference that is the same in every game is left out, for nothing can be said of it.

    Raises:
        BadInput: answers that are missing.
    """
    if not control:
        return {}
    _refuse_missing(games, texts)
    used = _used(games, texts)
    tokens = all(answer.tokens is not None for answer in used)
    markup = tokens and all(answer.markup is not None for answer in used)
    styles: dict[tuple[str, str], AnswerStyle] = {}

    def style(model: str, uid: str) -> AnswerStyle:
        if (model, uid) not in styles:
            answer = texts[model][uid]
            counted = answer_style(answer.text, answer.tokens if tokens else None)
            styles[model, uid] = replace(counted, **_recorded(answer)) if markup else counted
        return styles[model, uid]

    pairs = [(style(game.model, game.uid), style(game.baseline, game.uid)) for game in games]
    found: dict[str, FloatArray] = {}
    if "length" in control:
        found["length"] = np.array([length_difference(*pair) for pair in pairs])
    if "markdown" in control:
        found |= zip(_MARKDOWN, np.array([markdown_differences(*pair) for pair in pairs]).T, strict=True)
    return {name: values / _spread(values, weights) for name, values in found.items() if np.ptp(values) > 0}


def names_of(control: Collection[str]) -> list[str]:
    """The covariates of a choice of what is held equal."""
    return [*(["length"] if "length" in control else []), *(_MARKDOWN if "markdown" in control else [])]


def _spread(values: FloatArray, weights: FloatArray) -> float:
    """The standard deviation, as if each game stood there as often as it counts."""
    mean = np.average(values, weights=weights)
    return float(np.sqrt(weights @ (values - mean) ** 2 / (weights.sum() - 1)))


def unit(games: Sequence[Game], texts: Texts) -> str:
    """How these games' answers are measured: one way for all, or they could not be compared."""
    used = _used(games, texts)
    tokens = all(answer.tokens is not None for answer in used)
    markup = tokens and all(answer.markup is not None for answer in used)
    return f"tokens {RECORDED if tokens else COUNTED}" + (f", Markdown {RECORDED}" if markup else "")


def _used(games: Sequence[Game], texts: Texts) -> list[Answer]:
    """The answers of these games, each once, as far as there are any."""
    keys = {(model, game.uid) for game in games for model in (game.model, game.baseline)}
    return [texts[model][uid] for model, uid in sorted(keys) if uid in texts.get(model, {})]


def _recorded(answer: Answer) -> dict[str, int]:
    """The Markdown that the file says is in the answer."""
    return dict(zip(("headers", "lists", "bold"), answer.markup or (0, 0, 0), strict=True))


def _refuse_missing(games: Sequence[Game], texts: Texts) -> None:
    lacking = Counter(
        model
        for model, uid in {(name, game.uid) for game in games for name in (game.model, game.baseline)}
        if uid not in texts.get(model, {})
    )
    if lacking:
        faults = [f"{model}: {count} answers" for model, count in sorted(lacking.items())]
        raise BadInput.of("style control lacks answers", faults, "give a folder with the answers of all these models")
