"""Student's t of means and ratios: against scipy, against its definition, and its coverage where BCa is too short."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from burnish.core.errors import BadInput
from burnish.stats.bootstrap import bootstrap
from burnish.stats.student import student_mean, student_ratio

RNG = np.random.default_rng(0)


def test_mean_is_the_textbook_interval() -> None:
    x = RNG.normal(2, 3, 17)
    found, known = student_mean(x, level=0.9), stats.ttest_1samp(x, 0).confidence_interval(0.9)
    assert (found.low, found.high) == pytest.approx((known.low, known.high))
    assert (found.method, found.n) == ("student-t", 17)


def test_clusters_of_one_size_are_their_means() -> None:
    x, labels = RNG.normal(0, 1, 24), np.repeat(np.arange(8), 3)
    found, known = student_mean(x, clusters=labels), student_mean(x.reshape(8, 3).mean(axis=1))
    assert (found.low, found.high) == pytest.approx((known.low, known.high))
    assert found.n_clusters == 8


@settings(max_examples=40, deadline=None)
@given(st.integers(3, 30), st.integers(0, 10_000), st.booleans())
def test_a_bound_of_the_ratio_is_where_the_difference_stops_being_told_from_zero(n, seed, grouped) -> None:
    rng = np.random.default_rng(seed)
    b = rng.gamma(4, 1, n)
    a = 0.8 * b + rng.normal(0, 0.3, n)
    clusters = (np.arange(n) // 2).tolist() if grouped and n > 5 else None
    found = student_ratio(a, b, clusters=clusters)
    if math.isinf(found.low):
        assert student_mean(b, clusters=clusters).low <= 1e-9
        return
    assert found.low < a.mean() / b.mean() < found.high
    assert student_mean(a - found.high * b, clusters=clusters).high == pytest.approx(0, abs=1e-9)
    assert student_mean(a - found.low * b, clusters=clusters).low == pytest.approx(0, abs=1e-9)


def test_ratio_of_one_is_a_difference_of_zero() -> None:
    for seed in range(50):
        a, b = np.random.default_rng(seed).gamma(3, 1, (2, 12))
        found = student_ratio(a, b)
        assert (found.high < 1) == (student_mean(a - b).high < 0)


def test_nothing_is_known_of_a_ratio_to_what_may_be_zero() -> None:
    found = student_ratio([1.0, 2.0, 1.5], [1.0, -0.9, 0.2])
    assert (found.low, found.high) == (-math.inf, math.inf)
    assert "not clearly above 0" in found.note
    with pytest.raises(BadInput, match="the mean below the line is -1"):
        student_ratio([1.0, 2.0], [-1.0, -1.0])


def test_equal_numbers_are_not_certainty() -> None:
    assert "not certainty" in student_mean([0.1] * 7).note
    assert "not certainty" in student_ratio([0.3] * 7, [0.1] * 7).note
    proportional = student_ratio([0.3, 0.4, 0.5], [3.0, 4.0, 5.0])
    assert (proportional.low, proportional.high) == pytest.approx((0.1, 0.1), abs=1e-6)


def test_bad_input_is_named() -> None:
    with pytest.raises(BadInput, match="NaN or infinite in row 1"):
        student_mean([1.0, math.nan])
    with pytest.raises(BadInput, match="fewer than the 2 needed"):
        student_mean([1.0])
    with pytest.raises(BadInput, match="not between 0 and 1"):
        student_ratio([1.0, 2.0], [1.0, 2.0], level=1)
    with pytest.raises(BadInput, match="not one number"):
        student_mean(np.ones((3, 2)))


def test_coverage_of_two_dozen_skewed_windows_is_nearer_the_level_than_that_of_bca() -> None:
    """Losses of 24 windows, lognormal, of two arms that agree on which windows are hard."""
    rng = np.random.default_rng(3)
    truth, held = math.exp(-0.2), {"t": 0, "bca": 0}
    times = 400
    for _ in range(times):
        shared, own = rng.standard_normal((2, 24))
        a, b = np.exp(-0.2 + 0.6 * shared), np.exp(0.6 * (0.9 * shared + math.sqrt(0.19) * own))
        t = student_ratio(a, b)
        bca = bootstrap(np.column_stack([a, b]), lambda m: m[0] / m[1], draws=1000)
        held["t"] += t.low <= truth <= t.high
        held["bca"] += bca.low <= truth <= bca.high
    assert held["t"] / times == pytest.approx(0.95, abs=0.025)
    assert held["bca"] < held["t"] - 0.02 * times
