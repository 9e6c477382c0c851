"""The claim of the specialist autorater: shown ratings of the very source, a model marks errors as the rater does.

## What is compared

One model marks errors in 60 translations of WMT'23, English to German, one of each source; the gold is what one rater
marked there. Arms differ in the examples alone: four of the same rater's ratings of other systems' translations of the same
source (specialist); as many of the same systems on another source (shuffled); the same few ratings of other sources for
every translation (fixed, the generalist). Beside them, and deciding nothing, stand the model without examples (zero-shot),
which does not even see how an answer looks, and the baseline that copies the specialist's examples without a model (copy),
which a model should beat to be worth its cost. A small one may not.

So that a small model on a small machine can read them, sources have 540 characters at most and examples are four; the paper
shows all. A reply of which nothing can be read counts as marking nothing. F1 is per character and micro-averaged; a row is
a source with its share in F1, as in `burnish.claims.specialist_copy`.

## What must hold

F1 of the specialist minus that of shuffled, over the same translations, is above 0 with its whole interval; and so is that
of the specialist minus fixed.

## References

Finkelstein et al., From Jack of All Trades to Master of One, ICML 2025, arXiv 2411.15387.
"""

from __future__ import annotations

import hashlib
import json
import time
from functools import partial
from pathlib import Path
from typing import Any

from burnish.claims.base import Claim, Measured, Part, Scale
from burnish.claims.decide import Measure
from burnish.claims.digest import digest
from burnish.claims.specialist_copy import FIGURES, PAPER, PLANTED, PUBLIC, SIDE_BY_SIDE, ratings_of, shares
from burnish.core.claim import Arm, Criterion, Evidence, Frozen
from burnish.core.files import sha256
from burnish.core.run import Run

TOTALS = ("unscored", "invented", "prompt_tokens", "completion_tokens")
"""Columns that are shown as means over translations."""


class Design(Frozen):
    """What is judged, and how much of it."""

    ratings: str
    """A set of `burnish.claims.specialist_copy`."""
    settings: dict[str, Any]
    """Of `specialist judge`, but for the arms."""


class SpecialistClaim(Claim):
    """A claim about examples, measured with a model."""

    designs: dict[Scale, Design]
    cells: tuple[str, ...] = ()
    measures: tuple[Measure, ...] = (
        Measure(name="F1", column="f1"),
        Measure(name="unscored", column="unscored"),
        Measure(name="invented spans", column="invented"),
        Measure(name="tokens read", column="prompt_tokens"),
        Measure(name="tokens written", column="completion_tokens"),
    )
    code: tuple[str, ...] = ("burnish.claims.specialist", "burnish.claims.decide")

    def declaration(self) -> dict[str, Any]:
        """With the design of the full scale."""
        return {**super().declaration(), "design": self.designs["full"].model_dump()}

    def measure(self, model: str, run: Run, scale: Scale, *, device: str = "auto", dtype: str = "auto") -> Measured:
        """Let every arm mark the same translations.

        `model` is whatever `burnish.llm.connect` takes: also a server, or a recording.
        """
        from burnish import catalogue
        from burnish.claims.devai import connected

        design = self.designs[scale]
        path = ratings_of(design.ratings, run)
        judge = connected(model, device, dtype)
        data = {design.ratings: f"SHA-256 {sha256(path)}"}
        measured = Measured(rows=[], lineage=[judge.name], data=data)
        for number, arm in enumerate(self.arms, 1):
            run.metric(arm=f"{number} of {len(self.arms)}")
            method = catalogue.load(arm.use).build({**design.settings, **arm.settings})
            depends = [method.settings(), data, digest(catalogue.module_of(arm.use)), judge.name]
            part = run.sub(f"{arm.name}-{hashlib.sha256(json.dumps(depends).encode()).hexdigest()[:10]}")
            found = part.once("arm", partial(_one, method, path, judge, part))
            measured.rows.extend({"arm": arm.name, **row} for row in found["rows"])
            measured.parts.append(Part(arm.name, {}, found["seconds"], judge.name.rpartition("@")[2]))
        return measured

    def ours(self, evidence: Evidence) -> str:
        """F1 of each arm, and how many criteria hold."""
        shown = [f"{one.arm} {one.measures['F1']['estimate']:.3f}" for one in evidence.arms]
        return f"F1: {', '.join(shown)}; {super().ours(evidence)}"


def _one(method: Any, path: Path, judge: Any, part: Run) -> dict[str, Any]:
    began = time.monotonic()
    rows = method(path, judge, run=part).rows()
    totals = {
        row["cluster"]: {name: row[name] for name in TOTALS[1:]} | {"unscored": int(row["status"] == "unscored")}
        for row in rows
    }
    found = [{**row, **totals[row["item_id"]]} for row in shares(rows)]
    return {"rows": found, "seconds": round(time.monotonic() - began, 2)}


ARMS = tuple(
    Arm(name=name, use="specialist judge", settings={"arms": [name]}, baseline=name != "specialist")
    for name in ("specialist", "shuffled", "fixed", "zero-shot", "copy")
)
CRITERIA = tuple(
    Criterion(
        name=f"F1 specialist > {against}",
        text=f"Shown ratings of the same source, the model finds more of what the rater marked than {said}.",
        statistic="difference",
        measure="f1",
        arm="specialist",
        against=against,
        side="above",
    )
    for against, said in (("shuffled", "shown ratings of another source"), ("fixed", "always shown the same ones"))
)

CLAIM = SpecialistClaim(
    name="specialist",
    title="specialist autorater",
    sentence=(
        "A language model that is shown how a rater marked other translations of the same source marks errors more as that "
        "rater does than the same model shown the rater's marks on another source, or always the same few marks."
    ),
    paper=PAPER,
    figures=FIGURES,
    arms=ARMS,
    criteria=CRITERIA,
    smaller={"smoke": CRITERIA},
    default_model="qwen2.5-coder-1.5b",
    needs_data=PUBLIC,
    designs={
        "full": Design(
            ratings=SIDE_BY_SIDE,
            settings={
                "rater": "same",
                "examples": 4,
                "segments": 60,
                "longest": 540,
                "languages": "English to German",
                "max_tokens": 192,
            },
        ),
        # The tiny model has a context of 512 tokens.
        "smoke": Design(ratings=PLANTED, settings={"rater": "same", "examples": 2, "segments": 8, "max_tokens": 16}),
    },
)
