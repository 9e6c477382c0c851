"""Arena score: win rates against a baseline from a judge's verdicts, with intervals over prompts and style control.

## How it works

Each prompt is played twice with the sides swapped. A verdict gives the model 1, 0.5 or 0; a clear one (A>>B) counts
`strong` times. In each category the win rates come from the Bradley-Terry model

    P(model beats baseline) = 1 / (1 + exp(-(s_model - s_baseline + x·β)))

where x holds what style control keeps equal: of the length, (a - b) / (a + b) in tokens; of headers, list items and bold
phrases, each a token, (a - b) / (a + b + 1); all divided by their standard deviation over the category's games. Without
style control it is the weighted mean of the scores. Intervals come from resampling whole prompts, with all games of all
models on them.

The run folder gets a row a game (items.parquet) and the win rates of every resample (draws.parquet), which `arena
validity` reads.

## Differences

From the released code, show_result.py:

* It resamples games as if they were independent (and a clear verdict as three of them). Two games on one prompt mostly
  agree, so such intervals are far too narrow. Here prompts are resampled.
* It prints the quantiles 0.05 and 0.95 of the resamples as "CI": 90 %. Here `level` is 0.95 and said in the table.
* `-f length` alone takes the first column of the design matrix, which is a model, and `-f markdown` drops the first
  model. Here each choice fits what it says.
* With several categories its battles are overwritten in a loop. Here each category has its own fit.
* It centres the style features over all battles. In each of them the model is a and the baseline b, so the mean is no
  zero, and its "win rate" is at the mean style of whoever else is on the board. Here it is at equal style; `at =
  "mean"` gives the released figure. The coefficients are the same.
* Games without a verdict are counted in the table. Two judges, two sets of judging instructions, or two baselines in
  one category are refused, for verdicts of different judges cannot be compared.
* Tokens are those that the answer files record (gpt-4o's in version 2), where all do; else words and marks are counted.
* Its unused Rao-Kupper loss for ties is left out: a tie is half a win.

## When not to use it

Win rates are a judge's preference, and a judge likes its own family. With a handful of prompts the interval is too
narrow still, and says so. Style control removes what length and Markdown explain, also where the longer answer is
better because it is longer.

## References

Li et al., arXiv 2406.11939, sections 4 and 6; the settings of lmarena/arena-hard-auto (version 2).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from burnish.core.errors import BadInput, UnknownName
from burnish.core.method import Paper
from burnish.core.run import Run, ensure
from burnish.core.shapes import Analysis
from burnish.data.answer_style import AnswerStyle, answer_style, length_difference, markdown_differences
from burnish.data.arena_hard import DRAWS, Answer, Game, read_answers, read_judgments
from burnish.data.scores import Table
from burnish.evaluate.arena import PAPER
from burnish.stats.bootstrap import bootstrap as mean_interval
from burnish.stats.bradley_terry import Comparisons, Resampled, bootstrap

MARKDOWN = ("header", "list", "bold")


class ArenaScore(Analysis):
    """Win rates from judgments, with prompt-resampled intervals and optional style control."""

    paper: ClassVar[Paper | None] = PAPER

    control: tuple[Literal["length", "markdown"], ...] = ()
    """What style control holds equal; nothing by default (show_result.py). It needs the answers."""
    at: Literal["equal", "mean"] = "equal"
    """Style at which the win rate is meant: equal to the baseline's, or the mean over the category's games, as the
    released code has it."""
    category: tuple[str, ...] = ()
    """Categories to score; all by default."""
    strong: Annotated[float, Field(ge=1)] = 3
    """How often a clear verdict (A>>B) counts; 3 in the released code."""
    draws: Annotated[int, Field(ge=100)] = 1000
    """Resamples of prompts; the released code has 100, few for a bound at 2.5 %."""
    level: Annotated[float, Field(gt=0, lt=1)] = 0.95
    """Confidence level of the intervals."""

    def __call__(self, judgments: Path, answers: Path | None = None, run: Run | None = None) -> Table:
        """Turn judgments into a leaderboard.

        Args:
            judgments: A file, a folder of them, or a run folder of `arena judge`.
            answers: A file or folder with the answers of the models and the baseline; for style control.
            run: Where figures go.

        Returns:
            A row a model and category, best first: category, model, win_rate, low, high, level, prompts, games,
            missing (games without a verdict), consistent (share of prompts on which both games prefer the same side;
            NaN where no prompt has both), first_side (mean score of the side that is shown first).

        Raises:
            BadInput: files that are no judgments, several judges, judging instructions or baselines; for style
                control, answers that are missing.
            UnknownName: a category that the judgments do not hold.
        """
        run = ensure(run)
        games = self._chosen(read_judgments(judgments))
        if self.control and answers is None:
            raise BadInput("style control needs the answers", "--answers FOLDER, or leave --control out")
        texts = read_answers(answers) if self.control and answers is not None else {}
        by_category: dict[str, list[Game]] = defaultdict(list)
        for game in games:
            by_category[game.category].append(game)
        _refuse_mixtures(by_category)
        rows, draws, notes = [], [], self._notes(games, texts)
        for category, played in sorted(by_category.items()):
            fitted, shift = self._fit(played, texts, run.seed_of(f"arena score/{category}") % 2**32)
            rows += self._standings(category, played, fitted, shift)
            draws += _draws(category, fitted, shift, self.at)
            notes |= {f"{name}, {category}" if len(by_category) > 1 else name: v for name, v in _style(fitted).items()}
            notes |= _consistency(category if len(by_category) > 1 else "", played, self.level)
        run.items([game.row() | {"weight": self._weight(game)} for game in games])
        Table.of(draws).save(run.folder / DRAWS)
        run.metric(**{name: value for name, value in notes.items() if isinstance(value, int | float)})
        return Table.of(rows, **notes)

    def _chosen(self, games: list[Game]) -> list[Game]:
        known = {game.category for game in games}
        for name in self.category:
            if name not in known:
                raise UnknownName("category", name, known)
        return [game for game in games if not self.category or game.category in self.category]

    def _weight(self, game: Game) -> float:
        return self.strong if game.strong else 1.0

    def _notes(self, games: list[Game], texts: Mapping[str, Mapping[str, Answer]]) -> dict[str, Any]:
        notes = {
            "judge": games[0].judge,
            "instructions": games[0].prompt or "not recorded",
            "games": len(games),
            "without_verdict": sum(game.verdict is None for game in games),
            "interval": f"{self.level:.0%}, {self.draws} resamples of prompts",
        }
        if self.control:
            notes["style"] = f"{', '.join(self.control)} at {self.at} style; tokens {_unit(games, texts)}"
        return notes

    def _fit(
        self, games: list[Game], texts: Mapping[str, Mapping[str, Answer]], seed: int
    ) -> tuple[Resampled, dict[str, float]]:
        """The fit of one category, and the mean of each covariate over its games."""
        played = [game for game in games if game.verdict is not None]
        if not played:
            raise BadInput(f"no game of {games[0].category or 'the file'} has a verdict", "judge them again")
        style = self._covariates(played, texts)
        rows = Comparisons.of(
            [game.model for game in played],
            [game.baseline for game in played],
            [game.score or 0.0 for game in played],
            weights=[self._weight(game) for game in played],
            covariates=style,
            clusters=[game.uid for game in played],
        )
        fitted = bootstrap(rows, played[0].baseline, draws=self.draws, level=self.level, seed=seed)
        return fitted, {name: float(np.average(values, weights=rows.weight)) for name, values in style.items()}

    def _covariates(self, games: Sequence[Game], texts: Mapping[str, Mapping[str, Answer]]) -> dict[str, np.ndarray]:
        """Style differences of each game, divided by their standard deviation; those that never differ are left out."""
        if not self.control:
            return {}
        recorded = _unit(games, texts) == "as recorded"
        styles: dict[tuple[str, str], AnswerStyle] = {}

        def style(model: str, uid: str) -> AnswerStyle:
            if (model, uid) not in styles:
                answer = texts[model][uid]
                styles[model, uid] = answer_style(answer.text, answer.tokens if recorded else None)
            return styles[model, uid]

        _refuse_missing(games, texts)
        pairs = [(style(game.model, game.uid), style(game.baseline, game.uid)) for game in games]
        found: dict[str, np.ndarray] = {}
        if "length" in self.control:
            found["length"] = np.array([length_difference(*pair) for pair in pairs])
        if "markdown" in self.control:
            found |= zip(MARKDOWN, np.array([markdown_differences(*pair) for pair in pairs]).T, strict=True)
        return {name: values / spread for name, values in found.items() if (spread := _spread(values))}

    def _standings(
        self, category: str, games: Sequence[Game], fitted: Resampled, shift: Mapping[str, float]
    ) -> list[dict[str, Any]]:
        baseline = fitted.fit.anchor
        rows = [
            {"category": category, "model": baseline, "win_rate": 0.5, "low": 0.5, "high": 0.5, "level": self.level,
             "prompts": 0, "games": 0, "missing": 0, "consistent": float("nan"), "first_side": float("nan")}
        ]  # fmt: skip
        moved = _moved(fitted, shift, self.at)
        for model in sorted({game.model for game in games}):
            own = [game for game in games if game.model == model]
            played = [game for game in own if game.verdict is not None]
            if not played:
                raise BadInput(f"no game of {model} has a verdict", "judge it again, or leave it out")
            interval = fitted.interval(
                fitted.fit.win_rate(model, shift=float(moved[0])), fitted.win_rates(model, shift=moved[1:])
            )
            same = [agree for _, agree in _agreements(own)]
            first = [game.score if game.number == 1 else 1 - game.score for game in played if game.score is not None]
            rows.append(
                {"category": category, "model": model, "win_rate": interval.estimate, "low": interval.low,
                 "high": interval.high, "level": self.level, "prompts": len({game.uid for game in played}),
                 "games": len(played), "missing": len(own) - len(played),
                 "consistent": float(np.mean(same)) if same else float("nan"), "first_side": float(np.mean(first))}
            )  # fmt: skip
        return sorted(rows, key=lambda row: (-row["win_rate"], row["model"]))


def _spread(values: np.ndarray) -> float:
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def _moved(fitted: Resampled, shift: Mapping[str, float], at: str) -> np.ndarray:
    """x·β of the style that is meant: of the fit, then of each resample, (1 + draws,)."""
    mean = np.array([shift[name] for name in fitted.fit.names])
    every = np.vstack([fitted.fit.coefficients, fitted.coefficients])
    return every @ mean if at == "mean" else np.zeros(len(every))


def _draws(category: str, fitted: Resampled, shift: Mapping[str, float], at: str) -> list[dict[str, Any]]:
    moved = _moved(fitted, shift, at)[1:]
    return [
        {"category": category, "model": model, "draw": draw, "win_rate": float(rate)}
        for model in fitted.fit.players
        for draw, rate in enumerate(
            fitted.win_rates(model, shift=0.0 if model == fitted.fit.anchor else moved)
        )
    ]  # fmt: skip


def _style(fitted: Resampled) -> dict[str, Any]:
    """The coefficients: change of the logit for one standard deviation of a style difference."""
    found: dict[str, Any] = {}
    for name in fitted.fit.names:
        interval = fitted.coefficient(name)
        found |= {name: interval.estimate, f"{name}_low": interval.low, f"{name}_high": interval.high}
    return found


def _agreements(games: Sequence[Game]) -> list[tuple[str, bool]]:
    """For each model and prompt with two verdicts, the prompt and whether both prefer the same answer."""
    pairs: dict[tuple[str, str], list[float]] = defaultdict(list)
    for game in games:
        if game.score is not None:
            pairs[game.model, game.uid].append(game.score)
    return [(uid, scores[0] == scores[1]) for (_, uid), scores in pairs.items() if len(scores) == 2]


def _consistency(category: str, games: Sequence[Game], level: float) -> dict[str, Any]:
    """How often the judge prefers the same answer when the sides are swapped, with its interval over prompts."""
    pairs = _agreements(games)
    name = f"position_consistency, {category}" if category else "position_consistency"
    if len({uid for uid, _ in pairs}) < 2:
        return {}
    found = mean_interval([float(same) for _, same in pairs], clusters=[uid for uid, _ in pairs], level=level)
    return {name: found.estimate, f"{name}_low": found.low, f"{name}_high": found.high}


def _unit(games: Sequence[Game], texts: Mapping[str, Mapping[str, Answer]]) -> str:
    used = [texts.get(model, {}).get(game.uid) for game in games for model in (game.model, game.baseline)]
    recorded = all(answer is not None and answer.tokens is not None for answer in used)
    return "as recorded" if recorded else "counted as words and marks"


def _refuse_mixtures(by_category: Mapping[str, Sequence[Game]]) -> None:
    faults = []
    for category, games in by_category.items():
        for what, values in (
            ("judges", {game.judge for game in games}),
            ("sets of judging instructions", {game.prompt for game in games}),
            ("baselines", {game.baseline for game in games}),
        ):
            if len(values) > 1:
                named = ", ".join(sorted(value or "(not recorded)" for value in values))
                faults.append(f"{category or 'the file'}: {len(values)} {what}: {named}")
    if faults:
        raise BadInput.of("these judgments cannot be compared with one another", faults, "score each by itself")


def _refuse_missing(games: Sequence[Game], texts: Mapping[str, Mapping[str, Answer]]) -> None:
    lacking = Counter(
        model
        for model, uid in {(name, game.uid) for game in games for name in (game.model, game.baseline)}
        if uid not in texts.get(model, {})
    )
    if lacking:
        faults = [f"{model}: {count} answers" for model, count in sorted(lacking.items())]
        raise BadInput.of("style control lacks answers", faults, "give a folder with the answers of all these models")
