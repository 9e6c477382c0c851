"""MQM ratings in other formats: mt-metrics-eval's ratings and ESA, both JSON lines, in and out.

| format | a line is | spans |
|---|---|---|
| MQM TSV | an error | tags in the text |
| mt-metrics-eval | a rating: ``source, hypothesis, errors, document_id, segment_id, system_id, rater_id`` | start and end, in source or target |
| ESA, as WMT24 has it | a rating: ``src, tgt, esa_spans, esa_score, line_id, doc_id, system, annotator`` | start and end in the target; "missing" for an omission |

Neither JSON format has a place for all that an MQM file says (its other columns, the order of its rows, a missing tag, and in
ESA errors of the source). It goes into one more key, ``mqm``, which other readers pass over, so that a file comes back as it
was. What the format itself says counts: a span that was moved, taken out or added there is so in the MQM file too.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from burnish.core.errors import BadInput
from burnish.core.files import write_text
from burnish.data.mqm import (
    NO_ERROR,
    PLANTED,
    REQUIRED,
    SEGMENTS,
    Error,
    Marked,
    Rating,
    Sheet,
    read_utf8,
    sheet,
    spans_in,
    tsv,
)

Format = Literal["mqm", "json", "esa"]
COLUMNS = ("system", "doc", "doc_id", "seg_id", "rater", "source", "target", "category", "severity")
"""Of an MQM file that is made from ratings which never were one."""
FOREIGN = "json:"
"""What stands before the name of a column that keeps a key of another format, as JSON."""
MISSING = "missing"

_PLANTED = {severity.casefold() for severity in PLANTED}
_RATING = ("source", "hypothesis", "errors", "document_id", "segment_id", "system_id", "rater_id", "mqm")
_ESA = ("src", "tgt", "esa_spans", "doc_id", "line_id", "system", "annotator", "mqm")
_SHOWN = 10


def read_ratings(path: str | Path) -> Sheet:
    """Ratings in any of the formats, plain or gzipped; ``.json``, ``.jsonl``: JSON lines, else an MQM file.

    Raises:
        BadInput: the file is of none of them; says why.
    """
    path = Path(path)
    text = read_utf8(path)
    if {".json", ".jsonl"} & set(path.suffixes[-2:]):
        return from_json(text, str(path))
    return sheet(text, str(path))


def read_translations(path: str | Path) -> list[Rating]:
    """Translations that nobody need have rated, each once: in any of the formats, or a TSV file without the errors.

    A TSV file needs the columns system, source, target and one that numbers the segments. What is said of errors is
    passed over.

    Raises:
        BadInput: the file is of none of the formats, or gives one system two translations of a segment; says where.
    """
    path = Path(path)
    text = read_utf8(path)
    if {".json", ".jsonl"} & set(path.suffixes[-2:]):
        table = from_json(text, str(path))
    else:
        table = sheet(text, str(path), required=("system", "source", "target"))
    found: dict[tuple[str, str], Rating] = {}
    faults = []
    for number, segment in enumerate(table.segments):
        cells = table.row(number)
        source, target = (Marked.parse(cells[side]).text for side in ("source", "target"))
        one = Rating(segment, cells["system"], "", cells.get("doc", ""), source, target)
        before = found.setdefault((segment, one.system), one)
        if before.hypothesis.strip() != target.strip():
            faults.append(f"row {number + 1}: another translation of segment {segment} by {one.system}")
    if faults:
        raise BadInput.of(f"{path} contradicts itself", faults[:_SHOWN], "give each system's translation once")
    return list(found.values())


def write_ratings(ratings: Sheet, path: str | Path, to: Format) -> None:
    """Write ratings in one of the formats, whole or not at all.

    Raises:
        BadInput: "mqm", and a cell holds a tab or a line end.
    """
    texts: dict[Format, Callable[[Sheet], str]] = {"mqm": tsv, "json": to_json, "esa": to_esa}
    write_text(Path(path), texts[to](ratings))


# -- out --------------------------------------------------------------------------------------------------------


def to_json(ratings: Sheet) -> str:
    """JSON lines as mt-metrics-eval reads them; an error without a span stands at 0 to 0."""
    return "".join(_line(_rating_record(ratings, rating)) for rating in ratings.ratings(drop=()))


def to_esa(ratings: Sheet) -> str:
    """JSON lines as WMT's ESA files have them. An omission is "missing"; another error of the source has no span there."""
    return "".join(_line(_esa_record(ratings, rating)) for rating in ratings.ratings(drop=()))


def write_predictions(pairs: Iterable[tuple[Rating, Sequence[Error]]], name: str, path: str | Path) -> None:
    """Write what was predicted for translations as mt-metrics-eval's ratings, whole or not at all.

    Args:
        pairs: What was to be predicted, and the errors predicted instead.
        name: Of what predicted them. The rater of each line is "<name> as <rater>", so that predictions of several
            ratings of one translation are several ratings.
        path: The file.
    """
    lines = []
    for rating, errors in pairs:
        rater = f"{name} as {rating.rater}" if rating.rater else name
        record = _record(replace(rating, rater=rater), [_error(error) for error in errors])
        lines.append(_line(record if record["segment_id"] is not None else {**record, "segment_id": rating.segment}))
    write_text(Path(path), "".join(lines))


def _line(record: Mapping[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False) + "\n"


def _rating_record(ratings: Sheet, rating: Rating) -> dict[str, Any]:
    errors = [
        {**_error(error), "row": rating.lines.index(error.line)}
        for error in rating.errors
        if error.severity.casefold() not in _PLANTED
    ]
    return {**_record(rating, errors), **_foreign(ratings, rating), "mqm": _rest(ratings, rating, errors)}


def _record(rating: Rating, errors: list[dict[str, Any]]) -> dict[str, Any]:
    """The keys that mt-metrics-eval knows."""
    number = rating.segment.rpartition(":")[2]
    return {
        "source": rating.source,
        "hypothesis": rating.hypothesis,
        "errors": errors,
        "document_id": rating.document or None,
        # mt-metrics-eval counts segments from 0, MQM files from 1.
        "segment_id": int(number) - 1 if number.isdecimal() else None,
        "system_id": rating.system,
        "rater_id": rating.rater,
    }


def _error(error: Error) -> dict[str, Any]:
    return {
        "start": error.start,
        "end": error.end,
        "category": error.category,
        "severity": error.severity,
        "score": None,
        "is_source_error": error.side == "source",
    }


def _esa_record(ratings: Sheet, rating: Rating) -> dict[str, Any]:
    spans, seen = [], set()
    for error in rating.errors:
        row = rating.lines.index(error.line)
        if error.severity.casefold() in _PLANTED or (error.side == "source" and not error.omission):
            continue
        if error.omission and row in seen:
            continue
        seen.add(row)
        place = (MISSING, MISSING) if error.omission else (error.start, error.end)
        spans.append(
            {
                "start_i": place[0],
                "end_i": place[1],
                "severity": error.severity.casefold(),
                "error_type": error.category,
                "row": row,
            }
        )
    number = rating.segment.rpartition(":")[2]
    return {
        "src": rating.source,
        "tgt": rating.hypothesis,
        "esa_spans": spans,
        "doc_id": rating.document,
        "line_id": int(number) - 1 if number.isdecimal() else rating.segment,
        "system": rating.system,
        "annotator": rating.rater,
        **_foreign(ratings, rating),
        "mqm": _rest(ratings, rating, [_esa_error(span) for span in spans]),
    }


def _foreign(ratings: Sheet, rating: Rating) -> dict[str, Any]:
    first = ratings.row(rating.lines[0])
    found = {}
    for name in ratings.columns:
        if name.startswith(FOREIGN) and first[name]:
            try:
                found[name.removeprefix(FOREIGN)] = json.loads(first[name])
            except ValueError:
                raise BadInput(
                    f"{ratings.name}, line {rating.lines[0] + 2}: the cell {name} is not JSON",
                    "mend it, or rename the column",
                ) from None
    return found


def _rest(ratings: Sheet, rating: Rating, errors: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the MQM file says beyond the record: its columns, and for each row what the errors do not tell."""
    rows = []
    for number, line in enumerate(rating.lines):
        cells = ratings.row(line)
        mine = [error for error in errors if error["row"] == number]
        kept: dict[str, Any] = {"line": line, "errors": len(mine)}
        kept |= {name: cells[name] for name in ("category", "severity")}
        kept["values"] = {
            name: cell for name, cell in cells.items() if name not in REQUIRED and not name.startswith(FOREIGN)
        }
        kept |= {
            side: cells[side]
            for side, text in (("source", rating.source), ("target", rating.hypothesis))
            if _tagged(text, mine, side) != cells[side]
        }
        rows.append(kept)
    return {"columns": list(ratings.columns), "rows": rows}


def _tagged(text: str, errors: Sequence[Mapping[str, Any]], side: str) -> str:
    spans = [
        (error["start"], error["end"])
        for error in errors
        if error["is_source_error"] == (side == "source") and error["end"] > error["start"]
    ]
    return Marked.of(text, spans).render()


# -- in ---------------------------------------------------------------------------------------------------------


def from_json(text: str, name: str = "the ratings") -> Sheet:
    """A sheet of JSON lines of either format.

    Raises:
        BadInput: listing the lines that are of neither.
    """
    columns: dict[str, None] = {}
    placed: list[tuple[int, dict[str, str]]] = []
    faults: list[str] = []
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        if not line.strip():
            continue
        try:
            record = _common(json.loads(line))
            columns |= dict.fromkeys(record["mqm"]["columns"])
            placed += _rows(record)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
            reason = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
            faults.append(f"line {number}: {reason}")
    if faults or not placed:
        more = [f"and {len(faults) - _SHOWN} more"] if len(faults) > _SHOWN else []
        raise BadInput.of(
            f"{name} holds no ratings as JSON lines",
            [*faults[:_SHOWN], *more] or ["it is empty"],
            f"a rating has the keys {', '.join(_RATING[:-1])}, or as ESA {', '.join(_ESA[:-1])}",
        )
    order = sorted(range(len(placed)), key=lambda place: placed[place][0])
    names = tuple(columns)
    return Sheet(names, tuple(tuple(placed[place][1].get(column, "") for column in names) for place in order), name)


def _common(record: Any) -> dict[str, Any]:
    """A line of either format, checked, as a record of mt-metrics-eval's with the key ``mqm``."""
    if not isinstance(record, dict):
        raise ValueError("not an object")
    esa = "esa_spans" in record
    known = _ESA if esa else _RATING
    if esa:
        line = record["line_id"]
        common = {
            "source": record["src"],
            "hypothesis": record["tgt"],
            "errors": [_esa_error(span) for span in record["esa_spans"]],
            "document_id": record.get("doc_id"),
            "segment_id": line,
            "system_id": record["system"],
            "rater_id": record.get("annotator"),
            "mqm": record.get("mqm"),
        }
    else:
        common = {key: record.get(key) for key in _RATING}
        for key in ("source", "hypothesis", "errors", "system_id"):
            common[key] = record[key]
    foreign = {
        f"{FOREIGN}{key}": json.dumps(value, ensure_ascii=False) for key, value in record.items() if key not in known
    }
    if not all(isinstance(common[key], str) for key in ("source", "hypothesis", "system_id")):
        raise ValueError("source, hypothesis and system are not all text")
    common["errors"] = [
        {"is_source_error": False, "category": "", "severity": "", **error} for error in common["errors"]
    ]
    for error in common["errors"]:
        side = common["source" if error["is_source_error"] else "hypothesis"]
        if not 0 <= int(error["start"]) <= int(error["end"]) <= len(side):
            raise ValueError(
                f"the span {error['start']} to {error['end']} is not inside its text of {len(side)} characters"
            )
    if common["mqm"] is None:
        if common["segment_id"] is None:
            raise KeyError("segment_id")
        common["mqm"] = {"columns": [*COLUMNS, *foreign], "rows": []}
    common["foreign"] = foreign
    return common


def _esa_error(span: Mapping[str, Any]) -> dict[str, Any]:
    missing = span["start_i"] == MISSING
    return {
        "start": 0 if missing else span["start_i"],
        "end": 0 if missing else span["end_i"],
        "category": span.get("error_type") or ("Accuracy/Omission" if missing else "Other"),
        "severity": str(span["severity"]).capitalize(),
        "is_source_error": False,
        "missing": missing,
        **({"row": span["row"]} if "row" in span else {}),
    }


def _rows(record: Mapping[str, Any]) -> list[tuple[int, dict[str, str]]]:
    """(line, cells) of the rows of one rating."""
    ratings = {"system": record["system_id"], "rater": record["rater_id"] or "rater", **record["foreign"]}
    by_row: dict[int | None, list[dict[str, Any]]] = defaultdict(list)
    for error in record["errors"]:
        by_row[error.get("row")].append(error)
    found = []
    for number, kept in enumerate(record["mqm"]["rows"]):
        mine = by_row.get(number, [])
        if len(mine) < kept["errors"]:
            continue  # the error was taken out
        cells = {**ratings, **kept["values"], "category": kept["category"], "severity": kept["severity"]}
        for key in ("category", "severity"):
            if mine and str(mine[0][key]).casefold() != cells[key].casefold():
                cells[key] = str(mine[0][key])
        cells |= {side: _side(record, mine, kept, side) for side in ("source", "target")}
        found.append((int(kept["line"]), cells))
    last = max((line for line, _ in found), default=-1)
    values = found[0][1] if found else _fresh(record)
    for error in by_row[None]:
        sides = {side: _tagged(_text(record, side), [error], side) for side in ("source", "target")}
        found.append(
            (
                last,
                {
                    **values,
                    **ratings,
                    **sides,
                    "category": error["category"] or "",
                    "severity": error["severity"] or "",
                },
            )
        )
    if not found:
        sides = {"source": record["source"], "target": record["hypothesis"]}
        nothing = {"category": NO_ERROR.capitalize(), "severity": NO_ERROR.capitalize()}
        found.append((last, {**values, **ratings, **sides, **nothing}))
    return found


def _fresh(record: Mapping[str, Any]) -> dict[str, str]:
    """The other cells of a rating of which no row is left, or that never was in an MQM file."""
    if record["mqm"]["rows"]:
        return dict(record["mqm"]["rows"][0]["values"])
    number = record["segment_id"]
    segment = str(number + 1) if isinstance(number, int) else str(number)
    return {"doc": record["document_id"] or "", "doc_id": "", SEGMENTS[1]: segment}


def _text(record: Mapping[str, Any], side: str) -> str:
    return str(record["source" if side == "source" else "hypothesis"])


def _side(record: Mapping[str, Any], errors: Sequence[Mapping[str, Any]], kept: Mapping[str, Any], side: str) -> str:
    """A cell of text with tags: as it was, when it still says what the errors say."""
    text = _text(record, side)
    made = _tagged(text, errors, side)
    if side not in kept:
        return made
    was = str(kept[side])
    if any(error.get("missing") for error in errors) or not errors:
        return was
    said = sorted(
        (error["start"], error["end"])
        for error in errors
        if error["is_source_error"] == (side == "source") and (error["end"] > error["start"] or "<v>" in was)
    )
    return was if said == spans_in(Marked.parse(was), text, "") else made
