"""A claim: a sentence from a paper, the criteria that decide it, and the evidence that was found.

A criterion is a statistic over per-item rows with an interval and a margin. An interval wholly beyond the margin:
*holds*; wholly on the other side: *does not hold*; else *undecided*. A claim holds when all its criteria hold, and does
not hold as soon as one does not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Verdict = Literal["holds", "does not hold", "undecided"]


class Frozen(BaseModel):
    """Base of the claim's parts: immutable, no unknown keys.

    JSON has no infinity, and an interval may be unbounded: such numbers are written as strings, and read back.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, ser_json_inf_nan="strings")


class Figure(Frozen):
    """What the paper reports, and where."""

    where: str
    """E.g. "Table 10, OPT-125M, WikiText-2, 3 bits"."""
    numbers: dict[str, float]
    """Arm to figure, e.g. {"RTN": 233.9, "GPTQ": 50.75, "BoA": 31.95}."""
    measure: str = "perplexity"
    source: str = "paper"
    """"paper", or how else the figure is known."""


class Arm(Frozen):
    """One way to do it: a method with its settings."""

    name: str
    use: str
    settings: dict[str, Any] = Field(default_factory=dict)
    baseline: bool = False


class Criterion(Frozen):
    """One statistic, its margin and the side of the margin on which the claim is true."""

    name: str
    text: str
    """The criterion as a sentence."""
    statistic: Literal["difference", "ratio", "excess_ratio"]
    """Of `arm` against `against`, over the same items: mean(arm) - mean(against); mean(arm) / mean(against); or, for a
    measure with a base value beside it, (mean(arm) - mean(base)) / (mean(against) - mean(base))."""
    measure: str
    """Column of the per-item rows; its base value, where the statistic needs one, is the column ``base_<measure>``."""
    arm: str
    against: str
    where: dict[str, Any] = Field(default_factory=dict)
    """Only rows whose columns have these values."""
    margin: float = 0.0
    side: Literal["below", "above"] = "below"
    level: float = Field(default=0.95, gt=0, lt=1)


class Finding(Frozen):
    """What was found for one criterion."""

    criterion: str
    text: str
    estimate: float
    low: float
    high: float
    level: float
    margin: float
    side: Literal["below", "above"]
    items: int
    verdict: Verdict
    note: str = ""
    measure: str = ""
    statistic: str = ""
    sides: dict[str, float] = Field(default_factory=dict)
    """The two arms, the one that the claim is for first, and what each measured."""


class ArmResult(Frozen):
    """How one arm did in one cell (one data set, one seed, one bit width …)."""

    arm: str
    label: str
    cell: dict[str, Any]
    measures: dict[str, dict[str, float]]
    """Measure to {"estimate", "low", "high"}."""
    seconds: float
    weights: str = ""
    """Hash of the weights that were measured."""


class Evidence(Frozen):
    """Everything that is needed to believe, or to doubt, a verdict."""

    claim: str
    sentence: str
    verdict: Verdict
    findings: list[Finding]
    arms: list[ArmResult]
    figures: list[Figure] = Field(default_factory=list)
    model: str
    lineage: list[str] = Field(default_factory=list)
    data: dict[str, str] = Field(default_factory=dict)
    scale: str = ""
    multiplicity: str = "none: every criterion must hold, each at its own level"
    environment: dict[str, str]
    digests: dict[str, str] = Field(default_factory=dict)
    """Method to a digest of its source and of what it imports; evidence is stale when it differs."""
    command: str
    minutes: float
    date: str


def judge(low: float, high: float, margin: float, side: Literal["below", "above"]) -> Verdict:
    """The verdict on one interval."""
    if side == "above":
        low, high, margin = -high, -low, -margin
    if high < margin:
        return "holds"
    if low > margin:
        return "does not hold"
    return "undecided"


def settle(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict on a claim from those on its criteria."""
    found = list(verdicts)
    if "does not hold" in found:
        return "does not hold"
    return "holds" if found and all(v == "holds" for v in found) else "undecided"
