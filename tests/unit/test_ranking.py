"""Rankings of systems and translations against their definitions, and against figures that mt-metrics-eval's tests state."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from burnish.core.errors import BadInput
from burnish.stats.ranking import (
    kendall,
    pairwise_accuracy,
    permutation_p,
    soft_pairwise_accuracy,
    soft_pairwise_interval,
    tie_calibrated_accuracy,
)

N = math.nan


@pytest.mark.parametrize(
    ("metric", "human", "thresholds", "accuracies", "best"),
    [
        ([[0, 2, 6, 8]], [[1, 2, 3, 4]], [0, 2, 4, 6, 8], [1, 4 / 6, 3 / 6, 1 / 6, 0], 0),
        ([[0, 2, 6, 8]], [[1, 1, 1, 4]], [0, 2, 4, 6, 8], [3 / 6, 3 / 6, 4 / 6, 4 / 6, 3 / 6], 4),
        (
            [[0, 5, 2, 3, 2], [N, 2, 1, 5, 3], [9, 1, 5, 3, 8], [9, 3, 4, 4, 1], [N] * 5],
            [[1, 5, 2, 1, 1], [4, 2, 2, 1, 4], [5, 9, 2, 8, 7], [7, 6, N, 3, 2], [N] * 5],
            [0, 1, 2, 3, 4, 5, 6, 7, 8],
            [0.466667, 0.491667, 0.383333, 0.291667, 0.266667, 0.2, 0.158333, 0.158333, 0.116667],
            1,
        ),
    ],
)
def test_tie_calibration_is_that_of_mt_metrics_eval(metric, human, thresholds, accuracies, best) -> None:
    found = tie_calibrated_accuracy(human, metric)
    assert found.thresholds.tolist() == thresholds
    assert found.accuracies == pytest.approx(accuracies, abs=1e-6)
    assert found.threshold == best
    assert found.accuracy == pytest.approx(max(accuracies), abs=1e-6)
    assert np.nanmean(found.by_segment) == pytest.approx(found.accuracy)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_tie_calibration_is_its_definition(data: st.DataObject) -> None:
    shape = (data.draw(st.integers(1, 4)), data.draw(st.integers(2, 4)))
    cells = st.lists(
        st.sampled_from([N, 0.0, 0.1, 1.0, 5.0]), min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]
    )
    human, metric = (np.array(data.draw(cells)).reshape(shape) for _ in range(2))

    def at(threshold: float) -> float:
        means = []
        for h, m in zip(human, metric, strict=True):
            right = []
            for i, j in itertools.combinations(range(shape[1]), 2):
                if np.isfinite([h[i], h[j], m[i], m[j]]).all():
                    tied = abs(m[i] - m[j]) <= threshold + 1e-10
                    right.append(h[i] == h[j] if tied else np.sign(h[i] - h[j]) == np.sign(m[i] - m[j]))
            means += [np.mean(right)] if right else []
        return float(np.mean(means)) if means else N

    if math.isnan(at(0)):
        with pytest.raises(BadInput, match="no segment"):
            tie_calibrated_accuracy(human, metric)
        return
    found = tie_calibrated_accuracy(human, metric)
    assert [at(t) for t in found.thresholds] == pytest.approx(found.accuracies.tolist())
    assert found.accuracy == pytest.approx(max(at(t) for t in found.thresholds))


def test_permutation_p_is_exact_on_few_segments() -> None:
    # Differences 1, 2, 3: of the 8 sign patterns one gives at least 6, and it equals it.
    p = permutation_p([[1, 0], [2, 0], [3, 0]], draws=40_000)
    assert p == pytest.approx([0.5 / 8], abs=0.005)
    assert permutation_p([[1, 1], [2, 2]]) == pytest.approx([0.5])


def test_permutation_p_is_near_the_normal_one_on_many_segments() -> None:
    scores = np.random.default_rng(1).normal([0, 0.05, 0.1], 1, size=(400, 3))
    found = permutation_p(scores, draws=20_000)
    for p, (i, j) in zip(found, itertools.combinations(range(3), 2), strict=True):
        d = scores[:, i] - scores[:, j]
        assert p == pytest.approx(norm.sf(d.sum() / np.sqrt((d**2).sum())), abs=0.01)


@settings(max_examples=20, deadline=None)
@given(st.permutations(range(4)))
def test_soft_pairwise_accuracy_does_not_depend_on_the_order_of_systems(order: list[int]) -> None:
    rng = np.random.default_rng(2)
    human = rng.integers(-3, 1, (30, 4)).astype(float)
    metric = human + rng.integers(-2, 3, (30, 4))
    human[:, 1] = human[:, 0]
    whole = soft_pairwise_accuracy(human, metric)
    assert soft_pairwise_accuracy(human[:, order], metric[:, order]) == pytest.approx(whole)
    assert soft_pairwise_accuracy(human, human) == 1
    # A metric that is sure of the contrary of everything that humans are sure of.
    clear = np.arange(4.0) + rng.normal(0, 0.01, (30, 4))
    assert soft_pairwise_accuracy(clear, -clear) == pytest.approx(0, abs=0.01)


def test_simple_figures() -> None:
    assert kendall([1, 2, 3, 4], [1, 2, 4, 3]) == pytest.approx(4 / 6)
    assert math.isnan(kendall([1, 1], [1, 2]))
    assert kendall([0.1 + 0.2, 0.3, 1], [1, 1, 2]) == pytest.approx(1)  # a difference of rounding is a tie
    assert pairwise_accuracy([1, 2, 2], [1, 3, 3]) == 1
    assert pairwise_accuracy([1, 2, 2], [1, 3, 4]) == pytest.approx(2 / 3)


def test_bad_matrices_are_refused() -> None:
    with pytest.raises(BadInput, match="matrices alike"):
        tie_calibrated_accuracy([[1, 2]], [[1, 2, 3]])
    with pytest.raises(BadInput, match="1 systems"):
        soft_pairwise_accuracy([[1], [2]], [[1], [2]])


def _scored(rng: np.random.Generator, segments: int) -> tuple[np.ndarray, np.ndarray]:
    """Eight systems of rising quality, as humans and a noisy metric see them."""
    human = np.linspace(0, 0.8, 8) + rng.normal(0, 1, (segments, 1)) + rng.gumbel(0, 1, (segments, 8))
    return human, 0.6 * human + rng.normal(0, 1, (segments, 8))


def test_soft_pairwise_interval_holds_what_other_segments_give() -> None:
    rng = np.random.default_rng(0)
    target = np.mean([soft_pairwise_accuracy(*_scored(rng, 30), 200) for _ in range(200)])
    found = [soft_pairwise_interval(*_scored(rng, 30), draws=200, resamples=200) for _ in range(60)]
    assert sum(one.low <= target <= one.high for one in found) >= 52
    # It says something: the scores of one test set do not leave everything open.
    assert np.mean([one.high - one.low for one in found]) < 0.4


def test_soft_pairwise_interval_is_that_of_the_accuracy() -> None:
    human, metric = _scored(np.random.default_rng(1), 25)
    found = soft_pairwise_interval(human, metric)
    assert found == soft_pairwise_interval(human, metric)
    assert found.estimate == soft_pairwise_accuracy(human, metric)
    assert 0 <= found.low < found.estimate <= found.high <= 1
    perfect = soft_pairwise_interval(human, human)
    assert (perfect.estimate, perfect.low, perfect.high) == (1, 1, 1)
    with pytest.raises(BadInput, match="NaN or infinite in rows 0, 1, 2"):
        soft_pairwise_interval(np.full((3, 2), np.nan), np.ones((3, 2)))
