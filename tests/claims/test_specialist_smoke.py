"""The claims of the specialist at tiny scale: what is planted is found, every arm runs, and every criterion is answered."""

from __future__ import annotations

from pathlib import Path

import pytest

from burnish import claims
from burnish.claims.specialist import CLAIM
from burnish.claims.specialist_copy import CLAIM as COPY
from burnish.claims.specialist_copy import shares
from burnish.core.claim import Evidence
from burnish.core.errors import BadInput
from burnish.core.run import Run
from burnish.data.mqm_formats import read_ratings
from burnish.data.planted_ratings import plant_ratings
from burnish.evaluate.specialist.copy import SpecialistCopy
from burnish.llm import record


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    return claims.run("specialist-copy", scale="smoke", out=tmp_path_factory.mktemp("copy") / "run")


def test_copying_finds_what_was_planted(copied: Evidence) -> None:
    assert [finding.verdict for finding in copied.findings] == ["holds"] * 3
    f1 = {arm.arm: arm.measures["F1"]["estimate"] for arm in copied.arms}
    assert f1["same"] == pytest.approx(1)  # its own rater's marks, in the other systems' words
    assert f1["shuffled"] == 0  # no word occurs in two sources
    assert f1["any"] == pytest.approx(f1["any, lenient"])  # every translation is another
    assert next(arm for arm in copied.arms if arm.arm == "same").measures["Kendall's tau"]["estimate"] == 1
    assert "planted: any 0.7" in COPY.ours(copied)


def test_shares_give_the_f1_of_the_method(tmp_path: Path) -> None:
    run = Run.scratch()
    scores = SpecialistCopy(arms=("any",), modes=("strict",))(plant_ratings(tmp_path / "p.tsv"), run=run)
    found = shares(scores.rows())
    assert sum(row["f1"] for row in found) / len(found) == pytest.approx(run.metrics["f1_any_strict"]["estimate"])


def test_planted_ratings_are_whole(tmp_path: Path) -> None:
    rated = read_ratings(plant_ratings(tmp_path / "p.tsv")).ratings()
    assert len(rated) == 10 * 5 * 2
    assert {len(one.errors) for one in rated} == {0, 1}


def test_ratings_that_are_not_at_hand_are_said_to_be_public(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="ratings of TED en-de are not at hand") as error:
        claims.run("specialist-copy", out=tmp_path / "run", data=tmp_path)
    assert "wmt-mqm-human-evaluation" in str(error.value)
    with pytest.raises(BadInput, match="not at hand"):
        claims.run("specialist", "tiny", out=tmp_path / "other", data=tmp_path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("specialist")


@pytest.fixture(scope="module")
def evidence(folder: Path) -> Evidence:
    return claims.run("specialist", "tiny", scale="smoke", out=folder / "live")


def test_every_arm_marks_the_same_translations(evidence: Evidence) -> None:
    assert [arm.arm for arm in evidence.arms] == [arm.name for arm in CLAIM.arms]
    assert [finding.items for finding in evidence.findings] == [8, 8]
    read = {arm.arm: arm.measures["tokens read"]["estimate"] for arm in evidence.arms}
    assert read["specialist"] > 1.3 * read["zero-shot"]
    assert read["specialist"] == pytest.approx(read["shuffled"], rel=0.1)
    assert evidence.arms[-1].measures["F1"]["estimate"] == pytest.approx(1)  # copying, by the same rater
    assert evidence.command == "burnish claim specialist --model tiny --scale smoke"


def test_a_recording_gives_the_same_findings(evidence: Evidence, folder: Path) -> None:
    record(folder / "live", folder / "calls.jsonl")
    again = claims.run("specialist", f"replay:{folder / 'calls.jsonl'}", scale="smoke", out=folder / "replayed")
    assert again.findings == evidence.findings
