"""The part of a report that shows estimates with intervals: its headline says what can be told, and no more."""

from __future__ import annotations

import pytest

from burnish.data.scores import Table
from burnish.report import estimates


def row(a: str, b: str, low: float, high: float, **more) -> dict:
    middle = (low + high) / 2
    found = {
        "label": f"{a} − {b}",
        "a": a,
        "b": b,
        "estimate": middle,
        "low": low,
        "high": high,
        "level": 0.95,
        "n": 20,
    }
    return found | {"method": "probit", "why": "because", "verdict": "any", "warnings": ""} | more


def plain(label: str, estimate: float, n: int = 20) -> dict:
    found = {"label": label, "estimate": estimate, "low": estimate - 0.1, "high": estimate + 0.1, "level": 0.95, "n": n}
    return found | {"method": "beta", "why": "because", "warnings": "<b>careful</b>"}


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([row("x", "y", 0.1, 0.3)], "x is better than y by 0.20 [0.10, 0.30] on 20 items"),
        ([row("x", "y", -0.3, -0.1)], "y is better than x by 0.20 [0.10, 0.30] on 20 items"),
        ([row("x", "y", -0.1, 0.3)], "x and y cannot be told apart: 0.10 [−0.10, 0.30] on 20 items"),
        (
            [row("x", "z", -0.3, -0.1), row("y", "z", -0.1, 0.2)],
            "z is better than 1 of 2 others and cannot be told from 1",
        ),
        (
            [row("w", "z", -0.3, -0.1), row("x", "z", 0.1, 0.2), row("y", "z", -0.1, 0.2)],
            "z is better than 1 of 3 others, is worse than 1 and cannot be told from 1",
        ),
        (
            [row("x", "y", 0.1, 0.3), row("x", "z", 0.1, 0.3), row("y", "z", -1, 1)],
            "2 of 3 pairs of models can be told apart",
        ),
        ([plain("x", 0.5)], "x: 0.50 [0.40, 0.60] over 20 items"),
        ([plain("x", 0.5), plain("y", 0.7)], "2 estimates over 20 items, the highest y: 0.70 [0.60, 0.80]"),
        (
            [plain(name, 0.5) | {"task": name, "measure": "acc", "file": f"{name}.eval"} for name in ("arc", "mmlu")],
            "2 estimates from 2 logs",
        ),
    ],
)
def test_headline(rows, said) -> None:
    assert estimates.headline(Table.of(rows)).replace("\N{NO-BREAK SPACE}", " ") == said


def test_section_escapes_and_draws() -> None:
    shown = estimates.section(Table.of([plain("<i>x</i>", 0.5), plain("y", 0.7)]))
    assert shown is not None
    assert "<b>careful" not in shown.body
    assert "<i>x" not in shown.body
    assert "<svg" in shown.body


def test_a_pair_shows_both_scores_and_a_baseline_is_named_once() -> None:
    pair = estimates.section(Table.of([row("x", "y", 0.1, 0.3, score_a=0.75, score_b=0.5)])).body
    assert "x scored 0.750 and y scored 0.500 on 20 items." in pair.replace("\N{NO-BREAK SPACE}", " ")
    assert "Right of the dashed line x is better, left of it y" in pair
    several = estimates.section(Table.of([row("x", "z", -0.3, -0.1), row("y", "z", -0.1, 0.2)])).body
    assert "Against z" in several
    assert "the other model is better, left of it z" in several


def test_what_was_noted_of_the_table_is_shown_and_repeated_remarks_once() -> None:
    rows = [plain(name, 0.5) for name in ("x", "y", "z")]
    table = Table.of(rows, warnings=["columns are left out: <b>notes</b>"], together="they hold together")
    shown = estimates.section(table).body
    assert "columns are left out: &lt;b&gt;notes" in shown
    assert "they hold together" in shown
    assert shown.count("careful") == 1
    assert "3 of them: " in shown


def test_differences_that_cannot_be_told_are_grey() -> None:
    from burnish.report.palette import MUTED, SERIES

    told = estimates.section(Table.of([row("x", "y", 0.1, 0.3)])).body
    untold = estimates.section(Table.of([row("x", "y", -0.1, 0.3)])).body
    assert "no difference" in told
    assert told != untold
    assert SERIES[0].light.lower() in told.lower() or "var(" in told
    assert MUTED.light


def test_bare_estimates_and_gaps_are_shown_as_far_as_they_go() -> None:
    gap = {"label": "y", "estimate": None, "low": None, "high": None}
    table = Table.of([{"label": "x", "estimate": 0.5, "low": 0.4, "high": 0.6}, gap])
    assert estimates.headline(table).replace("\N{NO-BREAK SPACE}", " ") == "x: 0.50 [0.40, 0.60]"
    assert "<svg" in estimates.section(table).body
    assert not estimates.are(Table.of([gap]))


def test_tables_of_other_things_are_left_alone() -> None:
    other = Table.of([{"item_id": "logits", "value": 0.0}])
    assert not estimates.are(other)
    assert estimates.section(other) is None
    assert estimates.headline(other) == estimates.headline(None) == ""
