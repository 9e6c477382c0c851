"""The BoA claim at tiny scale: every arm runs and every criterion is answered; nothing is said about the ranking."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from burnish import claims
from burnish.claims import store
from burnish.claims.boa import CLAIM
from burnish.core.claim import Evidence


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("boa") / "run"


@pytest.fixture(scope="module")
def evidence(folder: Path) -> Evidence:
    return claims.run("boa", "tiny", scale="smoke", out=folder)


def test_every_criterion_is_answered_with_an_interval(evidence: Evidence) -> None:
    assert [finding.criterion for finding in evidence.findings] == [c.name for c in CLAIM.asked("smoke")]
    for finding in evidence.findings:
        assert math.isfinite(finding.estimate)
        assert finding.low <= finding.high
        assert finding.items == 24
    assert evidence.scale == "smoke"
    assert evidence.command == "burnish claim boa --model tiny --scale smoke"


def test_the_arms_do_what_their_names_say(evidence: Evidence) -> None:
    arms = {(arm.arm, arm.cell.get("target")): arm for arm in evidence.arms}
    assert set(arms) == {("fp", None), *((arm.name, target) for arm in CLAIM.arms for target in ("qkv", "whole"))}
    assert len({arm.weights for arm in evidence.arms}) == len(arms)
    kl = {key: arm.measures["kl"]["estimate"] for key, arm in arms.items() if key != ("fp", None)}
    assert all(value > 0 for value in kl.values())
    for arm in CLAIM.arms:
        assert kl[arm.name, "qkv"] < kl[arm.name, "whole"]
    # Making up for errors must pay at 2 bits, whatever the model: this is the mechanism, not the paper's comparison.
    for target in ("qkv", "whole"):
        assert kl["gptq", target] < kl["rtn", target]
        assert kl["boa", target] < kl["rtn", target]


def test_the_run_leaves_what_a_report_reads(evidence: Evidence, folder: Path) -> None:
    from burnish.data.scores import read_scores

    assert store.read_file(folder / "evidence.json") == evidence
    assert len(read_scores(folder)) == 24 * len(evidence.arms)
    layers = json.loads((folder / "layers.json").read_text())
    assert {row["arm"] for row in layers} == {arm.label for arm in evidence.arms if "seed" in arm.cell}
    assert {row["role"] for row in layers if "q, k, v only" in row["arm"]} == {"q", "k", "v"}
    assert not list(folder.rglob("blobs"))


def test_the_same_call_does_no_arm_again(evidence: Evidence, folder: Path) -> None:
    journals = {path: path.stat().st_mtime_ns for path in folder.rglob("once.jsonl")}
    assert len(journals) == len(CLAIM.jobs(CLAIM.designs["smoke"]))
    again = claims.run("boa", "tiny", scale="smoke", out=folder)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("once.jsonl")} == journals
    assert (again.findings, again.arms) == (evidence.findings, evidence.arms)


def test_the_evidence_is_fresh_now(evidence: Evidence) -> None:
    assert store.freshness(evidence, CLAIM.digests()).state == "fresh"
