"""Bradley-Terry against closed forms and independent logistic regressions, and the coverage of its intervals."""

from __future__ import annotations

import importlib.util
import itertools
import math
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st

from burnish.core.errors import BadInput, UnknownName
from burnish.stats.bradley_terry import BradleyTerry, Comparisons, bootstrap, fit

STYLE = {"length": 0.6, "header": 0.2, "list": -0.1, "bold": 0.3}


def arena(models: int = 20, prompts: int = 500, seed: int = 0, style: bool = True) -> Comparisons:
    """Models against one baseline on the same prompts, two games each, with ties, weights and a planted style bias."""
    rng = np.random.default_rng(seed)
    strength = rng.normal(0, 1, models)
    rows = models * prompts * 2
    model = np.repeat(np.arange(models), prompts * 2)
    x = np.repeat(rng.normal(0.3, 1, (models * prompts, 4)), 2, axis=0)
    logit = strength[model] + (x @ np.array(list(STYLE.values())) if style else 0)
    outcome = (rng.random(rows) < 1 / (1 + np.exp(-logit))).astype(float)
    outcome[rng.random(rows) < 0.1] = 0.5
    return Comparisons.of(
        [f"m{number:02d}" for number in model],
        ["base"] * rows,
        outcome,
        weights=np.where(rng.random(rows) < 0.3, 3.0, 1.0),
        covariates=dict(zip(STYLE, x.T, strict=True)) if style else None,
        clusters=np.tile(np.repeat(np.arange(prompts), 2), models),
    )


def design(rows: Comparisons, anchor: str) -> np.ndarray:
    """The dense design matrix, without the anchor's column."""
    table = np.zeros((len(rows), len(rows.players)))
    table[np.arange(len(rows)), rows.first] += 1
    table[np.arange(len(rows)), rows.second] -= 1
    return np.hstack([np.delete(table, rows.player(anchor), 1), rows.covariates])


def coefficients(found: BradleyTerry) -> np.ndarray:
    return np.concatenate([np.delete(found.strengths, found.players.index(found.anchor)), found.coefficients])


def by_scipy(rows: Comparisons, anchor: str) -> np.ndarray:
    x, y, w = design(rows, anchor), rows.outcome, rows.weight

    def loss(theta: np.ndarray) -> tuple[float, np.ndarray]:
        eta = x @ theta
        return w @ (np.logaddexp(0, eta) - y * eta), x.T @ (w * (1 / (1 + np.exp(-eta)) - y))

    start = np.zeros(x.shape[1])
    return scipy.optimize.minimize(loss, start, jac=True, method="BFGS", options={"gtol": 1e-5}).x


@pytest.mark.parametrize("style", [True, False])
def test_coefficients_are_those_of_a_general_optimizer(style: bool) -> None:
    rows = arena(style=style)
    assert np.abs(coefficients(fit(rows, "base")) - by_scipy(rows, "base")).max() < 1e-3


@pytest.mark.parametrize("style", [True, False])
def test_coefficients_are_those_of_scikit_learn(style: bool) -> None:
    linear = pytest.importorskip("sklearn.linear_model")
    rows = arena(style=style)
    x = design(rows, "base")
    # A tie is half a win and half a loss: every row stands twice.
    weight = np.concatenate([rows.weight * rows.outcome, rows.weight * (1 - rows.outcome)])
    target = np.repeat([1, 0], len(rows))
    kept = weight > 0
    theirs = linear.LogisticRegression(C=1e9, fit_intercept=False, tol=1e-8, max_iter=1000)
    theirs.fit(np.vstack([x, x])[kept], target[kept], weight[kept])
    assert np.abs(coefficients(fit(rows, "base")) - theirs.coef_[0]).max() < 1e-3


def test_a_planted_bias_is_found_and_each_choice_of_covariates_is_another_fit() -> None:
    rows = arena()
    table = dict(zip(rows.names, rows.covariates.T, strict=True))
    names = [rows.players[number] for number in rows.first]
    fits = {}
    for chosen in (("length",), ("header", "list", "bold"), tuple(STYLE)):
        some = Comparisons.of(
            names, ["base"] * len(rows), rows.outcome, weights=rows.weight, covariates={n: table[n] for n in chosen}
        )
        fits[chosen] = fit(some, "base")
        assert np.abs(coefficients(fits[chosen]) - by_scipy(some, "base")).max() < 1e-3
    # Ties at random pull every coefficient towards 0 by the share of them; without ties the bias itself is found.
    assert 0.5 < fits[tuple(STYLE)].coefficients[0] < 0.6
    strengths = [found.strengths for found in fits.values()]
    assert all(np.abs(a - b).max() > 1e-3 for a, b in itertools.pairwise(strengths))


def test_a_planted_length_bias_is_recovered() -> None:
    rng = np.random.default_rng(5)
    x = rng.normal(0.5, 1, 8000)
    won = rng.random(8000) < 1 / (1 + np.exp(-(0.4 + 0.6 * x)))
    found = fit(Comparisons.of(["a"] * 8000, ["b"] * 8000, won, covariates={"length": x}), "b")
    assert abs(found.coefficients[0] - 0.6) < 0.1
    assert abs(found.strength("a") - 0.4) < 0.1


outcomes = st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from([1.0, 3.0])), min_size=2, max_size=30)


@settings(derandomize=True, deadline=None, max_examples=50)
@given(outcomes)
def test_against_one_opponent_the_win_rate_is_the_weighted_mean(games: list[tuple[float, float]]) -> None:
    score, weight = map(list, zip(*games, strict=True))
    found = fit(Comparisons.of(["a"] * len(games), ["b"] * len(games), score, weights=weight), "b")
    assert math.isclose(found.win_rate("a"), np.average(score, weights=weight), abs_tol=1e-3)


@settings(derandomize=True, deadline=None, max_examples=30)
@given(outcomes, st.integers(0, 1000))
def test_the_order_of_rows_and_of_sides_does_not_matter(games: list[tuple[float, float]], seed: int) -> None:
    rng = np.random.default_rng(seed)
    players = np.array(["a", "b", "c"])
    pair = [("a", "b"), ("b", "c")] + [tuple(rng.choice(players, 2, replace=False)) for _ in games[2:]]
    score, weight = (np.array(column) for column in zip(*games, strict=True))
    first, second = zip(*pair, strict=True)
    found = fit(Comparisons.of(first, second, score, weights=weight), "a")
    order = rng.permutation(len(games))
    turned = rng.random(len(games)) < 0.5
    again = Comparisons.of(
        [second[i] if turned[i] else first[i] for i in order],
        [first[i] if turned[i] else second[i] for i in order],
        [1 - score[i] if turned[i] else score[i] for i in order],
        weights=weight[order],
    )
    assert np.allclose(found.strengths, fit(again, "a").strengths, atol=1e-6)
    moved = fit(Comparisons.of(first, second, score, weights=weight), "c")
    # A player that won everything is held by the penalty alone, which looks from the anchor.
    if np.abs(found.strengths).max() < 5:
        assert np.allclose(found.strengths - found.strengths[2], moved.strengths, atol=1e-2)


def test_three_players_match_the_classical_iteration() -> None:
    wins = np.array([[0, 7, 9], [3, 0, 6], [1, 4, 0]], dtype=float)
    first, second, score, weight = [], [], [], []
    for i in range(3):
        for j in range(3):
            if wins[i, j]:
                first.append("abc"[i])
                second.append("abc"[j])
                score.append(1.0)
                weight.append(wins[i, j])
    found = fit(Comparisons.of(first, second, score, weights=weight), "a")
    worth = np.ones(3)
    for _ in range(2000):  # Zermelo's iteration, 1929
        games = wins + wins.T
        worth = wins.sum(1) / (games / (worth[:, None] + worth[None, :])).sum(1)
        worth /= worth[0]
    assert np.allclose(found.strengths, np.log(worth), atol=1e-4)


def test_a_weight_of_three_is_three_rows() -> None:
    once = fit(Comparisons.of(["a", "a"], ["b", "b"], [1, 0], weights=[3, 1]), "b")
    thrice = fit(Comparisons.of(["a"] * 4, ["b"] * 4, [1, 1, 1, 0]), "b")
    assert math.isclose(once.win_rate("a"), thrice.win_rate("a"))
    assert math.isclose(once.win_rate("a"), 0.75, abs_tol=1e-4)


def test_who_loses_everything_gets_a_finite_strength() -> None:
    found = fit(Comparisons.of(["a"] * 500, ["b"] * 500, np.zeros(500)), "b")
    assert 0 < found.win_rate("a") < 1e-5


def test_players_on_the_same_prompts_are_drawn_together() -> None:
    rng = np.random.default_rng(0)
    score = rng.integers(0, 2, 100).astype(float)
    rows = Comparisons.of(
        ["a"] * 100 + ["twin"] * 100, ["b"] * 200, np.tile(score, 2), clusters=np.tile(np.arange(100), 2)
    )
    found = bootstrap(rows, "b", draws=100)
    assert np.allclose(found.win_rates("a"), found.win_rates("twin"))
    assert np.allclose(found.win_rates("a", "twin"), 0.5)
    assert found.win_rate("a").n_clusters == 100


def test_the_same_seed_gives_the_same_interval_and_another_one_another() -> None:
    rows = arena(2, 50)
    one, two, other = (bootstrap(rows, "base", draws=50, level=0.9, seed=seed).win_rate("m00") for seed in (1, 1, 2))
    assert one == two != other


@pytest.mark.parametrize("turned", [False, True])
def test_resamples_against_the_anchor_alone_are_fits_to_the_same_resamples(turned: bool) -> None:
    rows = arena(4, 30, style=False)
    names = [rows.players[number] for number in rows.first]
    first, second = (["base"] * len(rows), names) if turned else (names, ["base"] * len(rows))
    outcome = 1 - rows.outcome if turned else rows.outcome
    again = Comparisons.of(first, second, outcome, weights=rows.weight, clusters=rows.cluster.tolist())
    found = bootstrap(again, "base", draws=40, seed=7)
    # The same draws, each fitted by the general method.
    rng = np.random.Generator(np.random.PCG64(7))
    for draw in range(40):
        times = rng.multinomial(30, np.full(30, 1 / 30))[rows.cluster]
        whole = fit(Comparisons.of(names, ["base"] * len(rows), rows.outcome, weights=rows.weight * times), "base")
        assert np.abs(whole.strengths - found.strengths[draw]).max() < 1e-6


@pytest.mark.parametrize("ridge", [1e-4, 1.0, 100.0])
def test_who_wins_everything_is_held_by_the_penalty_in_every_resample(ridge: float) -> None:
    rows = Comparisons.of(["a"] * 60 + ["c"] * 60, ["b"] * 120, [1.0] * 60 + [0.0] * 60, clusters=[*range(60)] * 2)
    found = bootstrap(rows, "b", draws=20, ridge=ridge)
    assert np.abs(found.strengths - fit(rows, "b", ridge=ridge).strengths).max() < 1e-6


def _benchmark() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "arena_coverage.py"
    spec = importlib.util.spec_from_file_location("arena_coverage", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_resampling_prompts_covers_and_resampling_rows_does_not() -> None:
    simulation = _benchmark()
    assert simulation.coverage("prompts", 120, 200, 120) >= 0.93
    assert simulation.coverage("games", 60, 200, 120) <= 0.75


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(BadInput) as caught:
        Comparisons.of(
            ["a", "a", "b"],
            ["b", "a"],
            [0.5, 2, 0],
            weights=[-1, 1, 1],
            covariates={"x": [1, math.nan, 0]},
            clusters=[1],
        )
    for told in (
        "second: 2 names for 3", "outcome: outside [0, 1] in row 1", "weights: outside [0, inf] in row 0",
        "x: NaN or infinite in row 1", "clusters: 1 labels for 3", "meets itself in row 1",
    ):  # fmt: skip
        assert told in caught.value.problem


def test_what_has_no_fit_is_refused() -> None:
    apart = Comparisons.of(["a", "c"], ["b", "d"], [1, 0], covariates={"flat": [0, 0]})
    with pytest.raises(BadInput) as caught:
        fit(apart, "a", ridge=0)
    for told in ("no comparisons link c, d to a", "'flat' is 0 in every comparison", "ridge"):
        assert told in caught.value.problem
    with pytest.raises(UnknownName, match="no player called 'z'"):
        fit(apart, "z")
    with pytest.raises(BadInput, match="1 cluster"):
        bootstrap(Comparisons.of(["a", "a"], ["b", "b"], [1, 0], clusters=[1, 1]), "b")
    with pytest.raises(BadInput, match="there are no comparisons"):
        Comparisons.of([], [], [])


def test_a_player_on_too_few_prompts_has_no_interval() -> None:
    rows = Comparisons.of(["a"] * 30 + ["rare"], ["b"] * 31, [1, 0] * 15 + [1], clusters=[*range(30), 0])
    found = bootstrap(rows, "b", draws=200)
    assert np.isnan(found.win_rates("rare")).mean() > 0.2
    assert found.win_rate("a").low > 0.2
    with pytest.raises(BadInput, match="undefined in"):
        found.win_rate("rare")
