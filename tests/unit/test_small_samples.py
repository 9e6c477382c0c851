"""Intervals of one proportion, clustered or not, against exact tables, quadrature and other implementations."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from burnish.core.errors import BadInput, UnknownName
from burnish.stats import exact_coverage
from burnish.stats.clustered import clustered as clustered_interval
from burnish.stats.clustered import design_effect, posterior, standard_error
from burnish.stats.lattice import Density, fill
from burnish.stats.proportion import bounds, methods, proportion

fixed = settings(derandomize=True, deadline=None, max_examples=40)
NAMES = {
    "CLT": "wald",
    "t": "student-t",
    "Wilson": "wilson",
    "ClopperPearson": "clopper-pearson",
    "Bayes11": "beta",
    "Jeffreys": "jeffreys",
}
COUNTS = st.integers(1, 60).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


def data(name: str) -> Path:
    root = os.environ.get("BURNISH_DATA")
    if not root or not (path := Path(root, "small_sample_stats", name)).exists():
        pytest.skip("BURNISH_DATA has no small_sample_stats: the published data are not at hand")
    return path


def aime() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    with data("matharena_aime_II.csv").open() as file:
        names, *rows = csv.reader(file)
    scores = np.array([[int(float(v)) for v in row[1:]] for row in rows])
    question = [row[0].split(".")[0] for row in rows]
    labels = sorted(set(question), key=int)
    right = np.array([scores[[q == label for q in question]].sum(0) for label in labels])
    sizes = np.array([question.count(label) for label in labels])
    return {name: (right[:, i], sizes) for i, name in enumerate(names[1:])}


def test_exact_coverage_equals_the_published_table() -> None:
    with data("exact_coverage_iid.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 252
    for row in rows:
        n, level, method = int(row["n"]), 1 - float(row["alpha"]), NAMES[row["method"]]
        theta = float(row["theta"]) if row["theta"] else None
        assert exact_coverage(method, n, level, theta=theta) == pytest.approx(float(row["coverage"]), abs=1e-4), row
        if row["mean_width"]:
            k = np.arange(n + 1)
            chance = np.full(n + 1, 1 / (n + 1)) if theta is None else stats.binom.pmf(k, n, theta)
            low, high = bounds(k, n, method, level)
            assert chance @ (high - low) == pytest.approx(float(row["mean_width"]), abs=1e-4), row


@pytest.mark.parametrize(
    ("method", "n", "theta", "coverage"),
    [
        ("wald", 3, None, 0.49574),
        ("student-t", 3, None, 0.5),
        ("student-t", 10, None, 0.79399),
        ("wilson", 10, None, 0.95408),
        ("clopper-pearson", 100, None, 0.96457),
        ("beta", 3, None, 0.95),
        ("jeffreys", 3, None, 0.96259),
        ("wald", 10, 0.95, 0.40023),
        ("wilson", 30, 0.95, 0.93923),
    ],
)
def test_exact_coverage_of_the_figures_in_the_documentation(method, n, theta, coverage) -> None:
    assert exact_coverage(method, n, theta=theta) == pytest.approx(coverage, abs=1e-5)


@fixed
@given(counts=COUNTS, level=st.sampled_from([0.8, 0.95, 0.995]))
def test_bounds_agree_with_scipy(counts: tuple[int, int], level: float) -> None:
    k, n = counts
    for method, theirs in (("wilson", "wilson"), ("clopper-pearson", "exact")):
        expected = stats.binomtest(k, n).proportion_ci(level, method=theirs)
        ours = proportion(k, n, method, level)
        assert (ours.low, ours.high) == pytest.approx((expected.low, expected.high), abs=1e-9)
    ours = proportion(k, n, level=level)
    assert (ours.low, ours.high) == pytest.approx(stats.beta.interval(level, k + 1, n - k + 1), abs=1e-9)


@fixed
@given(counts=COUNTS, method=st.sampled_from(methods()))
def test_right_and_wrong_are_mirror_images(counts: tuple[int, int], method: str) -> None:
    k, n = counts
    n = max(n, 2)
    one, other = proportion(k, n, method), proportion(n - k, n, method)
    slack = 1 / n + 1e-9 if method == "bootstrap" else 1e-9
    assert (one.low, one.high) == pytest.approx((1 - other.high, 1 - other.low), abs=slack)
    assert 0 <= one.low <= one.high <= 1
    assert one.estimate == k / n


def test_zero_of_many_is_not_certainty() -> None:
    assert proportion(0, 5000, "wilson").high == pytest.approx(0.000768, abs=1e-6)
    found = proportion(0, 5000)
    assert (found.low, found.high) == pytest.approx((0.000005, 0.000737), abs=1e-6)
    assert "not certainty" in proportion(0, 5000, "wald").note
    assert proportion(19, 20, "student-t").high == 1
    assert "beyond the scale" in proportion(19, 20, "student-t").note


def test_bootstrap_bounds_are_what_many_draws_give() -> None:
    drawn = np.random.default_rng(0).binomial(30, 0.8, 200_000) / 30
    found = proportion(24, 30, "bootstrap")
    assert (found.low, found.high) == pytest.approx(np.quantile(drawn, [0.025, 0.975]), abs=1e-9)


def test_bad_counts_are_refused_all_at_once() -> None:
    with pytest.raises(BadInput, match=r"(?s)level.*successes.*n:"):
        proportion(-1, 0, level=1.5)
    with pytest.raises(BadInput, match="7 of only 5"):
        proportion(7, 5)
    with pytest.raises(BadInput, match="student-t needs"):
        proportion(1, 1, "student-t")
    with pytest.raises(UnknownName, match="wilsn"):
        proportion(1, 2, "wilsn")
    with pytest.raises(BadInput, match=r"(?s)theta.*prior"):
        exact_coverage("beta", 5, theta=2.0, prior=(0, 1))


def test_published_models_have_their_reference_intervals() -> None:
    reference = json.loads(data("reference_values.json").read_text())["langchain"]
    for name, k in reference["k"].items():
        for method, key in (("beta", "bayes95"), ("wilson", "wilson95")):
            found = proportion(k, reference["n"], method)
            assert (found.low, found.high) == pytest.approx(reference[key][name], abs=2e-6)


def test_clustered_posterior_equals_the_reference_on_all_aime_models() -> None:
    reference = json.loads(data("reference_values.json").read_text())["aime"]
    models = aime()
    assert len(models) == 19
    for name, (k, n) in models.items():
        expected: dict[str, Any] = reference[name]
        found, known = clustered_interval(k, n), posterior(k, n)
        assert found.estimate == pytest.approx(expected["k"] / expected["n"])
        assert (found.low, found.high) == pytest.approx(
            (expected["clustered"]["lo"], expected["clustered"]["hi"]), abs=5e-4
        ), name
        assert (known.mean, known.mean_d) == pytest.approx(
            (expected["clustered"]["mean"], expected["clustered"]["d_mean"]), abs=5e-4
        )
        assert standard_error(k, n) == pytest.approx(expected["cluster_se_miller"], abs=1e-5)
        assert standard_error(k, n, finite=True) == pytest.approx(expected["cluster_se_inspect"], abs=1e-5)


def brute(k: np.ndarray, n: np.ndarray, level: float = 0.95) -> tuple[float, float]:
    """The clustered posterior by Gauss-Legendre in theta and in u = 1 - exp(-d)."""
    x, wx = np.polynomial.legendre.leggauss(600)
    theta, u = (x + 1) / 2, (x[::3] + 1) / 2
    wu = np.gradient(u)
    d = -np.log1p(-u)
    a, b = theta[:, None] * d, (1 - theta)[:, None] * d
    log = sum(special.betaln(a + ki, b + ni - ki) - special.betaln(a, b) for ki, ni in zip(k, n, strict=True))
    density = (np.exp(log - log.max()) @ wu) * wx
    cumulative = (np.cumsum(density) - density / 2) / density.sum()
    low, high = np.interp([(1 - level) / 2, (1 + level) / 2], cumulative, theta)
    return float(low), float(high)


@pytest.mark.parametrize(
    ("k", "n"),
    [
        ([0, 0], [5, 5]),
        ([5], [5]),
        ([3], [5]),
        ([0, 5, 5], [5, 5, 5]),
        ([9, 9, 9], [10, 10, 10]),
        ([0, 100], [100, 100]),
    ],
)
def test_clustered_posterior_equals_brute_quadrature(k: list[int], n: list[int]) -> None:
    found = clustered_interval(k, n)
    assert (found.low, found.high) == pytest.approx(brute(np.array(k), np.array(n)), abs=2e-3)


@pytest.mark.parametrize(
    ("k", "n"), [([0] * 6, [5] * 6), ([5] * 6, [5] * 6), ([5], [5]), ([0], [1]), ([0, 5], [5, 5]), ([2] * 9, [4] * 9)]
)
def test_equal_clusters_do_not_give_zero_width(k: list[int], n: list[int]) -> None:
    found = clustered_interval(k, n)
    assert found.high - found.low > 0.05
    assert 0 < found.low < found.high < 1
    if k[0] in (0, n[0]) and len(set(k)) == 1:
        assert "zero width" in clustered_interval(k, n, "miller").note


def test_single_items_as_clusters_say_what_items_say() -> None:
    scores = np.array([1] * 30 + [0] * 20)
    found, plain = clustered_interval(scores, np.ones(50, dtype=int)), proportion(30, 50)
    assert (found.low, found.high) == pytest.approx((plain.low, plain.high), abs=1e-4)


@fixed
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 6)), min_size=1, max_size=12))
def test_clusters_mirror_and_their_order_does_not_matter(pairs: list[tuple[int, int]]) -> None:
    k = np.array([min(a, b) for a, b in pairs])
    n = np.array([b for _, b in pairs])
    found = clustered_interval(k, n)
    mirrored, turned = clustered_interval(n - k, n), clustered_interval(k[::-1], n[::-1])
    assert (found.low, found.high) == pytest.approx((1 - mirrored.high, 1 - mirrored.low), abs=1e-3)
    assert (found.low, found.high) == pytest.approx((turned.low, turned.high), abs=1e-9)


@pytest.mark.parametrize("kind", ["spread", "alike", "two wrong", "none right"])
def test_many_distinct_large_clusters_are_interpolated_without_loss(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    n = rng.integers(2, 300, 150)
    k = {
        "spread": rng.binomial(n, rng.beta(4, 2, 150)),
        "alike": rng.binomial(n, 0.7),
        "two wrong": n - (np.arange(150) < 2),
        "none right": 0 * n,
    }[kind]
    found = clustered_interval(k, n)
    monkeypatch.setattr("burnish.stats.clustered._DISTINCT", 10_000)
    direct = clustered_interval(k, n)
    width = direct.high - direct.low
    assert (found.low, found.high) == pytest.approx((direct.low, direct.high), abs=2e-3 * width)


def test_a_posterior_of_many_clusters_is_found_from_the_same_start() -> None:
    rng = np.random.default_rng(1)
    k = rng.binomial(5, rng.beta(6, 3, 20_000))
    found = clustered_interval(k, np.full(20_000, 5))
    error = standard_error(k, np.full(20_000, 5))
    assert found.estimate == pytest.approx((found.low + found.high) / 2, abs=1e-3)
    assert found.high - found.low == pytest.approx(2 * 1.96 * error, rel=0.03)


def test_baselines_of_clustered_items() -> None:
    k, n = np.array([4, 3, 0, 4, 2, 4]), np.full(6, 4)
    share, error = 17 / 24, standard_error(k, n)
    miller = clustered_interval(k, n, "miller")
    assert (miller.low, miller.high) == pytest.approx((share - 1.959964 * error, min(share + 1.959964 * error, 1)))
    inspect = clustered_interval(k, n, "inspect-t")
    t = stats.t.ppf(0.975, 5) * error * np.sqrt(6 / 5)
    assert (inspect.low, inspect.high) == pytest.approx((share - t, min(share + t, 1)))
    assert clustered_interval([4] * 6, n, "inspect-wilson").high == 1
    whole, within = clustered_interval(k, n, "cluster-bootstrap"), clustered_interval(k, n, "within-bootstrap")
    assert whole.high - whole.low > within.high - within.low
    assert within == clustered_interval(k, n, "within-bootstrap")


def test_bad_clusters_are_refused_all_at_once() -> None:
    with pytest.raises(BadInput, match=r"(?s)level.*-1 in cluster 0.*0 in cluster 1"):
        clustered_interval([-1, 2], [3, 0], level=2)
    with pytest.raises(BadInput, match="4 of only 3"):
        clustered_interval([4], [3])
    with pytest.raises(BadInput, match="whole number"):
        clustered_interval([0.5], [3])
    with pytest.raises(BadInput, match="fewer than the 2"):
        clustered_interval([1], [3], "inspect-t")
    with pytest.raises(BadInput, match="has 1 clusters"):
        clustered_interval([1], [3, 3])
    with pytest.raises(UnknownName):
        clustered_interval([1], [3], "bays")


def test_a_lattice_finds_a_narrow_peak_far_from_where_it_starts() -> None:
    def log_density(axes: Any) -> Any:
        return -((axes[0][:, None] - 3.3) ** 2) / 2e-4 - (axes[1] + 7) ** 2 / 8

    found = fill(log_density, [(-16, 16), (-2, 2)], (40, 40))
    density = Density.of(found.axes[0], found.marginal(0))
    assert density.quantile(0.5) == pytest.approx(3.3, abs=1e-5)
    assert density.quantile(0.975) == pytest.approx(3.3 + 1.959964e-2, abs=1e-5)
    assert found.axes[1] @ found.marginal(1) == pytest.approx(-7, abs=1e-3)


def test_effect_of_clusters_of_one_is_one_and_of_copies_their_size() -> None:
    k = np.array([1, 0, 1, 1, 0, 1, 1, 1])
    ones = np.ones(8)
    assert design_effect(k, ones, 0.75 * 0.25) == pytest.approx(1)
    assert design_effect(4 * k, 4 * ones, 0.75 * 0.25) == pytest.approx(4)
    assert design_effect([0, 0, 0], [5, 5, 5], 0.0) == 5
    assert design_effect([3, 3, 3], [5, 5, 5], 0.24) == 5  # no spread at all is not certainty


def test_effect_of_one_large_cluster_among_small_ones_is_not_cut_to_the_mean_size() -> None:
    # Half of 200 items are one cluster: no more than some four items' worth of information, whatever the mean size is.
    n = np.array([100] + [1] * 100)
    k = np.array([100] + [0, 1] * 50)
    effect = design_effect(k, n, 0.75 * 0.25)
    assert effect > 10
    assert effect <= (100**2 + 100) / 200


@pytest.mark.parametrize("clusters", [19, 20])
def test_auto_trusts_the_spread_of_twenty_clusters(clusters: int) -> None:
    k, n = np.array([4, 5] * 10)[:clusters], np.full(clusters, 5)
    found = clustered_interval(k, n, "auto")
    assert found.method == ("beta-effective" if clusters == 20 else "bayes")
    assert found == clustered_interval(k, n, found.method)


def test_effective_size_of_independent_items_is_nearly_their_number() -> None:
    rng = np.random.default_rng(0)
    k = rng.binomial(5, 0.8, 400)
    found, alone = clustered_interval(k, np.full(400, 5), "beta-effective"), proportion(int(k.sum()), 2000)
    assert (found.low, found.high) == pytest.approx((alone.low, alone.high), abs=2e-3)
    never = clustered_interval(np.zeros(30, dtype=int), np.full(30, 5), "beta-effective")
    assert never.high == pytest.approx(proportion(0, 30).high, rel=0.1)
    assert never.low > 0


def test_auto_covers_alike_clusters_of_a_good_model_where_the_posterior_does_not() -> None:
    """30 items with 5 runs each, all equally hard, of a model that is right 98 times of 100."""
    rng = np.random.default_rng(1)
    held = {"auto": 0, "bayes": 0}
    for k in rng.binomial(5, 0.98, (100, 30)):
        for method in held:
            found = clustered_interval(k, np.full(30, 5), method)
            held[method] += found.low <= 0.98 <= found.high
    assert held["auto"] >= 92
    assert held["bayes"] < 88
