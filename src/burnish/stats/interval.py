"""An interval: an estimate, its bounds, and how they were found."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from burnish.core.errors import BadInput
from burnish.stats.checks import count_faults, is_number, level_faults


@dataclass(frozen=True)
class Interval:
    """An estimate with a lower and an upper bound, in the unit of the estimate.

    Every method of `burnish.stats` that gives bounds gives them as this type. The estimate need not lie inside its
    bounds (a bias-corrected interval may leave it), and a bound may be infinite.

    Raises:
        BadInput: A number is missing or not a number, the bounds are crossed, or the level is not in (0, 1).
    """

    estimate: float
    low: float
    high: float
    level: float
    """The nominal coverage, such as 0.95."""
    n: int
    """Number of items."""
    n_clusters: int | None
    """Number of clusters that were the unit of sampling; None where the items were."""
    method: str
    """How the bounds were found, such as "bca"."""
    note: str = ""
    """What a reader must know before trusting the bounds; empty when there is nothing."""

    def __post_init__(self) -> None:
        faults = [
            f"{name}: {getattr(self, name)!r} is not a number"
            for name in ("estimate", "low", "high")
            if not is_number(getattr(self, name))
        ]
        if not faults and self.low > self.high:
            faults.append(f"low: {self.low!r} is above high, {self.high!r}")
        faults += level_faults(self.level)
        faults += count_faults("n", self.n, 1)
        if self.n_clusters is not None:
            faults += count_faults("n_clusters", self.n_clusters, 1)
        faults += [
            f"{name}: {getattr(self, name)!r} is not text"
            for name in ("method", "note")
            if not isinstance(getattr(self, name), str)
        ]
        if faults:
            raise BadInput.of("this is not an interval", faults)

    @property
    def degenerate(self) -> bool:
        """Whether the width is zero: the sample showed no spread, which is not the same as certainty."""
        return self.low == self.high

    def excludes(self, value: float) -> bool:
        """Whether `value` lies outside the bounds (a bound itself is inside)."""
        return value < self.low or value > self.high

    def __format__(self, spec: str) -> str:
        """`estimate [low, high]`, each number in `spec`: `f"{interval:.1%}"`; see `str` for the empty one."""
        spec = spec or f"z.{self._decimals()}f"
        return f"{self.estimate:{spec}} [{self.low:{spec}}, {self.high:{spec}}]"

    def __str__(self) -> str:
        """`estimate [low, high]` with three decimals, or more where the width would show fewer than two digits."""
        return format(self, "")

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain numbers and text, fit for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Interval:
        """The interval that `to_dict` wrote.

        Raises:
            BadInput: A field is missing, unknown or not what it should be.
        """
        known = {field.name: field.default is dataclasses.MISSING for field in dataclasses.fields(cls)}
        faults = [f"{name}: missing" for name, required in known.items() if required and name not in fields]
        faults += [f"{name}: no such field" for name in fields if name not in known]
        if faults:
            raise BadInput.of("this is not an interval", faults, "an interval has " + ", ".join(known))
        return cls(**fields)

    def _decimals(self) -> int:
        width = self.high - self.low
        size = width if width > 0 else abs(self.estimate)
        if size == 0 or not math.isfinite(size):
            return 3
        return max(3, math.ceil(-math.log10(size)) + 1)
