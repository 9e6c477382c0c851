"""The page: sections, tables and figures put into one HTML file that needs nothing else.

Everything that comes from outside is escaped; only what these helpers made is `Markup`. There is no script, and the
page's own policy forbids any.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

import burnish
from burnish.core.claim import Verdict
from burnish.report import palette, words


@dataclass(frozen=True)
class Section:
    """A heading and what stands under it."""

    title: str
    body: Markup
    anchor: str = ""
    """What links to it name; made from the title when empty."""
    parts: Sequence[Section] = ()
    """Sections inside this one."""
    short: str = ""
    """What the list of contents calls it; the title when empty."""

    @property
    def id(self) -> str:
        """Its anchor."""
        return self.anchor or slug(self.title)


@dataclass(frozen=True)
class Column:
    """One column of a table."""

    key: str
    title: str = ""
    show: Callable[[Any], Any] | None = None
    """From the value to a text; as `cell` does when absent."""
    hint: str = ""
    """What the column means, shown where the pointer rests."""
    right: bool = False
    """Aligned at the right, as columns of numbers are anyway."""


@dataclass(frozen=True)
class Chip:
    """A word in a coloured box: a verdict, or a run's status."""

    text: str
    kind: Literal["holds", "fails", "undecided"] = "undecided"
    sign: str = ""


@dataclass(frozen=True)
class Head:
    """What stands above the sections."""

    title: str
    over: Sequence[str] = ()
    """Short facts above the title."""
    lead: Sequence[str] = ()
    """Sentences below the title."""
    chip: Chip | None = None
    tiles: Sequence[tuple[str, Any]] = ()
    """Key figures: name and value."""
    notes: Sequence[str] = ()
    """What a reader has to know before believing the rest, such as damaged files."""


@dataclass(frozen=True)
class Foot:
    """What stands below the sections."""

    commands: Sequence[str] = ()
    facts: Sequence[str] = field(default_factory=tuple)


def verdict_chip(verdict: Verdict) -> Chip:
    """The chip of a verdict."""
    return Chip(verdict, palette.VERDICTS[verdict].name, palette.SIGNS[verdict])  # type: ignore[arg-type]


def mark(chip: Chip) -> Markup:
    """A chip as it stands in a table or in a text."""
    return Markup(fragment("chip.html", chip=chip))


def page(head: Head, sections: Sequence[Section], foot: Foot | None = None) -> str:
    """A whole HTML page."""
    return fragment("page.html", head=head, sections=sections, foot=foot or Foot(), css=style())


def table(
    rows: Sequence[Mapping[str, Any]], columns: Sequence[Column | str] = (), *, caption: str, group: str = ""
) -> Markup:
    """A table; the first column names the rows.

    Args:
        rows: One mapping a row; keys that a row lacks are shown as a dash.
        columns: Which keys, in order; every key of any row when empty.
        caption: What the table shows.
        group: Key of a text; rows that follow one another with the same one stand under it as a heading.
    """
    if not columns:
        columns = [key for key in dict.fromkeys(key for row in rows for key in row) if key != group]
    full = [column if isinstance(column, Column) else Column(column, words.title_of(column)) for column in columns]
    groups: list[tuple[str, list[list[Any]]]] = []
    for row in rows:
        name = str(row.get(group, "")) if group else ""
        if not groups or groups[-1][0] != name:
            groups.append((name, []))
        groups[-1][1].append([(column.show or cell)(row.get(column.key)) for column in full])
    right = [column.right or _numbers([row.get(column.key) for row in rows]) for column in full]
    return Markup(fragment("table.html", columns=full, groups=groups, right=right, caption=caption))


def cell(value: Any) -> Any:
    """A value as it stands in a table: an interval in two lines, everything else as text."""
    if isinstance(value, Markup):
        return value
    if isinstance(value, Mapping) and "estimate" in value:
        return estimate(value)
    return words.number(value) if _numeric(value) else words.plain(value)


def estimate(value: Mapping[str, Any]) -> Markup:
    """``{"estimate", "low", "high"}`` as an estimate with its interval below; ends that are absent are left out."""
    low, high = value.get("low"), value.get("high")
    if low is None or high is None:
        return Markup("{}").format(words.number(value["estimate"]))
    middle, ends = words.interval(value["estimate"], low, high)
    return Markup('{} <small class="ends">{}</small>').format(middle, ends)


def figure(drawing: Markup, caption: str, data: Markup) -> Markup:
    """A chart, what it shows, and its figures as a table that opens below it."""
    return Markup(fragment("figure.html", drawing=drawing, caption=caption, data=data))


def folded(summary: str, body: Markup) -> Markup:
    """Something that opens when its summary is clicked."""
    return Markup("<details><summary>{}</summary>\n{}</details>").format(summary, body)


def facts(values: Mapping[str, Any]) -> Markup:
    """Names and values as a list."""
    return Markup(fragment("facts.html", values={name: words.plain(value) for name, value in values.items()}))


def listed(texts: Sequence[Any], kind: str = "") -> Markup:
    """Texts as a list with bullets."""
    items = Markup("").join(Markup("<li>{}</li>").format(text) for text in texts)
    return Markup('<ul class="{}">{}</ul>').format(kind, items)


def paragraph(text: str, kind: str = "") -> Markup:
    """One paragraph."""
    return Markup('<p class="{}">{}</p>').format(kind, text)


def slug(text: str) -> str:
    """A text as the anchor of a section."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "section"


def style() -> Markup:
    """The style sheet, with the palette's variables and what puts them into charts."""
    return Markup(fragment("page.css", colours=palette.ALL))


def fragment(template: str, **values: Any) -> str:
    """Fill one of the package's templates."""
    return _environment().get_template(template).render(**values)


def _numbers(values: Sequence[Any]) -> bool:
    """Whether a column holds numbers and nothing else."""
    there = [value for value in values if value is not None]
    return bool(there) and all(map(_numeric, there))


def _numeric(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number or (isinstance(value, Mapping) and "estimate" in value)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("burnish.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["version"] = burnish.__version__
    return environment
