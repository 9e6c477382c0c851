"""Forest plots: estimates with their intervals, one below the other, and the margins that they are held to."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from markupsafe import Markup

from burnish.core.claim import Verdict
from burnish.report import words
from burnish.report.charts import value_axis
from burnish.report.palette import INK, MUTED, PAGE, SERIES, SHADE, SIGNS, VERDICTS
from burnish.report.svg import WIDE, draw, wrap

if TYPE_CHECKING:
    import altair as alt


@dataclass(frozen=True)
class Row:
    """One line of a forest plot: an estimate, its interval and, where there is one, the margin that it is held to."""

    label: str
    estimate: float
    low: float
    high: float
    """An infinite end is drawn to the edge."""
    margin: float | None = None
    side: Literal["below", "above", "either"] = "below"
    """Where the estimate has to lie, seen from the margin; "either" where the margin only divides two sides."""
    verdict: Verdict | None = None
    group: str = ""
    """Rows of one group stand together under it as a heading."""
    quiet: bool = False
    """Drawn in grey: what it says is that nothing can be told."""

    @property
    def finite(self) -> list[float]:
        """What of it has a place on an axis, the margin too."""
        ends = (self.low, self.estimate, self.high, self.margin)
        return [end for end in ends if end is not None and math.isfinite(end)]

    @property
    def figures(self) -> str:
        """The estimate and its interval as text."""
        return " ".join(words.interval(self.estimate, self.low, self.high))

    @property
    def colour(self) -> str:
        """By verdict."""
        plain = MUTED if self.quiet else SERIES[0]
        return VERDICTS[self.verdict].light if self.verdict else plain.light

    def signed(self, text: str) -> str:
        """A text with the sign of the verdict before it."""
        return f"{SIGNS[self.verdict]} {text}" if self.verdict else text


def forest(rows: Sequence[Row], ratio: float = 12) -> Markup:
    """Draw a forest plot; rows without a finite estimate are left out, and it is empty when there are no others.

    Args:
        rows: From top to bottom.
        ratio: Rows whose reaches differ by more have axes of their own.
    """
    panels = list(_panels([row for row in rows if math.isfinite(row.estimate)], ratio))
    if not panels:
        return Markup("")

    def build(width: int) -> alt.TopLevelMixin:
        import altair as alt

        return alt.vconcat(*(_panel(panel, width) for panel in panels), spacing=22)

    told = "; ".join(
        f"{row.group} {row.label}: {row.figures}{f', {row.verdict}' if row.verdict else ''}".strip() for row in rows
    )
    return draw(build, f"Estimates with intervals. {told}")


def _panels(rows: Sequence[Row], ratio: float) -> Iterator[list[Row]]:
    """Rows that can be read off one axis: of one group, margin and side, with reaches that differ by `ratio` at most."""
    panels: list[list[Row]] = []
    for row in rows:
        for panel in panels:
            reaches = [_reach(one) for one in [*panel, row]]
            same = all((one.group, one.margin, one.side) == (row.group, row.margin, row.side) for one in panel)
            if same and max(reaches) <= ratio * max(min(reaches), 1e-12):
                panel.append(row)
                break
        else:
            panels.append([row])
    groups = list(dict.fromkeys(row.group for row in rows))
    yield from sorted(panels, key=lambda panel: groups.index(panel[0].group))


def _reach(row: Row) -> float:
    """How far it extends from its margin, or from zero without one."""
    return max(abs(end - (row.margin or 0.0)) for end in row.finite)


@dataclass
class _Layout:
    """Where the parts of one panel stand, in pixels."""

    left: float
    right: float
    """Ends of the axis."""
    height: float
    texts: list[dict[str, Any]]
    lanes: list[float]
    """The middle of each row's interval."""
    clear: list[tuple[float, float]]
    """Where no text crosses the axis' width, so that the margin's line can be drawn."""


def _wide(rows: Sequence[Row], width: float, top: float) -> _Layout:
    """Labels at the left, intervals in the middle, figures at the right."""
    left, right = 0.38 * width, width - 196
    texts, lanes = [], []
    for row in rows:
        lines = wrap(row.label, left - 20)
        middle = top + 8.5 * len(lines)
        lanes.append(middle)
        texts += [{"x": 0, "y": top + 8.5 + 17 * n, "text": line, "colour": INK.light} for n, line in enumerate(lines)]
        texts.append({"x": right + 14, "y": middle, "text": row.signed(row.figures), "colour": row.colour})
        top += 17 * len(lines) + 9
    return _Layout(left, right, top, texts, lanes, [(0, top)])


def _narrow(rows: Sequence[Row], width: float, top: float) -> _Layout:
    """Each row's label and figures above its interval."""
    texts, lanes = [], []
    for row in rows:
        for line in wrap(row.label, width - 16):
            texts.append({"x": 5, "y": top + 9, "text": line, "colour": INK.light})
            top += 17
        texts.append({"x": 5, "y": top + 9, "text": row.signed(row.figures), "colour": row.colour})
        lanes.append(top + 27)
        top += 46
    return _Layout(0, width, top, texts, lanes, [(0, 22), *((lane - 13, lane + 13) for lane in lanes)])


def _panel(rows: Sequence[Row], width: int) -> alt.LayerChart | alt.FacetChart:
    import altair as alt

    margin = rows[0].margin
    finite = [end for row in rows for end in row.finite]
    space = 0.06 * ((max(finite) - min(finite)) or abs(finite[0]) or 1.0)
    domain = [min(finite) - space, max(finite) + space]
    layout = (_wide if width >= WIDE else _narrow)(rows, width - 8, 4 if margin is None else 24)
    marks = [
        {"y": lane, "low": max(row.low, domain[0]), "high": min(row.high, domain[1]), "at": row.estimate}
        | {"colour": row.colour}
        for row, lane in zip(rows, layout.lanes, strict=True)
    ]
    scale = alt.Scale(domain=domain, range=[layout.left, layout.right], nice=False, zero=False)
    x = alt.X("at:Q", scale=scale, axis=value_axis(layout.right - layout.left))
    y = alt.Y("y:Q", scale=alt.Scale(domain=[layout.height, 0], nice=False, zero=False), axis=None)
    colour = alt.Color("colour:N", scale=None)
    base = alt.Chart(alt.Data(values=marks))
    texts = alt.Chart(alt.Data(values=layout.texts)).mark_text(align="left", baseline="middle")
    layers = [
        *(_margin(margin, rows[0].side, domain, layout, x, y) if margin is not None else []),
        base.mark_rule(strokeWidth=2.5, strokeCap="round").encode(x=alt.X("low:Q"), x2="high:Q", y=y, color=colour),
        base.mark_point(size=100, filled=True, opacity=1, stroke=PAGE.light, strokeWidth=1.5).encode(
            x=x, y=y, fill=alt.Fill("colour:N", scale=None)
        ),
        texts.encode(x=alt.X("x:Q", scale=None), y=y, text="text:N", color=colour),
    ]
    title = wrap(rows[0].group, width - 16) if rows[0].group else ""
    return (
        alt.layer(*layers)
        .resolve_scale(x="shared")
        .properties(width=width - 8, height=layout.height, title=alt.TitleParams(title, frame="group"))
    )


def _margin(margin: float, side: str, domain: Sequence[float], layout: _Layout, x: alt.X, y: alt.Y) -> list[alt.Chart]:
    """The margin's line and name, and a shade over the side on which the claim is true."""
    import altair as alt

    either = side == "either"
    band = {"low": domain[0], "high": margin} if side == "below" else {"low": margin, "high": domain[1]}
    pieces = [{"at": margin, "y": upper, "end": lower} for upper, lower in layout.clear]
    # Its name stands on the side that has room.
    left = margin < (domain[0] + domain[1]) / 2
    called = "no difference" if either else f"margin {words.as_given(margin)}"
    name = alt.Chart(alt.Data(values=[{"y": 11, "at": margin, "text": called}]))
    return [
        alt.Chart(alt.Data(values=[] if either else [band]))
        .mark_rect(color=SHADE.light)
        .encode(x=alt.X("low:Q"), x2="high:Q"),
        alt.Chart(alt.Data(values=pieces)).mark_rule(color=INK.light, strokeDash=[4, 3]).encode(x=x, y=y, y2="end:Q"),
        name.mark_text(
            align="left" if left else "right", dx=6 if left else -6, baseline="middle", fontSize=12, color=MUTED.light
        ).encode(x=x, y=y, text="text:N"),
    ]
