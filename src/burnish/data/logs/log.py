"""What every reader of a log fills: rows of one item each, warnings, and what the file itself claims."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from burnish.core.errors import BadInput
from burnish.data.scores import Scores

LONGEST_NAMES = 8
"""Names that an error message lists before it says how many more there are."""

CONTENT_LENGTH = 5_000
"""Characters of an input that its hash sees; Inspect's summaries cut at 5,120."""

GRADES = {
    "c": 1.0,
    "i": 0.0,
    "p": 0.5,
    "n": 0.0,
    **dict.fromkeys(("true", "yes", "pass", "passed", "correct"), 1.0),
    **dict.fromkeys(("false", "no", "fail", "failed", "incorrect"), 0.0),
}
"""Grades in words. C, I, P and N are Inspect's: correct, incorrect, partial, no answer."""

FACTS = frozenset({"content", "prompt_hash", "weight", "rater", "measure", "runs"})
"""Columns of a log's scores that are neither labels nor measures."""


@dataclass(frozen=True)
class Ask:
    """What of a log is wanted beyond its scores."""

    cluster: str = ""
    """A key of an item's metadata whose value is the item's cluster."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """For plain tables: our column (item_id, model, score, cluster, subset, epoch, content) to the file's."""


@dataclass(frozen=True)
class Reported:
    """A figure that a log states about itself: to check against its items, never instead of them."""

    model: str
    task: str
    measure: str
    estimate: float
    stderr: float | None = None
    n: int | None = None
    """Items that the log says the figure is over."""

    @property
    def successes(self) -> int | None:
        """The whole number of successes that the figure stands for, when it can be a share of `n` right answers."""
        if not self.n or not 0 <= self.estimate <= 1:
            return None
        count = round(self.estimate * self.n)
        # Logs print 4 to 16 digits; a share of n items must come back from them.
        return count if abs(count / self.n - self.estimate) <= max(1e-9, 5e-5 / self.n) else None


class Log:
    """Rows as they are read.

    Args:
        format: The name of the file's format.
        path: The file.
        task: What was evaluated, if the log says so.
    """

    def __init__(self, format: str, path: Path, task: str = "") -> None:
        self.format, self.path, self.task = format, path, task
        self.rows: list[dict[str, Any]] = []
        self.warnings: list[str] = []
        self.reported: list[Reported] = []
        self.claimed: int | None = None
        """Runs of items that the log says it holds."""
        self.figures_only = False
        """Whether logs of this format hold no items; others without items are refused."""
        self.facts: dict[str, Any] = {}
        self._outputs: dict[tuple[str, str], set[str | None]] = defaultdict(set)
        self._runs: Counter[tuple[str, str]] = Counter()
        self._unread: Counter[str] = Counter()

    def warn(self, text: str) -> None:
        """Something that a reader of the figures has to know; said once."""
        if text not in self.warnings:
            self.warnings.append(text)

    def refuse(self, why: str, fix: str = "") -> BadInput:
        """The error that names the file and the reason."""
        return BadInput(f"{self.path}: {self.format}: {why}", fix)

    def add(
        self,
        item_id: Any,
        model: str,
        scores: Mapping[str, Any],
        *,
        epoch: int | None = None,
        content: Any = None,
        output: Any = None,
        **labels: Any,
    ) -> dict[str, Any]:
        """One run of one item.

        Args:
            item_id: The log's own name of the item.
            model: What was evaluated.
            scores: Measure to value, as the log has it; what is no score is counted as unscored.
            epoch: Which run of the item it is.
            content: What the item is (input, target …): its hash tells the same item in another log.
            output: What the model answered; only to see repeats that are copies.
            labels: cluster, subset, status, and other columns.
        """
        row: dict[str, Any] = {"item_id": str(item_id), "model": model}
        row |= {"epoch": epoch, "content": digest(content) if content is not None else None}
        row |= {name: value if value is None else str(value) for name, value in labels.items()}
        for name, value in flat(scores):
            row[name] = self._score(value)
        self.rows.append(row)
        if epoch is not None:
            key = (model, row["item_id"])
            self._runs[key] += 1
            self._outputs[key].add(None if output is None else digest(output))
        return row

    def _score(self, value: Any) -> float | None:
        found = score(value)
        if found is None and not missing(value):
            self._unread[repr(value)[:40]] += 1
        return found

    def scores(self) -> Scores:
        """The rows in an order that does not depend on the file's, with everything that was noticed as notes.

        Raises:
            BadInput: there is no row; or, for formats that hold figures only, no figure.
        """
        import pyarrow as pa

        if not self.rows and not (self.figures_only and self.reported):
            raise self.refuse("it holds no scored items" + self._claim())
        self._remark()
        order = lambda row: (row["model"], natural(row["item_id"]), row["epoch"] or 0, row["content"] or "")  # noqa: E731
        rows = sorted(self.rows, key=order)
        names = list(dict.fromkeys(name for row in rows for name in row))
        first = ("item_id", "model", "epoch", "cluster", "subset", "status", *sorted(FACTS))
        kept = [name for name in first if name in names and (name in first[:2] or any(r.get(name) for r in rows))]
        measures = sorted(name for name in names if name not in first)
        columns: dict[str, Any] = {}
        for name in [*kept, *measures]:
            kind = pa.int64() if name == "epoch" else pa.float64() if name in (*measures, "weight") else pa.string()
            columns[name] = pa.array([_plain(row.get(name), kind) for row in rows], kind)
        if not columns:
            columns = {name: pa.array([], pa.string()) for name in first[:2]}
        notes = {"format": self.format, "file": self.path.name, "task": self.task, **self.facts}
        notes |= {"warnings": self.warnings, "reported": [asdict(one) for one in self.reported]}
        return Scores(pa.table(columns), notes)

    def _claim(self) -> str:
        """What is said of the items of a log without any."""
        parts = [f"its header claims {self.claimed}" if self.claimed else ""]
        parts += [f"its status is {self.facts['status']}" if "status" in self.facts else ""]
        told = ", ".join(part for part in parts if part)
        return f" ({told})" if told else ""

    def _remark(self) -> None:
        """Warnings about the rows as a whole."""
        if self._unread:
            shown = ", ".join(name for name, _ in self._unread.most_common(3))
            self.warn(f"{sum(self._unread.values())} values are no scores and count as unscored: {shown}")
        if self.claimed is not None and self.rows and self.claimed != len(self.rows):
            self.warn(
                f"the header claims {self.claimed} samples and the file holds {len(self.rows)}: "
                f"every figure is over the {len(self.rows)}"
            )
        several = {key for key, count in self._runs.items() if count > 1}
        copies = [key for key in several if len(self._outputs[key]) == 1 and None not in self._outputs[key]]
        if several and len(copies) == len(several):
            self.warn(
                f"all runs of each of the {len(several)} repeated items have the same output: "
                "they may be copies out of a cache, and say nothing about how the model varies"
            )


def score(value: Any) -> float | None:
    """A score as a number; None for what is missing, not a number, or no score at all."""
    if isinstance(value, bool | int | float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, str):
        text = value.strip()
        if text.lower() in GRADES:
            return GRADES[text.lower()]
        try:
            return score(float(text))
        except ValueError:
            return None
    return None


def mapping(value: Any) -> Mapping[str, Any]:
    """A value of JSON if it is an object, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def missing(value: Any) -> bool:
    """Whether a value stands for "not scored"."""
    if isinstance(value, str):
        return value.strip().lower() in ("", "nan", "none", "null", "n/a", "na")
    return value is None or (isinstance(value, float) and math.isnan(value))


def flat(scores: Mapping[str, Any], before: str = "") -> Iterable[tuple[str, Any]]:
    """Scores with those that are tables or lists taken apart: "scorer.key", "scorer.0"."""
    for name, value in scores.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{before}{name}.")
        elif isinstance(value, list | tuple):
            yield from flat({str(number): one for number, one in enumerate(value)}, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def digest(content: Any) -> str:
    """A short hash of what an item is; texts are seen up to `CONTENT_LENGTH` characters, blanks at ends dropped."""
    return hashlib.sha256(json.dumps(_short(content), sort_keys=True, default=str).encode()).hexdigest()[:24]


def _short(content: Any) -> Any:
    if isinstance(content, str):
        return content.strip()[:CONTENT_LENGTH]
    if isinstance(content, Mapping):
        return {str(name): _short(value) for name, value in content.items()}
    return [_short(one) for one in content] if isinstance(content, list | tuple) else content


def natural(text: str) -> tuple[Any, ...]:
    """A sorting key by which "item 9" comes before "item 10"."""
    return tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", text) if part)


def listed(names: Iterable[Any]) -> str:
    """Some names, and how many more there are."""
    shown = [str(name) for name in names]
    more = f" and {len(shown) - LONGEST_NAMES} more" if len(shown) > LONGEST_NAMES else ""
    return ", ".join(shown[:LONGEST_NAMES]) + more


def cluster_of(ask: Ask, log: Log, metadata: Mapping[str, Any] | None) -> str | None:
    """The value of the cluster key in an item's metadata.

    Raises:
        BadInput: the item has no such key; lists those that it has.
    """
    if not ask.cluster:
        return None
    plain = {key: value for key, value in (metadata or {}).items() if isinstance(value, str | int | float | bool)}
    if ask.cluster not in plain:
        known = f"the keys are {listed(sorted(plain))}" if plain else "its items have no metadata"
        raise log.refuse(f"an item has no metadata {ask.cluster!r} to be its cluster", known)
    return str(plain[ask.cluster])


def _plain(value: Any, kind: Any) -> Any:
    if value is None:
        return None
    text = str(kind)
    return int(value) if text == "int64" else float(value) if text == "double" else str(value)
