"""Bradley-Terry: strengths of players from comparisons in pairs, with covariates of the comparison itself.

A comparison of a with b ends with the outcome y in [0, 1], seen from a: 1 won, 0 lost, 0.5 a tie. The model is

    P(a beats b) = 1 / (1 + exp(-(s_a - s_b + x·β)))

with a strength s for each player, 0 for the anchor, and a coefficient β for each covariate x of the comparison, such as
how much longer a's answer is. It is a logistic regression without intercept, fitted by Newton's method to the weighted
log-likelihood; a tie counts as half a win and half a loss. Where all comparisons are against one opponent and there
are no covariates, expit(s_a - s_b) is the weighted mean of a's outcomes.

Comparisons on one prompt are not independent: two games, several opponents, one question. `bootstrap` therefore draws
whole clusters of comparisons.

Source: Bradley and Terry, Biometrika 39 (1952); covariates as in Li et al., arXiv 2406.11939, "style control".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.special import expit, ndtr, stdtrit

from burnish.core.errors import BadInput, UnknownName
from burnish.stats.checks import count_faults, level_faults
from burnish.stats.interval import Interval
from burnish.stats.items import FloatArray, IntArray, Labels

RIDGE = 1e-4
"""Default weight of the penalty s²/2 + β²/2. It moves an estimate of ordinary data in the sixth digit, and gives a
player that won or lost everything, whose likelihood has no maximum, a large finite strength."""
_STEPS = 100
_CHUNK = 2**22
"""Numbers of a table of resamples that is held at once."""
_FEW = 20
"""Below this many clusters a bootstrap interval is clearly too narrow, and says so."""


@dataclass(frozen=True)
class Comparisons:
    """Checked comparisons: one row is one comparison of two players."""

    players: tuple[str, ...]
    """In order of their names."""
    first: IntArray
    """Number of the player that the outcome is seen from, (rows,)."""
    second: IntArray
    """Number of the other, (rows,)."""
    outcome: FloatArray
    """In [0, 1], (rows,)."""
    weight: FloatArray
    """How often the row counts, (rows,)."""
    covariates: FloatArray
    """(rows, covariates)."""
    names: tuple[str, ...]
    """Of the covariates."""
    cluster: IntArray
    """Number of the cluster that the row is drawn with, (rows,)."""
    clusters: int
    clustered: bool

    @classmethod
    def of(
        cls,
        first: Sequence[str],
        second: Sequence[str],
        outcome: ArrayLike,
        *,
        weights: ArrayLike | None = None,
        covariates: Mapping[str, ArrayLike] | None = None,
        clusters: Labels | None = None,
    ) -> Comparisons:
        """Check comparisons.

        Args:
            first: Names of the players that the outcomes are seen from.
            second: Names of their opponents, as many.
            outcome: In [0, 1], as many.
            weights: At least 0, as many; 1 each where absent.
            covariates: Name to finite values, as many; positive values speak for `first`.
            clusters: Labels, as many, of what is drawn together; every row by itself where absent.

        Raises:
            BadInput: listing all faults; rows are named by number, counted from 0.
        """
        n = len(first)
        faults = [] if n else ["there are no comparisons"]
        if len(second) != n:
            faults.append(f"second: {len(second)} names for {n} comparisons")
        y = _column("outcome", outcome, n, faults)
        faults += _outside("outcome", y, 0, 1)
        w = np.ones(n) if weights is None else _column("weights", weights, n, faults)
        faults += _outside("weights", w, 0, np.inf)
        if n and len(w) == n and not w.any():
            faults.append("weights: all are 0")
        table = {name: _column(name, values, n, faults) for name, values in (covariates or {}).items()}
        labels = list(range(n)) if clusters is None else list(clusters)
        if len(labels) != n:
            faults.append(f"clusters: {len(labels)} labels for {n} comparisons")
        same = [row for row, pair in enumerate(zip(first, second, strict=False)) if pair[0] == pair[1]]
        if same:
            faults.append(f"a player meets itself in {_rows(same)}")
        if faults:
            raise BadInput.of("these comparisons cannot be used", faults)
        players = tuple(sorted({*first, *second}))
        number = {name: place for place, name in enumerate(players)}
        units: dict[object, int] = {}
        return cls(
            players=players,
            first=np.array([number[name] for name in first], dtype=np.intp),
            second=np.array([number[name] for name in second], dtype=np.intp),
            outcome=y,
            weight=w,
            covariates=np.column_stack(list(table.values())) if table else np.empty((n, 0)),
            names=tuple(table),
            cluster=np.array([units.setdefault(label, len(units)) for label in labels], dtype=np.intp),
            clusters=len(units),
            clustered=clusters is not None,
        )

    def __len__(self) -> int:
        return len(self.first)

    def player(self, name: str) -> int:
        """The number of a player.

        Raises:
            UnknownName: nobody of that name was compared.
        """
        if name not in self.players:
            raise UnknownName("player", name, self.players)
        return self.players.index(name)


@dataclass(frozen=True)
class BradleyTerry:
    """Fitted strengths and coefficients."""

    players: tuple[str, ...]
    strengths: FloatArray
    """(players,), on the logit scale; 0 for the anchor, NaN for a player with no path of comparisons to it."""
    anchor: str
    names: tuple[str, ...] = ()
    coefficients: FloatArray = field(default_factory=lambda: np.empty(0))
    """(covariates,), change of the logit for one unit of the covariate."""

    def strength(self, player: str) -> float:
        """The strength of one player."""
        return float(self.strengths[self.players.index(player)])

    def win_rate(self, player: str, opponent: str = "", shift: float = 0.0) -> float:
        """Probability that `player` beats `opponent` (the anchor by default).

        Args:
            player: A player.
            opponent: Another.
            shift: x·β of the comparison that is meant; 0 for one in which no covariate favours either.
        """
        return float(expit(self.strength(player) - self.strength(opponent or self.anchor) + shift))


def fit(rows: Comparisons, anchor: str, *, ridge: float = RIDGE) -> BradleyTerry:
    """Fit strengths and coefficients.

    Args:
        rows: The comparisons.
        anchor: The player whose strength is 0.
        ridge: See `RIDGE`.

    Raises:
        UnknownName: the anchor is no player.
        BadInput: players that no path of comparisons links to the anchor; a covariate that never varies; a ridge that
            is not above 0.
    """
    base = rows.player(anchor)
    faults = [] if ridge > 0 else [f"ridge: {ridge!r} is not above 0"]
    lost = [rows.players[number] for number in np.flatnonzero(~_linked(rows, rows.weight, base))]
    if lost:
        faults.append(f"no comparisons link {', '.join(lost)} to {anchor}")
    faults += [
        f"the covariate {name!r} is 0 in every comparison"
        for name, values in zip(rows.names, rows.covariates.T, strict=True)
        if not values.any()
    ]
    if faults:
        raise BadInput.of("these comparisons have no Bradley-Terry fit", faults)
    found = _newton(rows, rows.weight, base, ridge, np.zeros(len(rows.players) + len(rows.names)))
    return _named(rows, anchor, found)


@dataclass(frozen=True)
class Resampled:
    """A fit, and the fits of resampled clusters."""

    fit: BradleyTerry
    strengths: FloatArray
    """(draws, players); NaN where a draw left a player without comparisons."""
    coefficients: FloatArray
    """(draws, covariates); NaN where a covariate is 0 in all comparisons of a draw."""
    level: float
    n: int
    n_clusters: int | None

    def win_rates(self, player: str, opponent: str = "", shift: FloatArray | float = 0.0) -> FloatArray:
        """P(player beats opponent) in each draw, (draws,); `shift` as in `BradleyTerry.win_rate`, one for all or each."""
        a, b = (self.fit.players.index(name) for name in (player, opponent or self.fit.anchor))
        return np.asarray(expit(self.strengths[:, a] - self.strengths[:, b] + shift))

    def win_rate(self, player: str, opponent: str = "") -> Interval:
        """P(player beats opponent), with its interval."""
        return self.interval(self.fit.win_rate(player, opponent), self.win_rates(player, opponent))

    def coefficient(self, name: str) -> Interval:
        """The coefficient of a covariate, with its interval."""
        place = self.fit.names.index(name)
        return self.interval(float(self.fit.coefficients[place]), self.coefficients[:, place])

    def interval(self, estimate: float, draws: FloatArray) -> Interval:
        """The expanded percentile interval of a figure from its values in the draws.

        Raises:
            BadInput: it is undefined in more draws than lie beyond a bound.
        """
        defined = draws[np.isfinite(draws)]
        undefined = len(draws) - len(defined)
        if undefined > len(draws) * (1 - self.level) / 2:
            raise BadInput(
                f"a figure is undefined in {undefined} of {len(draws)} resamples: too few clusters say anything of it",
                "give more prompts, or leave that player or covariate out",
            )
        units = self.n_clusters if self.n_clusters is not None else self.n
        notes = [f"undefined in {undefined} of {len(draws)} resamples, which were left out"] if undefined else []
        if units < _FEW:
            notes.append(f"only {units} clusters: bootstrap intervals of so few are usually too narrow")
        tail = _tail(self.level, units)
        if tail * (len(defined) + 1) < 1:
            notes.append("a bound is the most extreme resample: more draws may move it")
        # Of B draws, a share p lies below the one with the rank p (B + 1); other definitions make few draws too narrow.
        low, high = np.quantile(defined, [tail, 1 - tail], method="weibull")
        return Interval(
            estimate,
            float(low),
            float(high),
            self.level,
            self.n,
            self.n_clusters,
            "expanded percentile",
            "; ".join(notes),
        )


def bootstrap(
    rows: Comparisons,
    anchor: str,
    *,
    draws: int = 1000,
    level: float = 0.95,
    seed: int = 0,
    ridge: float = RIDGE,
) -> Resampled:
    """Fit, and fit again on `draws` resamples of whole clusters; all players are fitted on the same resamples.

    Raises:
        BadInput: as `fit`, and fewer than two clusters, or settings out of range.
        UnknownName: the anchor is no player.
    """
    faults = level_faults(level) + count_faults("draws", draws, 2) + count_faults("seed", seed, 0)
    if rows.clusters < 2:
        faults.append(f"{rows.clusters} cluster, and resampling needs 2")
    if faults:
        raise BadInput.of("these comparisons cannot be resampled", faults)
    whole = fit(rows, anchor, ridge=ridge)
    rng = np.random.Generator(np.random.PCG64(seed))
    base = rows.player(anchor)
    units = rows.clusters if rows.clustered else None
    if not rows.names and ((rows.first == base) | (rows.second == base)).all():
        alone = _against_anchor(rows, base, ridge, draws, rng)
        return Resampled(whole, alone, np.empty((draws, 0)), level, len(rows), units)
    start = np.concatenate([whole.strengths, whole.coefficients])
    share = np.full(rows.clusters, 1 / rows.clusters)
    players = len(rows.players)
    _, pair = np.unique(rows.first * players + rows.second, return_inverse=True)
    found = np.empty((draws, len(start)))
    speaks = rows.covariates != 0
    for draw in range(draws):
        weight = rows.weight * rng.multinomial(rows.clusters, share)[rows.cluster]
        found[draw] = _newton(rows, weight, base, ridge, start)
        if not np.bincount(pair, weight).all():  # only then can a player have lost its link
            found[draw, :players][~_linked(rows, weight, base)] = np.nan
        if rows.names:
            found[draw, players:][~speaks[weight > 0].any(axis=0)] = np.nan
    return Resampled(whole, found[:, :players], found[:, players:], level, len(rows), units)


def _against_anchor(rows: Comparisons, base: int, ridge: float, draws: int, rng: np.random.Generator) -> FloatArray:
    """Strengths in each draw, (draws, players), where everybody plays the anchor alone: each has a fit of its own."""
    m = len(rows.players)
    as_second = rows.first == base
    player = np.where(as_second, rows.second, rows.first)
    outcome = np.where(as_second, 1 - rows.outcome, rows.outcome)
    cell = rows.cluster * m + player
    total, won = (
        np.bincount(cell, amount, rows.clusters * m).reshape(rows.clusters, m)
        for amount in (rows.weight, rows.weight * outcome)
    )
    share = np.full(rows.clusters, 1 / rows.clusters)
    found = np.empty((draws, m))
    step = max(1, _CHUNK // rows.clusters)
    for begin in range(0, draws, step):
        counts = rng.multinomial(rows.clusters, share, size=min(step, draws - begin)).astype(np.float64)
        found[begin : begin + step] = _one_by_one(counts @ total, counts @ won, ridge)
    found[:, base] = 0
    return found


def _one_by_one(total: FloatArray, won: FloatArray, ridge: float) -> FloatArray:
    """The strength that maximizes won·s - total·log(1 + exp(s)) - ridge·s²/2, each by itself; NaN where total is 0."""
    # Closer to 0 than the maximum, from where Newton's method does not overshoot; the clip is for strong penalties.
    s = np.log((won + 0.5) / (total - won + 0.5))
    for _ in range(_STEPS):
        p = expit(s)
        move = np.clip((won - total * p - ridge * s) / (total * p * (1 - p) + ridge), -1, 1)
        s = s + move
        if np.abs(move).max() < 1e-8:
            break
    return np.asarray(np.where(total > 0, s, np.nan))


def _tail(level: float, units: int) -> float:
    """The share of draws below the lower bound: as if normal quantiles were Student's, and the variance unbiased.

    Plain percentiles are too narrow by both. Source: Hesterberg, "What teachers should know about the bootstrap", The
    American Statistician 69 (2015), the expanded percentile interval.
    """
    return float(ndtr(-math.sqrt(units / (units - 1)) * stdtrit(units - 1, (1 + level) / 2)))


def _newton(rows: Comparisons, weight: FloatArray, base: int, ridge: float, start: FloatArray) -> FloatArray:
    """Strengths and coefficients, (players + covariates,), that maximize the penalized log-likelihood."""
    m, k = len(rows.players), len(rows.names)
    a, b, y, w, x = _merged(rows, weight)
    free = np.delete(np.arange(m + k), base)
    pair = a * m + b

    def logit(theta: FloatArray) -> FloatArray:
        return np.asarray(theta[a] - theta[b] + x @ theta[m:])

    def loss(theta: FloatArray) -> float:
        eta = logit(theta)
        return float(w @ (np.logaddexp(0, eta) - y * eta) + ridge / 2 * theta @ theta)

    theta = np.array(start)
    before = loss(theta)
    for _ in range(_STEPS):
        p = expit(logit(theta))
        residual, spread = w * (y - p), w * p * (1 - p)
        slope = np.concatenate([np.bincount(a, residual, m) - np.bincount(b, residual, m), x.T @ residual])
        slope -= ridge * theta
        between = np.bincount(pair, spread, m * m).reshape(m, m)
        between += between.T
        curve = np.empty((m + k, m + k))
        curve[:m, :m] = np.diag(between.sum(1)) - between
        wide = x * spread[:, None]
        for j in range(k):
            curve[:m, m + j] = curve[m + j, :m] = np.bincount(a, wide[:, j], m) - np.bincount(b, wide[:, j], m)
        curve[m:, m:] = wide.T @ x
        curve[np.diag_indices(m + k)] += ridge
        step = np.zeros(m + k)
        step[free] = np.linalg.solve(curve[np.ix_(free, free)], slope[free])
        # A full step may overshoot where a player nearly always wins; the loss is convex, so halving ends.
        while (after := loss(theta + step)) > before + 1e-9 * abs(before) and np.abs(step).max() > 1e-12:
            step /= 2
        theta, before = theta + step, min(before, after)
        if np.abs(step).max() < 1e-8:
            break
    return theta


def _merged(rows: Comparisons, weight: FloatArray) -> tuple[IntArray, IntArray, FloatArray, FloatArray, FloatArray]:
    """The rows that count; without covariates, all those of two players as one."""
    if rows.names:
        kept = weight > 0
        return rows.first[kept], rows.second[kept], rows.outcome[kept], weight[kept], rows.covariates[kept]
    m = len(rows.players)
    pair = rows.first * m + rows.second
    total = np.bincount(pair, weight, m * m).astype(np.float64)
    kept_pairs = np.flatnonzero(total)
    mean = np.bincount(pair, weight * rows.outcome, m * m)[kept_pairs] / total[kept_pairs]
    return kept_pairs // m, kept_pairs % m, mean, total[kept_pairs], np.empty((len(kept_pairs), 0))


def _linked(rows: Comparisons, weight: FloatArray, base: int) -> np.ndarray:
    """Whether comparisons that count link each player to the anchor, (players,)."""
    kept = weight > 0
    size = len(rows.players)
    graph = coo_array((np.ones(int(kept.sum())), (rows.first[kept], rows.second[kept])), shape=(size, size))
    _, part = connected_components(graph, directed=False)
    return np.asarray(part == part[base])


def _named(rows: Comparisons, anchor: str, found: FloatArray) -> BradleyTerry:
    players = len(rows.players)
    return BradleyTerry(rows.players, found[:players], anchor, rows.names, found[players:])


def _column(name: str, values: ArrayLike, n: int, faults: list[str]) -> FloatArray:
    try:
        column = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        faults.append(f"{name}: not an array of numbers")
        return np.empty(0)
    if column.shape != (n,):
        faults.append(f"{name}: the shape is {column.shape}, and ({n},) is needed")
        return np.empty(0)
    if bad := np.flatnonzero(~np.isfinite(column)).tolist():
        faults.append(f"{name}: NaN or infinite in {_rows(bad)}")
        return np.empty(0)
    return column


def _outside(name: str, values: FloatArray, low: float, high: float) -> list[str]:
    bad = np.flatnonzero((values < low) | (values > high)).tolist()
    return [f"{name}: outside [{low:g}, {high:g}] in {_rows(bad)}"] if bad else []


def _rows(numbers: Sequence[int], most: int = 10) -> str:
    more = f" and {len(numbers) - most} more" if len(numbers) > most else ""
    return f"row{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers[:most]))}{more}"
