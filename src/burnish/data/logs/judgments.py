"""Judgments of pairs: Arena-Hard-Auto's (both shapes of its records) and AlpacaEval's annotations.

The measure `win` is the model's: 1 for a win, .5 for a tie, 0 for a loss. Arena-Hard judges a prompt twice with the
sides swapped; its two games are two runs of one item, never two items. `weight` is 3 for a verdict like A>>B.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from burnish.data.logs.log import Ask, Log, cluster_of
from burnish.data.logs.stream import JsonFile, lines

ARENA = "Arena-Hard judgments"
ALPACA = "AlpacaEval annotations"
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
    text = str(verdict).strip("[] ").upper()
    if text not in VERDICTS:
        raise log.refuse(f"line {number} has the verdict {verdict!r}", "one of " + ", ".join(list(VERDICTS)[:5]))
    a, weight = VERDICTS[text]
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
