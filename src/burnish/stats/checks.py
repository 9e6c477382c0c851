"""Checks of settings that the methods of this package share; each returns the faults it finds, to be told together."""

from __future__ import annotations

import math
from numbers import Integral


def level_faults(level: float) -> list[str]:
    """A nominal coverage must lie in (0, 1)."""
    return [] if is_number(level) and 0 < level < 1 else [f"level: {level!r} is not between 0 and 1"]


def count_faults(name: str, value: int, least: int) -> list[str]:
    """`value` must be a whole number of at least `least`."""
    if isinstance(value, Integral) and int(value) >= least:
        return []
    return [f"{name}: {value!r} is not a whole number of at least {least}"]


def is_number(value: object) -> bool:
    """Whether `value` is a plain number, infinity included and NaN not."""
    return isinstance(value, int | float) and not math.isnan(value)
