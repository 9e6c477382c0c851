"""What a run would do, and about what it would cost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from burnish import catalogue
from burnish.core.errors import BurnishError
from burnish.core.recipe import Planned
from burnish.core.shapes import Compressor


@dataclass(frozen=True)
class Plan:
    """What a run would do."""

    folder: Path
    seed: int
    steps: list[dict[str, Any]] = field(default_factory=list)
    """For each step: use, settings, goods (name to source), gives, estimate."""


def plan_of(steps: Iterable[Planned], folder: Path, seed: int) -> Plan:
    """The plan of some steps, each with an estimate where its method gives one."""
    rows = []
    for step in steps:
        sources = {name: source for name, source in step.goods.items() if isinstance(source, str)}
        estimate: dict[str, Any] = {}
        own = getattr(step.method, "estimate", None)
        if own is None and isinstance(step.method, Compressor) and "model" in sources:
            own = partial(catalogue.reference("burnish.models.estimate:estimate"), step.method)
        if own is not None:
            try:
                estimate = dict(own(sources))
            except BurnishError as error:
                estimate = {"estimate": f"none: {error.problem}"}
        rows.append(
            {
                "use": step.use,
                "settings": step.method.settings(),
                "goods": {k: v if isinstance(v, str) else f"the result of step {v}" for k, v in step.goods.items()},
                "gives": type(step.method).gives(),
                "estimate": estimate,
            }
        )
    return Plan(folder, seed, rows)
