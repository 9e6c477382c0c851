"""How everything that is printed looks: one kind of table, one form of error, plain JSON for programs."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from burnish.core.errors import BurnishError

COLOURS = {
    "holds": "green",
    "done": "green",
    "fresh": "green",
    "stable": "green",
    "does not hold": "red",
    "failed": "red",
    "undecided": "yellow",
    "stale": "yellow",
    "stopped": "yellow",
    "killed": "yellow",
    "running": "cyan",
}
"""Words that stand in a cell of their own."""

PIPED_WIDTH = 160
"""Columns of output that goes into a file or another program."""


_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that steer a terminal, change the direction of writing, or are half a character."""


class Screen(Console):
    """A console that ends quietly when the program reading its output has gone away."""

    def on_broken_pipe(self) -> None:
        """End with success: whoever reads has seen enough."""
        silence()
        raise SystemExit(0)


def silence() -> None:
    """Send what is still to be written to nowhere, so that closing standard output does not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def screen(*, errors: bool = False) -> Screen:
    """The console of standard output, or of standard error."""
    stream = sys.stderr if errors else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else PIPED_WIDTH
    return Screen(stderr=errors, width=width, highlight=False, emoji=False)


def clean(text: str) -> str:
    """A text with what could steer the terminal made visible: names, paths and models' replies come from outside."""
    return _UNSEEN.sub(_escaped, text.replace("\r\n", "\n"))


def _escaped(found: re.Match[str]) -> str:
    code = ord(found.group())
    if 0xDC80 <= code <= 0xDCFF:  # a byte of a file name that is not UTF-8
        code -= 0xDC00
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def say(text: str = "", style: str = "") -> None:
    """One line, or some, on standard output; nothing in it is markup."""
    screen().print(Text(clean(text), style=style), soft_wrap=True)


def note(text: str) -> None:
    """A remark on standard error."""
    screen(errors=True).print(Text(clean(text), style="dim"), soft_wrap=True)


def heading(text: str) -> None:
    """A title between tables."""
    say()
    say(text, "bold")


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, plain: bool = False) -> None:
    """A table on standard output; columns in which every cell is a number are aligned at the right.

    Args:
        columns: Heads.
        rows: Cells, of any type.
        plain: Without heads.
    """
    cells = [[clean(_cell(value)) for value in row] for row in rows]
    grid = Table(box=box.SIMPLE_HEAD, show_header=not plain, pad_edge=False, show_edge=False, header_style="bold")
    for number, name in enumerate(columns):
        numeric = bool(cells) and all(_is_number(row[number]) for row in cells)
        grid.add_column(Text(clean(name)), justify="right" if numeric else "left", overflow="fold")
    for row in cells:
        grid.add_row(*(Text(cell, style=COLOURS.get(cell, "")) for cell in row))
    screen().print(grid)


def records(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] = ()) -> None:
    """A table of dicts; the heads are their keys."""
    heads = list(columns) or list(dict.fromkeys(key for row in rows for key in row))
    table(heads, [[row.get(head, "") for head in heads] for row in rows])


def pairs(facts: Mapping[str, Any]) -> None:
    """Names and values, one pair a line."""
    table(("", ""), facts.items(), plain=True)


def markdown(text: str) -> None:
    """Documentation that is written in Markdown."""
    from rich.markdown import Markdown

    screen().print(Markdown(clean(text)))


def as_json(value: Any) -> None:
    """`value` on standard output, for programs."""
    text = json.dumps(value, indent=1, ensure_ascii=False, default=str)
    # As JSON's own escapes, programs read the same text; line ends are the only such characters outside strings.
    sys.stdout.write(_UNSEEN.sub(lambda found: f"\\u{ord(found.group()):04x}", text) + "\n")


def problem(error: BurnishError) -> None:
    """What is wrong, and what to do about it, on standard error."""
    text = Text.assemble(("error: ", "bold red"), clean(error.problem))
    if error.fix:
        text.append("\nfix: ", "bold green").append(clean(error.fix))
    screen(errors=True).print(text, soft_wrap=True)


def figure(value: Any) -> str:
    """A measured value as people read it.

    Five significant digits, and all digits of a whole number; an estimate with its bounds; a list line by line.
    """
    if isinstance(value, Mapping) and {"estimate", "low", "high"} <= set(value):
        return f"{figure(value['estimate'])} [{figure(value['low'])}, {figure(value['high'])}]"
    if isinstance(value, list | tuple):
        return "\n".join(map(figure, value))
    if isinstance(value, float) and not value.is_integer():
        return f"{value:.5g}"
    return f"{value:.0f}" if isinstance(value, float) and abs(value) < 1e15 else str(value)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return figure(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_cell(one)}" for name, one in value.items() if one is not None)
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(map(_cell, value))
    return str(value)


def _is_number(cell: str) -> bool:
    try:
        float(cell or "nan")
    except ValueError:
        return False
    return True
