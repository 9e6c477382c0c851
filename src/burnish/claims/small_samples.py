"""The claim about small evaluations: error bars from the central limit theorem are far too short, Bayesian ones are not.

## What is compared
Evaluations are made up, thousands of them, from models whose true ability is known; every arm gives each of them its
95 % interval, and an interval either holds the truth or does not. Five kinds: one model on independent questions; one
model on questions in groups of five; two models on the same questions; two models on different questions; the F1 of a
classifier. Abilities are drawn as the Bayesian arm's prior has them, in which case that arm covers its level by
construction (the paper's figures are of this kind), or are fixed at places where that arm has no such advantage. The
second kind is shown and decides nothing, for no method is right at every ability and few items.

Of one proportion a row holds not 0 or 1 but the exact probability, at its ability, that the interval covers.

## What must hold
With abilities from the prior, in every kind and at every size, the Bayesian arm's coverage lies within 0.02 of the
level, and at up to 30 questions the central limit theorem's lies more than 0.05 below it.

## References
Bowyer, Aitchison, Ivanova. Position: Don't Use the CLT in LLM Evals With Fewer Than a Few Hundred Datapoints. ICML 2025,
arXiv 2503.01747. Their code's paired posterior and within-task bootstrap are mended here; see `burnish.stats`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

import numpy as np

from burnish.claims.base import Claim, Measured, Part, Scale
from burnish.claims.decide import Measure
from burnish.core.claim import Arm, Criterion, Evidence, Figure
from burnish.core.method import Paper
from burnish.core.run import Run

LEVEL = 0.95
NEAR = 0.02
"""How far the Bayesian arm's coverage may be from the level."""
FAR = 0.05
"""How far below the level the central limit theorem must fall at few items."""
FEW = 30
"""Items up to which it must."""
GROUP = 5
"""Questions of a group."""
HIGH = 0.95
"""The fixed ability: a good model on an easy benchmark."""

SIZES: dict[str, tuple[int, ...]] = {
    "single": (3, 10, 30, 100),
    "clustered": (10, 30, 100, 300),
    "paired": (10, 30, 100),
    "unpaired": (10, 30, 100),
    "f1": (10, 30, 100),
}
"""Kind of evaluation to numbers of questions (for groups: of all their questions)."""
SAID = {
    "single": "one model",
    "clustered": "one model, groups of five questions",
    "paired": "two models, the same questions",
    "unpaired": "two models, different questions",
    "f1": "F1 of a classifier",
}
METHODS: dict[str, dict[str, str]] = {
    "single": {"bayes": "beta", "clt": "wald", "student-t": "student-t", "wilson": "wilson"},
    "clustered": {"bayes": "bayes", "clt": "miller", "student-t": "inspect-t", "wilson": "inspect-wilson"},
    "paired": {"bayes": "probit", "clt": "wald"},
    "unpaired": {"bayes": "beta", "clt": "wald"},
    "f1": {"bayes": "dirichlet"},
}
"""Kind to each arm's method in `burnish.stats`; arms without one are not asked."""
Abilities = Literal["prior", "fixed"]
ABILITIES: tuple[Abilities, ...] = ("prior", "fixed")


def simulate(kind: str, questions: int, abilities: Abilities, times: int) -> list[dict[str, Any]]:
    """Make up evaluations of one kind and size, and ask every arm for its interval.

    Args:
        kind: Of `SIZES`.
        questions: In each evaluation.
        abilities: Drawn from the Bayesian arm's prior, or fixed.
        times: How many.

    Returns:
        A row an arm and evaluation: arm, item_id, coverage, width.
    """
    rng = np.random.default_rng([list(SIZES).index(kind), questions, abilities == "prior", 1])
    make: Callable[..., Any] = globals()[f"_{kind}"]
    rows = []
    for number in range(times):
        for arm, (coverage, width) in make(rng, questions, abilities).items():
            rows.append({"arm": arm, "item_id": f"{number:05d}", "coverage": coverage, "width": width})
    return rows


def _timed(kind: str, questions: int, abilities: Abilities, times: int) -> dict[str, Any]:
    began = time.monotonic()
    return {"rows": simulate(kind, questions, abilities, times), "seconds": time.monotonic() - began}


Outcome = dict[str, tuple[float, float]]
"""Arm to coverage and width."""


def _single(rng: np.random.Generator, n: int, abilities: Abilities) -> Outcome:
    from scipy.stats import binom

    from burnish.stats.proportion import bounds

    theta = rng.uniform() if abilities == "prior" else HIGH
    k = np.arange(n + 1)
    chance = binom.pmf(k, n, theta)
    found = {}
    for arm, method in METHODS["single"].items():
        low, high = (np.clip(end, 0, 1) for end in bounds(k, n, method, LEVEL))
        found[arm] = float(chance @ ((low <= theta) & (theta <= high))), float(chance @ (high - low))
    return found


def _clustered(rng: np.random.Generator, n: int, abilities: Abilities) -> Outcome:
    from burnish.stats.clustered import clustered

    theta, alike = (rng.uniform() if abilities == "prior" else HIGH), rng.gamma(1.0)
    sizes = np.full(n // GROUP, GROUP)
    right = rng.binomial(sizes, rng.beta(alike * theta, alike * (1 - theta), len(sizes)))
    return {arm: _held(clustered(right, sizes, method, LEVEL), theta) for arm, method in METHODS["clustered"].items()}


def _paired(rng: np.random.Generator, n: int, abilities: Abilities) -> Outcome:
    from scipy.special import ndtri

    from burnish.stats.paired import paired_binary

    a, b = rng.uniform(size=2) if abilities == "prior" else (HIGH, HIGH - 0.1)
    rho = 2 * rng.beta(4, 2) - 1
    first, noise = rng.standard_normal((2, n))
    second = rho * first + math.sqrt(1 - rho**2) * noise
    ours, theirs = first < ndtri(a), second < ndtri(b)
    both, only_a, only_b = (int(cell.sum()) for cell in (ours & theirs, ours & ~theirs, ~ours & theirs))
    neither = n - both - only_a - only_b
    methods = METHODS["paired"].items()
    found = {arm: paired_binary(both, only_a, only_b, neither, method, LEVEL) for arm, method in methods}
    return {arm: _held(result.interval, a - b) for arm, result in found.items()}


def _unpaired(rng: np.random.Generator, n: int, abilities: Abilities) -> Outcome:
    from burnish.stats.unpaired import unpaired_binary

    a, b = rng.uniform(size=2) if abilities == "prior" else (HIGH, HIGH - 0.1)
    k, m = rng.binomial(n, [a, b]).tolist()
    found = {
        arm: unpaired_binary(k, n, m, n, level=LEVEL, method=method) for arm, method in METHODS["unpaired"].items()
    }
    return {arm: _held(result.interval, a - b) for arm, result in found.items()}


def _f1(rng: np.random.Generator, n: int, abilities: Abilities) -> Outcome:
    from burnish.stats.confusion import confusion_interval

    cells = rng.dirichlet(np.ones(4)) if abilities == "prior" else np.array([0.63, 0.04, 0.03, 0.3])
    truth = float(2 * cells[0] / (2 * cells[0] + cells[1] + cells[2]))
    tp, fp, fn, tn = rng.multinomial(n, cells).tolist()
    found = {arm: confusion_interval(tp, fp, fn, tn, "f1", LEVEL, method) for arm, method in METHODS["f1"].items()}
    return {arm: _held(result, truth) for arm, result in found.items()}


def _held(interval: Any, truth: float) -> tuple[float, float]:
    return float(interval.low <= truth <= interval.high), interval.high - interval.low


class SmallSamples(Claim):
    """A claim about intervals, measured on evaluations that are made up."""

    times: dict[Scale, int]
    """Evaluations of each kind and size."""
    cells: tuple[str, ...] = ("kind", "questions", "abilities")
    measures: tuple[Measure, ...] = (Measure(name="coverage", column="coverage"), Measure(name="width", column="width"))
    code: tuple[str, ...] = ("burnish.claims.small_samples", "burnish.claims.decide")
    default_model: str = ""

    def measure(self, model: str, run: Run, scale: Scale, *, device: str = "auto", dtype: str = "auto") -> Measured:
        """Make up evaluations of every kind and size; nothing is loaded."""
        asked = [(kind, size, abilities) for kind, sizes in SIZES.items() for size in sizes for abilities in ABILITIES]
        measured = Measured(rows=[])
        for kind, size, abilities in run.track(asked, "simulations", unit="cells"):
            cell = {"kind": kind, "questions": size, "abilities": abilities}
            found = run.once(f"{kind}-{size}-{abilities}", partial(_timed, kind, size, abilities, self.times[scale]))
            for row in found["rows"]:
                measured.rows.append({**row, **cell})
            arms = list(METHODS[kind])
            measured.parts.extend(Part(arm, cell, found["seconds"] / len(arms)) for arm in arms)
            measured.rows.extend(
                {**row, "arm": "level", "coverage": LEVEL, **cell} for row in found["rows"] if row["arm"] == "bayes"
            )
        return measured

    def label(self, arm: str, cell: Mapping[str, Any]) -> str:
        """E.g. "clt, one model, 10 questions, abilities from the prior"."""
        of = "from the prior" if cell["abilities"] == "prior" else "fixed"
        return f"{arm}, {SAID[cell['kind']]}, {cell['questions']} questions, abilities {of}"

    def ours(self, evidence: Evidence) -> str:
        """Coverages of one model on 3, 10, 30 and 100 questions."""
        shown = []
        for arm, said in (("clt", "CLT"), ("bayes", "Bayes")):
            values = [
                f"{found.measures['coverage']['estimate']:.2f}"
                for found in evidence.arms
                if found.arm == arm and found.cell["kind"] == "single" and found.cell["abilities"] == "prior"
            ]
            shown.append(f"{said} {'/'.join(values)}")
        return f"one model, 3/10/30/100 questions: {', '.join(shown)}; {super().ours(evidence)}"


def _criteria() -> tuple[Criterion, ...]:
    found = []
    for kind, sizes in SIZES.items():
        for size in sizes:
            cell = {"kind": kind, "questions": size, "abilities": "prior"}
            said = f"{SAID[kind]}, {size} questions"
            sides: tuple[tuple[Literal["above", "below"], float], ...] = (("above", -NEAR), ("below", NEAR))
            for side, margin in sides:
                text = f"{said}: the Bayesian interval's coverage is {side} {LEVEL + margin:g}."
                found.append(_against_level(f"bayes {side} ({said})", text, "bayes", cell, side, margin))
            if size <= FEW and "clt" in METHODS[kind]:
                text = f"{said}: the central limit theorem's coverage is below {LEVEL - FAR:g}."
                found.append(_against_level(f"clt below ({said})", text, "clt", cell, "below", -FAR))
    return tuple(found)


def _against_level(
    name: str, text: str, arm: str, cell: dict[str, Any], side: Literal["above", "below"], margin: float
) -> Criterion:
    return Criterion(
        name=name,
        text=text,
        statistic="difference",
        measure="coverage",
        arm=arm,
        against="level",
        where=cell,
        margin=margin,
        side=side,
    )


CLAIM = SmallSamples(
    name="small-samples",
    title="error bars of small evaluations",
    sentence=(
        "With few questions, 95 % intervals from the central limit theorem hold the truth far less often than they say, "
        "and Bayesian intervals as often as they say."
    ),
    paper=Paper(
        title="Position: Don't Use the CLT in LLM Evals With Fewer Than a Few Hundred Datapoints",
        authors="Sam Bowyer, Laurence Aitchison, Desi R. Ivanova",
        year=2025,
        venue="ICML 2025",
        arxiv="2503.01747",
    ),
    figures=(
        Figure(
            where="coverage of the CLT, one model, 3, 10, 30 and 100 questions",
            numbers={"3": 0.50, "10": 0.77, "30": 0.87, "100": 0.92},
            measure="coverage",
            source="read off the paper's figures",
        ),
        Figure(
            where="coverage of the clustered CLT, 2, 6, 20 and 60 groups of 5 questions",
            numbers={"2": 0.45, "6": 0.72, "20": 0.86, "60": 0.92},
            measure="coverage",
            source="read off the paper's figures",
        ),
    ),
    arms=(
        Arm(name="bayes", use="interval"),
        Arm(name="clt", use="interval", settings={"method": "wald"}, baseline=True),
        Arm(name="student-t", use="interval", settings={"method": "student-t"}, baseline=True),
        Arm(name="wilson", use="interval", settings={"method": "wilson"}, baseline=True),
    ),
    criteria=_criteria(),
    smaller={"smoke": _criteria(), "demo": _criteria()},
    times={"full": 2000, "demo": 500, "smoke": 60},
)
