"""Intervals, the bootstrap, the sign-flip test and corrections for many comparisons."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any, get_args

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from burnish.core.errors import BadInput, UnknownName
from burnish.stats import Interval, bonferroni_level, bootstrap, holm, paired, paired_permutation, ratio
from burnish.stats.bootstrap import _bca_tails
from burnish.stats.permutation import Alternative

fixed = settings(derandomize=True, deadline=None, max_examples=30)
# Eighths are exact in binary, so that shifting and scaling by powers of two adds no rounding of its own.
eighths = st.integers(-80, 80).map(lambda k: k / 8)


def samples(least: int = 2, most: int = 25) -> st.SearchStrategy[Any]:
    return st.integers(least, most).flatmap(lambda n: arrays(np.float64, n, elements=eighths))


def pairs(least: int = 2, most: int = 25) -> st.SearchStrategy[Any]:
    return st.integers(least, most).flatmap(lambda n: arrays(np.float64, (2, n), elements=eighths))


def skewed(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).exponential(size=n)


def bounds(interval: Interval) -> tuple[float, float]:
    return interval.low, interval.high


def test_interval_excludes_only_what_lies_outside_its_bounds() -> None:
    interval = Interval(0.5, 0.25, 1.0, 0.95, 10, None, "bca")
    assert [interval.excludes(v) for v in (0.2, 0.25, 0.5, 1.0, 1.01)] == [True, False, False, False, True]


@pytest.mark.parametrize(
    ("estimate", "low", "high", "text"),
    [
        (0.123, 0.1, 0.15, "0.123 [0.100, 0.150]"),
        (12.3456, 2.0, 15.0, "12.346 [2.000, 15.000]"),
        (0.000123, 0.0001, 0.00015, "0.000123 [0.000100, 0.000150]"),
        (-0.00001, -0.4, 0.4, "0.000 [-0.400, 0.400]"),
        (1.0, 0.5, math.inf, "1.000 [0.500, inf]"),
        (0.0, 0.0, 0.0, "0.000 [0.000, 0.000]"),
    ],
)
def test_interval_prints_enough_digits_for_its_width(estimate: float, low: float, high: float, text: str) -> None:
    interval = Interval(estimate, low, high, 0.95, 10, None, "bca")
    assert str(interval) == f"{interval}" == text


def test_interval_takes_a_number_format() -> None:
    assert f"{Interval(0.123, 0.1, 0.15, 0.95, 10, None, 'bca'):.1%}" == "12.3% [10.0%, 15.0%]"


def test_interval_survives_json() -> None:
    interval = bootstrap(skewed(12), clusters=[i // 2 for i in range(12)])
    assert interval.note
    assert Interval.from_dict(json.loads(json.dumps(interval.to_dict()))) == interval


def test_interval_from_dict_names_every_wrong_field() -> None:
    with pytest.raises(BadInput) as caught:
        Interval.from_dict({"estimate": 1.0, "low": 0.0, "width": 2.0})
    assert all(f"{name}: missing" in caught.value.problem for name in ("high", "level", "n", "n_clusters", "method"))
    assert "width: no such field" in caught.value.problem
    assert "note" not in caught.value.problem


def test_interval_refuses_what_is_not_an_interval() -> None:
    with pytest.raises(BadInput) as caught:
        Interval(1.0, 3.0, 2.0, 95, 0, -1, "bca")
    assert all(f"{name}:" in caught.value.problem for name in ("low", "level", "n", "n_clusters"))
    with pytest.raises(BadInput, match="high: nan is not a number"):
        Interval(1.0, 0.0, math.nan, 0.95, 5, None, "bca")


@pytest.mark.parametrize(
    ("statistic", "over", "reference"),
    [
        ("mean", "means", np.mean),
        (np.exp, "means", lambda x, axis: np.exp(np.mean(x, axis=axis))),
        (np.std, "rows", np.std),
    ],
)
def test_bca_agrees_with_scipy(statistic: Any, over: Any, reference: Callable[..., Any]) -> None:
    values = skewed(25, seed=3)
    ours = bootstrap(values, statistic, over=over, draws=20_000, seed=1)
    theirs, percentile = (
        scipy.stats.bootstrap(
            (values,), reference, n_resamples=20_000, method=method, rng=np.random.default_rng(2)
        ).confidence_interval
        for method in ("BCa", "percentile")
    )
    tolerance = 0.025 * (theirs.high - theirs.low)
    assert ours.method == "bca"
    assert ours.low == pytest.approx(theirs.low, abs=tolerance)
    assert ours.high == pytest.approx(theirs.high, abs=tolerance)
    # The tolerance is fine enough to tell BCa from the percentile interval.
    assert abs(ours.high - percentile.high) > tolerance


@pytest.mark.parametrize("scores", [(0.0, 1.0), (0.1, 0.7)])
def test_ties_are_ties_whatever_the_rounding(scores: tuple[float, float]) -> None:
    right = np.repeat([0.0, 1.0], [21, 4])
    reference = scipy.stats.bootstrap((right,), np.mean, n_resamples=20_000, rng=np.random.default_rng(2))
    low, high = scores
    expected = [low + (high - low) * bound for bound in reference.confidence_interval]
    # Sums of 0.1 and 0.7 depend on their order; a bound off by one item would differ by (high - low) / 25.
    assert bounds(bootstrap(low + (high - low) * right, draws=20_000)) == pytest.approx(expected, abs=1e-9)


def test_coverage_of_a_skewed_mean() -> None:
    rng = np.random.default_rng(7)
    intervals = [bootstrap(rng.exponential(size=30), draws=1000, seed=i) for i in range(600)]
    # Standard error of the share is about 0.01; BCa at n = 30 is known to fall a little short of its level.
    assert 0.90 <= np.mean([not interval.excludes(1.0) for interval in intervals]) <= 0.965


def test_coverage_of_clusters_needs_the_clusters() -> None:
    rng = np.random.default_rng(8)
    labels = np.repeat(np.arange(25), 4)
    hits, ignoring = [], []
    for seed in range(200):
        values = (rng.normal(size=(25, 1)) + 0.5 * rng.normal(size=(25, 4))).ravel()
        hits.append(not bootstrap(values, clusters=labels, draws=500, seed=seed).excludes(0.0))
        ignoring.append(not bootstrap(values, draws=500, seed=seed).excludes(0.0))
    assert 0.89 <= np.mean(hits) <= 0.99
    assert np.mean(ignoring) < 0.8


@fixed
@given(samples(), st.integers(-50, 50), st.sampled_from([-4.0, -1.0, 0.5, 8.0]))
def test_mean_moves_with_shift_and_scale(values: np.ndarray, shift: int, scale: float) -> None:
    before = bootstrap(values, draws=500, seed=3)
    after = bootstrap(scale * values + shift, draws=500, seed=3)
    moved = [scale * bound + shift for bound in bounds(before)]
    assert after.estimate == pytest.approx(scale * before.estimate + shift, abs=1e-9)
    assert bounds(after) == pytest.approx(sorted(moved), abs=1e-9)
    assert after.method == before.method


@fixed
@given(pairs())
def test_paired_mirrors_when_the_sides_swap(both: np.ndarray) -> None:
    a, b = both
    forward, back = paired(a, b, draws=500), paired(b, a, draws=500)
    assert forward.estimate == -back.estimate
    assert bounds(forward) == pytest.approx((-back.high, -back.low), abs=1e-12)


@fixed
@given(samples(), st.randoms(use_true_random=False))
def test_clusters_of_one_item_are_items(values: np.ndarray, random: Any) -> None:
    labels = [f"item {i}" for i in range(len(values))]
    random.shuffle(labels)
    of_means: dict[str, Any] = {"draws": 400}
    of_rows: dict[str, Any] = {"draws": 400, "statistic": np.median, "over": "rows"}
    for options in (of_means, of_rows):
        alone = bootstrap(values, **options)
        grouped = bootstrap(values, clusters=labels, **options)
        assert (grouped.estimate, *bounds(grouped)) == (alone.estimate, *bounds(alone))
        assert (alone.n_clusters, grouped.n_clusters) == (None, len(values))


@fixed
@given(pairs(least=4), st.integers(2, 6))
def test_function_of_means_equals_function_of_rows(both: np.ndarray, clusters: int) -> None:
    rows = both.T
    labels = [i % clusters for i in range(len(rows))]
    for groups in (None, labels):
        fast = bootstrap(rows, lambda m: np.exp((m[1] - m[0]) / 8), draws=400, clusters=groups)
        slow = bootstrap(
            rows, lambda r: np.exp((r[:, 1] - r[:, 0]).mean() / 8), over="rows", draws=400, clusters=groups
        )
        assert (fast.estimate, *bounds(fast)) == pytest.approx((slow.estimate, *bounds(slow)), rel=1e-9)


@fixed
@given(samples(least=3), st.integers(0, 2**32))
def test_same_seed_same_interval(values: np.ndarray, seed: int) -> None:
    assert bootstrap(values, draws=400, seed=seed) == bootstrap(values.copy(), draws=400, seed=seed)


def test_other_seed_other_resamples() -> None:
    assert bounds(bootstrap(skewed(30), draws=500, seed=1)) != bounds(bootstrap(skewed(30), draws=500, seed=2))
    first, again, other = (paired_permutation(skewed(30), skewed(30, 9), seed=seed) for seed in (1, 1, 2))
    assert first == again != other


def test_copies_in_a_cluster_add_no_information() -> None:
    values = skewed(30)
    copies, labels = np.repeat(values, 5), np.repeat(np.arange(30), 5)
    alone, grouped, ignoring = bootstrap(values), bootstrap(copies, clusters=labels), bootstrap(copies)
    assert bounds(grouped) == pytest.approx(bounds(alone), rel=1e-9)
    assert (grouped.n, grouped.n_clusters) == (150, 30)
    assert ignoring.high - ignoring.low < 0.6 * (alone.high - alone.low)


def test_unequal_clusters_weigh_by_their_size() -> None:
    interval = bootstrap([1.0, 1.0, 1.0, 5.0], clusters=["a", "a", "a", "b"])
    assert interval.estimate == 2.0
    assert bounds(interval) == (1.0, 5.0)


def test_a_higher_level_gives_a_wider_interval() -> None:
    narrow, wide = bootstrap(skewed(40), level=0.8), bootstrap(skewed(40), level=0.99)
    assert wide.low < narrow.low < narrow.high < wide.high
    assert (narrow.level, wide.level) == (0.8, 0.99)


def test_paired_is_the_bootstrap_of_differences() -> None:
    a, b = skewed(40, 1), skewed(40, 2)
    assert paired(a, b, seed=5) == bootstrap(b - a, seed=5)


def test_ratio_is_that_of_the_means() -> None:
    a = skewed(50, 1)
    b = 3 * a + 0.1 * skewed(50, 2)
    interval = ratio(a, b)
    assert interval.estimate == pytest.approx(b.mean() / a.mean())
    assert interval.low < interval.estimate < interval.high
    # Paired: the common part of a and b cancels, which it would not in two independent samples.
    assert interval.high - interval.low < 0.1


def test_perplexity_ratio_of_items_of_unequal_length() -> None:
    rng = np.random.default_rng(4)
    tokens = rng.integers(20, 200, size=60)
    loss_a = tokens * rng.normal(3.0, 0.3, size=60)
    loss_b = loss_a + 0.05 * tokens
    rows = np.column_stack([loss_a, loss_b, tokens])
    interval = bootstrap(rows, lambda m: np.exp((m[1] - m[0]) / m[2]))
    # The loss per token grows by the same amount everywhere, so no resample differs.
    assert interval.estimate == pytest.approx(math.exp(0.05))
    assert interval.degenerate


def test_memory_stays_bounded() -> None:
    values = skewed(20_000)
    tracemalloc.start()
    bootstrap(values, draws=1000)
    paired_permutation(values, values[::-1] + 0.001 * skewed(20_000, 1), draws=1000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60e6


@pytest.mark.parametrize("values", [[0.1] * 25, [0.0] * 25])
def test_equal_values_are_not_certainty(values: list[float]) -> None:
    interval = bootstrap(values, clusters=[i % 7 for i in range(25)])
    assert interval.degenerate
    assert interval.low == interval.estimate == pytest.approx(values[0])
    assert "zero width" in interval.note
    assert "not certainty" in interval.note


def test_few_units_are_said_to_be_few() -> None:
    assert "only 5 items" in bootstrap(skewed(5)).note
    assert "only 4 clusters" in bootstrap(skewed(40), clusters=np.arange(40) % 4).note
    assert bootstrap(skewed(40)).note == ""


@pytest.mark.parametrize(
    ("values", "statistic", "reason"),
    [
        (skewed(30), lambda rows: rows.mean() if len(rows) == 30 else math.inf, "undefined without some unit"),
        ([0, 2, 2, 2, 2, 4], np.median, "the jackknife shows no spread"),
        (skewed(30), lambda rows: np.unique(rows).sum(), "all resamples lie on one side"),
    ],
)
def test_percentile_where_bca_is_undefined(values: Any, statistic: Callable[..., Any], reason: str) -> None:
    interval = bootstrap(values, statistic, over="rows", draws=4000)
    assert interval.method == "percentile"
    assert reason in interval.note
    reference = scipy.stats.bootstrap(
        (np.asarray(values),), statistic, n_resamples=4000, method="percentile", vectorized=False,
        rng=np.random.default_rng(1),
    ).confidence_interval  # fmt: skip
    assert bounds(interval) == pytest.approx(reference, abs=0.06 * (reference.high - reference.low))


def test_acceleration_too_large_for_the_level() -> None:
    jackknife = np.array([-1e6] + [0.0] * 999)
    drawn = np.r_[1.0, -np.ones(99_999)]
    tails, problem = _bca_tails(0.0, drawn, jackknife, 0.9999, 0.0)
    assert "acceleration" in problem
    assert all(map(math.isnan, tails))


def test_a_bound_beyond_the_resamples_is_said() -> None:
    assert "most extreme resample" in bootstrap(skewed(25), np.max, over="rows").note


def test_resamples_without_a_value_are_counted() -> None:
    hits = np.repeat([1.0, 0.0], [4, 16])
    interval = bootstrap(np.column_stack([hits, np.ones(20)]), lambda m: m[0] * m[1] / m[0] ** 2, draws=2000)
    assert "undefined on" in interval.note
    assert 1 < interval.low < interval.estimate < interval.high <= 20
    with pytest.raises(BadInput, match="more than lie beyond a bound"):
        ratio([0.0, 1.0, 0.0], [1.0, 2.0, 3.0])
    with pytest.raises(BadInput, match="the statistic is inf on these items"):
        ratio([0.0, 0.0, 0.0], [1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    ("call", "parts"),
    [
        (lambda: bootstrap([]), ["0 items"]),
        (lambda: bootstrap([1.0]), ["1 item, fewer than the 2 needed"]),
        (lambda: bootstrap(3.0), ["shape is ()"]),
        (lambda: bootstrap(np.ones((4, 0))), ["shape is (4, 0)"]),
        (lambda: bootstrap(np.ones((2, 2, 2))), ["shape is (2, 2, 2)"]),
        (lambda: bootstrap(["good", "bad"]), ["not an array of numbers"]),
        (lambda: bootstrap(np.array([1, None, math.inf, 2])), ["NaN or infinite in rows 1, 2"]),
        (lambda: bootstrap([[1.0, 2.0], [3.0, math.nan]], lambda m: m[0]), ["NaN or infinite in row 1"]),
        (lambda: bootstrap([math.nan] * 30), ["rows 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 20 more"]),
        (lambda: bootstrap([1, 2, 3], clusters=["a", "a", "a"]), ["1 cluster, fewer than the 2 needed"]),
        (lambda: bootstrap([1, 2, 3], clusters=["a", None, "b"]), ["no label in row 1"]),
        (lambda: bootstrap([1, 2, 3], clusters=np.array([1, 2, math.nan])), ["no label in row 2"]),
        (lambda: bootstrap([1, 2, 3], clusters=[[1], [1], [2]]), ["each label must be one value"]),
        (
            lambda: bootstrap([1, math.nan, 3], level=95, draws=0, seed=-1, clusters=[1, 2]),
            ["row 1", "level: 95", "draws: 0", "seed: -1", "2 labels for 3 items"],
        ),
        (lambda: bootstrap([1, 2, 3], level=0.999, draws=9999), ["0.999 needs at least 10000"]),
        (lambda: bootstrap(np.ones((4, 2))), ["mean of rows"]),
        (lambda: bootstrap([1, 2, 3], math.exp), ["cannot take arrays of means"]),
        (lambda: bootstrap([1, 2, 3], lambda m: 1.0), ["gave the shape ()"]),
        (lambda: bootstrap([1, 2, 3], lambda r: r, over="rows"), ["gave the shape (3,)"]),
        (lambda: paired([1, 2, 3], [1, math.nan]), ["a has 3 and b has 2", "b: NaN or infinite in row 1"]),
        (lambda: paired(np.ones((3, 2)), [1, 2, 3]), ["a: the shape is (3, 2)"]),
        (lambda: paired_permutation([], []), ["0 items"]),
        (
            lambda: paired_permutation([1], [1, 2], alternative="bigger", draws=5, seed=-1),  # type: ignore[arg-type]
            ["a has 1 and b has 2", "'bigger'", "draws: 5", "seed: -1"],
        ),
        (lambda: holm([0.1, 1.5, math.nan]), ["number 1 (from 0): 1.5", "number 2 (from 0): nan"]),
        (lambda: holm([[0.1]]), ["shape (1, 1)"]),
        (lambda: holm(["a"]), ["not a list of numbers"]),
        (lambda: bonferroni_level(1.0, 0), ["level: 1.0", "m: 0"]),
    ],
)
def test_bad_input_is_named(call: Callable[[], object], parts: list[str]) -> None:
    with pytest.raises(BadInput) as caught:
        call()
    assert [part for part in parts if part not in caught.value.problem] == []


@pytest.mark.parametrize(("level", "draws"), [(0.999, 10_000), (0.8, 50)])
def test_just_enough_draws_are_enough(level: float, draws: int) -> None:
    assert bootstrap([1, 2, 3], level=level, draws=draws).level == level


def test_unknown_names_are_answered_with_known_ones() -> None:
    with pytest.raises(UnknownName, match="median"):
        bootstrap([1, 2, 3], "median")  # type: ignore[arg-type]
    with pytest.raises(UnknownName, match="did you mean rows"):
        bootstrap([1, 2, 3], np.median, over="row")  # type: ignore[arg-type]


@pytest.mark.parametrize("alternative", get_args(Alternative))
@pytest.mark.parametrize("n", [2, 5, 9])
def test_exact_p_agrees_with_scipy(n: int, alternative: Any) -> None:
    a, b = skewed(n, 1), skewed(n, 2) + 0.2
    ours = paired_permutation(a, b, alternative=alternative)
    theirs = scipy.stats.permutation_test(
        (b, a), lambda x, y, axis: np.mean(x - y, axis=axis), permutation_type="samples", vectorized=True,
        n_resamples=np.inf, alternative=alternative,
    )  # fmt: skip
    assert ours.p_value == pytest.approx(theirs.pvalue)
    assert ours.estimate == pytest.approx(theirs.statistic)
    assert (ours.method, ours.draws, ours.n, ours.n_clusters) == ("exact", 2**n, n, None)


@pytest.mark.parametrize(("alternative", "scale"), [("two-sided", 2), ("greater", 1)])
def test_monte_carlo_p_agrees_with_the_exact_binomial(alternative: Any, scale: int) -> None:
    # 60 items differ by one, 36 of them upwards: the sign-flip test is then the sign test.
    a = np.repeat([0.0, 1.0, 1.0], [36, 24, 40])
    b = np.repeat([1.0, 0.0, 1.0], [36, 24, 40])
    ours = paired_permutation(a, b, alternative=alternative, draws=40_000)
    assert (ours.method, ours.draws, ours.n) == ("monte-carlo", 40_000, 100)
    assert ours.p_value == pytest.approx(scale * scipy.stats.binom.sf(35, 60, 0.5), abs=0.008)


def test_right_or_wrong_scores_give_the_exact_mcnemar_test() -> None:
    a = np.repeat([0, 1, 1, 0], [11, 3, 500, 80])
    b = np.repeat([1, 0, 1, 0], [11, 3, 500, 80])
    ours = paired_permutation(a, b)
    assert ours.method == "exact"
    assert ours.p_value == pytest.approx(scipy.stats.binomtest(11, 14).pvalue)


def test_the_observed_pattern_is_counted() -> None:
    a = np.zeros(40)
    assert paired_permutation(a, a + 1 + skewed(40), draws=999).p_value == 1 / 1000
    assert paired_permutation(a, a + 1 + skewed(40), draws=999, alternative="less").p_value == 1.0


def test_one_item_proves_nothing() -> None:
    assert paired_permutation([0.0], [9.0]).p_value == 1.0
    assert paired_permutation([0.0], [9.0], alternative="greater").p_value == 0.5


def test_no_difference_gives_p_of_one() -> None:
    result = paired_permutation([1, 2, 3], [1, 2, 3])
    assert (result.p_value, result.estimate, result.method) == (1.0, 0.0, "exact")


def test_level_of_the_exact_test_is_kept() -> None:
    sizes = skewed(7)
    signs = 1 - 2 * ((np.arange(2**7)[:, None] >> np.arange(7)) & 1)
    for alternative in get_args(Alternative):
        p = np.array([paired_permutation(np.zeros(7), s * sizes, alternative=alternative).p_value for s in signs])
        for alpha in (0.02, 0.05, 0.1, 0.5):
            assert alpha - 2 / 2**7 < np.mean(p <= alpha) <= alpha


@fixed
@given(pairs(least=1, most=20))
def test_sign_flip_mirrors_when_the_sides_swap(both: np.ndarray) -> None:
    a, b = both
    assert paired_permutation(a, b, draws=200).p_value == paired_permutation(b, a, draws=200).p_value
    up = paired_permutation(a, b, alternative="greater", draws=200)
    down = paired_permutation(b, a, alternative="less", draws=200)
    assert (up.p_value, up.estimate) == (down.p_value, -down.estimate)


@fixed
@given(pairs(least=1, most=20))
def test_sign_flip_of_clusters_of_one_item_is_that_of_items(both: np.ndarray) -> None:
    labels = [str(i) for i in range(both.shape[1])]
    assert paired_permutation(*both, clusters=labels).p_value == paired_permutation(*both).p_value


def test_clusters_flip_whole() -> None:
    sums = np.array([3.0, 1.0, 2.0, -0.5, 4.0])
    rows, labels = np.repeat(sums / 4, 4), np.repeat(list("abcde"), 4)
    grouped = paired_permutation(np.zeros(20), rows, clusters=labels)
    assert grouped.p_value == paired_permutation(np.zeros(5), sums).p_value
    assert (grouped.n, grouped.n_clusters, grouped.draws) == (20, 5, 32)
    assert grouped.estimate == pytest.approx(sums.mean() / 4)
    assert grouped.p_value > paired_permutation(np.zeros(20), rows).p_value
    assert paired_permutation([0, 0], [1, 2], clusters=["a", "a"]).p_value == 1.0


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.6]) == pytest.approx([1.0, 1.0])
    assert holm([]).shape == (0,)


@fixed
@given(arrays(np.float64, st.integers(1, 12), elements=st.floats(0, 1)), st.randoms(use_true_random=False))
def test_holm_is_monotone_and_between_raw_and_bonferroni(p: np.ndarray, random: Any) -> None:
    adjusted = holm(p)
    order = np.argsort(p)
    assert (np.diff(adjusted[order]) >= 0).all()
    assert (adjusted >= p).all()
    assert (adjusted <= np.minimum(len(p) * p, 1) + 1e-12).all()
    shuffled = np.array(random.sample(range(len(p)), len(p)))
    assert (holm(p[shuffled]) == adjusted[shuffled]).all()


def test_bonferroni_level() -> None:
    assert bonferroni_level(0.95, 5) == pytest.approx(0.99)
    assert bonferroni_level(0.9, 1) == pytest.approx(0.9)


def test_statistics_need_no_torch() -> None:
    code = (
        "import sys, burnish.stats; print(sorted({'torch', 'transformers', 'datasets', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
