"""Tables whose rows are estimates with intervals: their headline, and a forest plot of them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from burnish.report import charts, words
from burnish.report.forest import Row, forest
from burnish.report.page import Column, Section, figure, listed, paragraph, table

if TYPE_CHECKING:
    from burnish.data.scores import Table

BOUNDS = ("label", "estimate", "low", "high")
"""Columns that make a table one of estimates; with a column `verdict` they are differences."""

GLANCE = (
    *BOUNDS,
    *("n", "n_clusters", "method", "score_a", "score_b", "both", "only_a", "only_b", "neither"),
    *("p_better", "p_holm", "verdict", "stderr", "reported", "reported_stderr"),
    *("missing", "consistent", "first_side"),
)
"""Columns that stand in the table below the figure, where they say anything."""

CELLS = {"both": "both right", "only_a": "only {a}", "only_b": "only {b}", "neither": "neither"}
MOST_DRAWN = 60
"""Estimates in one figure."""


def are(kept: Table | None) -> bool:
    """Whether a run's table is one of estimates."""
    return kept is not None and set(BOUNDS) <= set(kept.table.column_names) and bool(_rows(kept))


def _rows(kept: Table) -> list[dict[str, Any]]:
    """The rows that have an estimate and bounds."""
    return [row for row in kept.rows() if all(isinstance(row[name], int | float) for name in BOUNDS[1:])]


def _differ(row: dict[str, Any]) -> bool:
    """Whether a row is the difference of two models."""
    return {"a", "b", "verdict"} <= row.keys()


def _over(row: dict[str, Any], word: str) -> str:
    """The words "on 20 items"; empty where nobody counted."""
    return f" {word} {words.plural(row['n'], 'item')}" if row.get("n") else ""


def headline(kept: Table | None) -> str:
    """What the estimates say, in a sentence; empty when the table holds no estimates."""
    if kept is None or not are(kept):
        return ""
    rows = _rows(kept)
    if not _differ(rows[0]):
        # What all others are compared with is known beforehand.
        rows = [row for row in rows if row.get("method") != "baseline"] or rows
        best = max(rows, key=lambda row: row["estimate"])
        if len(rows) == 1:
            return f"{best['label']}: {_figures(best)}{_over(best, 'over')}"
        kinds = {(row.get("task"), row.get("measure")) for row in rows}
        logs = len({row["file"] for row in rows if row.get("file")})
        if len(kinds) > 1:
            # The best of figures of different kinds is none.
            return words.plural(len(rows), "estimate") + (f" from {logs} logs" if logs > 1 else "")
        same = len({row.get("n") for row in rows}) == 1
        over = _over(best, "over") if same else ""
        return f"{words.plural(len(rows), 'estimate')}{over}, the highest {best['label']}: {_figures(best)}"
    first = rows[0]
    if len(rows) == 1:
        on = _over(first, "on")
        if not _told(first):
            return f"{first['a']} and {first['b']} cannot be told apart: {_figures(first)}{on}"
        better, worse = (first["a"], first["b"]) if first["low"] > 0 else (first["b"], first["a"])
        ahead = sorted((abs(first["low"]), abs(first["high"])))
        return f"{better} is better than {worse} by {' '.join(words.interval(abs(first['estimate']), *ahead))}{on}"
    apart = sum(map(_told, rows))
    bases = {row["b"] for row in rows}
    if len(bases) > 1:
        return f"{apart} of {len(rows)} pairs of models can be told apart"
    base = bases.pop()
    worse = sum(row["high"] < 0 for row in rows)
    better = apart - worse
    parts = [f"is better than {worse} of {len(rows)} others"]
    parts += [f"is worse than {better}"] if better else []
    parts += [f"cannot be told from {len(rows) - apart}"] if apart < len(rows) else []
    return f"{base} " + (", ".join(parts[:-1]) + " and " + parts[-1] if len(parts) > 1 else parts[0])


def section(kept: Table | None) -> Section | None:
    """The estimates drawn on one axis; differences against the line of no difference."""
    if kept is None or not are(kept):
        return None
    rows = _rows(kept)
    differ = _differ(rows[0])
    base = _base(rows)
    drawn = [
        Row(
            row["a"] if base else row["label"],
            row["estimate"],
            row["low"],
            row["high"],
            margin=0.0 if differ else None,
            side="either" if differ else "below",
            quiet=differ and not _told(row),
            group=f"Against {base}" if base else "",
        )
        for row in rows[:MOST_DRAWN]
    ]
    columns = [Column(name) for name in GLANCE if any(row.get(name) is not None for row in rows)]
    data = table([{one.key: row[one.key] for one in columns} for row in rows], columns, caption="Estimates")
    body = figure(forest(drawn, math.inf), _caption(rows, differ), data)
    if len(rows) == 1 and rows[0].get("score_a") is not None:
        one = rows[0]
        scored = [f"{one[side]} scored {words.number(float(one[f'score_{side}']))}" for side in ("a", "b")]
        body += paragraph(" and ".join(scored) + (f"{_over(one, 'on')}." if one.get("n") else "."))
    if len(rows) == 1 and rows[0].get("both") is not None:
        body += _cells(rows[0])
    whys = Counter(f"{row.get('method', '')}: {row['why']}." for row in rows if row.get("why"))
    body += Markup("").join(paragraph(why) for why in whys)
    told = [f"{name}: {kept.notes[name]}" for name in ("baseline", "together") if kept.notes.get(name)]
    told += [str(text) for text in kept.notes.get("warnings") or []]
    warned = told + words.gathered((row["label"], row.get("warnings") or "") for row in rows)
    return Section("Differences" if differ else "Estimates", body + (listed(warned) if warned else Markup("")))


def _base(rows: Sequence[dict[str, Any]]) -> str:
    """The model that all others are compared with; empty where there is no such one."""
    bases = {row["b"] for row in rows} if _differ(rows[0]) else set()
    return bases.pop() if len(bases) == 1 and len(rows) > 1 else ""


def _caption(rows: Sequence[dict[str, Any]], differ: bool) -> str:
    level = rows[0].get("level") or math.nan
    each = f"{100 * level:.3g} %" if math.isfinite(level) else "their"
    told = f"Points are estimates, lines {each} intervals"
    told += f", so wide that all {len(rows)} hold together." if differ and len(rows) > 1 else "."
    if differ:
        base = _base(rows)
        sides = (rows[0]["a"], rows[0]["b"]) if len(rows) == 1 else ("the first model", "the second")
        right, left = ("the other model", base) if base else sides
        told += f" Right of the dashed line {right} is better, left of it {left}; grey cannot tell."
    return told + (f" Drawn are the first {MOST_DRAWN} of {len(rows)}." if len(rows) > MOST_DRAWN else "")


def _cells(row: dict[str, Any]) -> Markup:
    """How often both, one or neither of two models were right."""
    named = [(text.format(a=row["a"], b=row["b"]), row[name]) for name, text in CELLS.items()]
    drawing = charts.bars([charts.Bar(text, count, str(count)) for text, count in named], "Items")
    data = table([{"right": text, "items": count} for text, count in named], caption="Items by who was right")
    return figure(
        drawing, "Items by who was right; only those that one model alone got right tell the two apart.", data
    )


def _told(row: dict[str, Any]) -> bool:
    return bool(row["low"] > 0 or row["high"] < 0)


def _figures(row: dict[str, Any]) -> str:
    return " ".join(words.interval(row["estimate"], row["low"], row["high"]))
