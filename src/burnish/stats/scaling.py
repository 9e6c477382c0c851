"""Scaling laws with an efficiency of each arm: the loss of a run from its parameters, its tokens and how it was made.

    L(N, D, arm) = A / (N · eff(arm))^α + B / D^β + E

An arm's efficiency says by how much its parameters count less than those of the reference arm, whose efficiency is 1
(Panferov et al. 2025, section 5; the form is Hoffmann et al. 2022).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import least_squares
from scipy.stats import f as f_law

from burnish.core.errors import BadInput, UnknownName

FloatArray = NDArray[np.float64]

HUBER = 1e-3
"""Difference of log-losses from which a run counts linearly and no more by its square."""
STARTS = tuple(product((0.05, 0.2, 0.4), (0.1, 0.3)))
"""Exponents (α, β) from which the fit starts; the best of them is kept."""
LOW, HIGH = (-50.0, 1e-3, -50.0, 1e-3, 0.0), (50.0, 3.0, 80.0, 3.0, np.inf)
"""Bounds of log A, α, log B, β and E."""
EFFICIENCIES = (-12.0, 4.0)
"""Bounds of log eff."""


@dataclass(frozen=True)
class Runs:
    """Training runs.

    Attributes:
        parameters: (n,) N.
        tokens: (n,) D.
        loss: (n,) in nats.
        arm: (n,) place in `arms`.
        arms: Names; the first is the reference.
    """

    parameters: FloatArray
    tokens: FloatArray
    loss: FloatArray
    arm: NDArray[np.intp]
    arms: tuple[str, ...]

    @classmethod
    def of(
        cls, parameters: ArrayLike, tokens: ArrayLike, loss: ArrayLike, arms: Sequence[str], reference: str = ""
    ) -> Runs:
        """Check columns.

        Args:
            parameters: (n,) positive.
            tokens: (n,) positive.
            loss: (n,) positive.
            arms: n names.
            reference: The arm whose efficiency is 1; it may be left out when there is one arm only.

        Raises:
            BadInput: lengths that differ, numbers that are not positive, too few runs for the unknowns.
            UnknownName: no such reference.
        """
        columns = [np.asarray(values, dtype=np.float64) for values in (parameters, tokens, loss)]
        faults = [
            f"{name}: row {int(np.flatnonzero(~(np.isfinite(values) & (values > 0)))[0])} is not above 0"
            for name, values in zip(("parameters", "tokens", "loss"), columns, strict=True)
            if not (np.isfinite(values) & (values > 0)).all()
        ]
        if len({*map(len, columns), len(arms)}) > 1:
            faults.append("parameters, tokens, loss and arms are not of one length")
        names = list(dict.fromkeys(arms))
        if not reference and len(names) > 1:
            faults.append("there are several arms, and none is named as the reference: " + ", ".join(names))
        if faults:
            raise BadInput.of(
                "these runs cannot be fitted:", faults, "see `burnish show scaling-law` for what is needed"
            )
        reference = reference or names[0]
        if reference not in names:
            raise UnknownName("arm", reference, names)
        order = [reference, *sorted(name for name in names if name != reference)]
        found = cls(
            columns[0],
            columns[1],
            columns[2],
            np.array([order.index(name) for name in arms], dtype=np.intp),
            tuple(order),
        )
        if len(found.loss) <= found.unknowns:
            raise BadInput(
                f"{len(found.loss)} runs do not settle {found.unknowns} unknowns",
                "give more runs, or fewer arms",
            )
        return found

    @property
    def unknowns(self) -> int:
        """Numbers that a fit has to find."""
        return 4 + len(self.arms)

    def take(self, rows: NDArray[np.intp]) -> Runs:
        """Some of the runs."""
        return replace(
            self,
            parameters=self.parameters[rows],
            tokens=self.tokens[rows],
            loss=self.loss[rows],
            arm=self.arm[rows],
        )


@dataclass(frozen=True)
class Law:
    """A fitted law.

    Attributes:
        amplitudes: A and B.
        exponents: α and β.
        floor: E.
        efficiency: Arm to efficiency; 1 for the reference.
        cost: What was minimized.
    """

    amplitudes: tuple[float, float]
    exponents: tuple[float, float]
    floor: float
    efficiency: dict[str, float]
    cost: float
    solution: FloatArray

    def loss(self, parameters: ArrayLike, tokens: ArrayLike, arm: str) -> FloatArray:
        """What the law says."""
        return _losses(
            self.solution, np.asarray(parameters, float), np.asarray(tokens, float), np.log(self.efficiency[arm])
        )[0]


def fit(runs: Runs, *, floor: float | None = None, start: FloatArray | None = None) -> Law:
    """Least squares of log-losses, in which far runs count linearly (Huber), from several starts.

    Args:
        runs: What to fit.
        floor: Hold E at this value.
        start: A solution to begin from, instead of `STARTS`.
    """
    starts = [start] if start is not None else [_start(runs, *exponents) for exponents in STARTS]
    low = np.array([*LOW, *[EFFICIENCIES[0]] * (len(runs.arms) - 1)])
    high = np.array([*HIGH, *[EFFICIENCIES[1]] * (len(runs.arms) - 1)])
    free = np.ones(len(low), dtype=bool)
    if floor is not None:
        free[4] = False
    best: Any = None
    for first in starts:
        whole = first.copy()
        whole[4] = floor if floor is not None else whole[4]

        def residuals(x: FloatArray, whole: FloatArray = whole) -> FloatArray:
            whole[free] = x
            return np.log(_at(whole, runs)[0] / runs.loss)

        def slopes(x: FloatArray, whole: FloatArray = whole) -> FloatArray:
            whole[free] = x
            value, jacobian = _at(whole, runs)
            return (jacobian / value[:, None])[:, free]

        inside = np.clip(first[free], low[free] + 1e-9, high[free] - 1e-9)
        found = least_squares(
            residuals,
            inside,
            slopes,
            (low[free], high[free]),
            loss="huber",
            f_scale=HUBER,
            x_scale="jac",
            max_nfev=2000,
        )
        if best is None or found.cost < best[0]:
            solution = whole.copy()
            solution[free] = found.x
            best = (float(found.cost), solution)
    cost, x = best
    efficiency = dict(zip(runs.arms, np.exp([0.0, *x[5:]]).tolist(), strict=True))
    return Law((float(np.exp(x[0])), float(np.exp(x[2]))), (float(x[1]), float(x[3])), float(x[4]), efficiency, cost, x)


def resampled(runs: Runs, law: Law, draws: int, rng: np.random.Generator) -> FloatArray:
    """Efficiencies, (draws, arms), of fits to runs drawn with replacement within each arm.

    An arm with a single run keeps it: its efficiency then varies by the others' alone.
    """
    groups = [np.flatnonzero(runs.arm == place) for place in range(len(runs.arms))]
    found = np.empty((draws, len(runs.arms)))
    for draw in range(draws):
        rows = np.concatenate([rng.choice(group, len(group)) for group in groups])
        found[draw] = list(fit(runs.take(rows), start=law.solution).efficiency.values())
    return found


def highest_floor(runs: Runs, law: Law, level: float) -> float:
    """The largest E with which the other numbers can still fit about as well: the upper end of E's profile interval.

    A cost may exceed the smallest by F(level; 1, n - unknowns) / (n - unknowns), as in a regression.
    """
    rest = len(runs.loss) - runs.unknowns
    allowed = law.cost * (1 + float(f_law.ppf(level, 1, rest)) / rest)
    low, high = law.floor, float(runs.loss.min())
    for _ in range(20):
        middle = (low + high) / 2
        if fit(runs, floor=middle, start=law.solution).cost <= allowed:
            low = middle
        else:
            high = middle
    return low


def _start(runs: Runs, alpha: float, beta: float) -> FloatArray:
    """Exponents as given, and amplitudes with which both terms are of the size of the losses."""
    middle = float(np.median(runs.loss))
    a, b = np.log(0.6 * middle), np.log(0.4 * middle)
    first = [
        a + alpha * np.log(np.median(runs.parameters)),
        alpha,
        b + beta * np.log(np.median(runs.tokens)),
        beta,
        0.01,
    ]
    return np.array([*first, *[-1.0] * (len(runs.arms) - 1)])


def _at(x: FloatArray, runs: Runs) -> tuple[FloatArray, FloatArray]:
    """Losses and their derivatives by every unknown, (n, unknowns)."""
    shifts = np.array([0.0, *x[5:]])[runs.arm]
    value, first, second = _losses(x, runs.parameters, runs.tokens, shifts)
    jacobian = np.zeros((len(value), len(x)))
    jacobian[:, 0], jacobian[:, 1] = first, -first * (np.log(runs.parameters) + shifts)
    jacobian[:, 2], jacobian[:, 3] = second, -second * np.log(runs.tokens)
    jacobian[:, 4] = 1.0
    rows = np.flatnonzero(runs.arm > 0)
    jacobian[rows, 4 + runs.arm[rows]] = -x[1] * first[rows]
    return value, jacobian


def _losses(x: FloatArray, parameters: FloatArray, tokens: FloatArray, shift: Any) -> tuple[FloatArray, ...]:
    """Losses, and their two terms."""
    first = np.exp(x[0] - x[1] * (np.log(parameters) + shift))
    second = np.exp(x[2] - x[3] * np.log(tokens))
    return first + second + x[4], first, second
