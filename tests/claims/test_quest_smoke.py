"""The claim about training with few bits, on models that learn nothing: every arm runs, every criterion is answered."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from burnish import claims
from burnish.claims import quest
from burnish.claims.quest import CLAIM, FREQUENCIES, QUANTIZERS, QUEST, STE, TUNING, WHOLE, Job, train
from burnish.core.claim import Evidence
from burnish.core.errors import BadInput
from burnish.core.run import Run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("quest") / "run"


@pytest.fixture(scope="module")
def evidence(folder: Path) -> Evidence:
    return claims.run("quest", scale="smoke", out=folder)


def test_every_criterion_is_answered(evidence: Evidence) -> None:
    assert [finding.criterion for finding in evidence.findings] == [c.name for c in CLAIM.asked("smoke")]
    assert evidence.command == "burnish claim quest --scale smoke"
    assert "W2A2: quest" in CLAIM.ours(evidence)
    assert len(evidence.data) == 3
    assert {finding.items for finding in evidence.findings} == {2}


def test_each_arm_is_measured_at_each_width(evidence: Evidence) -> None:
    shown = {(arm.arm, arm.cell.get("bits")): arm for arm in evidence.arms}
    assert set(shown) == {(WHOLE, None), (FREQUENCIES, None), *((arm, b) for arm in QUANTIZERS for b in (4, 2, 1))}
    assert all(arm.seconds > 0 for (name, _), arm in shown.items() if name != FREQUENCIES)
    losses = [arm.measures["test loss, nats a token"]["estimate"] for arm in shown.values()]
    assert all(4 < loss < 7 for loss in losses)
    assert len({round(loss, 9) for loss in losses}) == len(losses)


def test_nothing_is_trained_twice(folder: Path, evidence: Evidence, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("burnish.train.pretrain.pretrain", lambda *_, **__: pytest.fail("trained again"))
    assert claims.run("quest", scale="smoke", out=folder).findings == evidence.findings


def made(monkeypatch: pytest.MonkeyPatch, loss: Any) -> list[tuple[Job, str]]:
    """Stand in for all training; the jobs that were asked for."""
    asked: list[tuple[Job, str]] = []

    def pretended(jobs: list[Job], text: str, design: Any, part: Run) -> list[dict[str, Any]]:
        asked.extend((job, text) for job in jobs)
        return [{"loss": loss(job), "frequencies": 5.0, "parameters": 1, "seconds": 1.0} for job in jobs]

    monkeypatch.setattr(quest, "_all", pretended)
    return asked


def test_rates_are_chosen_on_validation_text_with_another_seed_and_test_text_is_seen_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    best = dict(zip((WHOLE, *QUANTIZERS), CLAIM.designs["full"].rates * 2, strict=False))

    def loss(job: Job) -> float:
        return 3.0 + abs(math.log(job.rate / best[job.arm])) + 0.01 * job.seed / TUNING

    asked = made(monkeypatch, loss)
    with Run(tmp_path / "r") as run:
        measured = CLAIM.measure("", run, "full")
    tuned = [job for job, text in asked if text == "validation"]
    tested = [job for job, text in asked if text == "test"]
    assert {job.seed for job in tuned} == {TUNING}
    assert len(tuned) == 13 * 3
    assert len(tested) == len(set(tested)) == 13 * 4
    assert {job.seed for job in tested} == {0, 1, 2, 3}
    assert all(job.rate == best[job.arm] for job in tested)
    assert {row["rate"] for row in measured.rows if row["arm"] == QUEST} == {best[QUEST]}


@pytest.mark.parametrize(
    ("quest_loss", "verdict"), [({4: 4.05, 2: 4.2, 1: 4.5}, "holds"), ({4: 4.05, 2: 4.35, 1: 4.5}, "does not hold")]
)
def test_the_verdict_follows_the_losses(
    quest_loss: dict[int, float], verdict: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    others = {4: 4.2, 2: 4.3, 1: 4.7}

    def loss(job: Job) -> float:
        own = 4.0 if job.arm == WHOLE else quest_loss[job.bits] if job.arm == QUEST else others[job.bits]
        return own + 0.05 * (job.seed % 7) + 0.001 * ((3 * job.seed + len(job.arm)) % 5)

    made(monkeypatch, loss)
    found = claims.run("quest", out=tmp_path / "r")
    assert found.verdict == verdict
    gap = next(finding for finding in found.findings if finding.criterion == "gap at 4 bits")
    assert gap.estimate == pytest.approx(0.25, abs=0.02)
    assert set(gap.sides) == {QUEST, STE}


def test_a_training_that_ends_in_no_number_counts_as_infinitely_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise BadInput("the loss is nan at step 3", "take a smaller rate")

    monkeypatch.setattr("burnish.train.pretrain.pretrain", broken)
    job = Job(arm=QUEST, bits=1, seed=0, rate=1.0)
    assert train(job, "test", CLAIM.designs["smoke"])["loss"] == math.inf
