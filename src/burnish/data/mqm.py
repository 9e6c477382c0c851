"""MQM ratings: which spans of a translation a rater marked as errors, how bad, and of what kind.

The files of Google's MQM collections are unquoted TSV, one row an error, the span between ``<v>`` and ``</v>`` in the
target (or, for source errors and omissions, in the source). `Marked` takes a text and its tags apart and puts them
together again to the character, whatever the tags look like: inside words, around nothing, one of them missing. A `Sheet`
keeps every column of every row as the file has it; a `Rating` is what one rater said about one translation, with offsets
into the text without tags.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

from burnish.core.errors import BadInput
from burnish.core.files import write_text

REQUIRED = ("system", "rater", "source", "target", "category", "severity")
SEGMENTS = ("globalSegId", "seg_id")
"""Columns that number the segment over the whole test set; the first one that a file has is used."""
NO_ERROR = "no-error"
"""The severity (whatever its case) of a row that says that a rater found nothing."""
PLANTED = ("HOTW-test",)
"""Severities of rows that check the rater's attention with a planted error and say nothing about the translation."""

_TAG = re.compile("</?v>")
_SHOWN = 10

Kind = Literal["source", "target"]


@dataclass(frozen=True)
class Marked:
    """A text without its tags, and the tags with their offsets; any text at all survives `parse` and `render`."""

    text: str
    tags: tuple[tuple[int, str], ...] = ()
    """(offset into `text`, tag), in the order of the original."""

    @classmethod
    def parse(cls, tagged: str) -> Marked:
        """Take a tagged text apart."""
        parts, tags, place, length = [], [], 0, 0
        for match in _TAG.finditer(tagged):
            parts.append(tagged[place : match.start()])
            length += len(parts[-1])
            tags.append((length, match.group()))
            place = match.end()
        return cls("".join([*parts, tagged[place:]]), tuple(tags))

    @classmethod
    def of(cls, text: str, spans: Iterable[tuple[int, int]]) -> Marked:
        """A text with tags around spans (start, end), which may nest or touch.

        Raises:
            ValueError: two of them cross, which tags cannot say.
        """
        spans = sorted(spans)
        tags: list[tuple[int, int, int, str]] = []
        for number, (start, end) in enumerate(sorted(spans, key=lambda span: (span[0], -span[1]))):
            # At one offset: first the ends, the span that began last first; then what is empty; then the longest start.
            tags.append((start, 1, number, "<v>"))
            tags.append((end, 0, -number, "</v>") if end > start else (end, 1, number, "</v>"))
        made = cls(text, tuple((offset, tag) for offset, _, _, tag in sorted(tags, key=lambda tag: tag[:3])))
        if made.spans() != spans:
            raise ValueError(f"the spans {spans} cross")
        return made

    def render(self) -> str:
        """The text with its tags, as it was parsed."""
        parts, place = [], 0
        for offset, tag in self.tags:
            parts += [self.text[place:offset], tag]
            place = offset
        return "".join([*parts, self.text[place:]])

    def spans(self) -> list[tuple[int, int]]:
        """(start, end) of each marked span, by start; a missing end is the text's end, a missing start its beginning."""
        found, open_at = [], []
        for offset, tag in self.tags:
            if tag == "<v>":
                open_at.append(offset)
            else:
                found.append((open_at.pop() if open_at else 0, offset))
        return sorted([*found, *((start, len(self.text)) for start in open_at)])


@dataclass(frozen=True)
class Sheet:
    """A file of MQM rows: its columns in their order, and each row's cells as they stand there."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    name: str = "the ratings"
    """What messages call it."""

    def row(self, number: int) -> dict[str, str]:
        """One row by column."""
        return dict(zip(self.columns, self.rows[number], strict=True))

    @cached_property
    def segments(self) -> list[str]:
        """The segment of each row; with the document before it where one number stands for segments of several."""
        name = next(column for column in SEGMENTS if column in self.columns)
        at = self.columns.index(name)
        if "doc" not in self.columns:
            return [row[at] for row in self.rows]
        document = self.columns.index("doc")
        homes = defaultdict(set)
        for row in self.rows:
            homes[row[at]].add(row[document])
        if all(len(found) == 1 for found in homes.values()):
            return [row[at] for row in self.rows]
        return [f"{row[document]}:{row[at]}" for row in self.rows]

    def ratings(self, drop: Sequence[str] = PLANTED) -> list[Rating]:
        """What each rater said about each translation, in order of first appearance.

        Args:
            drop: Severities of rows that are left out.

        Raises:
            BadInput: rows of one rating show different translations; lists them.
        """
        at = {name: self.columns.index(name) for name in (*REQUIRED, *(["doc"] if "doc" in self.columns else []))}
        gone = {severity.casefold() for severity in drop}
        found: dict[tuple[str, str, str], Rating] = {}
        faults = []
        for number, (row, segment) in enumerate(zip(self.rows, self.segments, strict=True)):
            severity = row[at["severity"]]
            if severity.casefold() in gone:
                continue
            sides = {"source": Marked.parse(row[at["source"]]), "target": Marked.parse(row[at["target"]])}
            key = (segment, row[at["system"]], row[at["rater"]])
            if key not in found:
                document = row[at["doc"]] if "doc" in at else ""
                found[key] = Rating(*key, document, sides["source"].text, sides["target"].text, [], [])
            rating = found[key]
            rating.lines.append(number)
            try:
                rating.errors.extend(_errors(rating, sides, row[at["category"]], severity, number))
            except ValueError as error:
                faults.append(f"line {number + 2}: {error}")
        if faults:
            more = [f"and {len(faults) - _SHOWN} more"] if len(faults) > _SHOWN else []
            raise BadInput.of(f"{self.name} contradicts itself", [*faults[:_SHOWN], *more], "mend those rows")
        return list(found.values())

    def severities(self) -> dict[str, int]:
        """Each severity, and how many rows have it."""
        at = self.columns.index("severity")
        counts: dict[str, int] = defaultdict(int)
        for row in self.rows:
            counts[row[at]] += 1
        return dict(counts)


@dataclass(frozen=True)
class Error:
    """One marked span."""

    start: int
    end: int
    """Behind its last character; equal to `start` when nothing is marked."""
    category: str
    severity: str
    side: Kind = "target"
    text: str = ""
    """The characters from start to end."""
    line: int = -1
    """The row of the sheet that it stands in, from 0; -1 for a predicted one."""

    @property
    def omission(self) -> bool:
        """Whether something is missing: the span then shows where, or stands in the source."""
        return "omission" in self.category.casefold()


@dataclass(frozen=True)
class Rating:
    """What one rater said about one translation of one segment."""

    segment: str
    system: str
    rater: str
    document: str
    source: str
    """The source without tags."""
    hypothesis: str
    """The translation without tags."""
    errors: list[Error] = field(default_factory=list)
    """In the order of their rows; none when the rater found none."""
    lines: list[int] = field(default_factory=list)
    """Rows of the sheet, from 0."""

    @property
    def item_id(self) -> str:
        """A name of its own."""
        return "/".join(filter(None, (self.segment, self.system, self.rater)))


def _errors(rating: Rating, sides: Mapping[str, Marked], category: str, severity: str, line: int) -> Iterator[Error]:
    if severity.casefold() == NO_ERROR:
        return
    unmarked = True
    texts: dict[Kind, str] = {"source": rating.source, "target": rating.hypothesis}
    for side, text in texts.items():
        for start, end in spans_in(sides[side], text, f"its {side} is not that of the first row of {rating.item_id}"):
            unmarked = False
            yield Error(start, end, category, severity, side, text[start:end], line)
    if unmarked:
        yield Error(0, 0, category, severity, line=line)


def spans_in(marked: Marked, text: str, otherwise: str = "") -> list[tuple[int, int]]:
    """The spans of a marked text as offsets into `text`, from which it may differ by blanks at its ends.

    Raises:
        ValueError: it differs in more; says `otherwise`.
    """
    if marked.text == text:
        return marked.spans()
    if marked.text.strip() != text.strip():
        raise ValueError(otherwise)
    shift = (len(text) - len(text.lstrip())) - (len(marked.text) - len(marked.text.lstrip()))
    return [
        (min(max(0, start + shift), len(text)), min(max(0, end + shift), len(text))) for start, end in marked.spans()
    ]


# -- files ------------------------------------------------------------------------------------------------------


def read_tsv(path: str | Path) -> Sheet:
    """An MQM file (``.tsv`` or ``.tsv.gz``), unquoted, with a line of column names.

    Raises:
        BadInput: it cannot be read, lacks columns, or rows have another number of cells (their lines are named).
    """
    path = Path(path)
    return sheet(read_utf8(path), str(path))


def sheet(text: str, name: str = "the ratings", required: Sequence[str] = REQUIRED) -> Sheet:
    """A `Sheet` of the text of a TSV file; see `read_tsv`. One that lacks columns of `REQUIRED` gives no ratings."""
    lines = text.removeprefix("\ufeff").split("\n")
    if lines[-1] == "":
        lines.pop()
    # Only a line feed ends a row: texts hold other characters that Python's splitlines takes for line ends.
    ends = "\r" if lines and lines[0].endswith("\r") else ""
    cells = [tuple(line.removesuffix(ends).split("\t")) for line in lines]
    if not cells:
        raise BadInput(f"{name} is empty", "give a TSV file with a line of column names and a row for each error")
    columns, rows = cells[0], tuple(cells[1:])
    faults = [f"the column {column!r} is missing" for column in required if column not in columns]
    if not set(SEGMENTS) & set(columns):
        faults.append(f"a column that numbers the segments is missing: {' or '.join(SEGMENTS)}")
    wrong = [number for number, row in enumerate(rows, 2) if len(row) != len(columns)]
    faults += [f"line {number} has {len(rows[number - 2])} cells, not {len(columns)}" for number in wrong[:_SHOWN]]
    faults += [f"and {len(wrong) - _SHOWN} more such lines"] if len(wrong) > _SHOWN else []
    faults += [] if rows else ["there are no rows below the column names"]
    if faults:
        raise BadInput.of(f"{name} is no MQM file", faults, f"the columns are {', '.join(columns[:12])}")
    return Sheet(columns, rows, name)


def tsv(sheet: Sheet) -> str:
    """The text of the TSV file of a sheet.

    Raises:
        BadInput: cells hold a tab or a line end, which an unquoted file cannot hold; lists their rows.
    """
    broken = [
        f"row {number}: {column} holds a tab or a line end"
        for number, row in enumerate(sheet.rows, 1)
        for column, cell in zip(sheet.columns, row, strict=True)
        if "\t" in cell or "\n" in cell
    ]
    if broken:
        raise BadInput.of(f"{sheet.name} cannot be an unquoted TSV file", broken[:_SHOWN], "replace those characters")
    return "".join("\t".join(row) + "\n" for row in (sheet.columns, *sheet.rows))


def write_tsv(sheet: Sheet, path: str | Path) -> None:
    """Write a sheet as an MQM file, whole or not at all; see `tsv`."""
    write_text(Path(path), tsv(sheet))


def read_utf8(path: Path) -> str:
    """The text of a file, plain or gzipped.

    Raises:
        BadInput: it is not there, not a whole gzip file, or not UTF-8.
    """
    try:
        data = path.read_bytes()
        if path.suffix == ".gz":
            data = gzip.decompress(data)
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is not UTF-8 at byte {error.start}", "convert it to UTF-8") from None
    except (OSError, EOFError, zlib.error) as error:
        raise BadInput(f"{path} cannot be read: {error}", "give an MQM file, plain or gzipped") from None
