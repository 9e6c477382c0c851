"""Arena score: win rates against a baseline from a judge's verdicts, with intervals over prompts and style control.

## How it works

Each prompt is played twice with the sides swapped. A verdict gives the model 1, 0.5 or 0; a clear one (A>>B) counts
`strong` times. In each category the win rates come from the Bradley-Terry model

    P(model beats baseline) = 1 / (1 + exp(-(s_model - s_baseline + x·β)))

where x holds what style control keeps equal: of the length, (a - b) / (a + b) in tokens; of headers, list items and bold
phrases, each a token, (a - b) / (a + b + 1); all divided by their standard deviation over the category's games. Without
style control it is the weighted mean of the scores. A prompt of which one game has no verdict does not count for that
model and judge: the other game alone would carry the judge's liking for a side. Intervals come from resampling whole
prompts, with all games of all models and judges on them.

Several judges can vote as one (`panel`, the paper's Ensemble-as-Judges): all their games count alike.

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
* The figure is the fit to all games, where the released code prints the mean or the median of the resamples. Bounds are
  widened a little for few prompts, and a tiny penalty keeps who won every game finite; see burnish.stats.bradley_terry.
* Games that do not count are shown in the table. Two judges (but for a panel), two sets of judging instructions of one
  judge, or two baselines in one category are refused, for such verdicts cannot be compared; so is a panel whose judges
  have judged different answers. A judge's own answers are left out, as there, and the table says so.
* Tokens and Markdown are those that the answer files record (version 2, tokens of gpt-4o), where all do; else words and
  marks, and Markdown outside code, are counted here.
* Its unused Rao-Kupper loss for ties is left out: a tie is half a win.

## When not to use it

Win rates are a judge's preference, and a judge likes its own family. With a handful of prompts the interval is too
narrow still, and says so. Style control removes what length and Markdown explain, also where the longer answer is
better because it is longer.

## References

Li et al., arXiv 2406.11939, sections 5, 6.5 and 6.6, appendix A.2; the settings of lmarena/arena-hard-auto (version 2).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from burnish.core.errors import BadInput, UnknownName
from burnish.core.method import Paper
from burnish.core.run import Run, ensure
from burnish.core.shapes import Analysis
from burnish.data.arena_hard import DRAWS, Answer, Game, read_answers, read_judgments
from burnish.data.scores import Table
from burnish.evaluate.arena import PAPER
from burnish.evaluate.arena.games import agreements, counted, refuse_mixtures, without_own
from burnish.evaluate.arena.style import covariates, names_of, unit
from burnish.stats.bootstrap import bootstrap as mean_interval
from burnish.stats.bradley_terry import Comparisons, Resampled, bootstrap

AGAIN = "read the judge's replies in the judgments; a better judge, or a larger --max-tokens where they are cut off"


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
    panel: bool = False
    """Let several judges vote as one (section 6.6 of the paper); otherwise judgments of several are refused."""
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
            A row a model and category, best first: label, estimate (the win rate), low, high, level, n (games),
            n_clusters (prompts), method, category, model, missing (games that do not count, for they or their swap have no verdict), consistent (share of pairs of
            games in which the same answer is preferred), first_side (mean score of the side that is shown first).

        Raises:
            BadInput: files that are no judgments, several judges, judging instructions or baselines; for style
                control, answers that are missing.
            UnknownName: a category that the judgments do not hold.
        """
        run = ensure(run)
        games, own = without_own(self._chosen(read_judgments(judgments)))
        if self.control and answers is None:
            raise BadInput("style control needs the answers", "--answers FOLDER, or leave --control out")
        texts = read_answers(answers) if self.control and answers is not None else {}
        by_category: dict[str, list[Game]] = defaultdict(list)
        for game in games:
            by_category[game.category].append(game)
        refuse_mixtures(by_category, self.panel)
        rows, draws, notes = [], [], self._notes(games, texts)
        if own:
            notes["warnings"] = [*notes["warnings"], f"left out, the judge's own answers: {', '.join(own)}"]
        for category, played in sorted(by_category.items()):
            fitted, shift = self._fit(played, texts, run.seed_of(f"arena score/{category}") % 2**32)
            rows += self._standings(category, played, fitted, shift, several=len(by_category) > 1)
            draws += _draws(category, fitted, shift, self.at)
            figures = {"baseline": fitted.fit.anchor} | self._style(fitted) | _consistency(played, self.level)
            notes |= {f"{name}, {category}" if len(by_category) > 1 else name: v for name, v in figures.items()}
        run.items([self._item(game) for game in games])
        Table.of(draws).save(run.folder / DRAWS)
        run.metric(**{name: value for name, value in notes.items() if isinstance(value, int | float | dict)})
        return Table.of(rows, **notes)

    def _chosen(self, games: list[Game]) -> list[Game]:
        known = {game.category for game in games}
        for name in self.category:
            if name not in known:
                raise UnknownName("category", name, known)
        return [game for game in games if not self.category or game.category in self.category]

    def _weight(self, game: Game) -> float:
        return self.strong if game.strong else 1.0

    def _item(self, game: Game) -> dict[str, Any]:
        row = game.row() | {"weight": self._weight(game)}
        return row | ({"item_id": f"{game.uid}/{game.number}/{game.judge}"} if self.panel else {})

    def _notes(self, games: list[Game], texts: Mapping[str, Mapping[str, Answer]]) -> dict[str, Any]:
        without = sum(game.verdict is None for game in games)
        alone = len(games) - len(counted(games))
        told = f"{without} of {len(games)} games have no verdict; with their swaps {alone} do not count"
        notes: dict[str, Any] = {
            "judge": ", ".join(sorted({game.judge for game in games})),
            "instructions": ", ".join(sorted({game.prompt or "not recorded" for game in games})),
            "games": len(games),
            "without_verdict": without,
            "not_counted": alone,
            "interval": f"{self.level:.0%}, {self.draws} resamples of prompts",
            "warnings": [told] if without else [],
        }
        if self.control:
            notes["style"] = f"{', '.join(self.control)} at {self.at} style; {unit(games, texts)}"
        return notes

    def _fit(
        self, games: list[Game], texts: Mapping[str, Mapping[str, Answer]], seed: int
    ) -> tuple[Resampled, dict[str, float]]:
        """The fit of one category, and the mean of each covariate over its games."""
        played = counted(games)
        if not played:
            raise BadInput(f"no prompt of {games[0].category or 'the file'} has two verdicts", AGAIN)
        weights = np.array([self._weight(game) for game in played])
        style = covariates(played, texts, self.control, weights)
        rows = Comparisons.of(
            [game.model for game in played],
            [game.baseline for game in played],
            [game.score or 0.0 for game in played],
            weights=weights,
            covariates=style,
            clusters=[game.uid for game in played],
        )
        fitted = bootstrap(rows, played[0].baseline, draws=self.draws, level=self.level, seed=seed)
        return fitted, {name: float(np.average(values, weights=weights)) for name, values in style.items()}

    def _style(self, fitted: Resampled) -> dict[str, Any]:
        """The coefficients: change of the logit for one standard deviation of a style difference."""
        found: dict[str, Any] = {}
        rare = []
        for name in fitted.fit.names:
            try:
                interval = fitted.coefficient(name)
            except BadInput:
                rare.append(name)
                continue
            found[name] = {"estimate": interval.estimate, "low": interval.low, "high": interval.high}
        never = [name for name in names_of(self.control) if name not in fitted.fit.names]
        found |= {"never_differs": ", ".join(never)} if never else {}
        return found | ({"differs_too_rarely": ", ".join(rare)} if rare else {})

    def _standings(
        self, category: str, games: Sequence[Game], fitted: Resampled, shift: Mapping[str, float], several: bool
    ) -> list[dict[str, Any]]:
        def named(model: str) -> dict[str, Any]:
            return {"category": category, "model": model, "label": f"{model}, {category}" if several else model}

        baseline = fitted.fit.anchor
        rows = [
            {**named(baseline), "estimate": 0.5, "low": 0.5, "high": 0.5, "level": self.level, "n": 0, "n_clusters": 0,
             "method": "baseline", "missing": 0, "consistent": None, "first_side": None}
        ]  # fmt: skip
        moved = _moved(fitted, shift, self.at)
        for model in sorted({game.model for game in games}):
            own = [game for game in games if game.model == model]
            played = counted(own)
            if not played:
                raise BadInput(f"no prompt of {model} has two verdicts", AGAIN)
            interval = fitted.interval(
                fitted.fit.win_rate(model, shift=float(moved[0])), fitted.win_rates(model, shift=moved[1:])
            )
            same = [agree for _, agree in agreements(own)]
            first = [game.score if game.number == 1 else 1 - game.score for game in played if game.score is not None]
            rows.append(
                {**named(model), "estimate": interval.estimate, "low": interval.low, "high": interval.high,
                 "level": self.level, "n": len(played), "n_clusters": len({game.uid for game in played}),
                 "method": "prompts resampled", "missing": len(own) - len(played),
                 "consistent": float(np.mean(same)), "first_side": float(np.mean(first))}
            )  # fmt: skip
        return sorted(rows, key=lambda row: (-row["estimate"], row["model"]))


def _moved(fitted: Resampled, shift: Mapping[str, float], at: str) -> np.ndarray:
    """x·β of the style that is meant: of the fit, then of each resample, (1 + draws,)."""
    mean = np.array([shift[name] for name in fitted.fit.names])
    # Where a resample says nothing of a style, the style moves nothing.
    every = np.nan_to_num(np.vstack([fitted.fit.coefficients, fitted.coefficients]))
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


def _consistency(games: Sequence[Game], level: float) -> dict[str, Any]:
    """How often the judge prefers the same answer when the sides are swapped, with its interval over prompts."""
    pairs = agreements(games)
    if len({uid for uid, _ in pairs}) < 2:
        return {}
    found = mean_interval([float(same) for _, same in pairs], clusters=[uid for uid, _ in pairs], level=level)
    return {"position_consistency": {"estimate": found.estimate, "low": found.low, "high": found.high}}
