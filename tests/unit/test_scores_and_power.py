"""Scores, epochs, power, corrections, Bradley-Terry, prediction-powered means and the automatic choice."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from burnish.core.errors import BadInput, MissingExtra, UnknownName, Unsupported
from burnish.stats import mean_score, paired_binary, paired_scores, unpaired_binary
from burnish.stats.auto import choose
from burnish.stats.bayesian_bootstrap import bayesian_bootstrap
from burnish.stats.bradley_terry import Comparisons, fit
from burnish.stats.bradley_terry import bootstrap as resample_battles
from burnish.stats.clustered import clustered
from burnish.stats.epochs import epochs, identical_runs, item_scores
from burnish.stats.multiplicity import benjamini_hochberg, bonferroni_level, max_t
from burnish.stats.power import detectable, items_for_width, items_needed, power
from burnish.stats.ppi import prediction_powered_mean
from burnish.stats.proportion import proportion
from burnish.stats.scores import unpaired_scores

fixed = settings(derandomize=True, deadline=None, max_examples=30)
RNG = np.random.default_rng(0)


def test_student_t_of_items_is_the_textbook_interval() -> None:
    x = RNG.normal(3, 2, 12)
    found = mean_score(x, method="student-t", scale=(-100, 100))
    expected = stats.t.interval(0.95, 11, x.mean(), stats.sem(x))
    assert (found.low, found.high) == pytest.approx(expected)
    assert mean_score(x * 10).method == "student-t"


def test_equal_clusters_are_their_means() -> None:
    x = RNG.random((8, 5))
    labels = np.repeat(np.arange(8), 5)
    found = mean_score(x.ravel(), labels, method="student-t", scale=(-9, 9))
    expected = stats.t.interval(0.95, 7, x.mean(), stats.sem(x.mean(axis=1)))
    assert (found.low, found.high) == pytest.approx(expected)
    assert found.n_clusters == 8


def test_whole_weights_are_repeats_of_items_in_one_cluster() -> None:
    x, times = np.array([0.2, 0.9, 0.4, 0.7]), np.array([1, 3, 2, 1])
    weighted = mean_score(x, weights=times)
    repeated = mean_score(np.repeat(x, times), np.repeat(np.arange(4), times))
    assert (weighted.low, weighted.high) == pytest.approx((repeated.low, repeated.high))


@fixed
@given(st.lists(st.floats(0, 1), min_size=2, max_size=15))
def test_scores_on_a_scale_stay_on_it_and_are_never_certain(x: list[float]) -> None:
    found = mean_score(x)
    assert 0 <= found.low < found.high <= 1
    # The same marks out of ten: the interval is ten times the other.
    tens = mean_score([v * 10 for v in x], scale=(0, 10))
    if not set(x) <= {0.0, 1.0} and found.method == "logit-t":
        assert (tens.low, tens.high) == pytest.approx((found.low * 10, found.high * 10), rel=1e-6, abs=1e-9)


def test_binary_scores_take_the_posterior() -> None:
    x = [1, 0, 1, 1, 1]
    assert mean_score(x) == proportion(4, 5)
    labels = ["a", "a", "b", "b", "b"]
    assert mean_score(x, labels) == clustered([1, 3], [2, 3])
    assert "alike" in mean_score([0.7] * 6).note


def test_bootstrap_of_scores_is_that_of_the_mean() -> None:
    x = RNG.random(60)
    found = mean_score(x, method="bootstrap")
    plain = mean_score(x, method="student-t")
    assert (found.low, found.high) == pytest.approx((plain.low, plain.high), abs=0.02)


def test_bad_scores_are_refused() -> None:
    with pytest.raises(BadInput, match=r"(?s)level.*NaN"):
        mean_score([0.1, float("nan")], level=0)
    with pytest.raises(BadInput, match="leave the scale"):
        mean_score([0.1, 7], method="logit-t")
    with pytest.raises(BadInput, match="weights"):
        mean_score([0.1, 0.2], weights=[1, -1])
    with pytest.raises(BadInput, match="does not rise"):
        mean_score([0.1, 0.2], scale=(1, 1))
    with pytest.raises(BadInput, match="no spread"):
        mean_score([7.0])
    with pytest.raises(UnknownName):
        mean_score([0.1, 0.2], method="t")


def test_paired_scores_are_a_minus_b() -> None:
    a, b = RNG.normal(1, 1, 20), RNG.normal(0, 1, 20)
    found = paired_scores(a, b)
    test = stats.ttest_rel(a, b)
    expected = test.confidence_interval()
    assert (found.interval.low, found.interval.high) == pytest.approx((expected.low, expected.high))
    assert found.interval.estimate > 0
    assert found.p_better == pytest.approx(1 - test.pvalue / 2)
    boot = paired_scores(a, b, method="bootstrap").interval
    assert boot.estimate == pytest.approx(found.interval.estimate)


def test_paired_binary_scores_take_the_paired_posterior() -> None:
    a, b = np.array([1, 1, 1, 0, 1]), np.array([1, 0, 0, 0, 1])
    assert paired_scores(a, b) == paired_binary(2, 2, 0, 1)
    single = paired_scores(a, b, list("abcde"), method="tango").interval
    wide = paired_binary(2, 2, 0, 1, "tango").interval
    assert single.low < wide.low
    assert single.high > wide.high
    repeated = paired_scores(np.repeat(a, 4), np.repeat(b, 4), np.repeat(np.arange(5), 4)).interval
    assert (repeated.low, repeated.high) == pytest.approx((single.low, single.high), abs=1e-9)
    same = paired_scores(np.repeat(a, 4), np.repeat(a, 4), np.repeat(np.arange(5), 4)).interval
    assert same.low < -0.3
    with pytest.raises(Unsupported):
        paired_scores(a, b, [1, 1, 2, 2, 2], method="probit")
    with pytest.raises(BadInput, match="0 and 1"):
        paired_scores([0.5, 1], [0, 1], method="tango")
    with pytest.raises(BadInput, match="same items"):
        paired_scores([1, 0], [1])


def test_clustered_and_repeated_pairs_mirror_exactly() -> None:
    a, b = RNG.integers(0, 4, (2, 12)) / 3
    runs, labels = np.full(12, 3), np.repeat(np.arange(4), 3)
    for options in ({"runs": runs}, {"runs": runs, "clusters": labels}):
        one, other = paired_scores(a, b, **options), paired_scores(b, a, **options)
        assert (one.interval.low, one.interval.high) == (-other.interval.high, -other.interval.low)
        assert one.interval.low <= one.interval.estimate <= one.interval.high


def test_runs_lie_between_one_run_and_as_many_items() -> None:
    """Copies of one run say what one run says; runs that are as good as new items say nearly what those say."""
    a, b = np.array([1, 1, 0, 1, 1, 0, 1, 1.0]), np.array([0, 1, 0, 1, 0, 0, 1, 0.0])
    copies, single = paired_scores(a, b, runs=np.full(8, 5)), paired_scores(a, b, list(range(8)))
    assert (copies.interval.low, copies.interval.high) == pytest.approx((single.interval.low, single.interval.high))
    x, y = RNG.binomial(8, 0.8, 60) / 8, RNG.binomial(8, 0.6, 60) / 8
    found = paired_scores(x, y, runs=np.full(60, 8)).interval
    alone = paired_binary(*(round(480 * v) for v in ((x * y).mean(), (x * (1 - y)).mean(), (y * (1 - x)).mean())),
                          round(480 * ((1 - x) * (1 - y)).mean()), "tango").interval  # fmt: skip
    assert found.high - found.low == pytest.approx(alone.high - alone.low, rel=0.25)


def test_runs_that_do_not_fit_are_refused() -> None:
    with pytest.raises(BadInput, match="one whole number of at least 1"):
        paired_scores([0.5, 1], [0, 1], runs=[2])
    with pytest.raises(BadInput, match=r"lies in \[0, 1\]"):
        paired_scores([0.5, 2], [0, 1], runs=[2, 2])
    with pytest.raises(Unsupported, match="several runs"):
        paired_scores([0.5, 1], [0, 1], runs=[2, 2], method="probit")


def test_one_large_cluster_of_pairs_is_not_taken_for_many() -> None:
    """A cluster of 60 items beside 20 single ones: its difference, whatever it is, moves the mean by three quarters."""
    labels = [*[0] * 60, *range(1, 21)]
    a = np.array([1.0] * 60 + [0.0, 1.0] * 10)
    b = np.array([0.0] * 60 + [1.0, 0.0] * 10)
    found = paired_scores(a, b, labels).interval
    # As twenty-one items it would be above 0.4.
    assert found.low < 0.2


def test_unpaired_scores() -> None:
    a, b = RNG.normal(1, 1, 14), RNG.normal(0, 3, 9)
    found = unpaired_scores(a, b)
    expected = stats.ttest_ind(a, b, equal_var=False).confidence_interval()
    assert (found.interval.low, found.interval.high) == pytest.approx((expected.low, expected.high))
    assert unpaired_scores([1, 0, 1], [0, 0]) == unpaired_binary(2, 3, 0, 2)
    assert unpaired_scores([1, 0, 1], [0, 0], [1, 1, 2], [1, 2]).interval.method == "bayes"


def test_comparisons_of_scores_that_are_all_alike_are_not_certain() -> None:
    same = choose([0.5] * 6, [0.5] * 6)
    assert same.interval.low == pytest.approx(-same.interval.high)
    assert same.interval.high > 0.3
    better = choose([0.9] * 6, [0.7] * 6).interval
    assert better.low < 0.2 < better.high
    apart = choose([0.9] * 6, [0.7] * 5, paired=False).interval
    assert apart.method == "newcombe"
    assert apart.low < 0.2 < apart.high
    assert "not certainty" in choose([9.0] * 6, [7.0] * 6).interval.note
    assert "not certainty" in choose([9.0] * 6, [7.0] * 5, paired=False).interval.note
    assert choose([1.0, 0.2], [0.0, 0.1]).interval.high == 1


def test_each_choice_says_why() -> None:
    x, y, labels = [1, 0, 1, 1], [0, 0, 1, 1], [1, 1, 2, 2]
    real = [0.3, 0.5, 0.9, 0.1]
    for found, method in (
        (choose(x), "beta"),
        (choose(x, clusters=labels), "bayes"),
        (choose(real), "logit-t"),
        (choose([10 * v for v in real]), "student-t"),
        (choose([0.5, 0.5]), "beta"),
        (choose(x, y), "probit"),
        (choose(x, y, clusters=labels), "tango"),
        (choose(real, y), "student-t"),
        (choose(x, y, paired=False), "beta"),
        (choose(x, y, clusters=labels, clusters_b=labels, paired=False), "bayes"),
        (choose(real, y, paired=False), "welch-t"),
    ):
        assert found.interval.method == method
        assert found.why
    with pytest.raises(BadInput, match=r"(?s)weights.*clusters_b"):
        choose(x, y, weights=[1] * 4, clusters_b=labels)


def test_pass_at_k_is_its_definition() -> None:
    import itertools
    import math

    for n, c, k in [(5, 2, 2), (6, 0, 3), (6, 6, 3), (4, 3, 4), (200, 150, 100)]:
        if n < 10:
            runs = [1] * c + [0] * (n - c)
            chosen = list(itertools.combinations(runs, k))
            any_right = np.mean([max(r) for r in chosen])
            all_right = np.mean([min(r) for r in chosen])
        else:
            any_right = 1 - (math.comb(n - c, k) / math.comb(n, k) if n - c >= k else 0)
            all_right = math.comb(c, k) / math.comb(n, k) if c >= k else 0
        assert item_scores([c], [n], "pass@k", k)[0] == pytest.approx(any_right)
        assert item_scores([c], [n], "pass^k", k)[0] == pytest.approx(all_right)


def test_epochs_do_not_make_new_items() -> None:
    c, n = np.array([4, 3, 0, 4, 2, 4, 1, 4]), np.full(8, 4)
    for reduce in ("mean", "pass@k", "pass^k"):
        for method in ("items", "hierarchical"):
            once, often = (epochs(c * m, n * m, reduce, 2, method) for m in (1, 25))
            # Many more runs of the same items hardly narrow what is known of other items.
            assert often.high - often.low > 0.75 * (once.high - once.low)
            assert once.n_clusters == 8
    assert epochs(c, n, "pass@k", 1, "items").estimate == epochs(c, n, method="items").estimate
    item_means = mean_score(c / n, method="logit-t")
    assert epochs(c, n, method="items").low == item_means.low


def test_hierarchical_pass_is_the_mean_when_k_is_one() -> None:
    c, n = [4, 3, 0, 4, 2, 4], [4] * 6
    mean = epochs(c, n)
    for reduce in ("pass@k", "pass^k"):
        found = epochs(c, n, reduce, 1)
        assert (found.low, found.high) == pytest.approx((mean.low, mean.high), abs=1e-3)
    found = epochs([4] * 5, [4] * 5, "pass^k", 3)
    assert found.low < 0.8
    assert found.high < 1


def test_bad_epochs_are_refused() -> None:
    with pytest.raises(BadInput, match="fewer than k"):
        epochs([1, 1], [2, 3], "pass@k", 3)
    with pytest.raises(BadInput, match="5 right of 4"):
        epochs([5], [4])
    with pytest.raises(UnknownName):
        epochs([1], [2], "best")
    assert identical_runs([[1, 1], [0, 0]])
    assert not identical_runs([[1, 1], [0, 1]])
    assert not identical_runs([[1], [0]])


def test_bayesian_bootstrap_of_a_mean() -> None:
    x = RNG.exponential(size=80)
    found = bayesian_bootstrap(x)
    assert found.estimate == pytest.approx(x.mean())
    error = x.std() / np.sqrt(81)
    assert found.high - found.low == pytest.approx(2 * 1.96 * error, rel=0.06)
    assert found == bayesian_bootstrap(x)
    wide = bayesian_bootstrap(np.repeat(x[:20], 4), clusters=np.repeat(np.arange(20), 4))
    narrow = bayesian_bootstrap(np.repeat(x[:20], 4))
    assert wide.high - wide.low > 1.7 * (narrow.high - narrow.low)


def test_bayesian_bootstrap_of_a_ratio_that_the_bootstrap_would_lose() -> None:
    truth, said = np.array([1, 0, 0, 0, 0, 0]), np.array([1, 0, 0, 0, 0, 1])

    def recall(rows: np.ndarray, weights: np.ndarray) -> float:
        return float(weights @ (rows[:, 0] * rows[:, 1]) / (weights @ rows[:, 0]))

    assert bayesian_bootstrap(np.column_stack([truth, said]), recall, draws=200).degenerate
    with pytest.raises(BadInput, match="undefined"), np.errstate(all="ignore"):
        bayesian_bootstrap(np.column_stack([truth * 0, said]), recall, draws=200)


def test_power_of_mcnemar_equals_enumeration() -> None:
    from burnish.stats import mcnemar

    for n, difference, share in [(12, 0.3, 0.5), (20, 0.2, 0.2), (9, 0.0, 0.4)]:
        tables = [(t, u) for t in range(n + 1) for u in range(n + 1 - t)]
        cells = [(share + difference) / 2, (share - difference) / 2, 1 - share]
        chance = stats.multinomial.pmf([(t, u, n - t - u) for t, u in tables], n, cells)
        reject = [mcnemar(t, u) <= 0.05 for t, u in tables]
        assert power(n, difference, disagreement=share) == pytest.approx(float(chance @ reject), abs=1e-9)


def test_power_is_continuous_where_the_sum_ends() -> None:
    assert power(3000, 0.03, disagreement=0.2) == pytest.approx(power(3001, 0.03, disagreement=0.2), abs=5e-3)


def test_sample_sizes_invert_power() -> None:
    for design in ("paired", "unpaired"):
        n = items_needed(0.1, design, rate=0.6)
        assert power(n, 0.1, design, rate=0.6) >= 0.8 > power(n - 5, 0.1, design, rate=0.6)
        smallest = detectable(500, design, rate=0.6)
        assert power(500, smallest, design, rate=0.6) == pytest.approx(0.8, abs=1e-3)
    # Pairs that agree often need fewer items; clusters need more.
    assert items_needed(0.1, disagreement=0.15) < items_needed(0.1) < items_needed(0.1, effect=2)
    # Two proportions of .5 and .6, power .8: 388 a side in every textbook (Fleiss, without continuity correction).
    assert items_needed(0.1, "unpaired", rate=0.5) == pytest.approx(388, abs=1)


def test_items_for_a_width() -> None:
    n = items_for_width(0.1, 0.8)
    wide, narrow = (stats.beta.interval(0.95, 1 + 0.8 * m, 1 + 0.2 * m) for m in (n - 1, n))
    assert narrow[1] - narrow[0] <= 0.1 < wide[1] - wide[0]


def test_impossible_plans_are_refused() -> None:
    with pytest.raises(BadInput, match="more than everything"):
        power(10, 0.6, rate=0.5)
    with pytest.raises(BadInput, match=r"(?s)n:.*effect.*disagreement"):
        power(0, 0.1, disagreement=0.05, effect=0.5)
    with pytest.raises(BadInput, match="ask more items"):
        detectable(2)
    with pytest.raises(BadInput, match="needed"):
        items_needed(1e-6)
    with pytest.raises(BadInput, match="power"):
        items_needed(0.1, power=1)
    with pytest.raises(UnknownName):
        power(10, 0.1, "crossed")


def test_benjamini_hochberg() -> None:
    p = [0.01, 0.04, 0.03, 0.005, 0.5]
    m, order = len(p), np.argsort(p)
    expected = np.empty(m)
    running = 1.0
    for rank in range(m, 0, -1):
        running = min(running, p[order[rank - 1]] * m / rank)
        expected[order[rank - 1]] = running
    assert benjamini_hochberg(p) == pytest.approx(expected)
    assert len(benjamini_hochberg([])) == 0
    with pytest.raises(BadInput):
        benjamini_hochberg([0.1, 2])


def test_max_t_lies_between_one_interval_and_bonferroni() -> None:
    shared = RNG.normal(size=(60, 1))
    x = 2 * shared + RNG.normal(size=(60, 6))
    together = max_t(x)
    for column, found in zip(x.T, together, strict=True):
        alone = mean_score(column, method="student-t", scale=(-99, 99))
        strict = mean_score(column, method="student-t", scale=(-99, 99), level=bonferroni_level(0.95, 6))
        assert strict.low < found.low < alone.low < alone.high < found.high < strict.high
    one = max_t(x[:, :1])[0]
    alone = mean_score(x[:, 0], method="student-t", scale=(-99, 99))
    assert (one.low, one.high) == pytest.approx((alone.low, alone.high), rel=0.05)
    assert max_t(np.column_stack([x[:, 0], np.ones(60)]))[1].degenerate


def battles(n: int = 3000) -> tuple[list[str], list[str], np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    strength = np.array([0.0, 0.6, 1.2])
    a = rng.integers(0, 3, n)
    b = (a + rng.integers(1, 3, n)) % 3
    x = rng.normal(size=n)
    won = rng.random(n) < 1 / (1 + np.exp(strength[b] - strength[a] - 0.8 * x))
    return [f"m{i}" for i in a], [f"m{i}" for i in b], won.astype(float), x


def test_bradley_terry_recovers_strengths_and_style() -> None:
    a, b, won, x = battles()
    found = resample_battles(Comparisons.of(a, b, won, covariates={"length": x}), "m0", draws=60)
    assert found.fit.strengths == pytest.approx([0, 0.6, 1.2], abs=0.15)
    style = found.coefficient("length")
    assert style.low < 0.8 < style.high
    assert found.win_rate("m2").estimate == pytest.approx(1 / (1 + np.exp(-1.2)), abs=0.04)
    swapped = fit(Comparisons.of(b, a, 1 - won, covariates={"length": -x}), "m0")
    assert swapped.strengths == pytest.approx(found.fit.strengths, abs=1e-6)


def test_bradley_terry_equals_logistic_regression() -> None:
    linear = pytest.importorskip("sklearn.linear_model")
    a, b, won, x = battles(800)
    design = np.zeros((800, 3))
    for row, (left, right) in enumerate(zip(a, b, strict=True)):
        design[row, int(left[1])] += 1
        design[row, int(right[1])] -= 1
    model = linear.LogisticRegression(C=1e8, fit_intercept=False, tol=1e-10, max_iter=2000)
    expected = model.fit(np.column_stack([design, x]), won).coef_[0]
    found = fit(Comparisons.of(a, b, won, covariates={"x": x}), "m0", ridge=1e-8)
    assert found.strengths == pytest.approx(expected[:3] - expected[0], abs=1e-4)
    assert found.coefficients == pytest.approx(expected[3:], abs=1e-4)


def test_battles_of_one_prompt_are_resampled_together() -> None:
    a, b, won, _ = battles(400)
    many = [np.repeat(v, 6) for v in (a, b, won)]
    rows, prompts = (
        resample_battles(Comparisons.of(list(many[0]), list(many[1]), many[2], clusters=labels), "m0", draws=100)
        for labels in (None, np.repeat(np.arange(400), 6))
    )
    alone, together = rows.win_rate("m2"), prompts.win_rate("m2")
    assert together.high - together.low > 1.8 * (alone.high - alone.low)
    assert together.n_clusters == 400


def judged(n: int, many: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    truth = (rng.random(n + many) < 0.7).astype(float)
    said = np.where(rng.random(n + many) < 0.9, truth, 1 - truth)
    return truth[:n], said[:n], said[n:]


def test_a_good_judge_narrows_the_interval_and_a_bad_one_does_not_widen_it() -> None:
    pytest.importorskip("ppi_py", reason="the extra 'ppi' is not installed")
    labels, same, rest = judged(300, 5000)
    alone = prediction_powered_mean(labels, same, rest, weight=0)
    helped = prediction_powered_mean(labels, same, rest)
    assert helped.high - helped.low < 0.8 * (alone.high - alone.low)
    assert helped.low < 0.7 < helped.high
    half = 1.959964 * labels.std() / np.sqrt(300)
    assert (alone.low, alone.high) == pytest.approx((labels.mean() - half, labels.mean() + half), abs=1e-6)
    noise = np.random.default_rng(1).random(5300)
    useless = prediction_powered_mean(labels, noise[:300], noise[300:])
    assert useless.high - useless.low == pytest.approx(alone.high - alone.low, rel=0.02)
    assert "central limit" in prediction_powered_mean(labels[:20], same[:20], rest).note


def test_prediction_powered_means_refuse_what_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInput, match=r"(?s)weight.*judged_only"):
        prediction_powered_mean([1, 0], [1, 0], [float("nan"), 1], weight=2)
    with pytest.raises(BadInput, match="same items"):
        prediction_powered_mean([1, 0], [1, 0, 1], [1, 0])
    from burnish.core import extras

    monkeypatch.setitem(extras.EXTRAS, "ppi", ("no_such_ppi",))
    with pytest.raises(MissingExtra, match="ppi"):
        prediction_powered_mean([1, 0], [1, 0], [1, 0])
