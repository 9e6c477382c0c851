"""Claims: rows to verdicts, digests of code, committed evidence, and the arms of quantization claims."""

from __future__ import annotations

import json
import math
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import burnish.catalogue as catalogue
from burnish import claims
from burnish.claims import quantization, store
from burnish.claims.base import Claim, Measured, Part
from burnish.claims.boa import CLAIM, DEMO, FULL, SMOKE
from burnish.claims.decide import Measure, decide, summarize
from burnish.claims.digest import digest, find, modules, normal_form
from burnish.claims.quantization import Design, QuantizationClaim, Text
from burnish.core.claim import Arm, Criterion, Evidence
from burnish.core.errors import BadInput, Mismatch, UnknownName
from burnish.core.method import Method, Paper
from burnish.core.run import Run

CELLS = ("bits", "seed")


def _rows(arm: str, values: list[float], measure: str = "kl", **cell: Any) -> list[dict[str, Any]]:
    return [{"item_id": f"w{i}", "arm": arm, measure: value, **cell} for i, value in enumerate(values)]


def _criterion(**changes: Any) -> Criterion:
    usual = {"name": "c", "text": "t", "statistic": "difference", "measure": "kl", "arm": "new", "against": "old"}
    return Criterion.model_validate({**usual, **changes})


def _spread(middle: float, items: int = 40, seed: int = 0) -> list[float]:
    return (middle + np.random.default_rng(seed).normal(0, 0.01, items)).tolist()


# -- rows to findings -------------------------------------------------------------------------------------------


def test_a_difference_is_of_matched_rows_in_whatever_order_they_come() -> None:
    new, old = _rows("new", _spread(1.0)), _rows("old", _spread(2.0, seed=1))
    expected = float(np.mean([a["kl"] - b["kl"] for a, b in zip(new, old, strict=True)]))
    (straight,) = decide([_criterion()], new + old, CELLS)
    (shuffled,) = decide([_criterion()], old[::-1] + new, CELLS)
    assert straight.estimate == pytest.approx(expected, rel=1e-12)
    assert shuffled.estimate == pytest.approx(expected, rel=1e-12)
    assert straight.verdict == "holds"
    assert straight.low < expected < straight.high < 0
    assert straight.items == 40


def test_pairing_removes_what_items_have_in_common() -> None:
    hard = np.random.default_rng(3).normal(5, 3, 60)
    new, old = (hard - 0.1).tolist(), (hard + np.random.default_rng(4).normal(0, 0.01, 60)).tolist()
    (found,) = decide([_criterion()], _rows("new", new) + _rows("old", old), CELLS)
    assert found.verdict == "holds"
    assert found.high - found.low < 0.02


@pytest.mark.parametrize(
    ("new", "margin", "side", "verdict"),
    [
        (1.0, 0.75, "below", "holds"),
        (1.6, 0.75, "below", "does not hold"),
        (1.5, 0.75, "below", "undecided"),
        (1.6, 0.75, "above", "holds"),
        (1.0, 0.75, "above", "does not hold"),
    ],
)
def test_a_ratio_is_of_means_and_its_verdict_depends_on_margin_and_side(
    new: float, margin: float, side: str, verdict: str
) -> None:
    rows = _rows("new", _spread(new)) + _rows("old", _spread(2.0, seed=7))
    (found,) = decide([_criterion(statistic="ratio", margin=margin, side=side)], rows, CELLS)
    ratio = np.mean([row["kl"] for row in rows[:40]]) / np.mean([row["kl"] for row in rows[40:]])
    assert found.estimate == pytest.approx(ratio, rel=1e-12)
    assert found.verdict == verdict


def test_an_excess_ratio_takes_the_base_value_off_both() -> None:
    base = _spread(3.0, seed=5)
    new = [{**row, "base_nll": b} for row, b in zip(_rows("new", _spread(3.4), "nll"), base, strict=True)]
    old = [{**row, "base_nll": b} for row, b in zip(_rows("old", _spread(3.8, seed=2), "nll"), base, strict=True)]
    (found,) = decide([_criterion(statistic="excess_ratio", measure="nll", margin=0.9)], new + old, CELLS)
    means = [np.mean([row["nll"] for row in rows]) - np.mean(base) for rows in (new, old)]
    assert found.estimate == pytest.approx(means[0] / means[1], rel=1e-12)
    assert found.verdict == "holds"


def test_a_ratio_over_what_may_be_zero_decides_nothing() -> None:
    rows = _rows("new", _spread(1.0)) + _rows("old", np.random.default_rng(0).normal(0, 1, 40).tolist())
    (found,) = decide([_criterion(statistic="ratio", margin=1e9)], rows, CELLS)
    assert (found.low, found.high, found.verdict) == (-math.inf, math.inf, "undecided")
    assert "not clearly above 0" in found.note


def test_an_excess_below_the_base_decides_nothing_and_still_shows_its_arithmetic() -> None:
    new = [{**row, "base_nll": 3.0} for row in _rows("new", _spread(3.5), "nll")]
    old = [{**row, "base_nll": 3.0} for row in _rows("old", _spread(2.5, seed=1), "nll")]
    (found,) = decide([_criterion(statistic="excess_ratio", measure="nll", margin=0.9)], new + old, CELLS)
    assert found.estimate == pytest.approx(-1.0, abs=0.02)
    assert (found.low, found.high, found.verdict) == (-math.inf, math.inf, "undecided")


def test_equal_arms_are_undecided_and_say_why() -> None:
    (found,) = decide([_criterion()], _rows("new", _spread(1.0)) + _rows("old", _spread(1.0)), CELLS)
    assert found.verdict == "undecided"
    assert "zero width" in found.note


def test_a_criterion_looks_only_at_its_cell() -> None:
    rows = []
    for bits, new in ((2, 3.0), (3, 1.0)):
        rows += _rows("new", _spread(new), bits=bits, seed=0) + _rows("old", _spread(2.0, seed=1), bits=bits, seed=0)
    worse, better = decide([_criterion(where={"bits": 2}), _criterion(where={"bits": 3})], rows, CELLS)
    assert (worse.verdict, better.verdict) == ("does not hold", "holds")


def test_an_arm_without_a_column_stands_in_all_its_cells() -> None:
    rows = _rows("old", _spread(2.0, seed=1), bits=2)
    for seed in (0, 1):
        rows += _rows("new", _spread(1.0 + 2 * seed), bits=2, seed=seed)
    first, second = decide([_criterion(where={"seed": seed}) for seed in (0, 1)], rows, CELLS)
    assert (first.verdict, second.verdict) == ("holds", "does not hold")


def test_an_item_in_several_cells_is_one_item() -> None:
    new, old = np.random.default_rng(8).normal(1, 1, 30).tolist(), np.zeros(30).tolist()
    once = _rows("new", new, seed=0) + _rows("old", old, seed=0)
    thrice = [{**row, "seed": seed} for seed in range(3) for row in once]
    (single,) = decide([_criterion()], once, CELLS)
    (pooled,) = decide([_criterion()], thrice, CELLS)
    assert pooled.items == 30
    assert pooled.estimate == pytest.approx(single.estimate)
    # Three copies are no more information: the interval must not shrink by the square root of three.
    assert pooled.high - pooled.low == pytest.approx(single.high - single.low, rel=0.1)


def test_every_fault_of_every_criterion_is_named_at_once() -> None:
    rows = _rows("new", [1.0, 2.0, 3.0]) + _rows("old", [1.0, 2.0])
    rows += [{"item_id": "w1", "arm": "old", "kl": 9.0}]
    rows += _rows("odd", [1.0, math.nan, 2.0])
    wanted = [
        _criterion(name="match"),
        _criterion(name="finite", against="odd"),
        _criterion(name="nobody", against="ghost"),
        _criterion(name="column", where={"bit": 2}),
        _criterion(name="measure", measure="top1"),
    ]
    with pytest.raises(BadInput) as caught:
        decide(wanted, rows, CELLS)
    text = caught.value.problem
    assert "match: 'old' has several rows for item 'w1'" in text
    assert "match: 'old' has no row to match item 'w2'" in text
    assert "finite: 'odd' has no finite 'kl' for item 'w1'" in text
    assert "nobody: no rows of 'ghost'" in text
    assert "column: no column 'bit'" in text
    assert "measure: 'new' has no finite 'top1'" in text


def test_one_item_gives_no_interval_and_is_refused() -> None:
    with pytest.raises(BadInput, match="at least 2"):
        decide([_criterion()], _rows("new", [1.0]) + _rows("old", [2.0]), CELLS)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.floats(0.1, 10), st.floats(0.1, 10)), min_size=5, max_size=30))
def test_swapping_the_arms_mirrors_a_difference(pairs: list[tuple[float, float]]) -> None:
    rows = _rows("new", [a for a, _ in pairs]) + _rows("old", [b for _, b in pairs])
    (one,) = decide([_criterion()], rows, CELLS)
    (other,) = decide([_criterion(arm="old", against="new", side="above")], rows, CELLS)
    assert one.estimate == pytest.approx(-other.estimate, abs=1e-9)
    assert one.verdict == other.verdict


def test_a_summary_has_each_arm_in_each_cell_and_a_perplexity_is_the_exponential_of_the_mean() -> None:
    rows = _rows("fp", [1.0, 2.0, 3.0], "nll") + _rows("new", [2.0, 3.0, 4.0], "nll", bits=2)
    rows += [{**row, "kl": 0.5} for row in _rows("new", [3.0, 3.0, 6.0], "nll", bits=3)]
    shown = (Measure(name="perplexity", column="nll", transform="exp"), Measure(name="kl", column="kl"))
    results = summarize(rows, CELLS, shown, label=lambda arm, cell: f"{arm}{dict(cell)}")
    assert [(result.arm, result.cell) for result in results] == [("fp", {}), ("new", {"bits": 2}), ("new", {"bits": 3})]
    assert results[0].measures["perplexity"]["estimate"] == pytest.approx(math.exp(2))
    assert "kl" not in results[1].measures
    assert results[2].measures["kl"]["estimate"] == 0.5
    assert results[1].label == "new{'bits': 2}"


# -- digests ----------------------------------------------------------------------------------------------------

CODE = '''
"""Says."""
from __future__ import annotations
import os

LIMIT = 3


class A:
    """Says."""

    x: int = 1
    """Says."""

    def f(self, y: int) -> str:
        """Says."""
        return f"{self.x + y:{LIMIT}}" + "a" + "it's"
'''
SAME = """
# what
from __future__ import annotations
import os
LIMIT = (3)
class A:

    x: int = 1
    def f(self,
          y: int,
          ) -> str:
        # how
        return f"{self.x + y:{LIMIT}}" + 'a' + 'it\\'s'
"""


def test_comments_docstrings_and_layout_change_nothing() -> None:
    assert normal_form(CODE) == normal_form(SAME)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("LIMIT = 3", "LIMIT = 4"),
        ("LIMIT = 3", "LIMIT = 3.0"),
        ("self.x + y", "self.x - y"),
        ("+ y:{LIMIT}", "+ y!r:{LIMIT}"),
        ('"a"', '"b"'),
        ('"a"', 'b"a"'),
        ("x: int = 1", "x: int = True"),
        ("import os", "import os.path"),
        ("def f(self, y", "def f(self, y, z"),
        ("def f(", "async def f("),
        ("return f", "f"),
    ],
)
def test_code_changes_the_normal_form(old: str, new: str) -> None:
    assert old in CODE
    assert normal_form(CODE.replace(old, new)) != normal_form(CODE)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package whose import would fail: digests must not need it."""
    root = tmp_path / "pkgofclaims"
    files = {
        "__init__.py": "raise RuntimeError('imported')",
        "a.py": "import numpy\nfrom pkgofclaims.low import tool\n\ndef f():\n    from .late import x\n    return x",
        "late.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .low.typed import T",
        "low/__init__.py": "from . import tool",
        "low/tool.py": "from ..late import y",
        "low/typed.py": "T = 1",
        "low/other.py": "import pkgofclaims.a",
    }
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    return root


def test_imports_are_followed_inside_the_package_and_nothing_is_imported(package: Path) -> None:
    assert modules("pkgofclaims.a") == [
        "pkgofclaims.a",
        "pkgofclaims.late",
        "pkgofclaims.low.tool",
        "pkgofclaims.low.typed",
    ]
    assert find("pkgofclaims.low") == package / "low" / "__init__.py"


def test_a_digest_follows_code_below_and_nothing_else(package: Path) -> None:
    before = digest("pkgofclaims.a")
    (package / "low" / "other.py").write_text("import pkgofclaims.a\nx = 1")
    (package / "low" / "typed.py").write_text("# said\nT = (1)")
    assert digest("pkgofclaims.a") == before
    (package / "low" / "typed.py").write_text("T = 2")
    assert digest("pkgofclaims.a") != before


def test_a_digest_does_not_depend_on_the_tables_of_names() -> None:
    covered = modules("burnish.claims.quantization")
    assert "burnish.claims.decide" in covered
    assert "burnish.stats.student" in covered
    assert not {"burnish", "burnish.catalogue", "burnish.core.progress"} & set(covered)


@pytest.mark.parametrize("module", ["burnish.nothing", "nothing_at_all", "sys", ""])
def test_a_module_without_source_is_refused(module: str) -> None:
    with pytest.raises(BadInput, match="no source file"):
        digest(module)


# -- a claim, end to end, without models ------------------------------------------------------------------------

PAPER = Paper(title="T", authors="A", year=2025, venue="V")


class Coin(Claim):
    """Two arms measured out of thin air."""

    shift: float = -1.0

    def measure(self, model: str, run: Run, scale: Any, *, device: str = "auto", dtype: str = "auto") -> Measured:
        """Rows of fixed numbers."""
        rows = _rows("new", _spread(2.0 + self.shift), seed=0) + _rows("old", _spread(2.0, seed=1))
        return Measured(rows, [Part("new", {"seed": 0}, 1.5, "abc")], ["from nowhere"], {"text": "sha"})


def _coin(**changes: Any) -> Coin:
    usual: dict[str, Any] = {
        "name": "coin",
        "title": "coins",
        "sentence": "New is lower.",
        "paper": PAPER,
        "figures": ({"where": "Table 1", "numbers": {"old": 2.0, "new": 1.0}},),
        "arms": (Arm(name="new", use="rtn"), Arm(name="old", use="rtn", baseline=True)),
        "criteria": (_criterion(where={"seed": 0}),),
        "cells": CELLS,
        "measures": (Measure(name="kl", column="kl"),),
        "default_model": "m",
        "code": ("burnish.claims.decide",),
    }
    return Coin.model_validate({**usual, **changes})


@pytest.fixture
def coin(monkeypatch: pytest.MonkeyPatch) -> Coin:
    """A claim in the catalogue, whose only method has a source that is there."""
    claim = _coin()
    monkeypatch.setattr(catalogue, "CLAIMS", {"coin": "-"})
    monkeypatch.setattr(catalogue, "claim", lambda name: claim)
    monkeypatch.setattr(catalogue, "find", lambda name: SimpleNamespace(target="burnish.core.errors:BadInput"))
    return claim


def test_a_run_writes_evidence_that_reads_back(coin: Coin, tmp_path: Path) -> None:
    evidence = claims.run("coin", out=tmp_path / "r")
    assert evidence.verdict == "holds"
    assert evidence == store.read_file(tmp_path / "r" / "evidence.json")
    assert json.loads((tmp_path / "r" / "run.json").read_text())["metrics"]["verdict"] == "holds"
    assert json.loads((tmp_path / "r" / "run.json").read_text())["request"] == {
        "claim": "coin",
        "model": "m",
        "scale": "full",
    }
    new = next(result for result in evidence.arms if result.arm == "new")
    assert (new.seconds, new.weights, new.cell) == (1.5, "abc", {"seed": 0})
    assert (evidence.command, evidence.lineage) == ("burnish claim coin", ["from nowhere"])
    assert set(evidence.digests) == {"rtn", "burnish.claims.decide", "declaration"}
    assert "intersection-union" in evidence.multiplicity


def test_all_rows_of_all_arms_are_in_the_items(coin: Coin, tmp_path: Path) -> None:
    from burnish.data.scores import read_scores

    claims.run("coin", out=tmp_path / "r")
    rows = read_scores(tmp_path / "r").rows()
    assert len(rows) == 80
    assert {(row["arm"], row["seed"], row["model"]) for row in rows} == {
        ("new", 0, "new, seed 0"),
        ("old", None, "old"),
    }


def test_another_model_has_its_own_folder_and_command(
    coin: Coin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    evidence = claims.run("coin", "my/model")
    assert evidence.command == "burnish claim coin --model my/model"
    assert (tmp_path / "runs" / "claim-coin-full-model" / "evidence.json").is_file()


def test_an_unknown_scale_is_refused_before_anything_is_written(coin: Coin, tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="there is no scale"):
        claims.run("coin", scale="demo", out=tmp_path / "r")
    assert not (tmp_path / "r").exists()


def test_the_data_folder_stands_in_for_the_environment_and_only_for_the_run(
    coin: Coin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    monkeypatch.setattr(
        Coin, "measure", lambda self, *a, **k: seen.append(os.environ.get("BURNISH_DATA")) or _measured(self)
    )
    monkeypatch.delenv("BURNISH_DATA", raising=False)
    claims.run("coin", out=tmp_path / "r", data=tmp_path)
    assert seen == [str(tmp_path)]
    assert os.environ.get("BURNISH_DATA") is None
    with pytest.raises(BadInput, match="there is no folder"):
        claims.run("coin", out=tmp_path / "s", data=tmp_path / "nowhere")


def _measured(claim: Coin) -> Measured:
    return Measured(_rows("new", _spread(1.0), seed=0) + _rows("old", _spread(2.0, seed=1)))


def test_unbounded_intervals_survive_json(coin: Coin, tmp_path: Path) -> None:
    measured = Measured(
        _rows("new", _spread(1.0), seed=0) + _rows("old", np.random.default_rng(0).normal(0, 1, 40).tolist())
    )
    claim = _coin(criteria=(_criterion(statistic="ratio"),))
    evidence = claim.collect(measured, model="m", scale="full", minutes=0.0, digests={})
    path = store.write(evidence, tmp_path / "e.json")
    json.loads(path.read_text(), parse_constant=lambda text: pytest.fail(f"{text} is not JSON"))
    again = store.read_file(path)
    assert again.findings[0].high == math.inf
    assert again.verdict == "undecided"


def test_evidence_describes_the_code_that_was_there_when_measuring_began(
    coin: Coin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = coin.digests()

    def measure(self: Coin, *a: Any, **k: Any) -> Measured:
        monkeypatch.setattr(catalogue, "find", lambda name: SimpleNamespace(target="burnish.core.files:x"))
        return _measured(self)

    monkeypatch.setattr(Coin, "measure", measure)
    assert claims.run("coin", out=tmp_path / "r").digests == before
    assert coin.digests() != before


def test_one_failing_criterion_fails_the_claim(coin: Coin) -> None:
    claim = _coin(criteria=(_criterion(name="a"), _criterion(name="b", margin=-5.0)))
    evidence = claim.collect(claim.measure("m", None, "full"), model="m", scale="full", minutes=0.0, digests={})  # type: ignore[arg-type]
    assert [finding.verdict for finding in evidence.findings] == ["holds", "does not hold"]
    assert evidence.verdict == "does not hold"
    assert claim.ours(evidence) == "1 of 2 criteria hold"


# -- committed evidence -----------------------------------------------------------------------------------------


@pytest.fixture
def evidence(coin: Coin, tmp_path: Path) -> Evidence:
    return claims.run("coin", out=tmp_path / "run")


def test_committed_evidence_is_fresh_until_something_it_depends_on_changes(
    coin: Coin, evidence: Evidence, tmp_path: Path
) -> None:
    now = coin.digests()
    store.commit(evidence, default_model="m", now=now, folder=tmp_path)
    kept = store.read("coin", tmp_path)
    assert kept == evidence
    assert store.freshness(kept, now).state == "fresh"
    assert store.freshness(kept, {**now, "rtn": "0"}) == store.Freshness(state="stale", changed=("rtn",))
    assert store.freshness(kept, {**now, "gptq": "0"}).changed == ("gptq",)
    assert store.freshness(None, now).state == "none"
    assert store.read("other", tmp_path) is None


def test_words_make_nothing_stale_and_margins_do(coin: Coin) -> None:
    reworded = _coin(sentence="Lower is new.", criteria=(_criterion(where={"seed": 0}, name="d", text="u"),))
    assert reworded.digests() == coin.digests()
    assert _coin(criteria=(_criterion(where={"seed": 0}, margin=0.1),)).digests() != coin.digests()


def test_only_fresh_evidence_of_the_claim_itself_is_committed(coin: Coin, evidence: Evidence, tmp_path: Path) -> None:
    small = evidence.model_copy(update={"scale": "demo", "model": "mine"})
    with pytest.raises(BadInput) as caught:
        store.commit(small, default_model="m", now=coin.digests(), folder=tmp_path)
    assert "scale: demo" in caught.value.problem
    assert "model: mine" in caught.value.problem
    with pytest.raises(Mismatch, match="declaration"):
        store.commit(evidence, default_model="m", now={**coin.digests(), "declaration": "0"}, folder=tmp_path)
    assert not (tmp_path / "coin.json").exists()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"claim": "coin"}', "\udcff"])
def test_damaged_evidence_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "coin.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(BadInput, match=r"coin\.json"):
        store.read("coin", tmp_path)


def test_the_table_of_claims_tells_fresh_from_stale_and_from_none(
    coin: Coin, evidence: Evidence, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "read", lambda name: store.read(name, tmp_path))
    (row,) = claims.evidence_rows()
    assert (row.verdict, row.freshness.state, row.ours) == ("not run", "none", "")
    assert row.paper == "Table 1: old 2, new 1"
    store.write(evidence, tmp_path / "coin.json")
    (row,) = claims.evidence_rows()
    assert (row.verdict, row.freshness.state, row.ours) == ("holds", "fresh", "1 of 1 criteria hold")
    store.write(evidence.model_copy(update={"digests": {}}), tmp_path / "coin.json")
    (row,) = claims.evidence_rows()
    assert row.freshness.state == "stale"


# -- quantization claims, with methods that only pretend ---------------------------------------------------------

CALLS: list[str] = []
BREAK: list[str] = []


class FakeModel:
    """A model that knows how bad it is."""

    lineage = SimpleNamespace(lines=lambda: ["fake", "weights were dequantized from Q4_1"])

    def __init__(self, loss: float = 0.0, name: str = "base") -> None:
        self.loss, self.name = loss, name


class FakeRTN(Method):
    """Needs text only for one of its grids."""

    bits: int = 4
    group: int = 128
    sym: bool = False
    layers: tuple[str, ...] = ()
    qparam: str = "minmax"
    samples: int = 128
    length: int = 2048
    calib_seed: int = 0
    worst: ClassVar[float] = 3.0

    @property
    def reads_calibration(self) -> bool:
        """As the real one."""
        return self.qparam == "hessian"

    def __call__(self, model: Model, calib: Dataset | None = None, run: Run | None = None) -> Model:  # type: ignore[name-defined] # noqa: F821
        """Loses by bits."""
        assert (calib is not None) == self.reads_calibration
        assert run is not None
        CALLS.append(run.folder.name.rpartition("-")[0])
        run.event("link", step="s", key="b", seconds=2.0)
        return FakeModel(self.worst / self.bits, f"{type(self).__name__} {self.settings()}")


class FakeGPTQ(FakeRTN):
    """Needs text."""

    act_order: bool = True
    worst: ClassVar[float] = 2.0

    def __call__(self, model: Model, calib: Dataset, run: Run | None = None) -> Model:  # type: ignore[name-defined,override] # noqa: F821
        """Loses by bits, less."""
        assert calib.startswith("text of ")
        (run.folder / "layers.json").write_text(json.dumps([{"block": 0, "error": 0.1}, {"block": 1}]))  # type: ignore[union-attr]
        return super().__call__(model, calib, run)


class FakeBoA(FakeGPTQ):
    """Needs text."""

    block_v: bool = True
    act_order: bool = False
    act_order_col: bool = False
    act_order_row: bool = False
    worst: ClassVar[float] = 1.0


class FakeDivergence(Method):
    """Rows for as many windows as asked."""

    samples: int = 1
    length: int = 1

    def __call__(self, model: Model, text: Dataset, against: Model, run: Run) -> Scores:  # type: ignore[name-defined] # noqa: F821
        """The model's loss, and a little noise of the window."""
        if BREAK and BREAK[0] in model.name:
            raise KeyboardInterrupt
        noise = np.random.default_rng(len(text)).normal(0, 0.01, self.samples)
        rows = [
            {"item_id": f"{i}", "model": "x", "tokens": self.length - 1, "nll": 3 + model.loss + e, "base_nll": 3.0 + e}
            for i, e in enumerate(noise.tolist())
        ]
        kl = {"top1": 0.5}
        return SimpleNamespace(rows=lambda: [{**row, "kl": row["nll"] - 3, **kl} for row in rows])


FAKES = {"rtn": FakeRTN, "gptq": FakeGPTQ, "boa": FakeBoA, "divergence": FakeDivergence}


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Fake methods, models and texts; the dict holds the module whose digest stands for each method's."""
    targets = dict.fromkeys(FAKES, "burnish.core.errors:X")
    monkeypatch.setattr(catalogue, "load", FAKES.__getitem__)
    monkeypatch.setattr(catalogue, "find", lambda name: SimpleNamespace(target=targets[name]))
    monkeypatch.setattr(quantization, "read_text", lambda source, documents: f"text of {source}")
    monkeypatch.setattr(quantization, "describe", lambda text: f"{text}, exactly")
    monkeypatch.setattr(quantization, "load_model", lambda source, device, dtype: FakeModel())
    monkeypatch.setattr(quantization, "hash_of", lambda model: f"hash of {model.name}")
    monkeypatch.setattr(quantization, "check_format", lambda method: None)
    monkeypatch.setattr(quantization, "write_model", lambda model, folder: _write_fake(model, folder))
    monkeypatch.setattr(quantization, "sizes", lambda base, folder: {"file": (folder / "w").stat().st_size})
    CALLS.clear()
    BREAK.clear()
    return targets


def _write_fake(model: FakeModel, folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "w").write_text(model.name)


def _small(**changes: Any) -> QuantizationClaim:
    design = FULL.model_copy(update={"calib": (2, 8), "test": (12, 8), **changes})
    return CLAIM.model_copy(update={"designs": {**CLAIM.designs, "full": design}})


def test_every_arm_is_in_every_cell_on_which_it_depends(fakes: dict[str, str]) -> None:
    jobs = CLAIM.jobs(FULL)
    count = {name: sum(job.arm.name == name for job in jobs) for name in FULL.arms}
    # Two widths of both targets on WikiText-2 and of the whole model on the built-in text; two seeds where text is read.
    assert count == {"rtn-minmax": 6, "rtn": 12, "gptq": 12, "boa": 12}
    assert len({job.name for job in jobs}) == len(jobs)
    last = jobs[-1]
    assert last.arm.name == "boa"
    assert last.cell == {"target": "whole", "bits": 2, "data": "builtin", "seed": 1}
    assert last.method.settings() == {
        "bits": 2,
        "group": -1,
        "sym": False,
        "layers": [],
        "qparam": "hessian",
        "act_order": False,
        "samples": FULL.calib[0],
        "length": FULL.calib[1],
        "calib_seed": 1,
        "block_v": True,
        "act_order_col": True,
        "act_order_row": True,
    }
    assert next(job for job in jobs if job.cell["target"] == "qkv").method.settings()["layers"] == ["q", "k", "v"]


def test_the_full_claim_runs_and_every_criterion_finds_its_rows(fakes: dict[str, str], tmp_path: Path) -> None:
    claim = _small()
    with Run(tmp_path / "r") as run:
        measured = claim.measure("m", run, "full")
    evidence = claim.collect(measured, model="m", scale="full", minutes=1.0, digests={})
    assert evidence.verdict == "holds"
    assert len(evidence.findings) == len(claim.criteria) == 48
    assert len(evidence.arms) == 42 + 2  # and the unquantized model on each text
    labels = {result.label for result in evidence.arms}
    assert {"boa, 3 bits, whole model, wikitext2, seed 0", "rtn-minmax, 2 bits, q, k, v only, wikitext2"} <= labels
    bare = next(result for result in evidence.arms if result.label == "unquantized, builtin")
    assert list(bare.measures) == ["perplexity"]
    assert bare.weights == "hash of base"
    assert evidence.lineage == ["fake", "weights were dequantized from Q4_1"]
    assert evidence.data["wikitext2:test"] == "text of wikitext2:test, exactly"
    layers = json.loads((tmp_path / "r" / "layers.json").read_text())
    assert len(layers) == 24  # one row with an error for each arm that records errors
    assert {row["arm"] for row in layers} < labels
    assert claim.ours(evidence).startswith("3 bits, whole model, wikitext2, seed 0: perplexity unquantized ")
    assert claim.ours(evidence).endswith("; 48 of 48 criteria hold")


def test_finished_arms_are_kept_and_the_result_is_that_of_an_uninterrupted_run(
    fakes: dict[str, str], tmp_path: Path
) -> None:
    claim = _small(bits=(2,), targets=("qkv",))
    with Run(tmp_path / "whole") as run:
        whole = claim.measure("m", run, "full")
    CALLS.clear()
    BREAK.append("'calib_seed': 1")
    with pytest.raises(KeyboardInterrupt), Run(tmp_path / "r") as run:
        claim.measure("m", run, "full")
    before = list(CALLS)
    BREAK.clear()
    CALLS.clear()
    with Run(tmp_path / "r") as run:
        resumed = claim.measure("m", run, "full")
    assert before[:-1] == [name for name in before if name not in CALLS]
    assert CALLS[0] == before[-1]  # the one that was stopped, and what follows
    assert resumed.rows == whole.rows
    # What the stopped attempt had spent on finished blocks is counted.
    stopped = next(part for part in resumed.parts if part.cell.get("seed") == 1)
    assert stopped.seconds >= 2.0


def test_results_of_other_code_weights_or_text_are_not_taken_up(
    fakes: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = _small(texts=(Text(name="t", calib="c", test="d"),), bits=(2,), targets=("qkv",), seeds=(0,))

    def again() -> list[str]:
        CALLS.clear()
        with Run(tmp_path / "r") as run:
            claim.measure("m", run, "full")
        return [name.partition("-")[0] for name in CALLS]

    assert again() == ["rtn", "rtn", "gptq", "boa"]
    assert again() == []
    fakes["gptq"] = "burnish.core.files:x"
    assert again() == ["gptq"]
    monkeypatch.setattr(quantization, "describe", lambda text: "other")
    assert again() == ["rtn", "rtn", "gptq", "boa"]
    monkeypatch.setattr(quantization, "hash_of", lambda model: "other")
    assert again() == ["rtn", "rtn", "gptq", "boa"]


def test_the_demo_keeps_its_model_and_its_sizes(fakes: dict[str, str], tmp_path: Path) -> None:
    with Run(tmp_path / "r") as run:
        measured = CLAIM.measure("m", run, "demo")
    assert "FakeBoA" in (tmp_path / "r" / "artifact" / "w").read_text()
    assert json.loads((tmp_path / "r" / "sizes.json").read_text())["file"] > 0
    evidence = CLAIM.collect(measured, model="m", scale="demo", minutes=1.0, digests={})
    CALLS.clear()
    shutil.rmtree(tmp_path / "r" / "artifact")
    with Run(tmp_path / "r") as run:
        assert CLAIM.measure("m", run, "demo").rows == measured.rows
    assert CALLS == ["boa-whole-3bits-builtin-seed0"]
    assert (tmp_path / "r" / "artifact" / "w").is_file()
    assert [finding.criterion.split()[0] for finding in evidence.findings] == ["kl", "kl", "nll", "nll"]
    assert evidence.verdict == "holds"
    assert evidence.command == "burnish claim boa --model m --scale demo"
    assert CLAIM.ours(evidence) == "4 of 4 criteria hold"  # the cell that stands for all is not in the demo


def test_sizes_count_weights_alone(tmp_path: Path) -> None:
    names = (
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "burnish-reload.safetensors",
        "x.json",
    )
    for name in names:
        (tmp_path / name).write_bytes(b"12345")
    base = SimpleNamespace(net=SimpleNamespace(parameters=lambda: [SimpleNamespace(numel=lambda: 10)]))
    assert quantization.sizes(base, tmp_path) == {  # type: ignore[arg-type]
        "float32 checkpoint": 40,
        "float16 checkpoint": 20,
        "artifact (compressed-tensors)": 10,
    }


def test_settings_that_a_method_lacks_are_all_named_before_anything_is_loaded(
    fakes: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arms = (Arm(name="rtn", use="rtn", settings={"colour": 1}), Arm(name="gptq", use="gptq", settings={"group": "x"}))
    claim = CLAIM.model_copy(update={"arms": arms})
    monkeypatch.setattr(quantization, "load_model", lambda *a: pytest.fail("loaded"))
    with pytest.raises(BadInput) as caught, Run(tmp_path / "r") as run:
        claim.measure("m", run, "full")
    assert caught.value.problem.count("rtn: colour") == 1
    assert "gptq: group" in caught.value.problem


def test_an_artifact_is_of_one_cell() -> None:
    with pytest.raises(ValueError, match="one cell"):
        Design.model_validate({**FULL.model_dump(), "keep": "boa"})


def test_the_claim_asks_what_it_says_in_every_cell() -> None:
    cells = {(c.where["data"], c.where["target"], c.where["bits"], c.where["seed"]) for c in CLAIM.criteria}
    assert len(cells) == 12
    assert {(data, target) for data, target, _, _ in cells} == {
        ("wikitext2", "qkv"),
        ("wikitext2", "whole"),
        ("builtin", "whole"),
    }
    assert len(CLAIM.criteria) == 4 * len(cells) == len({criterion.name for criterion in CLAIM.criteria})
    margins = {(c.statistic, c.where["target"]): c.margin for c in CLAIM.criteria}
    assert margins == {
        ("difference", "qkv"): 0.0,
        ("difference", "whole"): 0.0,
        ("ratio", "qkv"): 0.75,
        ("ratio", "whole"): 0.95,
        ("excess_ratio", "qkv"): 0.9,
        ("excess_ratio", "whole"): 0.9,
    }
    assert {design.calib[1] for design in (FULL, DEMO)} == {design.test[1] for design in (FULL, DEMO)} == {512}
    assert {criterion.where["bits"] for criterion in CLAIM.asked("demo")} == {3}
    assert {criterion.where["target"] for criterion in CLAIM.asked("smoke")} == set(SMOKE.targets)
    assert all(criterion.side == "below" for scale in ("smoke", "demo", "full") for criterion in CLAIM.asked(scale))  # type: ignore[arg-type]


def test_declaration_covers_the_design() -> None:
    assert _small().declaration() != CLAIM.declaration()
