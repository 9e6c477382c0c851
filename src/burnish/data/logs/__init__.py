"""Readers of the logs of other evaluation tools: one file a format, one function that recognises them all.

    scores = read_log("logs/2025-05-12_arc.eval")
    scores.notes["format"], scores.notes["warnings"]

Nothing is unpickled, nothing is unpacked to disk, and long files are read piece by piece. A file that cannot be read
is refused in one line that names it and the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from burnish.core.errors import BadInput
from burnish.data.logs import deepeval, helm, inspect_log, judgments, lm_eval, mqm, promptfoo, tabular
from burnish.data.logs.log import Ask, Reported, listed
from burnish.data.logs.stream import JsonFile, head, top_keys
from burnish.data.scores import Scores

__all__ = ["FORMATS", "Reported", "read_log"]

FORMATS = {
    "inspect-eval": inspect_log.read_eval,
    "inspect-json": inspect_log.read_json,
    "lm-eval-samples": lm_eval.read_samples,
    "lm-eval-results": lm_eval.read_results,
    "helm": helm.read,
    "promptfoo": promptfoo.read,
    "deepeval": deepeval.read,
    "arena-hard": judgments.read_arena,
    "alpaca-eval": judgments.read_alpaca,
    "alpaca-leaderboard": judgments.read_leaderboard,
    "mqm-ratings": mqm.read_ratings,
    "mqm-segments": mqm.read_segments,
    "csv": tabular.read_text,
    "parquet": tabular.read_parquet,
    "jsonl": tabular.read_lines,
    "json": lambda path, ask: tabular.read_records(path, _records(path), ask),
}
"""Name of a format to its reader."""

INSIDE = ("items.parquet", "samples_*.jsonl", "*.eval", "results_*.json")
"""What is looked for in a folder, the first that there is."""


SHAPES = (AttributeError, IndexError, KeyError, OverflowError, RecursionError, StopIteration, TypeError, ValueError)
"""What is raised where a file's values are not of the kinds that its format has."""


def read_log(path: str | Path, *, cluster: str = "", columns: Mapping[str, str] | None = None) -> Scores:
    """The scores in a log.

    Args:
        path: A file, or a folder that holds one log (a HELM run, a run of burnish, one samples file …).
        cluster: A key of the items' metadata (lm-eval: of their documents; tables: a column) to be their cluster.
        columns: For plain tables: ours (item_id, model, score …) to the file's.

    Returns:
        A row for every run of every item: item_id, model, epoch, cluster, subset, content (a hash of what the item
        is), and a column for every measure. Its notes hold format, task, warnings, and what the log reports.

    Raises:
        BadInput: in one line, which file cannot be read and why.
    """
    path = Path(path)
    name, place = recognise(path)
    ask = Ask(cluster, dict(columns or {}))
    if ask.columns and name not in ("csv", "parquet", "jsonl", "json"):
        raise BadInput(f"{path}: columns can be named for plain tables, and this is {name}")
    try:
        return FORMATS[name](place, ask).scores()
    except SHAPES as error:
        # Files of other tools come in versions that nobody has seen yet: what does not fit is their fault, in one line.
        told = f"{type(error).__name__}: {error}".splitlines()[0]
        raise BadInput(f"{path}: {name}: is damaged, or of a version that is not known ({told})") from error


def recognise(path: Path) -> tuple[str, Path]:
    """The name of a log's format, and the file or folder that its reader takes.

    Raises:
        BadInput: nothing is there, or it is of no format that is known.
    """
    if path.is_dir():
        return _folder(path)
    if not path.is_file():
        raise BadInput(f"{path}: there is no such file")
    first = head(path)
    if not first.strip():
        raise BadInput(f"{path}: is empty")
    if first[:4] == b"PK\x03\x04":
        return "inspect-eval", path
    if first[:4] == b"PAR1":
        return "parquet", path
    if first[:2] in (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"):
        raise BadInput(f"{path}: is a pickle, which is a program: burnish opens none", "save the scores as CSV or JSON")
    try:
        text = first.decode("utf-8-sig", errors="strict" if len(first) < 1024 else "ignore")
    except UnicodeDecodeError:
        raise BadInput(f"{path}: is neither text nor a log that is known") from None
    if "\x00" in text:
        raise BadInput(f"{path}: is neither text nor a log that is known")
    found = _json(path, text.lstrip()) if text.lstrip()[:1] in ("{", "[") else _table(text)
    return found, path


def _folder(path: Path) -> tuple[str, Path]:
    if (path / helm.ITEMS).is_file():
        return "helm", path
    for pattern in INSIDE:
        found = sorted(path.glob(pattern))
        if len(found) == 1:
            return recognise(found[0])
        if found:
            raise BadInput(f"{path}: holds {len(found)} logs", f"give one of them: {listed(one.name for one in found)}")
    raise BadInput(f"{path}: is a folder without a log that is known", "give the file")


def _json(path: Path, text: str) -> str:
    if text.startswith("["):
        return _list(text)
    keys, values = top_keys(text)
    first = text.partition("\n")
    several = bool(first[2].strip()) and _whole(first[0])
    if several or path.name.removesuffix(".gz").endswith(".jsonl"):
        return _lines(keys)
    if "eval" in keys and {"version", "status", "plan"} & set(keys):
        return "inspect-json"
    if {"testCases", "testRunData"} & set(keys):
        return "deepeval"
    results = values.get("results")
    if "evalId" in keys or _begins_with_results(text) or isinstance(results, list):
        return "promptfoo"
    if "results" in keys:
        return "lm-eval-results"
    if _whole(first[0]) and not any(isinstance(value, dict | list) for value in values.values()):
        return _lines(keys)
    JsonFile(path).read()  # broken JSON is refused as such
    raise BadInput(f"{path}: is JSON of no log that is known", f"its keys are {listed(keys)}")


def _lines(keys: list[str]) -> str:
    if {"doc_id", "metrics"} <= set(keys):
        return "lm-eval-samples"
    if "games" in keys:
        return "arena-hard"
    return "jsonl"


def _list(text: str) -> str:
    keys, _ = top_keys(text)
    if {"instance_id", "stats"} <= set(keys):
        return "helm"
    return "alpaca-eval" if "preference" in keys else "json"


def _begins_with_results(text: str) -> bool:
    """Whether the object's results are promptfoo's: a version, results, a table."""
    keys, _ = top_keys(text)
    if "results" not in keys:
        return False
    inner, _ = top_keys(text[text.find('"results"') + len('"results"') :])
    return bool({"version", "results", "table"} & set(inner[:3]))


def _whole(text: str) -> bool:
    import json

    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _table(text: str) -> str:
    names = text.partition("\n")[0].strip().split("\t")
    if {"system", "rater", "category", "severity", "target"} <= set(names):
        return "mqm-ratings"
    if {"win_rate", "standard_error", "n_total"} <= set(text.partition("\n")[0].strip().split(",")):
        return "alpaca-leaderboard"
    words = text.partition("\n")[0].split()
    if len(words) == 3 and {"system", "seg_id"} <= set(words):
        return "mqm-segments"
    return "csv"


def _records(path: Path) -> list[Mapping[str, Any]]:
    rows = JsonFile(path).read()
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise BadInput(f"{path}: is not a list of records")
    return rows
