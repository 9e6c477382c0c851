"""Two models compared: paired, unpaired, and from confusion tables, against quadrature, closed forms and draws."""

from __future__ import annotations

import csv
import itertools
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from paired_quadrature import reference
from scipy import optimize, special, stats
from test_small_samples import data

from burnish.core.errors import BadInput, UnknownName
from burnish.stats import binormal, confusion_interval, mcnemar, paired_binary, unpaired_binary
from burnish.stats.clustered import posterior
from burnish.stats.proportion import proportion
from burnish.stats.unpaired import unpaired_clustered

fixed = settings(derandomize=True, deadline=None, max_examples=25)
TABLES = st.tuples(*[st.integers(0, 30)] * 4).filter(any)
HARD = [
    (2, 1, 0, 0),
    (5, 3, 1, 1),
    (20, 0, 0, 0),
    (0, 10, 0, 0),
    (15, 8, 4, 3),
    (60, 25, 10, 5),
    (200, 60, 30, 10),
    (700, 100, 90, 110),
    (990, 0, 10, 0),
    (500, 0, 0, 500),
    (2000, 400, 350, 250),
    (15000, 2000, 1000, 2000),
    (19999, 1, 0, 0),
]


@pytest.mark.parametrize("table", HARD)
def test_paired_posterior_equals_quadrature(table: tuple[int, int, int, int]) -> None:
    low, high, better = reference(table)
    found = paired_binary(*table)
    # Half the width of a narrow posterior would pass a bar of 0.003 whatever it is, so the width counts as well.
    bar = min(0.003, 0.01 * (high - low))
    assert (found.interval.low, found.interval.high) == pytest.approx((low, high), abs=bar)
    assert found.p_better == pytest.approx(better, abs=0.003)


def test_paired_posterior_equals_the_reference_on_all_published_pairs() -> None:
    pairs = json.loads(data("reference_values.json").read_text())["langchain"]["pairs"]
    assert len(pairs) == 36
    for expected in pairs.values():
        found = paired_binary(*expected["table_STUV"])
        # The reference says of itself that it is good to about 5e-4; quadrature on a finer grid says 1e-3.
        assert (found.interval.low, found.interval.high) == pytest.approx((expected["lo"], expected["hi"]), abs=1.1e-3)
        assert (found.p_better, found.mean) == pytest.approx((expected["P"], expected["mean"]), abs=5e-4)


def test_published_answers_give_the_published_tables() -> None:
    pairs = json.loads(data("reference_values.json").read_text())["langchain"]["pairs"]
    with data("langchain_data_tool_use_FULL.csv").open() as file:
        rows = list(csv.DictReader(file))
    models = list(rows[0])[2:]
    for a, b in itertools.combinations(models, 2):
        x, y = (np.array([float(row[m]) for row in rows]) for m in (a, b))
        table = [x @ y, x @ (1 - y), (1 - x) @ y, (1 - x) @ (1 - y)]
        assert pairs[f"{a} | {b}"]["table_STUV"] == table


@fixed
@given(table=TABLES, method=st.sampled_from(["probit", "tango", "wald", "bootstrap"]))
def test_swapping_the_models_mirrors_exactly(table: tuple[int, int, int, int], method: str) -> None:
    both, only_a, only_b, neither = table
    one, other = paired_binary(*table, method), paired_binary(both, only_b, only_a, neither, method)
    assert one.interval.low == -other.interval.high
    assert one.interval.high == -other.interval.low
    assert one.p_better == pytest.approx(1 - other.p_better, abs=1e-15)
    assert one == paired_binary(*table, method)
    assert -1 <= one.interval.low <= one.interval.high <= 1


@fixed
@given(table=TABLES)
def test_right_and_wrong_mirror_too(table: tuple[int, int, int, int]) -> None:
    both, only_a, only_b, neither = table
    one, other = paired_binary(*table), paired_binary(neither, only_a, only_b, both)
    assert (one.interval.low, one.interval.high) == pytest.approx((other.interval.low, other.interval.high), abs=2e-4)


def test_equal_answers_are_not_certainty() -> None:
    for table in [(20, 0, 0, 0), (0, 10, 0, 0), (3, 0, 0, 0), (0, 0, 0, 1), (500, 0, 0, 500)]:
        for method in ("probit", "tango"):
            found = paired_binary(*table, method).interval
            assert found.high - found.low > 0.003
    assert "not certainty" in paired_binary(20, 0, 0, 0, "wald").interval.note


def test_level_and_width() -> None:
    widths = [paired_binary(20, 8, 5, 7, level=level).interval for level in (0.5, 0.8, 0.95, 0.999)]
    assert all(a.low > b.low and a.high < b.high for a, b in itertools.pairwise(widths))


@pytest.mark.parametrize(("t", "u", "n"), [(12, 2, 50), (0, 5, 20), (9, 9, 40), (3, 0, 10), (150, 120, 2000)])
def test_tango_is_the_score_interval(t: int, u: int, n: int) -> None:
    found = paired_binary(n - t - u, t, u, 0, "tango").interval
    for bound in (found.low, found.high):
        # The likelihood is maximized under the constraint by another route, and the score formed from its cells.
        def loss(cell: float, delta: float = bound) -> float:
            q = (cell + delta, cell, 1 - 2 * cell - delta)
            return -float(sum(special.xlogy(k, max(p, 1e-300)) for k, p in zip((t, u, n - t - u), q, strict=True)))

        cell = optimize.minimize_scalar(
            loss, bounds=(max(0, -bound), (1 - bound) / 2), method="bounded", options={"xatol": 1e-12}
        ).x
        z = (t - u - n * bound) / np.sqrt(n * (2 * cell + bound * (1 - bound)))
        assert abs(z) == pytest.approx(1.959964, abs=2e-3)


def test_tango_reproduces_a_published_interval() -> None:
    # Airway responsiveness of 21 children before and after a transplantation (Bentur et al. 2009; Fagerland, Lydersen and
    # Laake 2014, Stat. Med. 33:2850): table 1, 1, 7, 12, difference -0.286.
    found = paired_binary(1, 1, 7, 12, "tango").interval
    assert (found.low, found.high) == pytest.approx((-0.517, -0.026), abs=1e-3)


def test_mcnemar_is_the_binomial_test() -> None:
    for t, u in itertools.product(range(8), repeat=2):
        if t + u:
            assert mcnemar(t, u, mid=False) == pytest.approx(stats.binomtest(t, t + u).pvalue)
    assert mcnemar(0, 0) == 1
    # Fagerland, Lydersen and Laake 2013, the same children: exact 0.0703, mid-p 0.0391.
    assert mcnemar(1, 7, mid=False) == pytest.approx(0.0703, abs=1e-4)
    assert mcnemar(1, 7) == pytest.approx(0.0391, abs=1e-4)
    assert mcnemar(4, 4) == pytest.approx(1 - stats.binom.pmf(4, 8, 0.5))


def test_mid_p_holds_its_level() -> None:
    for n in (5, 20, 60):
        t = np.arange(n + 1)
        reject = np.array([mcnemar(int(k), int(n - k)) <= 0.05 for k in t])
        assert stats.binom.pmf(t, n, 0.5) @ reject <= (0.0625 if n == 5 else 0.055)


def test_bad_tables_are_refused_all_at_once() -> None:
    with pytest.raises(BadInput, match=r"(?s)level.*seed.*only_a.*neither"):
        paired_binary(1, -1, 2, 0.5, level=0, seed=-1)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="empty"):
        paired_binary(0, 0, 0, 0)
    with pytest.raises(UnknownName, match="probit"):
        paired_binary(1, 1, 1, 1, "probitt")
    with pytest.raises(BadInput):
        mcnemar(-1, 2)


def test_bivariate_normal_in_closed_form() -> None:
    rho = np.linspace(-0.999, 0.999, 21)
    assert np.allclose(binormal.cdf(0, 0, rho), 0.25 + np.arcsin(rho) / (2 * np.pi), atol=1e-13)
    a = np.linspace(-3, 3, 13)
    assert np.allclose(binormal.cdf(a, a[:, None], 0), special.ndtr(a) * special.ndtr(a)[:, None], atol=1e-15)
    assert np.allclose(binormal.cdf(a, 0.3, 1), special.ndtr(np.minimum(a, 0.3)), atol=1e-10)


def test_cells_sum_to_one_and_small_ones_keep_their_digits() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 40)) * 2
    fisher = np.linspace(-3, 8, 90)
    cells = binormal.cells_over(a, b, fisher)
    assert np.allclose(sum(cells), 1, atol=1e-14)
    assert min(cell.min() for cell in cells) >= 0
    assert np.allclose(cells.neither[:, :60], binormal.cdf(-a[:, None], -b[:, None], np.tanh(fisher[:60])), atol=1e-6)
    # Equal thresholds, correlation near 1: the models differ on about sqrt(2 (1 - rho)) phi(a) / sqrt(2 pi).
    alone = binormal.cells_over(np.zeros(1), np.zeros(1), np.linspace(0, 14, 200)).only_a[0, -1]
    exact = np.arccos(np.tanh(14)) / (2 * np.pi) if np.tanh(14) < 1 else 0
    assert alone == pytest.approx(np.arctan2(1 / np.cosh(14), np.tanh(14)) / (2 * np.pi), rel=1e-6)
    assert exact == pytest.approx(alone, rel=1e-2)


UNPAIRED = [(3, 5, 1, 5), (0, 5, 5, 5), (5, 5, 5, 5), (0, 1, 0, 1), (56, 60, 45, 60), (900, 1000, 17, 20)]


@pytest.mark.parametrize("counts", UNPAIRED)
def test_unpaired_equals_many_draws(counts: tuple[int, int, int, int]) -> None:
    k_a, n_a, k_b, n_b = counts
    rng = np.random.default_rng(0)
    a, b = (rng.beta(1 + k, 1 + n - k, 400_000) for k, n in ((k_a, n_a), (k_b, n_b)))
    found = unpaired_binary(*counts)
    assert (found.interval.low, found.interval.high) == pytest.approx(np.quantile(a - b, [0.025, 0.975]), abs=4e-3)
    odds = unpaired_binary(*counts, measure="odds-ratio")
    expected = np.quantile(special.logit(a) - special.logit(b), [0.025, 0.5, 0.975])
    got = np.log([odds.interval.low, odds.interval.estimate, odds.interval.high])
    assert got == pytest.approx(expected, abs=0.04)


@fixed
@given(st.tuples(*[st.integers(0, 25)] * 4))
def test_probability_of_being_better_equals_its_closed_form(counts: tuple[int, int, int, int]) -> None:
    k_a, wrong_a, k_b, wrong_b = counts
    n_a, n_b = k_a + wrong_a + 1, k_b + wrong_b + 1
    i = np.arange(k_a + 1)
    log = special.betaln(1 + k_b + i, 2 + n_b - k_b + n_a - k_a) - np.log(1 + n_a - k_a + i)
    log -= special.betaln(1 + i, 1 + n_a - k_a) + special.betaln(1 + k_b, 1 + n_b - k_b)
    found = unpaired_binary(k_a, n_a, k_b, n_b)
    assert found.p_better == pytest.approx(float(np.exp(log).sum()), abs=1e-8)
    mirrored = unpaired_binary(k_b, n_b, k_a, n_a)
    assert found.interval.low == pytest.approx(-mirrored.interval.high, abs=1e-7)
    odds, turned = (
        unpaired_binary(*c, measure="odds-ratio").interval for c in ((k_a, n_a, k_b, n_b), (k_b, n_b, k_a, n_a))
    )
    assert odds.low * turned.high == pytest.approx(1, rel=1e-5)


def test_unpaired_baselines() -> None:
    # Newcombe 1998, Stat. Med. 17:873, table II: 56/70 against 48/80 by his method 10.
    found = unpaired_binary(56, 70, 48, 80, method="newcombe").interval
    assert (found.low, found.high) == pytest.approx((0.0524, 0.3339), abs=1e-4)
    fisher = unpaired_binary(7, 10, 3, 12, "odds-ratio", method="fisher").interval
    expected = stats.contingency.odds_ratio([[7, 3], [3, 9]]).confidence_interval()
    assert (fisher.low, fisher.high) == pytest.approx((expected.low, expected.high))
    assert "not certainty" in unpaired_binary(3, 3, 3, 3, method="wald").interval.note
    with pytest.raises(UnknownName):
        unpaired_binary(1, 2, 1, 2, method="fisher")
    with pytest.raises(UnknownName):
        unpaired_binary(1, 2, 1, 2, "ratio")
    with pytest.raises(BadInput, match=r"(?s)3 of only 2.*n_b"):
        unpaired_binary(3, 2, 0, 0)
    with pytest.raises(BadInput, match="undefined"):
        unpaired_binary(2, 2, 2, 2, "odds-ratio", method="fisher")


def test_unpaired_clusters_equal_draws_from_both_posteriors() -> None:
    k_a, n_a, k_b, n_b = [4, 3, 0, 4], [4] * 4, [1, 2, 0], [4, 4, 2]
    rng = np.random.default_rng(0)
    drawn = []
    for k, n in ((k_a, n_a), (k_b, n_b)):
        lattice = posterior(k, n).lattice
        axis, mass = lattice.axes[0], lattice.marginal(0)
        step = axis[1] - axis[0]
        drawn.append(special.expit(rng.choice(axis, 300_000, p=mass) + rng.uniform(-step / 2, step / 2, 300_000)))
    found = unpaired_clustered(k_a, n_a, k_b, n_b)
    expected = np.quantile(drawn[0] - drawn[1], [0.025, 0.975])
    assert (found.interval.low, found.interval.high) == pytest.approx(expected, abs=6e-3)
    assert found.p_better == pytest.approx(np.mean(drawn[0] > drawn[1]), abs=3e-3)


SHARES: dict[str, Any] = {
    "f1": lambda tp, fp, fn, tn: 2 * tp / (2 * tp + fp + fn),
    "jaccard": lambda tp, fp, fn, tn: tp / (tp + fp + fn),
    "precision": lambda tp, fp, fn, tn: tp / (tp + fp),
    "recall": lambda tp, fp, fn, tn: tp / (tp + fn),
    "specificity": lambda tp, fp, fn, tn: tn / (tn + fp),
    "accuracy": lambda tp, fp, fn, tn: tp + tn,
}


@pytest.mark.parametrize("table", [(10, 2, 3, 5), (0, 1, 2, 7), (4, 0, 0, 0)])
@pytest.mark.parametrize("metric", SHARES)
def test_closed_forms_equal_dirichlet_draws(metric: str, table: tuple[int, int, int, int]) -> None:
    drawn = np.random.default_rng(0).dirichlet(np.array(table) + 1.0, 300_000).T
    expected = np.quantile(SHARES[metric](*drawn), [0.025, 0.975])
    found = confusion_interval(*table, metric, method="dirichlet")
    assert (found.low, found.high) == pytest.approx(expected, abs=3e-3)


def test_auto_takes_the_items_that_a_share_is_of() -> None:
    found = confusion_interval(8, 1, 1, 40, "precision")
    assert (found.low, found.high) == pytest.approx((proportion(8, 9).low, proportion(8, 9).high))
    f1 = confusion_interval(8, 1, 1, 40)
    x = proportion(8, 10)
    assert (f1.low, f1.high) == pytest.approx((2 * x.low / (1 + x.low), 2 * x.high / (1 + x.high)))
    assert f1.estimate == pytest.approx(16 / 18)
    nothing = confusion_interval(0, 0, 0, 9, "recall")
    assert (nothing.low, nothing.high) == pytest.approx((0.025, 0.975))
    assert "those of the prior" in nothing.note


@pytest.mark.parametrize("metric", ["mcc", "balanced-accuracy", "macro-f1"])
def test_drawn_metrics(metric: str) -> None:
    found = confusion_interval(40, 7, 5, 60, metric)
    assert found == confusion_interval(40, 7, 5, 60, metric)
    assert found.low < found.estimate < found.high
    assert "0/0" in confusion_interval(0, 0, 0, 5, metric).note
    narrow = confusion_interval(4000, 700, 500, 6000, metric)
    assert (narrow.high - narrow.low) * 8 < found.high - found.low


def test_drawn_estimates_are_those_of_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    truth = [1] * 45 + [0] * 67
    said = [1] * 40 + [0] * 5 + [1] * 7 + [0] * 60
    for name, value in (
        ("mcc", metrics.matthews_corrcoef(truth, said)),
        ("balanced-accuracy", metrics.balanced_accuracy_score(truth, said)),
        ("macro-f1", metrics.f1_score(truth, said, average="macro")),
    ):
        assert confusion_interval(40, 7, 5, 60, name).estimate == pytest.approx(value)


def test_bad_confusion_tables_are_refused() -> None:
    with pytest.raises(BadInput, match=r"(?s)tp.*tn"):
        confusion_interval(-1, 0, 0, -2)
    with pytest.raises(BadInput, match="empty"):
        confusion_interval(0, 0, 0, 0)
    with pytest.raises(UnknownName, match="f1"):
        confusion_interval(1, 1, 1, 1, "f2")
    with pytest.raises(UnknownName):
        confusion_interval(1, 1, 1, 1, "mcc", method="wilson")
