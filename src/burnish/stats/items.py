"""Items of an evaluation: rows of finite numbers, each row alone or in a cluster of rows that belong together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from burnish.core.errors import BadInput

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]
Labels = Iterable[object]
"""One cluster label an item: text, whole numbers or anything hashable."""

_SHOWN = 10
"""Row numbers that one fault lists before it says how many more there are."""


@dataclass(frozen=True)
class Items:
    """Checked rows, and the unit (the row itself, or its cluster) that each row is sampled with."""

    values: FloatArray
    """The measurements, (n, columns)."""
    flat: bool
    """Whether the caller gave one number an item rather than a row of them."""
    unit: IntArray
    """The unit of each row, (n,), numbered in order of first appearance."""
    units: int
    """Number of units: of clusters where there are any, else of rows."""
    clustered: bool

    @classmethod
    def of(
        cls,
        values: ArrayLike,
        clusters: Labels | None = None,
        *,
        least: int = 2,
        faults: Sequence[str] = (),
    ) -> Items:
        """Check one array of items.

        Args:
            values: (n,) or (n, columns).
            clusters: n labels, or None where the items are independent.
            least: The fewest units (items, or clusters) that the caller can use.
            faults: What the caller has already found wrong, to be told together with the rest.

        Raises:
            BadInput: Any fault, all of them at once; rows are named by number, counted from 0.
        """
        return cls._read({"values": values}, clusters, (1, 2), least, faults)

    @classmethod
    def of_pair(
        cls,
        a: ArrayLike,
        b: ArrayLike,
        clusters: Labels | None = None,
        *,
        least: int = 2,
        faults: Sequence[str] = (),
    ) -> Items:
        """Check two measurements, (n,) each, of the same items in the same order; they become two columns."""
        return cls._read({"a": a, "b": b}, clusters, (1,), least, faults)

    @property
    def n(self) -> int:
        """Number of items."""
        return len(self.values)

    @property
    def n_clusters(self) -> int | None:
        """Number of clusters, or None where the items are independent."""
        return self.units if self.clustered else None

    def difference(self) -> Items:
        """The same items with one number each: the second column minus the first."""
        return replace(self, values=self.values[:, 1:] - self.values[:, :1], flat=True)

    def sizes(self) -> FloatArray:
        """Rows in each unit, (units,)."""
        return np.bincount(self.unit, minlength=self.units).astype(np.float64)

    def sums(self) -> FloatArray:
        """Sum of each column over each unit, (columns, units)."""
        return np.stack([np.bincount(self.unit, column, self.units) for column in self.values.T])

    def members(self) -> list[IntArray]:
        """Row numbers of each unit."""
        order = np.argsort(self.unit, kind="stable")
        return np.split(order, np.cumsum(np.bincount(self.unit, minlength=self.units))[:-1])

    @classmethod
    def _read(
        cls,
        named: Mapping[str, ArrayLike],
        clusters: Labels | None,
        dimensions: tuple[int, ...],
        least: int,
        faults: Sequence[str],
    ) -> Items:
        found = list(faults)
        arrays = [_numbers(name, values, dimensions, found) for name, values in named.items()]
        lengths = {name: len(array) for name, array in zip(named, arrays, strict=True) if array is not None}
        if len(set(lengths.values())) > 1:
            sizes = " and ".join(f"{name} has {length}" for name, length in lengths.items())
            found.append(f"{sizes}: pairs need the same items in the same order")
        n = min(lengths.values(), default=0)
        if lengths and n < least:
            found.append(f"{' and '.join(lengths)}: {_counted(n, 'item')}, fewer than the {least} needed")
        unit, units = np.arange(n), n
        if clusters is not None and len(set(lengths.values())) == 1:
            unit, units = _grouped(clusters, n, least, found)
        if found:
            fix = "give one row of finite numbers an item; rows count from 0" if len(found) > len(faults) else ""
            raise BadInput.of("this input cannot be used", found, fix)
        read = [array for array in arrays if array is not None]
        values = read[0] if read[0].ndim == 2 else np.column_stack(read)
        flat = len(read) == 1 and read[0].ndim == 1
        return cls(values, flat, unit, units, clustered=clusters is not None)


def _numbers(name: str, values: ArrayLike, dimensions: tuple[int, ...], found: list[str]) -> FloatArray | None:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        found.append(f"{name}: not an array of numbers")
        return None
    if array.ndim not in dimensions or (array.ndim == 2 and array.shape[1] == 0):
        wanted = "(n,) or (n, columns)" if 2 in dimensions else "(n,)"
        found.append(f"{name}: the shape is {array.shape}, and {wanted} is needed")
        return None
    rows = np.flatnonzero(~np.isfinite(array).all(axis=tuple(range(1, array.ndim))))
    if len(rows):
        found.append(f"{name}: NaN or infinite in {_listed(rows.tolist())}")
    return array


def _grouped(clusters: Labels, n: int, least: int, found: list[str]) -> tuple[IntArray, int]:
    labels = clusters.tolist() if isinstance(clusters, np.ndarray) else list(clusters)
    numbers: dict[object, int] = {}
    try:
        # In order of first appearance, so that clusters of one item each give the very numbers that items alone give.
        unit = np.array([numbers.setdefault(label, len(numbers)) for label in labels], dtype=np.intp)
        unlabelled = [row for row, label in enumerate(labels) if label is None or bool(label != label)]
    except TypeError:
        found.append("clusters: each label must be one value, such as text or a whole number")
        return np.arange(n), n
    if unlabelled:
        found.append(f"clusters: no label in {_listed(unlabelled)}")
    if len(labels) != n:
        found.append(f"clusters: {_counted(len(labels), 'label')} for {_counted(n, 'item')}")
    elif n >= least > len(numbers):
        found.append(f"clusters: {_counted(len(numbers), 'cluster')}, fewer than the {least} needed")
    return unit, len(numbers)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _listed(rows: Sequence[int]) -> str:
    more = f" and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
    return f"{'row' if len(rows) == 1 else 'rows'} {', '.join(map(str, rows[:_SHOWN]))}{more}"
