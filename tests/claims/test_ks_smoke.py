"""The claim about Kronecker-sparse products on a small made-up table: its figures are what the table says."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from burnish import claims
from burnish.claims.ks import CLAIM, FILE, table
from burnish.core.errors import BadInput
from burnish.data.ksmm import compared, read_energy

HEADER = "pattern,batch-size,algo,bs_position,precision,device_name,median,nruns,ecs\n"


def line(pattern: tuple[int, ...], algo: str, layout: str, precision: str, energy: float, runs: int = 2) -> str:
    return f'"[{list(pattern)}]",25088,{algo},{layout},{precision},V100,{energy * runs},{runs},\n'


def write(folder: Path, lines: list[str]) -> Path:
    (folder / "ksmm").mkdir(parents=True, exist_ok=True)
    (folder / "ksmm" / FILE).write_text(HEADER + "".join(lines))
    return folder


def made_up(kernel_at_one: float) -> list[str]:
    """Twelve patterns; the kernel takes 0.8 of the energy for d > 1, and `kernel_at_one` of it for d = 1."""
    found = []
    for number in range(12):
        pattern = (1, 8 + number, 8, 1 + number % 2)
        other = 2.0 + number
        for precision, factor in (("fp32", 1.0), ("fp16", 1.5)):
            share = (0.8 if pattern[3] > 1 else kernel_at_one) * factor * (1 + 0.01 * (number % 3))
            found += [
                line(pattern, "kernel", "bs_first", precision, 9 * other),
                line(pattern, "kernel", "bs_last", precision, share * other),
                line(pattern, "monarch", "bs_first", precision, other, runs=4),
                line(pattern, "einsum", "bs_last", precision, 1.5 * other),
                line(pattern, "dense", "bs_last", precision, 0.1 * other),
            ]
    found.append(line((2, 2, 2, 2), "monarch", "bs_first", "fp32", 1.0))  # no kernel: not compared
    return found


@pytest.mark.parametrize(("at_one", "verdict"), [(0.9, "holds"), (1.2, "does not hold")])
def test_the_table_is_counted_by_precision_and_d(at_one: float, verdict: str, tmp_path: Path) -> None:
    evidence = claims.run("ks", out=tmp_path / "run", data=write(tmp_path, made_up(at_one)))
    assert evidence.verdict == verdict
    found = {finding.criterion: finding for finding in evidence.findings}
    assert [*found] == [criterion.name for criterion in CLAIM.criteria]
    assert found["less energy (d > 1)"].estimate == pytest.approx(math.log(0.8), abs=0.02)
    assert found["less energy (d = 1)"].estimate == pytest.approx(math.log(at_one), abs=0.02)
    assert found["less energy (all patterns)"].items == 12
    assert found["less energy (d = 1)"].items == 6
    shown = {(arm.arm, *arm.cell.values()): arm.measures for arm in evidence.arms}
    assert len(shown) == 2 * 2 * 3
    assert shown["kernel", "fp16", "d > 1"]["takes less"]["estimate"] == 0
    assert shown["kernel", "fp32", "d > 1"]["takes less"]["estimate"] == 1
    assert "fp32, d > 1 -19%" in CLAIM.ours(evidence)
    assert set(evidence.data) == {FILE}
    assert evidence.command == "burnish claim ks"


def test_a_table_that_is_not_at_hand_or_damaged_is_said(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=rf"no {FILE}.*\n.*github"):
        claims.run("ks", out=tmp_path / "run", data=tmp_path)
    path = write(tmp_path, [line((1, 2, 3, 4), "kernel", "bs_first", "fp32", 1.0)]) / "ksmm" / FILE
    good = path.read_text()
    for before, after, said in (
        ("[1, 2, 3, 4]", "[1, 2, 3]", "line 2 cannot be read"),
        ("[1, 2, 3, 4]", "[1, 0, 3, 4]", "line 2: an energy"),
        ("V100,2.0", "V100,nan", "line 2: an energy of nan"),
        ("V100,2.0,2", "V100,2.0,0", "line 2 cannot be read"),
        ("precision", "exactness", "has no column precision"),
    ):
        path.write_text(good.replace(before, after))
        with pytest.raises(BadInput, match=said):
            read_energy(path)
    with pytest.raises(BadInput, match="there is no file"):
        read_energy(tmp_path / "none.csv")


def test_it_asks_nothing_of_a_model_and_has_one_scale(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="asks nothing of a model"):
        claims.run("ks", "tiny", out=tmp_path / "r")


def test_the_published_table_says_what_is_known_of_it() -> None:
    try:
        path = table()
    except BadInput:
        pytest.skip("BURNISH_DATA holds no ksmm")
    rows = compared(read_energy(path))
    ratios = [row.ratio for row in rows if row.precision == "fp32"]
    assert len(ratios) == 346
    assert sorted(ratios)[173] == pytest.approx(0.845, abs=0.002)  # the paper's -15 %
    at_one = [row.ratio for row in rows if row.precision == "fp32" and row.pattern[3] == 1]
    assert sum(ratio < 1 for ratio in at_one) / len(at_one) < 0.1
