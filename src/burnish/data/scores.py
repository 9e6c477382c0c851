"""Scores: a tidy table of what was measured on each item, and Tables of what it says.

One row is one item of one model. The columns ``item_id`` and ``model`` are always there; ``cluster``, ``subset`` and
``epoch`` where they mean something; every other numeric column is a measure.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from burnish.core.errors import BadInput

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

LABELS = ("item_id", "model", "cluster", "subset", "epoch", "status")
"""Columns that say what a row is; the others are measures."""


@dataclass(frozen=True)
class Table:
    """Plain rows with named columns, e.g. one row for each comparison."""

    table: pa.Table
    notes: Mapping[str, Any] = field(default_factory=dict)
    """Facts about the whole table: protocol, lineage, headline figures."""

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]], **notes: Any) -> Self:
        """From a list of dicts with the same keys."""
        import pyarrow as pa

        return cls(pa.Table.from_pylist([dict(row) for row in rows]), notes)

    def rows(self) -> list[dict[str, Any]]:
        """As a list of dicts."""
        return self.table.to_pylist()

    def column(self, name: str) -> np.ndarray:
        """One column as a numpy array."""
        if name not in self.table.column_names:
            raise BadInput(f"the table has no column {name!r}", "it has: " + ", ".join(self.table.column_names))
        return self.table.column(name).to_numpy(zero_copy_only=False)

    def save(self, path: str | Path) -> Path:
        """Write a Parquet file, whole or not at all."""
        import pyarrow.parquet as pq

        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        pq.write_table(self.table, temporary)
        os.replace(temporary, path)
        return path

    def __len__(self) -> int:
        return int(self.table.num_rows)


@dataclass(frozen=True)
class Scores(Table):
    """What was measured on each item."""

    @property
    def measures(self) -> list[str]:
        """Names of the measured columns."""
        return [name for name in self.table.column_names if name not in LABELS]


def read_scores(source: str | Path) -> Scores:
    """Scores from a run folder (its ``items.parquet``) or from a Parquet file.

    Raises:
        BadInput: nothing is there, or it has no column ``item_id``.
    """
    table = _read(Path(source), "items.parquet", "scores")
    if "item_id" not in table.column_names:
        raise BadInput(f"{source} has no column 'item_id'", "it has: " + ", ".join(table.column_names))
    return Scores(table)


def read_table(source: str | Path) -> Table:
    """A table from a run folder (its ``table.parquet``) or from a Parquet file.

    Raises:
        BadInput: nothing is there.
    """
    return Table(_read(Path(source), "table.parquet", "table"))


def _read(path: Path, inside: str, what: str) -> pa.Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if path.is_dir():
        path = path / inside
    if not path.exists():
        raise BadInput(f"there is no {what} at {path}", f"give a run folder with {inside}, or a Parquet file")
    try:
        return pq.read_table(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise BadInput(f"{path} is not a Parquet file: {str(error).splitlines()[0]}") from None
