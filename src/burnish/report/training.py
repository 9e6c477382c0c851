"""How a training went: the loss by step, on what is read and on what is held out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from burnish.report.charts import whole_ticks
from burnish.report.folder import Loss
from burnish.report.page import Column, Section, figure, table
from burnish.report.palette import SERIES
from burnish.report.svg import draw

if TYPE_CHECKING:
    import altair as alt

MOST = 60
"""Points of the training loss that are drawn; each is the mean of as many steps as that takes."""


def section(name: str, losses: Sequence[Loss]) -> Section:
    """The curve of a training.

    Args:
        name: The part of the run that trained; empty for the run itself.
        losses: At least one.
    """
    apart = -(-len(losses) // MOST)
    stretches = [losses[begin : begin + apart] for begin in range(0, len(losses), apart)]
    read = [{"step": part[-1].step, "loss": sum(row.loss for row in part) / len(part)} for part in stretches]
    held = [{"step": row.step, "loss": row.held} for row in losses if row.held is not None]
    mean = f"the mean of {apart} steps each" if apart > 1 else "of each step"
    caption = f"Loss in nats a token: the line is of what was read, {mean}" + (
        "; the dots are of windows that were held out." if held else "."
    )
    rows = [{"step": row["step"], "held out": row["loss"]} for row in held] or [
        {"step": row["step"], "training loss": row["loss"]} for row in read
    ]
    data = table(rows, [Column(name) for name in rows[0]], caption="Loss by step")
    return Section(f"How it learned: {name}" if name else "How it learned", figure(_curve(read, held), caption, data))


def _curve(read: list[dict[str, Any]], held: list[dict[str, Any]]) -> Markup:
    last = max(row["step"] for row in read)

    def build(width: int) -> alt.TopLevelMixin:
        import altair as alt

        x = alt.X(
            "step:Q",
            title="step",
            scale=alt.Scale(nice=False, domain=[0, last]),
            axis=alt.Axis(grid=False, values=whole_ticks(0, last, width // 90), format="d"),
        )
        y = alt.Y("loss:Q", title="nats a token", scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=5))
        line = alt.Chart(alt.Data(values=read)).mark_line(color=SERIES[0].light, strokeWidth=2).encode(x=x, y=y)
        dots = alt.Chart(alt.Data(values=held)).mark_point(color=SERIES[1].light, filled=True, size=60, opacity=1)
        layers = [line, dots.encode(x=x, y=y)] if held else [line]
        return alt.layer(*layers).properties(width=width - 60, height=180)

    return draw(build, f"Loss by step, over {last} steps; the table below has the figures")
