"""From an Altair chart to SVG that stands in the page: two widths, no script, colours that follow the mode.

Altair takes a second to import and to draw the first chart, so it is imported inside the functions that draw.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from burnish.report.palette import INK, LINE, MUTED

if TYPE_CHECKING:
    import altair as alt

WIDE = 756
"""Pixels across on a desk's screen and on paper."""
NARROW = 344
"""Pixels across on a phone."""

CONFIG: dict[str, Any] = {
    "background": "transparent",
    "font": "Helvetica, Arial, sans-serif",
    "aria": False,
    "padding": {"left": 0, "right": 6, "top": 4, "bottom": 2},
    "view": {"stroke": None},
    "axis": {
        "domainColor": LINE.light,
        "gridColor": LINE.light,
        "tickColor": LINE.light,
        "labelColor": MUTED.light,
        "titleColor": MUTED.light,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "labelPadding": 5,
        "titlePadding": 8,
        "tickSize": 4,
    },
    "axisY": {"domain": False, "ticks": False},
    "header": {
        "labelColor": INK.light,
        "labelFontSize": 13,
        "labelFontWeight": "bold",
        "title": None,
        "labelAnchor": "start",
        "labelPadding": 4,
    },
    "legend": {
        "orient": "top",
        "title": None,
        "labelColor": INK.light,
        "labelFontSize": 13,
        "labelLimit": 300,
        "symbolSize": 70,
        "columnPadding": 26,
        "offset": 14,
        "padding": 0,
    },
    "title": {"color": INK.light, "fontSize": 13, "fontWeight": "bold", "anchor": "start", "offset": 6},
    "text": {"color": INK.light, "fontSize": 13},
    "facet": {"spacing": 16},
    "concat": {"spacing": 20},
}


def draw(build: Callable[[int], alt.TopLevelMixin], label: str) -> Markup:
    """Draw a chart for wide and for narrow screens; the style sheet shows the one that fits.

    Args:
        build: From a width in pixels to an Altair chart.
        label: What the chart shows, for those who cannot see it.
    """
    drawn = [_one(build(width), kind, label) for kind, width in (("wide", WIDE), ("narrow", NARROW))]
    return Markup('<div class="chart">{}</div>').format(Markup("\n").join(drawn))


def _one(chart: alt.TopLevelMixin, kind: str, label: str) -> Markup:
    import vl_convert

    # Altair would check every part against its schema: most of the time that a chart takes.
    spec = _printable({**chart.to_dict(validate=False), "config": CONFIG})
    drawn = vl_convert.vegalite_to_svg(spec)
    box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', drawn)
    if box is None:
        raise AssertionError("the drawing has no viewBox")
    width, height = box.groups()
    inside = drawn[drawn.index(">", box.start()) + 1 :]
    # Names of clipping paths are the page's, and several drawings stand in one page.
    mark = hashlib.sha256(drawn.encode()).hexdigest()[:8]
    inside = re.sub(r'\bid="(\w+)"', rf'id="{mark}-\1"', inside)
    inside = re.sub(r"url\(#(\w+)\)", rf"url(#{mark}-\1)", inside)
    opening = Markup('<svg class="{}" role="img" aria-label="{}" viewBox="0 0 {} {}" width="{}" height="{}">')
    return opening.format(kind, label, width, height, width, height) + Markup(inside)


_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _printable(value: Any) -> Any:
    """The same without characters that SVG cannot hold: at one of them, vl-convert ends the whole process."""
    if isinstance(value, str):
        return _NOT_IN_XML.sub("\N{REPLACEMENT CHARACTER}", value)
    if isinstance(value, dict):
        return {key: _printable(part) for key, part in value.items()}
    return [_printable(part) for part in value] if isinstance(value, list) else value


def wrap(text: str, width: float, size: float = 13) -> list[str]:
    """A text in lines that fit into so many pixels, in letters of about half their size across."""
    import textwrap

    return textwrap.wrap(text, max(8, int(width / (size * 0.57)))) or [""]
