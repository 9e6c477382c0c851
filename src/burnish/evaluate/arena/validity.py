"""Arena validity: does a leaderboard tell models apart, and does a reference agree with it?

## How it works

Over all pairs of models:

* Separability with confidence: the share of pairs whose intervals do not overlap.
* Agreement with confidence: a pair counts +1 where benchmark and reference both separate it and agree on the order, -1
  where both separate it and disagree, and 0 where either does not separate it; the mean over the pairs.
* Pair-rank Brier score: the mean of (P(a above b) - 1[the reference has a above b])²; 0 is perfect, 0.25 is a coin.
* Spearman's and Kendall's correlation of the two rankings.

P(a above b) comes from the resamples that `arena score` leaves in its run folder; models are resampled together, so
what they share (the prompts) cancels. A leaderboard without resamples is taken as independent normal scores with the
given intervals, and the note says so. The leaderboard is a run folder of `arena score`, or a CSV file.

## Differences

* Agreement is shown twice, over all pairs (the paper's definition) and over the pairs that both separate. By the
  definition no more pairs can agree than are separated, yet the paper's table has 90.9 % beside a separability of
  87.4 %; the second figure is on the scale of that table.
* Intervals must have the same level for a comparison of benchmarks to be fair, and a leaderboard and a reference that
  say different ones are refused. The released code's are the quantiles
  0.05 and 0.95, hence 90 %, which separate more pairs than 95 %; here the level stands beside the figure.
* Touching intervals are not separated. Pairs that the reference ties have no Brier term, and are counted.

## When not to use it

A benchmark can separate everything and be wrong: read separability with agreement. Models that a benchmark was tuned
on, or a judge of the same family as a model, make agreement look better than it is.

## References

Li et al., arXiv 2406.11939, section 3, appendix A.1 and table 1.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field
from scipy.stats import kendalltau, spearmanr

from burnish.core.errors import BadInput, UnknownName
from burnish.core.method import Paper
from burnish.core.run import Run, ensure
from burnish.core.shapes import Analysis
from burnish.data.arena_hard import DRAWS, read_leaderboard
from burnish.data.scores import Table, read_table
from burnish.evaluate.arena import PAPER
from burnish.stats.items import FloatArray
from burnish.stats.separability import (
    Bounds,
    above_from_bounds,
    above_from_draws,
    agreement,
    pair_brier,
    separability,
)


class ArenaValidity(Analysis):
    """Separability of a leaderboard, and its agreement with a reference such as human votes."""

    paper: ClassVar[Paper | None] = PAPER

    top: Annotated[int, Field(ge=0)] = 0
    """Only so many models, the best by the reference (by the leaderboard where there is none); 0 for all. The paper
    takes the 20 best of the human leaderboard."""
    category: str = ""
    """The category of a leaderboard that holds several."""
    level: Annotated[float, Field(gt=0, lt=1)] = 0.95
    """The level of the intervals of files, which do not say it (a run of `arena score` does); 95 % in the paper."""

    def __call__(self, leaderboard: Path, reference: Path | None = None, run: Run | None = None) -> Table:
        """Compare all pairs of models.

        Args:
            leaderboard: A CSV file with model, score and bounds, or a run folder of `arena score`.
            reference: Another one, such as the human leaderboard, of models with the same names.
            run: Where figures go.

        Returns:
            A row a pair: item_id, model, other (the lower one), gap, order (1 separated, 0 not), above (probability);
            with a reference also reference_order and vote (1, -1 or 0).

        Raises:
            BadInput: a file that is no leaderboard, intervals of several levels, or fewer than two models in common.
        """
        run = ensure(run)
        board, level = _read(Path(leaderboard), self.category, self.level)
        truth, other = (None, level) if reference is None else _read(Path(reference), self.category, self.level)
        if other != level:
            raise BadInput(
                f"the leaderboard's intervals are at {level:g}, and the reference's at {other:g}",
                "score both at one level, or say that of files with --level",
            )
        names, left_out = self._models(board, truth)
        board = board.only(names)
        truth = None if truth is None else truth.only(names)
        draws = _draws(Path(leaderboard), self.category, names)
        above = above_from_bounds(board, level) if draws is None else above_from_draws(draws)
        notes: dict[str, Any] = {"separability": separability(board)}
        if truth is not None:
            notes |= _against(board, truth, above)
        notes |= {"models": len(names), "pairs": len(board.pairs()), "level": level}
        notes["probabilities"] = "from resamples" if draws is not None else "normal, from the intervals"
        if left_out:
            notes["left_out"] = left_out
        run.metric(**{name: value for name, value in notes.items() if isinstance(value, int | float)})
        return Table.of(_rows(board, truth, above), **notes)

    def _models(self, board: Bounds, truth: Bounds | None) -> tuple[list[str], list[str]]:
        """The models that are compared, best first, and those that only one of the two knows."""
        by = board if truth is None else truth
        known = set(board.names) if truth is None else {*board.names} & {*truth.names}
        names = [by.names[place] for place in np.argsort(-by.scores, kind="stable") if by.names[place] in known]
        if self.top > len(names):
            raise BadInput(f"there are {len(names)} models to compare, and {self.top} are asked for", "a smaller --top")
        if len(names) < 2:
            raise BadInput(
                f"{len(names)} models are in both: {', '.join(board.names[:5])} … and {', '.join(by.names[:5])} …",
                "give both the same names of models",
            )
        both = {*board.names} | ({*truth.names} if truth is not None else set())
        return names[: self.top or None], sorted(both - known)


def _against(board: Bounds, truth: Bounds, above: FloatArray) -> dict[str, Any]:
    every, separated = agreement(board, truth)
    found: dict[str, Any] = {"agreement": every}
    if separated is not None:
        found["agreement_of_separated"] = separated
    found["reference_separability"] = separability(truth)
    tied = sum(truth.scores[a] == truth.scores[b] for a, b in truth.pairs())
    found |= {"brier": pair_brier(above, truth), "tied_in_reference": int(tied)}
    if len(set(board.scores)) > 1:
        found["spearman"] = float(spearmanr(board.scores, truth.scores).statistic)
        found["kendall"] = float(kendalltau(board.scores, truth.scores).statistic)
    return found


def _rows(board: Bounds, truth: Bounds | None, above: FloatArray) -> list[dict[str, Any]]:
    rows = []
    for a, b in board.pairs():
        a, b = (a, b) if board.scores[a] >= board.scores[b] else (b, a)
        row = {
            "item_id": f"{board.names[a]} / {board.names[b]}",
            "model": board.names[a],
            "other": board.names[b],
            "gap": float(board.scores[a] - board.scores[b]),
            "order": board.order(a, b),
            "above": float(above[a, b]),
        }
        if truth is not None:
            row |= {"reference_order": truth.order(a, b), "vote": board.order(a, b) * truth.order(a, b)}
        rows.append(row)
    return rows


def _read(path: Path, category: str, level: float) -> tuple[Bounds, float]:
    """A leaderboard, and the level of its intervals: `level` where it does not say."""
    found = read_leaderboard(path)
    categories = sorted({one.category for one in found})
    if category and categories != [""]:
        if category not in categories:
            raise UnknownName("category", category, categories)
        found = [one for one in found if one.category == category]
    elif len(categories) > 1:
        raise BadInput(f"{path} holds {len(categories)} categories", f"name one: --category {categories[0]}")
    levels = {level if one.level is None else one.level for one in found}
    if len(levels) > 1:
        raise BadInput(f"{path} holds intervals of several levels: {sorted(levels)}", "give those of one level")
    columns = zip(*((one.model, one.score, one.low, one.high) for one in found), strict=True)
    return Bounds.of(*map(list, columns)), levels.pop()  # type: ignore[arg-type]


def _draws(path: Path, category: str, names: list[str]) -> FloatArray | None:
    """Scores in the resamples, (draws, models); None where the leaderboard has none."""
    if not (path.is_dir() and (path / DRAWS).exists()):
        return None
    table = read_table(path / DRAWS)
    kept = np.ones(len(table), dtype=bool) if not category else table.column("category") == category
    model, rate = table.column("model")[kept], table.column("win_rate")[kept]
    return np.column_stack([rate[model == name] for name in names]) if {*names} <= {*model} else None
