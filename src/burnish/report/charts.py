"""The charts of reports. Each takes plain rows and gives drawings for both widths; none knows of runs or claims."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from burnish.report import words
from burnish.report.palette import MUTED, SERIES, Look
from burnish.report.svg import WIDE, draw

if TYPE_CHECKING:
    import altair as alt


@dataclass(frozen=True)
class Bar:
    """One bar: its label, length and the text at its end."""

    label: str
    value: float
    text: str


# -- estimates with intervals -----------------------------------------------------------------------------------


def dots(rows: Sequence[Mapping[str, Any]], looks: Mapping[str, Look]) -> Markup:
    """Estimates with intervals, a panel a measure, a band a cell, colour and shape by series.

    Args:
        rows: With "measure", "cell", "series", "estimate", "low" and "high".
        looks: How each series is drawn, in the order in which they are shown; the same in every chart of a page.
    """
    measures = list(dict.fromkeys(str(row["measure"]) for row in rows))
    cells = list(dict.fromkeys(str(row["cell"]) for row in rows))
    series = [name for name in looks if any(row["series"] == name for row in rows)]
    if not measures:
        return Markup("")

    def build(width: int) -> alt.TopLevelMixin:
        import altair as alt

        wide = width >= WIDE
        across = min(3, len(measures)) if wide else 1
        each = (width - 24 * (across - 1)) / across - 10
        panels = [
            _dots_panel([row for row in rows if row["measure"] == measure], measure, cells, series, looks, each, place)
            for place, measure in enumerate(measures)
        ]
        return alt.concat(*panels, columns=across, spacing=24).resolve_scale(x="independent")

    return draw(build, f"{', '.join(measures)} of {', '.join(series)}, with intervals; the table below has the figures")


def _dots_panel(
    rows: Sequence[Mapping[str, Any]],
    measure: str,
    cells: Sequence[str],
    series: Sequence[str],
    looks: Mapping[str, Look],
    width: float,
    place: int,
) -> alt.LayerChart | alt.FacetChart:
    import altair as alt

    most = max(Counter((row["cell"], row["series"]) for row in rows).values())
    step, heading = 11 + 6 * most, 24 if any(cells) else 4
    band = heading + step * len(series) + 6
    values = [float(row[end]) for row in rows for end in ("estimate", "low", "high")]
    log = min(values) > 0 and max(values) > 15 * min(values)
    lanes = Counter((row["cell"], row["series"]) for row in rows)
    seen: Counter[tuple[Any, Any]] = Counter()
    points = []
    for row in rows:
        lane = row["cell"], row["series"]
        # Several points of one lane (one a seed) stand a little apart.
        apart = 6 * (seen[lane] - (lanes[lane] - 1) / 2)
        seen[lane] += 1
        middle = band * cells.index(str(lane[0])) + heading + step * (series.index(str(lane[1])) + 0.5)
        points.append({**row, "y": middle + apart})
    axis = value_axis(width)
    scale = alt.Scale(zero=False, nice=False, padding=10)
    if log:
        ends = [min(values) / 1.15, max(values) * 1.15]
        large = "~s" if ends[1] >= 10_000 else "~g"
        axis = alt.Axis(title=None, values=log_ticks(*ends), format=large, labelOverlap=True, grid=False)
        scale = alt.Scale(type="log", domain=ends, nice=False)
    x = alt.X("estimate:Q", scale=scale, axis=axis)
    y = alt.Y("y:Q", scale=alt.Scale(domain=[band * len(cells), 0], nice=False, zero=False), axis=None)
    colour, shape = encoding(looks, series, legend=place == 0)
    base = alt.Chart(alt.Data(values=points))
    layers = [
        base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q"), x2="high:Q", y=y, color=colour),
        base.mark_point(size=60, filled=True, opacity=1).encode(x=x, y=y, color=colour, shape=shape),
    ]
    if any(cells):
        labels = [{"y": band * number + 12, "text": cell} for number, cell in enumerate(cells)]
        layers.append(
            alt.Chart(alt.Data(values=labels))
            .mark_text(align="left", x=0, fontSize=12, color=MUTED.light, limit=width)
            .encode(y=y, text="text:N")
        )
    title = words.title_of(measure) + (" (log scale)" if log else "")
    return alt.layer(*layers).properties(width=width, height=band * len(cells), title=title)


# -- amounts ----------------------------------------------------------------------------------------------------


def bars(rows: Sequence[Bar], label: str) -> Markup:
    """Horizontal bars from zero, each with its label above and its amount at its end."""
    if not rows:
        return Markup("")

    def build(width: int) -> alt.TopLevelMixin:
        import altair as alt

        most = max(row.value for row in rows) or 1.0
        room = 8 + 7.4 * max(len(row.text) for row in rows)
        values = [
            {"y": 44 * place, "label": row.label, "text": row.text, "value": max(0.0, row.value)}
            for place, row in enumerate(rows)
        ]
        scale = alt.Scale(domain=[0, most], range=[0, width - 8 - room], nice=False)
        x = alt.X("value:Q", scale=scale, axis=None)
        at = alt.Scale(domain=[0, 44 * len(rows)], range=[0, 44 * len(rows)], nice=False)
        base = alt.Chart(alt.Data(values=values))
        return alt.layer(
            base.transform_calculate(top="datum.y + 20", bottom="datum.y + 34")
            .mark_rect(color=SERIES[0].light, cornerRadius=2)
            .encode(x=x, x2=alt.datum(0), y=alt.Y("top:Q", scale=at, axis=None), y2="bottom:Q"),
            base.transform_calculate(middle="datum.y + 27")
            .mark_text(align="left", dx=7, baseline="middle", fontWeight="bold")
            .encode(x=x, y=alt.Y("middle:Q", scale=at, axis=None), text="text:N"),
            base.transform_calculate(head="datum.y + 9")
            .mark_text(align="left", x=0, baseline="middle", limit=width - 8)
            .encode(y=alt.Y("head:Q", scale=at, axis=None), text="label:N"),
        ).properties(width=width - 8, height=44 * len(rows) - 6)

    told = "; ".join(f"{row.label}: {row.text}" for row in rows)
    return draw(build, f"{label}. {told}")


def value_axis(width: float) -> alt.Axis:
    """An axis of values with about as many ticks as it has room for."""
    import altair as alt

    return alt.Axis(title=None, tickCount=max(3, int(width / 95)), format="~f", labelOverlap=True, grid=False)


def whole_ticks(low: int, high: int, most: int) -> list[int]:
    """Where an axis of counted things has ticks: whole numbers, about `most` of them."""
    step = next(
        step * 10**power for power in range(9) for step in (1, 2, 5) if (high - low) / (step * 10**power) <= most
    )
    return list(range(low, high + 1, step))


def log_ticks(low: float, high: float) -> list[float]:
    """Where a log axis has ticks: powers of ten, and twice and five times them when it spans few."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if math.log10(high / low) < 1.6 else (1,)
    return [step * 10.0**decade for decade in decades for step in steps if low <= step * 10.0**decade <= high]


def encoding(looks: Mapping[str, Look], shown: Sequence[str], *, legend: bool = True) -> tuple[alt.Color, alt.Shape]:
    """Colour and shape by series, with one legend for both."""
    import altair as alt

    key = alt.Legend(symbolOpacity=1) if legend and len(shown) > 1 else None
    colours = alt.Scale(domain=list(shown), range=[looks[name].colour for name in shown])
    shapes = alt.Scale(domain=list(shown), range=[looks[name].shape for name in shown])
    return alt.Color("series:N", scale=colours, legend=key), alt.Shape("series:N", scale=shapes, legend=key)
