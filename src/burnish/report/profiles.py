"""Charts of how something runs along: error by block, items along a measure, seconds by block."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from burnish.report import words
from burnish.report.charts import encoding, log_ticks, value_axis, whole_ticks
from burnish.report.palette import SERIES, Look
from burnish.report.svg import WIDE, draw

if TYPE_CHECKING:
    import altair as alt
    import numpy as np

ROLES = ("q", "k", "v", "o", "gate", "up", "down", "fc1", "fc2")
"""The order in which a block's linear maps are shown."""

FEW = 60
"""Up to so many items are drawn one by one."""


def by_block(
    rows: Sequence[Mapping[str, Any]], looks: Mapping[str, Look], title: str = "relative output error"
) -> Markup:
    """Error by block on a log scale, a small chart a role, a line a series.

    Args:
        rows: With "block", "role", "series" and "error"; errors that are not above zero have no place and are dropped.
        looks: How each series is drawn, in the order in which they are shown; the same in every chart of a page.
        title: What the error is.
    """
    good = [dict(row) for row in rows if math.isfinite(row["error"]) and row["error"] > 0]
    if not good:
        return Markup("")
    shown = [name for name in looks if any(row["series"] == name for row in good)]
    every = [row["error"] for row in good]
    ends = [min(every) / 1.3, max(every) * 1.3]
    # A mark on each point would hide the line: every sixth block has one, staggered from series to series.
    blocks = {int(row["block"]) for row in good}
    apart = 6 if len(blocks) > 12 else 1
    for row in good:
        row["marked"] = row["block"] % apart == 2 * shown.index(row["series"]) % apart
    roles = sorted({str(row["role"]) for row in good}, key=lambda role: (place(role), role))

    def build(width: int) -> alt.TopLevelMixin:
        import altair as alt

        across = min(len(roles), 4 if width >= WIDE else 2)
        each = (width - 46 - 16 * (across - 1)) / across
        colour, shape = encoding(looks, shown)
        x = alt.X(
            "block:Q",
            title=None,
            axis=alt.Axis(grid=False, values=whole_ticks(min(blocks), max(blocks), 4), format="d"),
            scale=alt.Scale(nice=False, padding=5),
        )
        y = alt.Y(
            "error:Q",
            title=None,
            scale=alt.Scale(type="log", domain=ends, nice=False),
            axis=alt.Axis(values=log_ticks(*ends), format="~g"),
        )
        base = alt.Chart().encode(x=x, y=y, color=colour)
        layer = alt.layer(
            base.mark_line(strokeWidth=1.6),
            base.transform_filter("datum.marked").mark_point(size=44, filled=True, opacity=1).encode(shape=shape),
        ).properties(width=each, height=130)
        return layer.facet(
            facet=alt.Facet("role:N", sort=roles), columns=across, data=alt.Data(values=good)
        ).resolve_axis(x="independent")

    return draw(build, f"{title} by block, on a log scale, for {', '.join(roles)}; lines: {', '.join(shown)}")


def place(role: str) -> int:
    """Where a role stands among the others."""
    return ROLES.index(role) if role in ROLES else len(ROLES)


def distribution(values: Mapping[str, np.ndarray], measure: str, looks: Mapping[str, Look]) -> tuple[Markup, str]:
    """How the items lie along one measure, a row a series.

    Few distinct values have a bar each, few items a tick each, and anything else is a histogram.

    Args:
        values: Series to finite values, one an item.
        measure: What was measured.
        looks: How each series is drawn, in the order in which they are shown; the same in every chart of a page.

    Returns:
        The drawing, empty when all values are the same, and what one mark in it stands for.
    """
    import numpy as np

    shown = [name for name in looks if len(values.get(name, ()))]
    every = np.concatenate([values[name] for name in shown]) if shown else np.empty(0)
    distinct = np.unique(every)
    if len(distinct) < 2:
        return Markup(""), ""
    if len(distinct) <= 7 and len(every) >= 3 * len(distinct):
        rows = _counted(values, shown, distinct)
        kind, height = "share of the items with each value", 70
    elif max(len(values[name]) for name in shown) <= FEW:
        rows = [{"series": name, "low": float(value)} for name in shown for value in values[name]]
        kind, height = "one tick an item", 34
    else:
        bins = min(40, max(8, int(len(every) ** 0.5)))
        rows = _binned(values, shown, np.linspace(distinct[0], distinct[-1], bins + 1))
        kind, height = "share of the items", 70

    def build(width: int) -> alt.TopLevelMixin:
        import altair as alt

        colour, _ = encoding(looks, shown, legend=False)
        space = 0.02 * float(distinct[-1] - distinct[0])
        scale = alt.Scale(domain=[distinct[0] - space, distinct[-1] + space], nice=False, zero=False)
        x = alt.X("low:Q", scale=scale, axis=value_axis(width))
        y = alt.Y("share:Q", title=None, axis=alt.Axis(format="~%", tickCount=2), scale=alt.Scale(zero=True))
        chart = alt.Chart().encode(color=colour).properties(width=width - 44, height=height)
        if "value" in rows[0]:
            order = [words.as_given(float(value)) for value in distinct]
            drawn = chart.mark_bar(size=28).encode(
                x=alt.X("value:N", sort=order, title=None, axis=alt.Axis(labelAngle=0)), y=y
            )
        elif "high" in rows[0]:
            drawn = chart.mark_bar(opacity=1).encode(x=x, x2="high:Q", y=y, y2=alt.datum(0))
        else:
            drawn = chart.mark_tick(thickness=2, opacity=0.65, height=22).encode(x=x)
        return _stacked(drawn, rows, "series", shown)

    span = f"from {words.number(float(distinct[0]))} to {words.number(float(distinct[-1]))}"
    return draw(build, f"{words.title_of(measure)}, {kind}, for {', '.join(shown)}, {span}"), kind


def _counted(values: Mapping[str, np.ndarray], shown: Sequence[str], distinct: np.ndarray) -> list[dict[str, Any]]:
    return [
        {"series": name, "value": words.as_given(float(value)), "share": float((values[name] == value).mean())}
        for name in shown
        for value in distinct
    ]


def _binned(values: Mapping[str, np.ndarray], shown: Sequence[str], edges: np.ndarray) -> list[dict[str, Any]]:
    import numpy as np

    rows = []
    for name in shown:
        counts, _ = np.histogram(values[name], edges)
        rows += [
            {"series": name, "low": float(low), "high": float(high), "share": float(count / len(values[name]))}
            for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True)
        ]
    return rows


def _stacked(chart: alt.Chart, rows: list[dict[str, Any]], column: str, shown: Sequence[str]) -> alt.TopLevelMixin:
    """The chart once for each value of a column, one below the other; plain when there is only one value."""
    import altair as alt

    data = alt.Data(values=rows)
    if len(shown) == 1:
        return chart.properties(data=data)
    header = alt.Header(labelOrient="top", labelAnchor="start", title=None)
    return chart.facet(row=alt.Row(f"{column}:N", sort=list(shown), header=header), data=data, spacing=14)


def timeline(rows: Sequence[Mapping[str, Any]]) -> Markup:
    """Seconds that each unit of sequential work took, in the order in which they were done, a row a step.

    Args:
        rows: With "step" and "seconds", in order.
    """
    steps = list(dict.fromkeys(str(row["step"]) for row in rows))
    seen = dict.fromkeys(steps, 0)
    values = []
    for row in rows:
        step = str(row["step"])
        values.append(
            {"step": step, "low": seen[step] - 0.4, "high": seen[step] + 0.4, "seconds": float(row["seconds"])}
        )
        seen[step] += 1
    if not values:
        return Markup("")
    most = max(seen.values())

    def build(width: int) -> alt.TopLevelMixin:
        import altair as alt

        chart = alt.Chart().properties(width=width - 50, height=70)
        drawn = chart.mark_bar(color=SERIES[0].light).encode(
            x=alt.X(
                "low:Q",
                title="block",
                scale=alt.Scale(nice=False, domain=[-0.5, max(most, 12) - 0.5]),
                axis=alt.Axis(grid=False, values=whole_ticks(0, most - 1, width // 50), format="d"),
            ),
            x2="high:Q",
            y=alt.Y("seconds:Q", title="seconds", axis=alt.Axis(tickCount=3, format="~g")),
            y2=alt.datum(0),
        )
        return _stacked(drawn, values, "step", steps)

    told = "; ".join(f"{step}: {words.plural(seen[step], 'unit')}" for step in steps)
    return draw(build, f"Seconds a block. {told}")
