"""The claim about small evaluations, on few made-up ones: it runs, and what is exact already shows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from burnish import claims
from burnish.claims.small_samples import CLAIM, simulate
from burnish.core.claim import Evidence
from burnish.core.errors import BadInput
from burnish.stats.proportion import exact_coverage


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    return claims.run("small-samples", scale="smoke", out=tmp_path_factory.mktemp("small") / "run")


def test_every_criterion_is_answered(evidence: Evidence) -> None:
    assert [finding.criterion for finding in evidence.findings] == [c.name for c in CLAIM.asked("smoke")]
    assert evidence.model == ""
    assert evidence.command == "burnish claim small-samples --scale smoke"
    assert "3/10/30/100" in CLAIM.ours(evidence)


def test_the_central_limit_theorem_falls_short_at_few_items(evidence: Evidence) -> None:
    shown = {
        (arm.arm, arm.cell["questions"]): arm.measures["coverage"]["estimate"]
        for arm in evidence.arms
        if arm.cell["kind"] == "single" and arm.cell["abilities"] == "prior"
    }
    assert shown["clt", 3] < 0.65 < shown["bayes", 3]
    assert shown["clt", 3] < shown["clt", 10] < shown["clt", 100]


def test_coverage_at_a_fixed_ability_is_exact() -> None:
    rows = [row for row in simulate("single", 10, "fixed", 2) if row["arm"] == "clt"]
    assert [row["coverage"] for row in rows] == [pytest.approx(exact_coverage("wald", 10, theta=0.95), abs=1e-12)] * 2


def test_the_same_evaluations_are_made_up_again() -> None:
    first, again = simulate("paired", 10, "prior", 3), simulate("paired", 10, "prior", 3)
    assert first == again
    assert np.ptp([row["width"] for row in first]) > 0


def test_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="asks nothing of a model"):
        claims.run("small-samples", "tiny", scale="smoke", out=tmp_path / "r")
