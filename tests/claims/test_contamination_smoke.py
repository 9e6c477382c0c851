"""The claim about contaminated translation tests on made-up text: every branch runs, and every criterion is answered."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from burnish import claims
from burnish.claims.contamination import CLAIM, LARGE
from burnish.core.claim import Evidence
from burnish.core.errors import BadInput

pytestmark = pytest.mark.skipif(importlib.util.find_spec("sacrebleu") is None, reason="sacrebleu is not installed")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("contamination") / "run"


@pytest.fixture(scope="module")
def evidence(folder: Path) -> Evidence:
    return claims.run("contamination", scale="smoke", out=folder)


def test_every_criterion_is_answered(evidence: Evidence) -> None:
    assert [finding.criterion for finding in evidence.findings] == [c.name for c in CLAIM.asked("smoke")]
    assert evidence.command == "burnish claim contamination --scale smoke"
    assert "large: source" in CLAIM.ours(evidence)
    assert len(evidence.data) == 4


def test_what_was_injected_is_gained_on_and_found(evidence: Evidence) -> None:
    shown = {(arm.arm, arm.cell.get("sentences", "")): arm for arm in evidence.arms}
    both = shown[f"both, {LARGE}", "injected"].measures["chrF gained"]["estimate"]
    assert both > shown[f"both, {LARGE}", "other"].measures["chrF gained"]["estimate"]
    assert shown[f"clean, {LARGE}", "injected"].measures["BLEU gained"]["estimate"] == 0
    assert shown[f"probe of both, {LARGE}", ""].measures["AUROC, loss"]["estimate"] > 0.7
    assert all(
        shown[f"{mode}, {LARGE}", "injected"].seconds > 0 for mode in ("source", "target", "both", "clean", "base")
    )


def test_nothing_is_trained_twice(folder: Path, evidence: Evidence, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "burnish.evaluate.contamination.branches.pretrain", lambda *_, **__: pytest.fail("trained again")
    )
    assert claims.run("contamination", scale="smoke", out=folder).findings == evidence.findings


def test_without_the_captions_the_full_claim_says_where_they_are(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="Multi30k's captions are not at hand"):
        claims.run("contamination", out=tmp_path / "run", data=tmp_path)
