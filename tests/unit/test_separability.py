"""Separability, agreement and Brier score against hand counts and the published leaderboard."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from burnish.core.errors import BadInput
from burnish.stats.separability import (
    Bounds,
    above_from_bounds,
    above_from_draws,
    agreement,
    pair_brier,
    separability,
)


def board(*rows: tuple[float, float, float]) -> Bounds:
    score, low, high = map(list, zip(*rows, strict=True))
    return Bounds.of([f"m{number}" for number in range(len(rows))], score, low, high)


FOUR = board((4, 3.5, 4.5), (3, 2.5, 3.5), (2.8, 2.4, 3.2), (1, 0.5, 1.5))


def test_pairs_are_counted_by_hand() -> None:
    # 0/1 touch at 3.5 and 1/2 overlap: not separated; 0/2, 0/3, 1/3, 2/3 are.
    assert separability(FOUR) == 4 / 6
    other = board((1, 0.9, 1.1), (2, 1.9, 2.1), (3, 2.9, 3.1), (0, -1, 0.95))
    # 0/2 disagree; 0/3 is not separated there; 1/3 and 2/3 agree; the others are not separated here.
    every, both = agreement(FOUR, other)
    assert (every, both) == ((2 - 1) / 6, (2 - 1) / 3)
    assert agreement(FOUR, FOUR) == (4 / 6, 1.0)


boards = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 5), st.integers(0, 5)).map(lambda r: (r[0], r[0] - r[1], r[0] + r[2])),
    min_size=2,
    max_size=8,
).map(lambda rows: board(*rows))


@settings(derandomize=True, deadline=None, max_examples=60)
@given(boards)
def test_agreement_never_passes_separability(found: Bounds) -> None:
    turned = Bounds(found.names, -found.scores, -found.high, -found.low)
    assert agreement(found, found)[0] == separability(found) == separability(turned)
    assert agreement(found, turned)[0] == -separability(found)
    assert sum(found.order(a, b) + found.order(b, a) for a, b in found.pairs()) == 0


def test_brier_is_its_definition() -> None:
    truth = board((3, 3, 3), (2, 2, 2), (2, 2, 2))
    above = np.array([[0.5, 0.9, 0.6], [0.1, 0.5, 0.5], [0.4, 0.5, 0.5]])
    assert pair_brier(above, truth) == pytest.approx((0.1**2 + 0.4**2) / 2)  # the tied pair does not count
    assert pair_brier(np.full((3, 3), 0.5), truth) == 0.25
    with pytest.raises(BadInput, match="ties every pair"):
        pair_brier(above[1:, 1:], truth.only(["m1", "m2"]))
    with pytest.raises(BadInput, match="for 3 models"):
        pair_brier(above[1:], truth)


def test_probabilities_from_draws_and_from_bounds_agree_for_independent_normal_scores() -> None:
    rng = np.random.default_rng(0)
    score, spread = np.array([0.0, 1.0, 1.5]), np.array([1.0, 0.5, 2.0])
    draws = rng.normal(score, spread, (50_000, 3))
    bounds = Bounds.of("abc", score, score - 1.959964 * spread, score + 1.959964 * spread)  # type: ignore[arg-type]
    assert np.abs(above_from_draws(draws) - above_from_bounds(bounds)).max() < 0.01
    assert np.allclose(above_from_bounds(bounds) + above_from_bounds(bounds).T, 1)
    assert np.allclose(above_from_draws(np.array([[1.0, 1.0], [2.0, 1.0]])), [[0.5, 0.75], [0.25, 0.5]])
    points = board((1, 1, 1), (2, 2, 2), (2, 2, 2))
    assert above_from_bounds(points).tolist() == [[0.5, 0, 0], [1, 0.5, 0.5], [1, 0.5, 0.5]]


def test_faults_are_told_together() -> None:
    with pytest.raises(BadInput) as caught:
        Bounds.of(["a", "a", "b"], [1, float("nan"), 2], [0, 0, 3], [2, 2, 1])
    for told in ("a model occurs twice", "a: [nan, 0, 2]", "b: the bounds 3 and 1 are crossed"):
        assert told in caught.value.problem
    with pytest.raises(BadInput, match="a pair needs 2"):
        board((1, 0, 2))
    with pytest.raises(BadInput, match="other models"):
        agreement(FOUR, FOUR.only(["m1", "m0", "m2", "m3"]))
    with pytest.raises(BadInput, match="level"):
        above_from_bounds(FOUR, 1.0)
