"""Plain tables: CSV, TSV, Parquet and JSON lines or lists of flat records.

Two shapes are known. Long: a row is one item of one model, with a column `score` (or several measures). Wide: a row is
one item and every numeric column is a model. `columns` says which column is what where the names do not.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from burnish.core.errors import BadInput
from burnish.data.logs.log import FACTS, Ask, Log, listed, missing, score
from burnish.data.logs.stream import lines, text

NAME = "table"
OURS = ("item_id", "model", "score", "epoch", "cluster", "subset", "content", "weight", "status")
"""What columns can be mapped to."""

IDS = (
    *("item_id", "sample_id", "question_id", "doc_id", "instance_id", "task_id", "prompt_id", "example_id"),
    *("problem_id", "id", "uid", "index", "question", "item", "problem", "task", "prompt", "example", ""),
)
"""Names of columns that name items, the surest first; the last is the index that pandas writes."""

ONE = "one model"
Columns = dict[str, Sequence[Any]]


def read_text(path: Path, ask: Ask) -> Log:
    """A CSV or TSV file with a header; the delimiter is the one that the header has most of.

    Raises:
        BadInput: a row has another number of cells than the header; names its line.
    """
    with text(path) as file:
        try:
            first = file.readline()
            delimiter = max(",\t;", key=first.count)
            names = next(csv.reader([first], delimiter=delimiter), [])
            rows = csv.reader(file, delimiter=delimiter)
            cells = [(rows.line_num + 1, row) for row in rows if row]
        except (UnicodeDecodeError, csv.Error) as error:
            raise BadInput(f"{path}: is not a table of text: {error}") from None
    wrong = [f"line {number} has {len(row)}" for number, row in cells if len(row) != len(names)]
    if len(names) < 2 or not cells or len(wrong) > len(cells) / 2:
        raise BadInput(f"{path}: is no log and no table that is known", "a CSV file has a header and at least one row")
    if wrong:
        raise BadInput(f"{path}: table: the header has {len(names)} cells, but {listed(wrong)}")
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise BadInput(f"{path}: table: several columns have the same name: {listed(repeated)}")
    return read(path, {name: [row[place] for _, row in cells] for place, name in enumerate(names)}, ask)


def read_parquet(path: Path, ask: Ask) -> Log:
    """A Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise BadInput(f"{path}: is not a whole Parquet file: {str(error).splitlines()[0]}") from None
    return read(path, {name: table.column(name).to_pylist() for name in table.column_names}, ask)


def read_lines(path: Path, ask: Ask) -> Log:
    """A file of JSON lines."""
    return read_records(path, [record for _, record in lines(path)], ask)


def read_records(path: Path, records: Sequence[Mapping[str, Any]], ask: Ask) -> Log:
    """Records of plain values; nested ones are left out."""
    names = list(dict.fromkeys(name for record in records for name in record))
    plain = [n for n in names if not any(isinstance(record.get(n), dict | list) for record in records)]
    return read(path, {name: [record.get(name) for record in records] for name in plain}, ask)


def read(path: Path, columns: Columns, ask: Ask) -> Log:
    """The columns of a table.

    Raises:
        BadInput: the map names columns that are not there, or no column can be scores; lists the columns.
    """
    log = Log(NAME, path, path.name.split(".")[0])
    places = _places(log, columns, ask)
    if _is_wide(columns, places):
        _wide(log, columns, places)
    else:
        _long(log, columns, places)
    return log


def _places(log: Log, columns: Columns, ask: Ask) -> dict[str, str]:
    """Our columns to the file's."""
    wrong = [f"{ours}={theirs}: the file has no column {theirs!r}" for ours, theirs in ask.columns.items()
             if theirs not in columns]  # fmt: skip
    wrong += [f"{ours}: no such column is known; one of {', '.join(OURS)}" for ours in ask.columns if ours not in OURS]
    if ask.cluster and ask.cluster not in columns:
        wrong.append(f"cluster: the file has no column {ask.cluster!r}")
    if wrong:
        raise BadInput.of(f"{log.path}: the columns are wrong", wrong, f"it has: {listed(columns)}")
    places = {name: name for name in OURS if name in columns} | dict(ask.columns)
    if ask.cluster:
        places["cluster"] = ask.cluster
    if "item_id" not in places:
        lower = {name.strip().lower(): name for name in reversed(columns)}
        found = next((lower[name] for name in IDS if name in lower and lower[name] not in places.values()), None)
        if found is not None:
            places["item_id"] = found
    return places


def _numeric(columns: Columns, places: Mapping[str, str]) -> list[str]:
    """Columns that hold scores and nothing else, and are nothing else."""
    taken = {theirs for ours, theirs in places.items() if ours != "score"}
    return [
        name
        for name, values in columns.items()
        if name not in taken
        and name not in FACTS
        and all(score(value) is not None or missing(value) for value in values)
        and any(not missing(value) for value in values)
    ]


def _is_wide(columns: Columns, places: Mapping[str, str]) -> bool:
    if "model" in places or "score" in places:
        return False
    found = _numeric(columns, places)
    return len(found) > 1 and all(missing(v) or score(v) in (0.0, 1.0) for name in found for v in columns[name])


def _wide(log: Log, columns: Columns, places: Mapping[str, str]) -> None:
    models = _numeric(columns, places)
    items, epochs = _items(log, columns, places)
    labels = _labels(columns, places)
    for model in models:
        for number, value in enumerate(columns[model]):
            facts = {name: values[number] for name, values in labels.items()}
            log.add(items[number], model, {"score": value}, epoch=epochs[number], **facts)
    log.facts["wide"] = True
    left = [name for name in columns if name not in models and name not in places.values()]
    if left:
        log.warn(f"columns that are no scores are left out: {listed(left)}")


def _long(log: Log, columns: Columns, places: Mapping[str, str]) -> None:
    if "score" in places:
        measures = {"score": columns[places["score"]]}
        wrong = Counter(repr(v)[:30] for v in measures["score"] if score(v) is None and not missing(v))
        if wrong:
            raise log.refuse(
                f"column {places['score']!r} holds {listed(wrong)}, which are no scores",
                "scores are numbers, or words such as C and I, true and false, pass and fail",
            )
    else:
        measures = {name: columns[name] for name in _numeric(columns, places)}
        if not {"item_id", "model"} <= set(columns):
            # Numbers of a table that is not ours may be times or counts: only shares are taken for scores unasked.
            shares = {n for n, values in measures.items() if all(0 <= (score(v) or 0) <= 1 for v in values)}
            measures = {name: values for name, values in measures.items() if name in shares}
    if not measures:
        raise log.refuse(
            "no column holds scores", f"say which: --columns score=NAME; the columns are {listed(columns)}"
        )
    items, epochs = _items(log, columns, places)
    labels = _labels(columns, places)
    models = columns[places["model"]] if "model" in places else [ONE] * len(items)
    if "ids" in log.facts and len(set(map(str, models))) == len(models) > 1:
        raise log.refuse("every model has one row: a leaderboard of figures without items", "give the items' scores")
    for number, item in enumerate(items):
        facts = {name: values[number] for name, values in labels.items() if name != "content"}
        content = labels["content"][number] if "content" in labels else None
        scores = {name: values[number] for name, values in measures.items()}
        log.add(item, str(models[number]), scores, epoch=epochs[number], content=content, **facts)


def _labels(columns: Columns, places: Mapping[str, str]) -> dict[str, Sequence[Any]]:
    kinds = ("cluster", "subset", "content", "status", "weight")
    return {name: columns[places[name]] for name in kinds if name in places}


def _items(log: Log, columns: Columns, places: Mapping[str, str]) -> tuple[list[str], list[int | None]]:
    """Names of the items, and their runs where there are some."""
    count = len(next(iter(columns.values())))
    if "item_id" not in places:
        log.facts["ids"] = "row numbers"
        log.warn("no column names the items: rows are numbered, and cannot be matched with another file's")
        return [str(number + 1) for number in range(count)], [None] * count
    items = [str(item).strip() for item in columns[places["item_id"]]]
    if "epoch" in places:
        given = [score(value) for value in columns[places["epoch"]]]
        if any(value is None or not value.is_integer() for value in given):
            raise log.refuse(f"column {places['epoch']!r} holds epochs that are no whole numbers")
        return items, [int(value or 0) for value in given]
    return _numbered_runs(log, items) or (items, [None] * count)


def _numbered_runs(log: Log, items: list[str]) -> tuple[list[str], list[int | None]] | None:
    """Items "3", "3.1", "3.2": the runs of item 3, as pandas names columns and rows that have one name."""
    parts = [re.fullmatch(r"(.+?)(?:\.(\d+))?", item) for item in items]
    bases = [part[1] if part else item for part, item in zip(parts, items, strict=True)]
    runs = [int(part[2] or 0) if part else 0 for part in parts]
    groups: dict[str, list[int]] = {}
    for base, run in zip(bases, runs, strict=True):
        groups.setdefault(base, []).append(run)
    if max(runs) == 0 or any(sorted(found) != list(range(len(found))) for found in groups.values()):
        return None
    log.warn(f"rows such as {items[runs.index(1)]!r} are taken as further runs of item {bases[runs.index(1)]!r}")
    return bases, [run + 1 for run in runs]
