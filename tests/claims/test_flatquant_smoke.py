"""The FlatQuant claim at tiny scale: every arm runs and every criterion is answered; nothing is said about the ranking."""

from __future__ import annotations

import math

import pytest

from burnish import claims
from burnish.claims import store
from burnish.claims.flatquant import CLAIM
from burnish.core.claim import Evidence


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    return claims.run("flatquant", "tiny", scale="smoke", out=tmp_path_factory.mktemp("flatquant") / "run")


def test_every_criterion_is_answered_with_an_interval(evidence: Evidence) -> None:
    assert [finding.criterion for finding in evidence.findings] == [c.name for c in CLAIM.smaller["smoke"]]
    assert all(math.isfinite(finding.low) and math.isfinite(finding.high) for finding in evidence.findings)


def test_cells_differ_in_the_cache_where_an_arm_rounds_it(evidence: Evidence) -> None:
    caches = {(found.arm, found.cell.get("kv")) for found in evidence.arms}
    assert caches == {
        ("fp", None),
        ("smoothquant", None),
        *((arm, kv) for arm in ("quarot", "quarot-gptq", "flatquant") for kv in (16, 4)),
    }
    kl = {(one.arm, one.cell.get("kv")): one.measures["kl"]["estimate"] for one in evidence.arms if one.arm != "fp"}
    assert all(kl[arm, 4] > kl[arm, 16] for arm in ("quarot", "quarot-gptq"))


def test_arms_of_one_cell_read_the_same_calibration_and_depend_on_its_seed_only_if_they_read_any() -> None:
    jobs = CLAIM.jobs(CLAIM.designs["full"])
    assert len({job.name for job in jobs}) == len(jobs) == 2 + 2 + 4 + 4
    for job in jobs:
        settings = job.method.settings()
        assert (settings["bits"], settings["a_bits"], settings["samples"], settings["length"]) == (4, 4, 32, 256)
        assert settings.get("kv_bits", 16) == job.cell.get("kv", 16)
        assert ("seed" in job.cell) == (job.arm.name != "quarot")


def test_the_evidence_is_fresh_now(evidence: Evidence) -> None:
    assert store.freshness(evidence, CLAIM.digests()).state == "fresh"
