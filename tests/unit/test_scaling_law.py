"""Scaling laws with efficiencies: a known law is found again, and the published runs give the published table."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import f

from burnish.core.errors import BadInput, UnknownName
from burnish.evaluate.scaling_law import ScalingLaw
from burnish.stats.scaling import Runs, _at, fit, highest_floor, resampled

DATA = Path(os.environ.get("BURNISH_DATA", "/nowhere")) / "quest" / "runs_for_scaling.json"
TRUTH = {"full": 1.0, "w4": 0.7, "w2": 0.15}


def made(noise: float = 0.0, floor: float = 1.2, seed: int = 0) -> list[dict[str, object]]:
    rng = np.random.default_rng(seed)
    rows = []
    for arm, efficiency in TRUTH.items():
        for parameters in (3e7, 1e8, 3e8, 8e8):
            for per in (25, 100):
                loss = 20 / (parameters * efficiency) ** 0.15 + 400 / (parameters * per) ** 0.3 + floor
                loss *= np.exp(noise * rng.standard_normal())
                rows.append({"arm": arm, "parameters": parameters, "tokens": parameters * per, "loss": loss})
    return rows


def runs(rows: list[dict[str, object]], reference: str = "full") -> Runs:
    columns = [[row[name] for row in rows] for name in ("parameters", "tokens", "loss")]
    return Runs.of(*columns, [row["arm"] for row in rows], reference)


def test_a_law_without_noise_is_found_again() -> None:
    law = fit(runs(made()))
    for arm, efficiency in TRUTH.items():
        assert law.efficiency[arm] == pytest.approx(efficiency, rel=0.01)
    assert law.exponents == pytest.approx((0.15, 0.3), abs=0.01)
    assert law.floor == pytest.approx(1.2, abs=0.05)
    rows = made()
    said = law.loss([row["parameters"] for row in rows[-8:]], [row["tokens"] for row in rows[-8:]], "w2")
    assert said == pytest.approx([row["loss"] for row in rows[-8:]], rel=1e-4)


def test_derivatives_are_those_of_the_losses() -> None:
    known = runs(made(noise=0.01))
    x = fit(known).solution + 0.05
    value, jacobian = _at(x, known)
    for place in range(len(x)):
        moved = x.copy()
        moved[place] += 1e-6
        assert jacobian[:, place] == pytest.approx((_at(moved, known)[0] - value) / 1e-6, rel=1e-3, abs=1e-4)


def test_intervals_hold_the_truth_and_the_reference_has_none(tmp_path: Path) -> None:
    path = tmp_path / "runs.json"
    held = 0
    for seed in range(8):
        path.write_text(json.dumps(made(noise=0.002, seed=seed)))
        table = {row["label"]: row for row in ScalingLaw(reference="full", draws=60)(path).rows()}
        held += sum(table[arm]["low"] <= TRUTH[arm] <= table[arm]["high"] for arm in ("w4", "w2"))
        assert table["full"]["low"] == table["full"]["high"] == 1.0
    assert held >= 12  # of 16


def test_the_floor_is_a_bound_and_costs_more_above_it() -> None:
    known = runs(made(noise=0.01))
    law = fit(known)
    top = highest_floor(known, law, 0.95)
    assert top > law.floor
    rest = len(known.loss) - known.unknowns
    allowed = law.cost * (1 + f.ppf(0.95, 1, rest) / rest)
    assert fit(known, floor=top).cost == pytest.approx(allowed, rel=0.02)
    assert fit(known, floor=top + 0.2).cost > fit(known, floor=top).cost > law.cost


def test_one_run_far_off_moves_little() -> None:
    rows = made(noise=0.001)
    clean = fit(runs(rows)).efficiency["w4"]
    rows[10]["loss"] *= 1.3
    assert fit(runs(rows)).efficiency["w4"] == pytest.approx(clean, abs=0.1)


def test_what_cannot_be_fitted_is_said(tmp_path: Path) -> None:
    rows = made()
    with pytest.raises(BadInput, match="none is named as the reference: full, w4, w2"):
        runs(rows, reference="")
    with pytest.raises(UnknownName, match="w3"):
        runs(rows, reference="w3")
    with pytest.raises(BadInput, match="7 unknowns"):
        runs([*rows[:2], *rows[8:10], *rows[16:18]])
    with pytest.raises(BadInput, match="loss: row 0 is not above 0"):
        runs([{**rows[0], "loss": -1.0}, *rows[1:]])
    path = tmp_path / "runs.json"
    path.write_text(json.dumps([{**rows[0], "loss": "high"}, *rows[1:]]))
    with pytest.raises(BadInput, match="row 0: loss is 'high'"):
        ScalingLaw(reference="full")(path)
    with pytest.raises(BadInput, match="has no column 'size'"):
        ScalingLaw(reference="full", parameters="size")(path)
    path.write_text("{}")
    with pytest.raises(BadInput, match="holds no rows"):
        ScalingLaw()(path)


@pytest.mark.skipif(not DATA.is_file(), reason="BURNISH_DATA does not hold quest")
def test_the_published_runs_give_the_published_efficiencies() -> None:
    by = ("w_quant", "a_quant", "w_bits", "a_bits")
    method = ScalingLaw(
        by=by, reference="NoQuantizer NoQuantizer 16 16", parameters="non_embedding_parameters", draws=40
    )
    table = {row["label"]: row for row in method(DATA).rows()}
    trust = "HalfHadamardTrustQuantizer"
    published = {
        f"{trust} {trust} {bits} {bits}": value for bits, value in ((2, 0.16), (3, 0.43), (4, 0.70), (8, 1.02))
    }
    published["HadamardClipQuantizer HadamardClipQuantizer 1 1"] = 0.02
    for label, efficiency in published.items():
        assert table[label]["estimate"] == pytest.approx(efficiency, abs=0.03)
    assert table["irreducible loss E (an upper bound)"]["estimate"] < 1e-3


@pytest.mark.parametrize("best", [0, 2, 5])
def test_the_best_of_the_starts_is_kept(best: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from burnish.stats import scaling

    real, calls = scaling.least_squares, []

    def watching(*args, **options):
        found = real(*args, **options)
        found.cost += 1.0 if len(calls) != best else 0.0
        calls.append(found.x)
        return found

    monkeypatch.setattr(scaling, "least_squares", watching)
    law = fit(runs(made(noise=0.001)))
    assert len(calls) == len(scaling.STARTS) == 6
    assert law.cost < 1
    assert np.array_equal(law.solution, calls[best])


def test_runs_are_drawn_again_within_their_arm(monkeypatch: pytest.MonkeyPatch) -> None:
    known = runs([*made(noise=0.001), made()[0] | {"arm": "single"}])
    law = fit(known)
    seen = []
    monkeypatch.setattr("burnish.stats.scaling.fit", lambda drawn, start: seen.append(drawn) or law)
    resampled(known, law, 20, np.random.default_rng(0))
    counts = [np.bincount(drawn.arm, minlength=len(known.arms)).tolist() for drawn in seen]
    assert counts == [np.bincount(known.arm).tolist()] * 20
    assert len({tuple(sorted(drawn.loss)) for drawn in seen}) > 1


def test_an_arm_with_a_single_run_has_no_interval(tmp_path: Path) -> None:
    path = tmp_path / "runs.json"
    single = {"arm": "one", "parameters": 1e8, "tokens": 1e10, "loss": 20 / 5e7**0.15 + 400 / 1e10**0.3 + 1.2}
    path.write_text(json.dumps([*made(noise=1e-4), single]))
    table = {row["label"]: row for row in ScalingLaw(reference="full", draws=40)(path).rows()}
    assert table["one"]["estimate"] == pytest.approx(0.5, rel=0.05)
    assert table["one"]["low"] is table["one"]["high"] is None
    assert "single run" in table["one"]["method"]
    assert table["w4"]["low"] < table["w4"]["estimate"] < table["w4"]["high"]


def test_the_level_widens_intervals_and_is_their_coverage(tmp_path: Path) -> None:
    path = tmp_path / "runs.json"
    path.write_text(json.dumps(made(noise=0.005)))
    drawn = {}
    for level in (0.5, 0.9):
        method = ScalingLaw(reference="full", draws=100, level=level)
        row = next(row for row in method(path).rows() if row["label"] == "w4")
        drawn[level] = row["high"] - row["low"]
    known = runs(made(noise=0.005))
    from burnish.core.run import Run

    values = resampled(known, fit(known), 100, Run.scratch().rng("scaling-law"))[:, known.arms.index("w4")]
    for level, width in drawn.items():
        assert width == pytest.approx(np.ptp(np.quantile(values, [(1 - level) / 2, (1 + level) / 2])), rel=1e-6)


def test_what_the_runs_leave_open_is_refused_or_said(tmp_path: Path) -> None:
    path = tmp_path / "runs.json"
    method = ScalingLaw(reference="full", draws=40)
    one_size = [row | {"parameters": 1e8} for row in made()]
    path.write_text(json.dumps(one_size))
    with pytest.raises(BadInput, match="at one size only"):
        method(path)
    for change, word in (
        (lambda row: {"tokens": 1e10}, "B, β and E"),
        (lambda row: {"tokens": 20 * row["parameters"]}, "curvature"),
    ):
        rows = [row | change(row) for row in made()]
        for row in rows:
            row["loss"] = 20 / (row["parameters"] * TRUTH[row["arm"]]) ** 0.15 + 400 / row["tokens"] ** 0.3 + 1.2
        path.write_text(json.dumps(rows))
        assert word in " ".join(method(path).notes["left_open"])
    path.write_text(json.dumps(made()))
    assert method(path).notes["left_open"] == []
    path.write_text(json.dumps([row | ({"loss": 1e-3} if row["arm"] == "w2" else {}) for row in made()]))
    assert "efficiency of w2 ended at a bound" in " ".join(method(path).notes["left_open"])
    path.write_text(json.dumps([*made(), {**made()[0], "arm": None}]))
    with pytest.raises(BadInput, match="row 24: arm is not given"):
        method(path)
