"""Judgments of pairs: Arena-Hard-Auto's (both shapes of its records) and AlpacaEval's annotations.

The measure `win` is the model's: 1 for a win, .5 for a tie, 0 for a loss. Arena-Hard judges a prompt twice with the
sides swapped; its two games are two runs of one item, never two items. `weight` is 3 for a verdict like A>>B.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from burnish.data.logs.log import Ask, Log, Reported, cluster_of, score
from burnish.data.logs.stream import JsonFile, lines, text

ARENA = "Arena-Hard judgments"
ALPACA = "AlpacaEval annotations"
BOARD = "AlpacaEval leaderboard"
LABELS = ("uid", "category", "cluster", "judge", "baseline")
"""What of a record can be a cluster."""

VERDICTS = {"A>>B": (1.0, 3), "A>B": (1.0, 1), "A=B": (0.5, 1), "B>A": (0.0, 1), "B>>A": (0.0, 3)}
VERDICTS |= {turned: (1 - VERDICTS[one][0], VERDICTS[one][1]) for one, turned in (("A>B", "B<A"), ("B>A", "A<B"))}
VERDICTS |= {"B<<A": (1.0, 3), "A<<B": (0.0, 3), "B=A": (0.5, 1)}
"""Verdict to A's result and the verdict's weight."""


def read_arena(path: Path, ask: Ask) -> Log:
    """A file of judgments.

    Raises:
        BadInput: a record has no games, or a verdict that is none of the five.
    """
    log = Log(ARENA, path)
    baselines, judges, missing = set(), set(), 0
    for number, record in lines(path):
        games = record.get("games")
        item = record.get("uid", record.get("question_id"))
        if not isinstance(games, list) or item is None:
            raise log.refuse(f"line {number} has no uid, or no games")
        baselines.add(str(record.get("baseline", "unknown")))
        judges.add(str(record.get("judge", "unknown")))
        for place, game in enumerate(games):
            win, weight = _game(log, number, game, baseline_is_a=place == 0)
            missing += win is None
            log.add(
                item,
                str(record.get("model", "unknown")),
                {"win": win},
                epoch=place + 1,
                subset=record.get("category"),
                cluster=cluster_of(ask, log, {key: record[key] for key in LABELS if key in record}),
                status="unscored" if win is None else None,
            )["weight"] = weight
    log.facts |= {"baseline": sorted(baselines), "judge": sorted(judges)}
    if missing:
        log.warn(f"{missing} games have no verdict, and count as unscored")
    if len(judges) > 1:
        log.warn(f"the file mixes the verdicts of {len(judges)} judges")
    return log


def _game(log: Log, number: int, game: Any, *, baseline_is_a: bool) -> tuple[float | None, int | None]:
    verdict = game.get("score") if isinstance(game, Mapping) else None
    if verdict is None:
        return None, None
    said = str(verdict).strip("[] ").upper()
    if said not in VERDICTS:
        raise log.refuse(f"line {number} has the verdict {verdict!r}", "one of " + ", ".join(list(VERDICTS)[:5]))
    a, weight = VERDICTS[said]
    return (1 - a if baseline_is_a else a), weight


def read_alpaca(path: Path, ask: Ask) -> Log:
    """`annotations.json`: a preference from 1 (the first output) to 2 (the second, the model's)."""
    log = Log(ALPACA, path)
    rows = JsonFile(path).read()
    invalid = 0
    for number, row in enumerate(rows):
        preference = row.get("preference")
        known = isinstance(preference, int | float) and 1 <= preference <= 2
        invalid += not known
        log.add(
            number,
            str(row.get("generator_2", "unknown")),
            {"win": preference - 1 if known else None},
            content=row.get("instruction"),
            subset=row.get("dataset"),
            cluster=cluster_of(ask, log, row),
        )
    if invalid:
        log.warn(f"{invalid} preferences are missing or outside 1 to 2, and count as unscored")
    return log


def read_leaderboard(path: Path, ask: Ask) -> Log:
    """The leaderboard CSV: win rates in percent with their standard errors, over `n_total` instructions."""
    log = Log(BOARD, path, "AlpacaEval")
    log.figures_only = True
    errors = {"win_rate": "standard_error", "length_controlled_winrate": "lc_standard_error"}
    with text(path) as file:
        for row in csv.DictReader(file):
            model, total = next(iter(row.values())), score(row["n_total"])
            for measure, error in errors.items():
                rate, stderr = score(row.get(measure)), score(row.get(error))
                if rate is not None:
                    n = None if total is None else int(total)
                    stated = None if stderr is None else stderr / 100
                    log.reported.append(Reported(model, log.task, measure, rate / 100, stated, n))
    log.warn("the file holds figures and no items: give annotations.json for comparisons")
    return log
