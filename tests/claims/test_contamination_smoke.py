"""The claim about contaminated translation tests on made-up text: every branch runs, and every criterion is answered."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from burnish import claims
from burnish.claims.contamination import CLAIM, LARGE, MODES, REORDERED, SENTENCES, _rows
from burnish.claims.decide import decide
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
    assert "another order of clean data" in CLAIM.ours(evidence)
    assert {finding.measure for finding in evidence.findings} == {"excess", "auroc"}
    assert "products in" in evidence.lineage[0]
    assert len(evidence.data) == 4


def test_what_was_injected_is_gained_on_and_found(evidence: Evidence) -> None:
    shown = {arm.arm: arm for arm in evidence.arms}
    both = shown[f"both, {LARGE}, {SENTENCES['injected']}"].measures["chrF gained"]["estimate"]
    assert both > shown[f"both, {LARGE}, {SENTENCES['other']}"].measures["chrF gained"]["estimate"]
    assert shown[f"both, {LARGE}"].measures["excess chrF"]["low"] > 0
    assert shown[f"clean, {LARGE}"].measures["excess BLEU"]["estimate"] == 0
    noise = shown[f"{REORDERED}, {LARGE}"].measures["excess chrF"]
    assert noise["estimate"] != 0
    assert noise["estimate"] < shown[f"both, {LARGE}"].measures["excess chrF"]["estimate"]
    assert shown[f"probe of both, {LARGE}"].measures["AUROC, loss"]["estimate"] > 0.7
    trained = ("source", "target", "both", "clean", "base", REORDERED)
    assert all(shown[f"{branch}, {LARGE}"].seconds > 0 for branch in trained)


def test_better_translations_of_all_sentences_alike_are_no_contamination() -> None:
    """A branch that read more, and gained as much on the control, has no criterion in its favour."""
    from burnish.data.made_pairs import made_pairs
    from burnish.evaluate.contamination.gains import add_excess

    texts = [target for _, target in made_pairs(80)]

    def rows(size: str, branch: str, known: float) -> list[dict[str, Any]]:
        made = [
            " ".join(word if (i * 7 + j) % 10 < 10 * known else "x" for j, word in enumerate(text.split()))
            for i, text in enumerate(texts)
        ]
        named = {"size": size, "seed": 0, "branch": branch, "bleu": 0.0, "chrf": 0.0}
        return [
            {**named, "item_id": str(i), "injected": i % 2 == 0, "hypothesis": one, "reference": texts[i]}
            for i, one in enumerate(made)
        ]

    design = CLAIM.designs["smoke"]
    found = []
    for size, known in ((design.small, 0.6), (design.large, 1.0)):
        clean = rows(size, "clean", 0.3)
        for group in (clean, *(rows(size, f"{mode} x8 uniform", known if mode == "both" else 0.4) for mode in MODES)):
            add_excess(group, clean)
            found += group
    probed = {
        "logprobs": [-1.0, -2.0],
        "mean_logprobs": [-1.0] * 2,
        "std_logprobs": [1.0] * 2,
        "nll": 1.5,
        "reference_nll": 2.0,
    }
    criteria = [one for one in CLAIM.asked("smoke") if one.measure == "excess"]
    findings = decide(criteria, list(_rows([{**row, **probed} for row in found], design)), CLAIM.cells)
    assert len(findings) == 3
    assert [finding.verdict for finding in findings] == ["undecided"] * 3
    assert all(finding.items == 80 for finding in findings)


def test_nothing_is_trained_twice(folder: Path, evidence: Evidence, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "burnish.evaluate.contamination.branches.pretrain", lambda *_, **__: pytest.fail("trained again")
    )
    assert claims.run("contamination", scale="smoke", out=folder).findings == evidence.findings


def test_what_was_computed_in_other_products_is_not_taken_over(
    folder: Path, evidence: Evidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    class TrainedAgain(Exception):
        pass

    def again(*_: Any, **__: Any) -> Any:
        raise TrainedAgain

    monkeypatch.setattr("burnish.nn.pretrain.precision_of", lambda *_: "another precision")
    monkeypatch.setattr("burnish.evaluate.contamination.branches.pretrain", again)
    with pytest.raises(TrainedAgain):
        claims.run("contamination", scale="smoke", out=folder)


def test_without_the_captions_the_full_claim_says_where_they_are(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="Multi30k's captions are not at hand"):
        claims.run("contamination", out=tmp_path / "run", data=tmp_path)
