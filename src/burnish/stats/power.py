"""Before a comparison: how small a difference n items can show, and how many items a difference needs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, get_args

import numpy as np
from scipy import special

from burnish.core.errors import BadInput, UnknownName
from burnish.stats.checks import count_faults, is_number, level_faults
from burnish.stats.proportion import bounds

Design = Literal["paired", "unpaired"]

_MOST = 10_000_000
"""Items beyond which no number is looked for."""
_EXACT = 3000
"""Items up to which the power of the paired test is summed exactly."""


def power(
    n: int,
    difference: float,
    design: str = "paired",
    *,
    rate: float = 0.5,
    disagreement: float | None = None,
    level: float = 0.95,
    effect: float = 1.0,
) -> float:
    """The chance that a comparison on `n` items finds a true difference, at two-sided significance 1 - level.

    Args:
        n: Items (of each model, when unpaired).
        difference: True difference of the two rates.
        design: "paired" is McNemar's mid-p test on the same items, summed exactly for up to 3000 items and by its
            normal approximation beyond; "unpaired" is the normal approximation to the test of two proportions.
        rate: The weaker model's rate.
        disagreement: Share of items that exactly one model has right; must be at least `difference`. By default what
            two models with these rates that err independently would give, the pessimistic end.
        level: One minus the significance level.
        effect: Design effect of clusters: how many items say as much as one independent one.

    Raises:
        BadInput: A number out of range, or rates that are impossible together.
        UnknownName: No such design.
    """
    share = _checked(n, difference, design, rate, disagreement, level, effect)
    size = max(int(n / effect), 1)
    z = -float(special.ndtri((1 - level) / 2))
    if design == "unpaired":
        better = rate + difference
        pooled = (rate + better) / 2
        null = math.sqrt(2 * pooled * (1 - pooled) / size)
        spread = math.sqrt((rate * (1 - rate) + better * (1 - better)) / size)
        if spread == 0:
            return 1.0
        return float(special.ndtr((difference - z * null) / spread) + special.ndtr((-difference - z * null) / spread))
    if size > _EXACT:
        spread = math.sqrt(max(share - difference**2, 1e-300))
        root = math.sqrt(size)
        return float(
            special.ndtr((difference * root - z * math.sqrt(share)) / spread)
            + special.ndtr((-difference * root - z * math.sqrt(share)) / spread)
        )
    return _mcnemar_power(size, difference, share, 1 - level)


def items_needed(
    difference: float,
    design: str = "paired",
    *,
    power: float = 0.8,
    rate: float = 0.5,
    disagreement: float | None = None,
    level: float = 0.95,
    effect: float = 1.0,
) -> int:
    """The fewest items with which `burnish.stats.power.power` reaches `power`; arguments as there.

    Raises:
        BadInput: As there; or more than ten million items are needed.
    """
    faults = [] if is_number(power) and 0 < power < 1 else [f"power: {power!r} is not between 0 and 1"]
    if not (is_number(difference) and difference > 0):
        faults.append(f"difference: {difference!r} is not above 0")
    if faults:
        raise BadInput.of("no number of items", faults)

    def enough(n: int) -> bool:
        found = _power(n, difference, design, rate=rate, disagreement=disagreement, level=level, effect=effect)
        return found >= power

    return _first(enough, 1)


def detectable(
    n: int,
    design: str = "paired",
    *,
    power: float = 0.8,
    rate: float = 0.5,
    disagreement: float | None = None,
    level: float = 0.95,
    effect: float = 1.0,
) -> float:
    """The smallest true difference that `n` items find with probability `power`, to 1e-4; arguments as in `power`.

    Raises:
        BadInput: As there; or not even the largest possible difference is found that often.
    """
    most = 1 - rate if disagreement is None else min(1 - rate, disagreement)

    def found(difference: float) -> bool:
        found = _power(n, difference, design, rate=rate, disagreement=disagreement, level=level, effect=effect)
        return found >= power

    if not found(most):
        raise BadInput(
            f"{n} items find no possible difference with probability {power:g}", "ask more items, or less power"
        )
    low, high = 0.0, most
    while high - low > 1e-5:
        middle = (low + high) / 2
        low, high = (low, middle) if found(middle) else (middle, high)
    return high


def items_for_width(width: float, rate: float = 0.5, *, method: str = "beta", level: float = 0.95) -> int:
    """The fewest items whose interval is at most `width` wide from lower to upper bound, if `rate` of them are right.

    Take what is found from the items already asked, and the rest is how many are still needed.

    Raises:
        BadInput: A width or rate out of range.
    """
    faults = level_faults(level)
    faults += [] if is_number(width) and 0 < width < 1 else [f"width: {width!r} is not between 0 and 1"]
    faults += [] if is_number(rate) and 0 <= rate <= 1 else [f"rate: {rate!r} is not in [0, 1]"]
    if faults:
        raise BadInput.of("no number of items", faults)

    def enough(n: int) -> bool:
        low, high = bounds(np.array([rate * n]), n, method, level)
        return float(min(high[0], 1.0) - max(low[0], 0.0)) <= width

    return _first(enough, 2)


def _mcnemar_power(n: int, difference: float, share: float, alpha: float) -> float:
    """Exact power of the two-sided mid-p McNemar test."""
    differing = np.arange(1, n + 1)
    chance = np.exp(
        special.gammaln(n + 1)
        - special.gammaln(differing + 1)
        - special.gammaln(n - differing + 1)
        + special.xlogy(differing, share)
        + special.xlog1py(n - differing, -share)
    )
    # The largest count c of the rarer side that is significant: P(X < c) + P(X = c) / 2 <= alpha / 2, X ~ B(m, 1/2).
    critical = np.floor(special.bdtrik(alpha / 2, differing, 0.5)).astype(int) + 1
    for _ in range(4):
        least = np.maximum(critical, 0)
        below = np.where(critical > 0, special.bdtr(np.maximum(least - 1, 0), differing, 0.5), 0.0)
        mid = (below + special.bdtr(np.minimum(least, differing), differing, 0.5)) / 2
        critical = np.where((critical >= 0) & (mid > alpha / 2), critical - 1, critical)
    side = (share - difference) / (2 * share) if share else 0.5
    least = np.clip(critical, 0, differing)
    reject = special.bdtr(least, differing, side) + special.bdtr(least, differing, 1 - side)
    return float(chance @ np.where((critical >= 0) & (2 * critical < differing), reject, 0.0))


def _first(enough: Callable[[int], bool], least: int) -> int:
    """The smallest n of at least `least` that is enough and after which doubling stays enough."""
    high = least
    while not enough(high):
        high *= 2
        if high > _MOST:
            raise BadInput(f"more than {_MOST:,} items are needed", "ask for a larger difference or width")
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _checked(
    n: int, difference: float, design: str, rate: float, disagreement: float | None, level: float, effect: float
) -> float:
    """The share of items on which the two models differ."""
    if design not in get_args(Design):
        raise UnknownName("design of a comparison", design, get_args(Design))
    faults = count_faults("n", n, 1) + level_faults(level)
    faults += [] if is_number(rate) and 0 <= rate <= 1 else [f"rate: {rate!r} is not in [0, 1]"]
    faults += [] if is_number(effect) and effect >= 1 else [f"effect: {effect!r} is below 1"]
    if not (is_number(difference) and 0 <= difference <= 1):
        faults.append(f"difference: {difference!r} is not in [0, 1]")
    if not faults and rate + difference > 1 + 1e-12:
        faults.append(f"difference: {difference:g} above a rate of {rate:g} is more than everything")
    if disagreement is not None and not (is_number(disagreement) and difference - 1e-12 <= disagreement <= 1):
        faults.append(f"disagreement: {disagreement!r} is not between the difference and 1")
    if faults:
        raise BadInput.of("no power", faults)
    if disagreement is not None:
        return float(disagreement)
    return rate * (1 - rate - difference) + (rate + difference) * (1 - rate)


_power = power
"""Under another name, for functions with an argument `power`."""
