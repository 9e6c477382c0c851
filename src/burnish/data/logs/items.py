"""One model's scores on one measure, a row an item, and the items that two of them share.

Runs (epochs) of an item are kept together: they are never counted as items. Items of two logs are matched by the hash
of what they are, and by their names only where a log has no hashes; never by their place in the file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from burnish.core.errors import BadInput, UnknownName
from burnish.data.logs.log import FACTS, listed, natural
from burnish.data.scores import LABELS, Scores

LEAST_SHARED = 0.5
"""Share of the smaller log's items that both must hold; below it they are logs of different things."""


@dataclass(frozen=True)
class Items:
    """One model's scores on one measure."""

    model: str
    measure: str
    ids: tuple[str, ...]
    runs: tuple[tuple[float, ...], ...]
    """Every item's scored runs; at least one."""
    contents: tuple[str, ...] | None = None
    """Hashes of what the items are; None where the log has none."""
    clusters: tuple[str, ...] | None = None
    prompts: tuple[str, ...] | None = None
    """Hashes of the prompts, with their few-shot examples."""
    named: bool = True
    """Whether the ids are the items' own; otherwise they are row numbers."""
    unscored: int = 0
    """Runs without a score, which are left out."""
    warnings: tuple[str, ...] = field(default=())

    @property
    def binary(self) -> bool:
        """Whether every score is 0 or 1."""
        return all(value in (0.0, 1.0) for runs in self.runs for value in runs)

    @property
    def inside(self) -> bool:
        """Whether every score lies in [0, 1]."""
        return all(0 <= value <= 1 for runs in self.runs for value in runs)

    @property
    def repeated(self) -> bool:
        """Whether some item was run more than once."""
        return any(len(runs) > 1 for runs in self.runs)

    @property
    def means(self) -> np.ndarray:
        """Every item's mean over its runs, (items,)."""
        return np.array([sum(runs) / len(runs) for runs in self.runs])

    @property
    def sizes(self) -> np.ndarray:
        """Runs of every item, (items,)."""
        return np.array([len(runs) for runs in self.runs])

    @property
    def successes(self) -> np.ndarray:
        """Right runs of every item, (items,); only where scores are 0 and 1."""
        return np.array([round(sum(runs)) for runs in self.runs])

    def table(self) -> pa.Table:
        """A row an item: item_id, model, measure, score (the mean of its runs), runs."""
        names = {"model": self.model, "measure": self.measure}
        same = {name: pa.array([value] * len(self)) for name, value in names.items()}
        return pa.table({"item_id": pa.array(self.ids), **same, "score": self.means, "runs": self.sizes})

    def take(self, places: Sequence[int]) -> Items:
        """Some of the items, in that order."""
        parts: dict[str, Any] = {
            name: getattr(self, name) for name in ("ids", "runs", "contents", "clusters", "prompts")
        }
        kept: dict[str, Any] = {
            name: None if part is None else tuple(part[p] for p in places) for name, part in parts.items()
        }
        return replace(self, **kept)

    def __len__(self) -> int:
        return len(self.ids)


def measures(scores: Scores) -> list[str]:
    """The columns that hold measures."""
    kinds = {name: scores.table.schema.field(name).type for name in scores.table.column_names}
    return [
        name
        for name, kind in kinds.items()
        if name not in LABELS
        and name not in FACTS
        and (pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind))
    ]


def models(scores: Scores) -> list[str]:
    """The models, sorted."""
    return sorted(set(scores.table.column("model").to_pylist()), key=natural)


def one_of(what: str, known: Sequence[str], wanted: str, flag: str, file: str) -> str:
    """The wanted name, or the only one.

    Raises:
        UnknownName: it is not there.
        BadInput: there are several and none is wanted.
    """
    if wanted:
        if wanted not in known:
            raise UnknownName(f"{what} in {file}", wanted, known)
        return wanted
    if len(known) != 1:
        raise BadInput(f"{file} holds {len(known)} {what}s", f"say which with {flag}: {listed(known)}")
    return known[0]


def select(scores: Scores, measure: str, model: str, subset: str | None = None) -> Items:
    """One model's scores on one measure, in an order that does not depend on the file's.

    Raises:
        BadInput: none of its items has a score.
    """
    there = scores.table.column_names
    needed = ("item_id", "model", "subset", "content", "cluster", "prompt_hash", measure)
    table = scores.table.select([name for name in needed if name in there])
    rows = [row for row in table.to_pylist() if row["model"] == model and subset in (None, row.get("subset"))]
    groups: dict[tuple[str, str], list[dict]] = {}
    for row in rows:
        groups.setdefault((row["item_id"], row.get("content") or ""), []).append(row)
    keys = sorted(groups, key=lambda key: (natural(key[0]), key[1]))
    runs = {key: tuple(sorted(row[measure] for row in groups[key] if row[measure] is not None)) for key in keys}
    kept = [key for key in keys if runs[key]]
    unscored = sum(row[measure] is None for row in rows)
    if not kept:
        raise BadInput(f"{_file(scores)}: none of the {len(rows)} rows of {model} has a score for {measure!r}")
    warnings = []
    if unscored:
        lost = len(keys) - len(kept)
        warnings.append(
            f"{unscored} of {len(rows)} scores of {model} are missing or not a number: left out, not counted as 0"
            + (f" ({lost} items have no score at all)" if lost else "")
        )
    if "epoch" not in scores.table.column_names and len(rows) > len(groups):
        warnings.append("some items have several rows and no epochs are named: the rows are taken as runs of one item")

    def column(name: str) -> tuple[str, ...] | None:
        found = [groups[key][0].get(name) for key in kept]
        return tuple(map(str, found)) if all(value is not None for value in found) else None

    return Items(
        model,
        measure,
        tuple(key[0] for key in kept),
        tuple(runs[key] for key in kept),
        column("content"),
        column("cluster"),
        column("prompt_hash"),
        named=scores.notes.get("ids") != "row numbers",
        unscored=unscored,
        warnings=tuple(warnings),
    )


def align(a: Items, b: Items) -> tuple[Items, Items, list[str]]:
    """The items that both hold, in one order, and what a reader has to know about it.

    Raises:
        BadInput: items of one name differ in content; or too few items are shared; or nothing names the items.
    """
    if a.contents is not None and b.contents is not None:
        keys_a, keys_b = _occurrences(a.contents), _occurrences(b.contents)
    elif a.named and b.named:
        keys_a, keys_b = _occurrences(a.ids), _occurrences(b.ids)
    else:
        raise BadInput(
            "the items of the two logs cannot be matched: rows have no names",
            "name the column that does: --columns item_id=NAME",
        )
    places_b = {key: place for place, key in enumerate(keys_b)}
    shared = [(place, places_b[key]) for place, key in enumerate(keys_a) if key in places_b]
    _same_documents(a, b, set(keys_a) & set(keys_b), keys_a, keys_b)
    smaller = min(len(a), len(b))
    if len(shared) < LEAST_SHARED * smaller:
        raise BadInput(
            f"{a.model} and {b.model} share {len(shared)} items, of {len(a)} and {len(b)}",
            "compare logs of the same documents",
        )
    warnings = []
    if len(shared) < max(len(a), len(b)):
        warnings.append(
            f"only the {len(shared)} items that both hold are compared: "
            f"{len(a) - len(shared)} of {a.model} and {len(b) - len(shared)} of {b.model} are left out"
        )
    one, other = a.take([place for place, _ in shared]), b.take([place for _, place in shared])
    if (
        one.prompts
        and other.prompts
        and (count := sum(p != q for p, q in zip(one.prompts, other.prompts, strict=True)))
    ):
        warnings.append(f"{count} of {len(shared)} items were asked with other prompts (few-shot examples, template)")
    return one, other, warnings


def _occurrences(names: Sequence[str]) -> list[tuple[str, int]]:
    """Names with how often each came before, so that equal items pair off one to one."""
    seen: Counter[str] = Counter()
    found = []
    for name in names:
        found.append((name, seen[name]))
        seen[name] += 1
    return found


def _same_documents(a: Items, b: Items, shared: set, keys_a: Sequence, keys_b: Sequence) -> None:
    """Refuse items that are unmatched on both sides under one name: their documents differ."""
    if a.contents is None or b.contents is None or not (a.named and b.named):
        return
    alone: list[Mapping[str, str]] = [
        {item: key[0] for item, key in zip(items.ids, keys, strict=True) if key not in shared}
        for items, keys in ((a, keys_a), (b, keys_b))
    ]
    clash = sorted(alone[0].keys() & alone[1].keys(), key=natural)
    if clash:
        raise BadInput(
            f"{len(clash)} items have one name and different documents in the logs of {a.model} and {b.model}: "
            f"{listed(clash)}",
            "compare runs of the same version of the data",
        )


def _file(scores: Scores) -> str:
    return str(scores.notes.get("file") or "the scores")
