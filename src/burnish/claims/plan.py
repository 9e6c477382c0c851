"""What measuring a claim would do, and about how long it takes: for ``burnish claim NAME --dry-run``."""

from __future__ import annotations

from collections import Counter
from typing import Any

from burnish.claims.base import Claim, Scale
from burnish.claims.quantization import QuantizationClaim
from burnish.claims.store import read
from burnish.core.claim import Frozen


class PlannedArm(Frozen):
    """One arm, and in how many cells it would be measured."""

    name: str
    use: str
    settings: dict[str, Any]
    cells: int | None
    """None where the claim measures all its arms together."""


class Plan(Frozen):
    """What would be measured."""

    sentence: str
    arms: list[PlannedArm]
    criteria: list[str]
    """Each as a sentence."""
    facts: dict[str, str]
    """What it takes, by name: minutes, memory, data."""


def plan(claim: Claim, model: str, scale: Scale) -> Plan:
    """The plan of a claim; nothing is loaded, fetched or measured.

    Args:
        claim: The claim.
        model: Which model would be measured.
        scale: How much.

    Raises:
        UnknownName: the claim cannot be run at that scale.
        BadInput: settings that a method does not take.
    """
    criteria = [criterion.text for criterion in claim.asked(scale)]
    facts = {"criteria": str(len(criteria))}
    cells: Counter[str] = Counter()
    if isinstance(claim, QuantizationClaim):
        from burnish.models.estimate import estimate_all

        design = claim.designs[scale]
        jobs = claim.jobs(design)
        cells.update(job.arm.name for job in jobs)
        samples, length = design.test
        facts |= {"texts": ", ".join(f"{text.calib} and {text.test}" for text in design.texts)}
        facts |= estimate_all([job.method for job in jobs], model, samples * length)
    known = read(claim.name)
    if known is not None and known.scale == scale and known.model == model:
        facts["measured before"] = f"in {known.minutes:.0f} minutes, on a machine with {known.environment['cpus']} CPUs"
    if scale == "full" and claim.needs_data:
        facts["data"] = claim.needs_data
    arms = [
        PlannedArm(name=arm.name, use=arm.use, settings=arm.settings, cells=cells[arm.name] if cells else None)
        for arm in claim.arms
        if not cells or arm.name in cells
    ]
    return Plan(sentence=claim.sentence, arms=arms, criteria=criteria, facts=facts)
