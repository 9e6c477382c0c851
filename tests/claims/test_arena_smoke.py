"""The claim of Arena-Hard on few made-up judgments and small boards: it runs, and its figures are what they say."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from burnish import claims
from burnish.claims.arena import ALL, CLAIM, PAPERS, boards, separated, widened
from burnish.core.claim import Evidence
from burnish.core.errors import BadInput
from burnish.stats.separability import Bounds, separability


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    return claims.run("arena", scale="smoke", out=tmp_path_factory.mktemp("arena") / "run")


def test_every_criterion_is_answered(evidence: Evidence) -> None:
    assert [finding.criterion for finding in evidence.findings] == [c.name for c in CLAIM.asked("smoke")]
    assert evidence.model == ""
    assert evidence.command == "burnish claim arena --scale smoke"
    shown = {arm.arm: arm.measures for arm in evidence.arms}
    assert shown["games"]["coverage"]["estimate"] < 0.8 < shown["prompts"]["coverage"]["estimate"]
    assert shown["games"]["width"]["estimate"] < shown["prompts"]["width"]["estimate"]
    assert "coverage over prompts" in CLAIM.ours(evidence)


def made_up(count: int = 9) -> Bounds:
    rng = np.random.default_rng(0)
    scores, away = rng.normal(50, 10, count), rng.uniform(1, 6, count)
    return Bounds.of(
        [f"m{n}" for n in range(count)], scores.tolist(), (scores - away).tolist(), (scores + away).tolist()
    )


def test_pseudo_values_average_to_the_share_and_vary_as_it_does() -> None:
    board = made_up()
    values = [row["separated"] for row in separated(board)]
    assert np.mean(values) == pytest.approx(separability(board))
    # Leaving one model out, by definition.
    rest = board.only(board.names[1:])
    assert values[0] == pytest.approx(9 * separability(board) - 8 * separability(rest))


def test_wider_bounds_separate_less() -> None:
    board = made_up()
    shares = [separability(widened(board, factor)) for factor in (1, 1.5, 2)]
    assert shares[0] == separability(board)
    assert shares[0] > shares[1] > shares[2]


def write(folder: Path) -> Path:
    """Two boards of all models: the first with bounds of 1, the second with standard errors of 2."""
    (folder / "arena_hard").mkdir(parents=True)
    ours = "".join(f"{name},{2.5 * n},{2.5 * n - 1},{2.5 * n + 1}\n" for n, name in enumerate(ALL))
    theirs = "".join(f"{name},{n},2\n" for n, name in enumerate(ALL.values()))
    text = "model,score,rating_q025,rating_q975\n" + ours
    (folder / "arena_hard" / "arena_hard_leaderboard_20240731.csv").write_text(text)
    (folder / "arena_hard" / "alpaca_eval2_leaderboard.csv").write_text(",win_rate,standard_error\n" + theirs)
    return folder


def test_both_boards_are_read_and_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = CLAIM.model_copy(update={"times": {**CLAIM.times, "full": 4}})
    monkeypatch.setattr("burnish.claims.load", lambda name: small)
    evidence = claims.run("arena", out=tmp_path / "run", data=write(tmp_path))
    shares = {
        (arm.arm, arm.cell["models"]): arm.measures["separated pairs"]["estimate"]
        for arm in evidence.arms
        if "separated pairs" in arm.measures
    }
    for models, count in (("the paper's 20", 20), ("all 35 of both boards", 35)):
        assert shares["arena-hard", models] == pytest.approx(1)
        pairs = list(combinations(range(count), 2))
        apart = np.mean([b - a > 2 * 1.96 * 2 for a, b in pairs])
        assert shares["alpaca-eval", models] == pytest.approx(apart)
    assert [finding.verdict for finding in evidence.findings[:2]] == ["holds", "holds"]
    assert set(evidence.data) == {"arena_hard_leaderboard_20240731.csv", "alpaca_eval2_leaderboard.csv"}


def test_boards_that_are_not_at_hand_are_asked_for(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no arena_hard_leaderboard_20240731\.csv.*\n.*github"):
        claims.run("arena", out=tmp_path / "run", data=tmp_path)


def test_the_published_boards_hold_every_model() -> None:
    try:
        found = boards()
    except BadInput:
        pytest.skip("BURNISH_DATA holds no arena_hard")
    assert {*ALL} <= {*found["arena-hard"][1].names}
    assert {*ALL.values()} <= {*found["alpaca-eval"][1].names}
    assert (len(PAPERS), len(ALL)) == (20, 35)


def test_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="asks nothing of a model"):
        claims.run("arena", "tiny", scale="smoke", out=tmp_path / "r")
