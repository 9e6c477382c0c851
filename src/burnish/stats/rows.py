"""Rows of a table of estimates: what a figure of one model and a difference of two have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from burnish.stats.interval import Interval


def estimate_row(found: Interval, why: str, n: int, warnings: Sequence[str] = ()) -> dict[str, Any]:
    """The columns estimate, low, high, level, method, why, n, n_clusters and warnings.

    Args:
        found: The interval; its note joins the warnings.
        why: Why it was found in this way.
        n: Items.
        warnings: What else a reader has to know.
    """
    notes = [*warnings, *([found.note] if found.note else [])]
    if not found.low <= found.estimate <= found.high:
        notes.append(
            "the observed figure lies outside the bounds: the posterior holds that no model is right always, or never"
        )
    return {
        "estimate": found.estimate,
        "low": found.low,
        "high": found.high,
        "level": found.level,
        "method": found.method,
        "why": why,
        "n": n,
        "n_clusters": found.n_clusters,
        "warnings": "; ".join(notes),
    }
