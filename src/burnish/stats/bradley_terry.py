"""Bradley-Terry: strengths of models from battles between them, with what is not strength (style) taken out.

P(a beats b) = sigmoid(s_a - s_b + w . x), where x holds covariates of the battle, such as the difference of the two
answers' lengths. A tie is half a win for each side. Fitted by Newton's method on the weighted logistic likelihood;
Newton's method also gives each resample's fit in a few steps from the whole fit. Battles of one prompt are resampled
together: two games with the sides swapped, or several copies of one game, are not independent evidence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from burnish.core.errors import BadInput, UnknownName
from burnish.stats.checks import count_faults, is_number, level_faults
from burnish.stats.interval import Interval
from burnish.stats.items import FloatArray, IntArray, Items, Labels

_STEPS = 60
_CLOSE = 1e-9
_FEW = 20


@dataclass(frozen=True)
class BradleyTerry:
    """Strengths, and how they vary over resampled prompts."""

    names: tuple[str, ...]
    """Models, in order of their names."""
    strengths: FloatArray
    """In logits, (models,); that of the baseline is 0."""
    coefficients: FloatArray
    """Of the covariates as given, (covariates,)."""
    drawn: FloatArray
    """Strengths of each resample, (draws, models)."""
    drawn_coefficients: FloatArray
    """(draws, covariates)."""
    baseline: str
    level: float
    n: int
    """Battles."""
    n_clusters: int | None
    """Prompts, where battles were grouped by them."""

    def win_rate(self, name: str, against: str | None = None) -> Interval:
        """Chance that `name` beats `against` (by default the baseline) with all covariates at 0, as an interval.

        Raises:
            UnknownName: No such model.
        """
        a, b = self._place(name), self._place(self.baseline if against is None else against)
        gap = self.strengths[a] - self.strengths[b]
        return self._interval(float(special.expit(gap)), special.expit(self.drawn[:, a] - self.drawn[:, b]))

    def strength(self, name: str) -> Interval:
        """Strength over the baseline, in logits.

        Raises:
            UnknownName: No such model.
        """
        a = self._place(name)
        return self._interval(float(self.strengths[a]), self.drawn[:, a])

    def coefficient(self, number: int) -> Interval:
        """Weight of one covariate, in logits for one unit of it."""
        return self._interval(float(self.coefficients[number]), self.drawn_coefficients[:, number])

    def p_better(self, a: str, b: str) -> float:
        """Share of resamples in which `a` is stronger than `b`; ties count half."""
        gap = self.drawn[:, self._place(a)] - self.drawn[:, self._place(b)]
        return float(np.mean(gap > 0) + np.mean(gap == 0) / 2)

    def _place(self, name: str) -> int:
        if name not in self.names:
            raise UnknownName("model in these battles", name, self.names)
        return self.names.index(name)

    def _interval(self, estimate: float, drawn: FloatArray) -> Interval:
        low, high = np.quantile(drawn, [(1 - self.level) / 2, (1 + self.level) / 2])
        units = self.n if self.n_clusters is None else self.n_clusters
        note = f"only {units} resampled units: such an interval is usually too narrow" if units < _FEW else ""
        return Interval(estimate, float(low), float(high), self.level, self.n, self.n_clusters, "bootstrap", note)


def bradley_terry(
    a: Sequence[str],
    b: Sequence[str],
    score: ArrayLike,
    *,
    covariates: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    clusters: Labels | None = None,
    baseline: str | None = None,
    ridge: float = 1e-3,
    level: float = 0.95,
    draws: int = 200,
    seed: int = 0,
) -> BradleyTerry:
    """Fit strengths to battles.

    Args:
        a: One side of each battle, (battles,).
        b: The other side.
        score: 1 where `a` won, 0 where `b` did, 0.5 for a tie; anything between is allowed.
        covariates: (battles, covariates), seen from `a`: swapping the sides must change their sign.
        weights: How much each battle counts, e.g. 3 for a clear win.
        clusters: The prompt of each battle, resampled whole.
        baseline: The model whose strength is 0; by default the first by name.
        ridge: Weight of a penalty strength^2 / 2 (and the same on covariates of unit variance), which keeps a model
            that won every battle at a finite strength; it counts as little as that many battles.
        level: Nominal coverage.
        draws: Resamples of prompts (or of battles).
        seed: Seed of the resamples.

    Raises:
        BadInput: Columns of unequal length, battles of a model with itself, scores out of [0, 1], covariates that are
            NaN or do not vary, groups of models that never met; all faults at once.
        UnknownName: The baseline fought no battle.
    """
    battles = _read(a, b, score, covariates, weights, clusters, ridge, level, draws, seed)
    names = battles.names
    base = names[0] if baseline is None else baseline
    if base not in names:
        raise UnknownName("model in these battles", base, names)
    fit = _fit(battles, battles.weights, ridge, np.zeros(len(names) + battles.x.shape[1]))
    rng = np.random.Generator(np.random.PCG64(seed))
    drawn = np.empty((draws, len(fit)))
    for draw in range(draws):
        times = np.bincount(rng.integers(0, battles.units, battles.units), minlength=battles.units)
        drawn[draw] = _fit(battles, battles.weights * times[battles.unit], ridge, fit)
    count, place = len(names), names.index(base)
    return BradleyTerry(
        names=names,
        strengths=fit[:count] - fit[place],
        coefficients=fit[count:] / battles.spread,
        drawn=drawn[:, :count] - drawn[:, [place]],
        drawn_coefficients=drawn[:, count:] / battles.spread,
        baseline=base,
        level=level,
        n=len(battles.score),
        n_clusters=None if clusters is None else battles.units,
    )


@dataclass(frozen=True)
class _Battles:
    names: tuple[str, ...]
    a: IntArray
    b: IntArray
    score: FloatArray
    x: FloatArray
    """Covariates over their root mean square, (battles, covariates)."""
    spread: FloatArray
    weights: FloatArray
    unit: IntArray
    units: int


def _fit(battles: _Battles, weights: FloatArray, ridge: float, start: FloatArray) -> FloatArray:
    """Strengths and scaled covariate weights, by Newton's steps that are halved while they do not help."""
    # Battles that this resample left out cost nothing.
    there = np.flatnonzero(weights)
    a, b, y = battles.a[there], battles.b[there], battles.score[there]
    x, w = battles.x[there], weights[there]
    count = len(battles.names)

    def loss(at: FloatArray) -> float:
        z = at[a] - at[b] + x @ at[count:]
        return float(w @ (np.logaddexp(0, z) - y * z)) + ridge / 2 * float(at @ at)

    at, now = start, loss(start)
    for _ in range(_STEPS):
        p = special.expit(at[a] - at[b] + x @ at[count:])
        slope, curve = w * (p - y), w * p * (1 - p)
        gradient = np.concatenate([np.bincount(a, slope, count) - np.bincount(b, slope, count), x.T @ slope])
        gradient += ridge * at
        hessian = _hessian(a, b, x, curve, count) + ridge * np.eye(len(at))
        step = np.linalg.solve(hessian, gradient)
        decrease = float(gradient @ step)
        if decrease < _CLOSE**2 * max(float(w.sum()), 1.0):
            break
        size = 1.0
        while (after := loss(at - size * step)) > now - 1e-4 * size * decrease and size > 1e-6:
            size /= 2
        at, now = at - size * step, after
    return at


def _hessian(a: IntArray, b: IntArray, x: FloatArray, curve: FloatArray, count: int) -> FloatArray:
    pairs = np.bincount(a * count + b, curve, count * count).reshape(count, count)
    pairs = pairs + pairs.T
    found = np.empty((count + x.shape[1],) * 2)
    found[:count, :count] = np.diag(pairs.sum(axis=1)) - pairs
    bent = curve[:, None] * x
    cross = np.stack([np.bincount(a, v, count) - np.bincount(b, v, count) for v in bent.T], axis=1) if x.size else None
    if cross is not None:
        found[:count, count:], found[count:, :count] = cross, cross.T
        found[count:, count:] = x.T @ bent
    return found


def _read(
    a: Sequence[str],
    b: Sequence[str],
    score: ArrayLike,
    covariates: ArrayLike | None,
    weights: ArrayLike | None,
    clusters: Labels | None,
    ridge: float,
    level: float,
    draws: int,
    seed: int,
) -> _Battles:
    faults = level_faults(level) + count_faults("draws", draws, 1) + count_faults("seed", seed, 0)
    faults += [] if is_number(ridge) and ridge > 0 else [f"ridge: {ridge!r} is not above 0"]
    n = len(a)
    x = np.zeros((n, 0)) if covariates is None else np.asarray(covariates, dtype=np.float64)
    x = x[:, None] if x.ndim == 1 else x
    w = np.ones(n) if weights is None else np.asarray(weights, dtype=np.float64)
    y = np.asarray(score, dtype=np.float64)
    lengths = {"a": n, "b": len(b), "score": len(y), "covariates": len(x), "weights": len(w)}
    if len(set(lengths.values())) > 1 or n == 0:
        faults.append(
            "one row a battle is needed: " + ", ".join(f"{name} has {size}" for name, size in lengths.items())
        )
        raise BadInput.of("these battles cannot be used", faults)
    names = tuple(sorted({*a, *b}))
    number = {name: i for i, name in enumerate(names)}
    left, right = (np.array([number[name] for name in side], dtype=np.intp) for side in (a, b))
    for what, wrong in (
        ("a model fights itself", left == right),
        ("score: not in [0, 1]", ~((y >= 0) & (y <= 1))),
        ("covariates: NaN or infinite", ~np.isfinite(x).all(axis=1)),
        ("weights: not a finite number of at least 0", ~(np.isfinite(w) & (w >= 0))),
    ):
        if wrong.any():
            faults.append(f"{what} in row {int(np.flatnonzero(wrong)[0])} (from 0) and {int(wrong.sum()) - 1} others")
    spread = np.sqrt(np.mean(np.square(x), axis=0))
    faults += [f"covariate {i} (from 0) is 0 in every battle" for i in np.flatnonzero(spread == 0)]
    apart = _groups(left, right, len(names))
    if apart > 1:
        faults.append(f"the models fall into {apart} groups that never met, so their strengths cannot be compared")
    if faults:
        raise BadInput.of("these battles cannot be used", faults)
    items = Items.of(y, clusters, least=1)
    return _Battles(names, left, right, y, x / spread, spread, w, items.unit, items.units)


def _groups(a: IntArray, b: IntArray, count: int) -> int:
    """Number of groups of models connected by battles."""
    group = np.arange(count)
    for _ in range(count):
        before = group.copy()
        np.minimum.at(group, a, group[b])
        np.minimum.at(group, b, group[a])
        if (group == before).all():
            break
    return len(set(group.tolist()))
