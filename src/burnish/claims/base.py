"""A claim as something that can be run: it measures its arms and says what its criteria come to."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import Field

from burnish.claims.decide import Measure, Row, decide, summarize
from burnish.claims.digest import digest
from burnish.core.claim import Arm, ArmResult, Criterion, Evidence, Figure, Frozen, settle
from burnish.core.errors import UnknownName
from burnish.core.method import Paper
from burnish.core.run import Run, environment

Scale = Literal["smoke", "demo", "full"]
"""smoke: seconds, shows that it runs; demo: minutes, one cell; full: the comparison that the claim is about."""

MULTIPLICITY = (
    "no correction: the claim holds only if every criterion holds (an intersection-union test), so it is wrongly said "
    "to hold at most as often as its weakest criterion; one criterion that fails makes it not hold, and of many true "
    "criteria one may fail by chance, so that verdict is the less certain the more criteria there are"
)


@dataclass(frozen=True)
class Part:
    """One arm in one cell: what making it cost, and which weights came out."""

    arm: str
    cell: Mapping[str, Any]
    seconds: float
    weights: str = ""
    """Hash of the weights that were measured."""


@dataclass(frozen=True)
class Measured:
    """What a claim's measurement gives."""

    rows: list[Row]
    """One for each item of each arm: ``item_id``, ``arm``, measures, and the cell columns on which the arm depends."""
    parts: list[Part] = field(default_factory=list)
    lineage: list[str] = field(default_factory=list)
    """Where the model's weights come from."""
    data: dict[str, str] = field(default_factory=dict)
    """Each text or data set to what exactly was read of it."""


class Claim(Frozen):
    """A paper's headline comparison. A subclass says how it is measured."""

    name: str
    title: str
    """A few words for a table."""
    sentence: str
    """The claim, in our words."""
    paper: Paper
    figures: tuple[Figure, ...]
    """What the paper reports."""
    arms: tuple[Arm, ...]
    criteria: tuple[Criterion, ...]
    """What must hold at full scale."""
    smaller: dict[Scale, tuple[Criterion, ...]] = Field(default_factory=dict)
    """What is asked at the smaller scales."""
    cells: tuple[str, ...]
    """Columns that say which cell of the experiment a row is from."""
    measures: tuple[Measure, ...]
    """What is shown of each arm."""
    default_model: str
    needs_data: str = ""
    """Data that the user must have at hand for the full scale, and where they are public."""
    tools: tuple[str, ...] = ()
    """Methods that measure the arms, e.g. "divergence"."""
    code: tuple[str, ...] = ("burnish.claims.decide",)
    """Modules other than methods on which the verdict depends."""

    def asked(self, scale: Scale) -> tuple[Criterion, ...]:
        """The criteria at a scale.

        Raises:
            UnknownName: the claim cannot be run at that scale.
        """
        known = {**self.smaller, "full": self.criteria}
        if scale not in known:
            raise UnknownName(f"scale of the claim {self.name!r}", scale, known)
        return known[scale]

    def measure(self, model: str, run: Run, scale: Scale, *, device: str = "auto", dtype: str = "auto") -> Measured:
        """Run every arm, resumably, and give a row for each item of each.

        Args:
            model: What `burnish.models.load` takes.
            run: Arms work in parts of it.
            scale: How much is measured.
            device: Where models are put.
            dtype: In which precision they are loaded.
        """
        raise NotImplementedError

    def label(self, arm: str, cell: Mapping[str, Any]) -> str:
        """A name for one arm in one cell, e.g. for the axis of a chart."""
        return ", ".join([arm, *(f"{name} {value}" for name, value in cell.items())])

    def collect(
        self, measured: Measured, *, model: str, scale: Scale, minutes: float, digests: Mapping[str, str]
    ) -> Evidence:
        """Put the evidence together: findings, arms, verdict, and what they depend on.

        Args:
            measured: What `measure` gave.
            model: Which model was measured.
            scale: At which scale.
            minutes: How long it took.
            digests: What `digests` gave before measuring began, for sources may be edited meanwhile.

        Raises:
            BadInput: the rows do not answer the criteria.
        """
        findings = decide(self.asked(scale), measured.rows, self.cells)
        costs = {_identity(part.arm, part.cell): part for part in measured.parts}
        arms: list[ArmResult] = []
        for result in summarize(measured.rows, self.cells, self.measures, label=self.label):
            part = costs.get(_identity(result.arm, result.cell))
            known = {"seconds": part.seconds, "weights": part.weights} if part else {}
            arms.append(result.model_copy(update=known))
        return Evidence(
            claim=self.name,
            sentence=self.sentence,
            verdict=settle(finding.verdict for finding in findings),
            findings=findings,
            arms=arms,
            figures=list(self.figures),
            model=model,
            lineage=measured.lineage,
            data=measured.data,
            scale=scale,
            multiplicity=MULTIPLICITY,
            environment=environment(),
            digests=dict(digests),
            command=self.command(model, scale),
            minutes=minutes,
            date=datetime.now(UTC).date().isoformat(),
        )

    def declaration(self) -> dict[str, Any]:
        """The parts of the claim, as plain values, that other evidence would follow from: not its words."""
        return {
            "arms": [arm.model_dump() for arm in self.arms],
            "criteria": [criterion.model_dump(exclude={"name", "text"}) for criterion in self.criteria],
        }

    def digests(self) -> dict[str, str]:
        """What evidence depends on, to a digest of it: methods by name, modules, and the claim's own declaration."""
        from burnish import catalogue

        methods = sorted({*(arm.use for arm in self.arms), *self.tools})
        found = {name: digest(catalogue.find(name).target.partition(":")[0]) for name in methods}
        found |= {module: digest(module) for module in self.code}
        plain = json.dumps(self.declaration(), sort_keys=True)
        return found | {"declaration": hashlib.sha256(plain.encode()).hexdigest()}

    def command(self, model: str, scale: Scale) -> str:
        """The command line that measures this again."""
        other = f" --model {model}" if model != self.default_model else ""
        return f"burnish claim {self.name}{other}" + (f" --scale {scale}" if scale != "full" else "")

    def ours(self, evidence: Evidence) -> str:
        """What was found, in a line. A claim may say it better; this says how many criteria hold."""
        held = sum(finding.verdict == "holds" for finding in evidence.findings)
        return f"{held} of {len(evidence.findings)} criteria hold"

    def theirs(self) -> str:
        """What the paper reports, in a line: its first figure."""
        if not self.figures:
            return ""
        first = self.figures[0]
        return f"{first.where}: " + ", ".join(f"{name} {value:g}" for name, value in first.numbers.items())


def _identity(arm: str, cell: Mapping[str, Any]) -> str:
    return json.dumps([arm, dict(cell)], sort_keys=True)
