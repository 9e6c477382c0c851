"""The claim of Agent-as-a-Judge at tiny scale, live and replayed: every arm runs, and every criterion is answered."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from burnish import claims
from burnish.claims.base import Measured
from burnish.claims.decide import decide
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


def test_projects_are_the_unit_of_sampling(evidence: Evidence) -> None:
    assert all("over 2 projects" in finding.note for finding in evidence.findings)
    rows = [
        {"item_id": f"{task}/{n}", "cluster": task, "arm": arm, "aligned": aligned, "unscored": 0}
        for task, agent in (("a", 1), ("b", 1), ("c", 1), ("d", 0))
        for n in range(16)
        for arm, aligned in (("agent", agent), ("ask-only", 0), ("precheck", 0))
    ]
    found = CLAIM.collect(Measured(rows=rows), model="m", scale="full", minutes=0.0, digests={})
    by_items = decide(CLAIM.criteria, rows, ())
    assert {one.verdict for one in by_items} == {"holds"}
    assert {one.verdict for one in found.findings} == {found.verdict} == {"undecided"}, "four projects are not 64 items"
    assert [one.estimate for one in found.findings] == [one.estimate for one in by_items] == [0.75, 0.75]
    arm = next(arm for arm in found.arms if arm.arm == "agent").measures["alignment"]
    assert arm["low"] < 0.5


def test_an_answer_is_asked_for_once(evidence: Evidence, folder: Path) -> None:
    chats = [
        json.dumps(json.loads(line)["value"]["chat"])
        for path in folder.joinpath("live").rglob("llm.jsonl")
        for line in path.read_text().splitlines()
    ]
    assert len(chats) == len(set(chats))
    asked = {row["arm"]: row for row in pq.read_table(folder / "live" / "items.parquet").to_pylist()}
    assert asked["agent"]["calls"] == asked["agent-logprobs"]["calls"] == 2, "each arm counts what it needs"


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
