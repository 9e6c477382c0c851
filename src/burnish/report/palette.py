"""The colours of reports: one name each, a light and a dark value, safe for colour-blind readers.

Charts are drawn with the light values. The page's style sheet then matches those values by attribute and puts the
variable of the same name in their place, so one drawing serves both modes. Hence no two names share a light value.
The series keep a CIE76 distance of 20 or more from one another for readers without red, green or blue cones
(Machado, Oliveira and Fernandes 2009), and a contrast of 3:1 or more with the page.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Colour(NamedTuple):
    """One role of colour."""

    name: str
    light: str
    dark: str


PAGE = Colour("page", "#fdfdfb", "#15181c")
PANEL = Colour("panel", "#f4f4f0", "#1d2126")
INK = Colour("ink", "#1d232a", "#e6e9ec")
MUTED = Colour("muted", "#59636e", "#9ba6b2")
LINE = Colour("line", "#dcdfe2", "#353b43")
SHADE = Colour("shade", "#e9f1ee", "#1c2a29")
LINK = Colour("link", "#0d4fb3", "#8db8ff")

HOLDS = Colour("holds", "#0a6b50", "#5fdcb8")
FAILS = Colour("fails", "#b3390a", "#ff9a66")
UNDECIDED = Colour("undecided", "#525c68", "#bcc5ce")

SERIES = (
    Colour("series-1", "#1a56db", "#86aaf0"),
    Colour("series-2", "#8c4a24", "#ee6a35"),
    Colour("series-3", "#08986a", "#2fcb93"),
    Colour("series-4", "#b81c9c", "#cf5fa8"),
    Colour("series-5", "#97830f", "#f2d77d"),
    Colour("series-6", "#50575e", "#ced6e2"),
)
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")

VERDICTS = {"holds": HOLDS, "does not hold": FAILS, "undecided": UNDECIDED}
SIGNS = {"holds": "✓", "does not hold": "✕", "undecided": "?"}
"""So that a verdict is never told by colour alone."""

ALL = (PAGE, PANEL, INK, MUTED, LINE, SHADE, LINK, HOLDS, FAILS, UNDECIDED, *SERIES)


class Look(NamedTuple):
    """How one series is drawn."""

    colour: str
    shape: str


def looks(names: Iterable[str], first: str = "") -> dict[str, Look]:
    """A colour and a shape for each series, in the order in which they are to be shown.

    Args:
        names: The series; past six the colours come again with other shapes.
        first: The series that gets the first colour, whatever its place.
    """
    shown = list(dict.fromkeys(names))
    count = len(SERIES)
    given = {
        name: Look(SERIES[place % count].light, SHAPES[(place + place // count) % count])
        for place, name in enumerate(sorted(shown, key=lambda name: name != first))
    }
    return {name: given[name] for name in shown}
