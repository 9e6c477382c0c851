"""The claim of Agent-as-a-Judge at tiny scale, live and replayed: every arm runs, and every criterion is answered."""

from __future__ import annotations

from pathlib import Path

import pytest

from burnish import claims
from burnish.claims.devai import CLAIM
from burnish.core.claim import Evidence
from burnish.llm import record

pytest.importorskip("tree_sitter", reason="needs the extra workspaces")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("devai")


@pytest.fixture(scope="module")
def evidence(folder: Path) -> Evidence:
    return claims.run("devai", "tiny", scale="smoke", out=folder / "live")


def test_every_arm_judges_every_requirement(evidence: Evidence) -> None:
    assert [arm.arm for arm in evidence.arms] == [arm.name for arm in CLAIM.arms]
    assert [finding.items for finding in evidence.findings] == [16, 16]
    assert evidence.command == "burnish claim devai --model tiny --scale smoke"
    unscored = {arm.arm: arm.measures["unscored"]["estimate"] for arm in evidence.arms}
    assert unscored["agent-logprobs"] == 0


def test_a_recording_gives_the_same_findings(evidence: Evidence, folder: Path) -> None:
    record(folder / "live", folder / "calls.jsonl")
    again = claims.run("devai", f"replay:{folder / 'calls.jsonl'}", scale="smoke", out=folder / "replayed")
    assert [arm.arm for arm in again.arms] == [arm.name for arm in CLAIM.arms if arm.name != "agent-logprobs"]
    assert again.findings == evidence.findings


def test_the_same_call_measures_nothing_again(
    evidence: Evidence, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("burnish.claims.devai._one", lambda *_: pytest.fail("measured again"))
    assert claims.run("devai", "tiny", scale="smoke", out=folder / "live").findings == evidence.findings
