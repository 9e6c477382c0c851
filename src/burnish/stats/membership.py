"""Signs that a model has seen a text, from its log-probabilities alone: no training data is needed.

Every score is larger for texts that were more likely seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import rankdata

from burnish.core.errors import BadInput
from burnish.stats.bootstrap import bootstrap
from burnish.stats.checks import count_faults
from burnish.stats.interval import Interval
from burnish.stats.items import FloatArray

_LEAST_DEVIATION = 1e-4


def min_k(values: ArrayLike, share: float = 0.2) -> float:
    """The mean of the lowest `share` of a text's token values, at least one of them.

    Of log-probabilities it is Min-K% (Shi et al. 2024); of the same less their mean over the vocabulary, in units of their
    standard deviation there, Min-K%++ (Zhang et al. 2025).

    Args:
        values: (tokens,).
        share: In (0, 1]; the papers' default is 0.2.
    """
    tokens = np.sort(np.asarray(values, dtype=float))
    if tokens.ndim != 1 or not len(tokens) or not np.isfinite(tokens).all():
        raise BadInput("a text has no tokens, or one whose value is no number", "leave out empty texts")
    return float(tokens[: max(1, int(len(tokens) * share))].mean())


def min_k_plus_plus(logprobs: ArrayLike, means: ArrayLike, deviations: ArrayLike, share: float = 0.2) -> float:
    """Min-K%++ (Zhang et al. 2025): the mean of the lowest `share` of (log p - mean) / deviation.

    Mean and deviation are those of log p over the vocabulary under the model's own distribution at that place, so that the
    mean is minus its entropy. Where a model is sure of what comes the deviation vanishes, and with it what the token tells:
    it is taken for at least 1e-4.

    Args:
        logprobs: (tokens,).
        means: (tokens,).
        deviations: (tokens,), at least 0.
        share: In (0, 1].
    """
    spread = np.maximum(np.asarray(deviations, dtype=float), _LEAST_DEVIATION)
    return min_k((np.asarray(logprobs, dtype=float) - np.asarray(means, dtype=float)) / spread, share)


def auroc(scores: ArrayLike, members: ArrayLike) -> float:
    """The chance that a member scores above a text that is none, ties counting half; NaN without one of each.

    Args:
        scores: (texts,).
        members: Whether each is a member, (texts,).
    """
    flags = np.asarray(members, dtype=bool)
    inside, outside = int(flags.sum()), int((~flags).sum())
    if not inside or not outside:
        return float("nan")
    ranks = rankdata(np.asarray(scores, dtype=float))
    return float((ranks[flags].sum() - inside * (inside + 1) / 2) / (inside * outside))


def auroc_shares(scores: ArrayLike, members: ArrayLike) -> FloatArray:
    """Each text's jackknife pseudo-value of the AUROC, (texts,).

    n A - (n - 1) A without the text: their mean is the AUROC, less most of its bias, and their spread is its own (the
    variance that they give is DeLong's, to terms of higher order). So what compares means over items can judge an AUROC.

    Args:
        scores: (texts,).
        members: Whether each is a member, (texts,); at least two of each kind.

    Raises:
        BadInput: fewer than two of one kind.
    """
    values, flags = np.asarray(scores, dtype=float), np.asarray(members, dtype=bool)
    if min(flags.sum(), (~flags).sum()) < 2:
        raise BadInput("an AUROC without each text in turn needs two texts of each kind", "give more texts")
    above = (values[flags][:, None] > values[~flags]) + (values[flags][:, None] == values[~flags]) / 2
    inside, outside = above.shape
    total, whole, texts = above.sum(), above.mean(), len(values)
    without = np.empty(texts)
    without[flags] = (total - above.sum(axis=1)) / ((inside - 1) * outside)
    without[~flags] = (total - above.sum(axis=0)) / (inside * (outside - 1))
    return texts * whole - (texts - 1) * without


def auroc_interval(
    scores: ArrayLike, members: ArrayLike, level: float = 0.95, draws: int = 1000, seed: int = 0
) -> Interval:
    """`auroc` with a bootstrap interval over texts.

    Raises:
        BadInput: scores that are no numbers, or no text of one of the two kinds.
    """
    rows = np.column_stack([np.asarray(scores, dtype=float), np.asarray(members, dtype=float)])
    return bootstrap(rows, lambda m: auroc(m[:, 0], m[:, 1] > 0), over="rows", level=level, draws=draws, seed=seed)


@dataclass(frozen=True)
class Exchangeability:
    """Whether a model prefers a test set in the order in which it was published."""

    p_value: float
    """One-sided: the chance of so large a preference when every order is as likely."""
    excess: float
    """The mean over shards of the published order's log-probability less the mean of the other orders'."""
    by_shard: FloatArray
    """The exact p-value of each shard alone, (shards,)."""


def exchangeability(
    published: ArrayLike, shuffled: Sequence[ArrayLike], draws: int = 10_000, seed: int = 0
) -> Exchangeability:
    """The permutation test of Oren et al. 2024, stratified by shard.

    A test set that was never seen is as likely in any order; one that was seen in its published order is likelier in it.
    Within each shard the published order is one of m + 1 that are alike under the null hypothesis. With one shard the
    p-value is its share of orders that are at least as likely; with more, of draws of one order from each shard.

    Args:
        published: Log-probability of each shard in its published order, (shards,).
        shuffled: Log-probabilities of each shard in other orders, (orders,) a shard.
        draws: Draws over shards.
        seed: Of the draws.

    Raises:
        BadInput: no shards, or a shard without other orders or with values that are no numbers.
    """
    observed = np.asarray(published, dtype=float)
    orders = [
        np.concatenate([[first], np.asarray(rest, dtype=float)]) for first, rest in zip(observed, shuffled, strict=True)
    ]
    faults = count_faults("draws", draws, 99) + ([] if len(orders) else ["there are no shards"])
    faults += [
        f"shard {number}: it needs other orders, all of them numbers"
        for number, values in enumerate(orders)
        if len(values) < 2 or not np.isfinite(values).all()
    ]
    if faults:
        raise BadInput.of("the orders cannot be compared", faults)
    by_shard = np.array([np.mean(values >= values[0]) for values in orders])
    excess = float(np.mean([values[0] - values[1:].mean() for values in orders]))
    if len(orders) == 1:
        return Exchangeability(float(by_shard[0]), excess, by_shard)
    rng = np.random.Generator(np.random.PCG64(seed))
    total = sum(rng.choice(values, size=draws) for values in orders)
    tie = 1e-12 * float(np.abs(observed).sum())
    p_value = (int((total >= observed.sum() - tie).sum()) + 1) / (draws + 1)
    return Exchangeability(float(p_value), excess, by_shard)
