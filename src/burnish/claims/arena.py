"""The claim of Arena-Hard: it separates more pairs of models with confidence than AlpacaEval 2.0.

## What is compared

Two published leaderboards, of Arena-Hard v0.1 (500 prompts, win rates against gpt-4-0314, the board's own 95 % bounds) and
of AlpacaEval 2.0 (805 prompts, win rates against gpt-4-1106-preview, 1.96 of the table's standard errors), on the models
that both know: the 20 of the paper's table 1, and 35, all whose names can be matched. A row is a model; its value is
the jackknife pseudo-value of the share of separated pairs, n·U - (n - 1)·U without it, whose mean is the share and whose
spread is that of a statistic of pairs. So intervals say what another choice of models would have changed.

The paper takes AlpacaEval's length-controlled win rates. The published table has no standard errors of these for the
paper's models, so they cannot be compared here.

A share of separated pairs is worth what the intervals are worth, and Arena-Hard's come from resampling games as if they
were independent. What that does is shown by a simulation: judgments are made up whose truth is known (each prompt has a
preference of its own, both games on it mostly agree, a clear verdict counts three times), and `arena score`'s intervals,
which resample prompts, stand beside those that resample every copy of a game. Arena-Hard's bounds are also shown half as
wide again and twice as wide; these decide nothing, for the correlation of real games is not known without the judgments.
AlpacaEval's errors are of prompts. In the simulation intervals over prompts are about twice as wide as over games; so wide,
Arena-Hard's lead on the 35 models is next to nothing, and the one-line summary says so.

## What must hold

On both sets of models Arena-Hard's share of separated pairs is above AlpacaEval's with its whole interval. In the
simulation the coverage of intervals over prompts is within 0.02 of the level, and that of intervals over games more
than 0.05 below it.

## References

Li et al., From Crowdsourced Data to High-Quality Benchmarks: Arena-Hard and BenchBuilder Pipeline, ICML 2025, arXiv
2406.11939, table 1.
"""

from __future__ import annotations

import functools
import hashlib
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from burnish.claims.base import Claim, Measured, Part, Scale
from burnish.claims.decide import Measure
from burnish.core.claim import Arm, Criterion, Evidence, Figure
from burnish.core.errors import BadInput
from burnish.core.run import Run
from burnish.evaluate.arena import PAPER
from burnish.stats.separability import Bounds, agreement, separability

LEVEL = 0.95
NEAR, FAR = 0.02, 0.05
"""How far from the level the coverage over prompts may be, and how far below it that over games must be."""
PROMPTS = 200
"""Prompts of a made-up benchmark."""
DRAWS = 200
BLOCK = 100
"""Made-up benchmarks that are kept together, so that a stopped run goes on from there."""
WIDENED = {"arena-hard": 1.0, "arena-hard-x1.5": 1.5, "arena-hard-x2": 2.0}
"""Arm to by how much Arena-Hard's bounds are widened; only the first decides."""
MADE_UP = "made-up judgments"
"""Where the simulation's rows stand in the column of the models."""
SAID = {
    "arena-hard": "Arena-Hard",
    "arena-hard-x1.5": "Arena-Hard x1.5",
    "arena-hard-x2": "Arena-Hard x2",
    "alpaca-eval": "AlpacaEval 2.0",
    "prompts": "prompts resampled",
    "games": "games resampled",
    "level": "the level",
}

BOARDS = {
    "arena-hard": ("arena_hard_leaderboard_20240731.csv",),
    "alpaca-eval": ("alpaca_eval2_leaderboard.csv", "weighted_alpaca_eval_gpt4_turbo_leaderboard.csv"),
}
"""Each board to the names that its file may have."""

PAPERS = {
    "gpt-4-turbo-2024-04-09": "gpt-4-turbo-2024-04-09",
    "claude-3-opus-20240229": "claude-3-opus-20240229",
    "claude-3-sonnet-20240229": "claude-3-sonnet-20240229",
    "gpt-4-0314": "gpt4_0314",
    "gpt-4-0613": "gpt4_0613",
    "mistral-large-2402": "mistral-large-2402",
    "qwen1.5-72b-chat": "Qwen1.5-72B-Chat",
    "mistral-medium": "mistral-medium",
    "claude-2.0": "claude-2",
    "gpt-3.5-turbo-0613": "gpt-3.5-turbo-0613",
    "claude-2.1": "claude-2.1",
    "gemini-pro": "gemini-pro",
    "mixtral-8x7b-instruct-v0.1": "Mixtral-8x7B-Instruct-v0.1",
    "gpt-3.5-turbo-0314": "gpt-3.5-turbo-0301",  # no other snapshot of that spring
    "yi-34b-chat": "Yi-34B-Chat",
    "tulu-2-dpo-70b": "tulu-2-dpo-70b",
    "dbrx-instruct-preview": "dbrx-instruct",
    "vicuna-33b": "vicuna-33b-v1.3",
    "starling-lm-7b-alpha": "Starling-LM-7B-alpha",
    "llama-2-70b-chat": "llama-2-70b-chat-hf",
}
"""The models of the paper's table 1 by their names on Arena-Hard's board, and their names on AlpacaEval's."""
ALL = PAPERS | {
    "yi-large-preview": "yi-large-preview",
    "gpt-4o-2024-05-13": "gpt-4o-2024-05-13",
    "claude-3-5-sonnet-20240620": "claude-3-5-sonnet-20240620",
    "gpt-4o-mini-2024-07-18": "gpt-4o-mini-2024-07-18",
    "qwen2-72b-instruct": "Qwen2-72B-Instruct",
    "llama-3.1-405b-instruct": "Meta-Llama-3.1-405B-Instruct-Turbo",
    "llama-3.1-70b-instruct": "Meta-Llama-3.1-70B-Instruct-Turbo",
    "llama-3.1-8b-instruct": "Meta-Llama-3.1-8B-Instruct-Turbo",
    "llama-3-70b-instruct": "Meta-Llama-3-70B-Instruct",
    "llama-3-8b-instruct": "Meta-Llama-3-8B-Instruct",
    "mixtral-8x22b-instruct-v0.1": "Mixtral-8x22B-Instruct-v0.1",
    "snorkel-mistral-pairrm-dpo": "Snorkel-Mistral-PairRM-DPO",
    "gpt-3.5-turbo-1106": "gpt-3.5-turbo-1106",
    "gemma-7b-it": "gemma-7b-it",
    "gemma-2b-it": "gemma-2b-it",
}
SETS = {"the paper's 20": PAPERS, "all 35 of both boards": ALL}


# -- the boards ------------------------------------------------------------------------------------------------------


def boards() -> dict[str, tuple[Path, Bounds]]:
    """Each published board: its file, and its scores with 95 % bounds.

    Raises:
        BadInput: a file is not at hand, or is no leaderboard.
    """
    from burnish.data.arena_hard import read_leaderboard

    folder = Path(os.environ.get("BURNISH_DATA", "")) / "arena_hard"
    found = {}
    for board, names in BOARDS.items():
        path = next((folder / name for name in names if (folder / name).is_file()), None)
        if path is None:
            where = str(folder) if "BURNISH_DATA" in os.environ else "BURNISH_DATA is not set"
            raise BadInput(f"no {' or '.join(names)} in the folder arena_hard ({where})", f"fetch it: {NEEDS}")
        columns = zip(*((one.model, one.score, one.low, one.high) for one in read_leaderboard(path)), strict=True)
        found[board] = path, Bounds.of(*map(list, columns))  # type: ignore[arg-type]
    return found


def separated(board: Bounds) -> list[dict[str, Any]]:
    """A row a model: its pseudo-value of the share of separated pairs; their mean is the share."""
    count = len(board.names)
    apart = np.zeros((count, count), dtype=bool)
    for a, b in board.pairs():
        apart[a, b] = apart[b, a] = board.order(a, b) != 0
    whole = apart.sum() / 2
    share = whole / (count * (count - 1) / 2)
    without = (whole - apart.sum(1)) / ((count - 1) * (count - 2) / 2)
    pseudo = count * share - (count - 1) * without
    return [{"item_id": name, "separated": float(value)} for name, value in zip(board.names, pseudo, strict=True)]


def widened(board: Bounds, factor: float) -> Bounds:
    """The same scores with bounds `factor` times as far away."""
    low, high = (board.scores + factor * (end - board.scores) for end in (board.low, board.high))
    return Bounds(board.names, board.scores, low, high)


# -- the simulation --------------------------------------------------------------------------------------------------


def games(rng: np.random.Generator, prompts: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores in [0, 1], weights and prompts of two games on each prompt, (2 prompts,) each."""
    liking = rng.normal(-0.4, 1.6, prompts)[:, None] + rng.normal(0, 0.5, (prompts, 2))
    score = np.where(np.abs(liking) < 0.25, 0.5, liking > 0)
    weight = np.where(np.abs(liking) > 1.5, 3.0, 1.0)
    return score.ravel(), weight.ravel(), np.repeat(np.arange(prompts), 2)


@functools.cache
def truth() -> float:
    """The win rate that the intervals are to hold: the weighted mean over a million prompts."""
    score, weight, _ = games(np.random.default_rng(99), 1_000_000)
    return float(np.average(score, weights=weight))


def interval(by: Literal["prompts", "games"], number: int, prompts: int, draws: int) -> tuple[bool, float]:
    """Whether the interval of one made-up benchmark holds the truth, and its width.

    Args:
        by: What is resampled: whole prompts, or every copy of a game by itself.
        number: Which benchmark; the same for both.
        prompts: Its size.
        draws: Resamples.
    """
    from burnish.stats.bradley_terry import Comparisons, bootstrap

    score, weight, prompt = games(np.random.default_rng(number), prompts)
    clusters: Sequence[int] | None = prompt.tolist()
    if by == "games":
        copies = weight.astype(int)
        score, weight, clusters = np.repeat(score, copies), np.ones(copies.sum()), None
    count = len(score)
    rows = Comparisons.of(["model"] * count, ["baseline"] * count, score, weights=weight, clusters=clusters)
    found = bootstrap(rows, "baseline", draws=draws, level=LEVEL, seed=number).win_rate("model")
    return bool(found.low <= truth() <= found.high), found.high - found.low


def _block(by: Literal["prompts", "games"], first: int, count: int) -> dict[str, Any]:
    began = time.monotonic()
    rows = []
    for number in range(first, first + count):
        held, width = interval(by, number, PROMPTS, DRAWS)
        rows.append({"item_id": f"{number:05d}", "coverage": float(held), "width": width})
    return {"rows": rows, "seconds": time.monotonic() - began}


# -- the claim -------------------------------------------------------------------------------------------------------


class ArenaClaim(Claim):
    """A claim about leaderboards and their intervals; nothing is asked of a model."""

    times: dict[Scale, int]
    """Made-up benchmarks."""
    cells: tuple[str, ...] = ("models",)
    measures: tuple[Measure, ...] = (
        Measure(name="separated pairs", column="separated"),
        Measure(name="coverage", column="coverage"),
        Measure(name="width", column="width"),
    )
    code: tuple[str, ...] = ("burnish.claims.arena", "burnish.claims.decide")
    default_model: str = ""

    def measure(self, model: str, run: Run, scale: Scale, *, device: str = "auto", dtype: str = "auto") -> Measured:
        """Compare the boards (at full scale), and make judgments up; nothing is loaded."""
        measured = Measured(rows=[])
        if scale == "full":
            _compare(measured, run)
        ways: tuple[Literal["prompts", "games"], ...] = ("prompts", "games")
        count = self.times[scale]
        blocks = [(by, first) for by in ways for first in range(0, count, BLOCK)]
        seconds = dict.fromkeys(ways, 0.0)
        for by, first in run.track(blocks, "simulations", unit="blocks"):
            block = functools.partial(_block, by, first, min(BLOCK, count - first))
            found = run.once(f"coverage-{by}-{first}-{count}", block)
            seconds[by] += found["seconds"]
            measured.rows.extend({**row, "arm": by, "models": MADE_UP} for row in found["rows"])
            if by == "prompts":
                level = {"arm": "level", "models": MADE_UP, "coverage": LEVEL}
                measured.rows.extend({"item_id": row["item_id"], **level} for row in found["rows"])
        measured.parts.extend(Part(by, {"models": MADE_UP}, seconds[by]) for by in ways)
        return measured

    def label(self, arm: str, cell: Mapping[str, Any]) -> str:
        """E.g. "Arena-Hard x1.5, the paper's 20"."""
        return f"{SAID[arm]}, {cell['models']}"

    def ours(self, evidence: Evidence) -> str:
        """The shares of all 35 models, the two coverages, and how many criteria hold."""
        shown = []
        for arm, measure, said in (
            ("arena-hard", "separated pairs", "Arena-Hard"),
            ("arena-hard-x2", "separated pairs", "with bounds twice as wide"),
            ("alpaca-eval", "separated pairs", "AlpacaEval 2.0"),
            ("prompts", "coverage", "coverage over prompts"),
            ("games", "coverage", "over games"),
        ):
            # Of separated pairs there are two sets of models; the larger is the harder one.
            found = next((one for one in reversed(evidence.arms) if one.arm == arm), None)
            if found is not None:
                shown.append(f"{said} {found.measures[measure]['estimate']:.1%}")
        return f"{', '.join(shown)}; {super().ours(evidence)}"


def _compare(measured: Measured, run: Run) -> None:
    """Add a row a model of each board, in each set of models."""
    found = boards()
    for path, _ in found.values():
        measured.data[path.name] = f"SHA-256 {hashlib.sha256(path.read_bytes()).hexdigest()}"
    for name, models in SETS.items():
        ours = found["arena-hard"][1].only(list(models))
        others = found["alpaca-eval"][1].only(list(models.values()))
        for arm, factor in WIDENED.items():
            cell = {"arm": arm, "models": name}
            measured.rows.extend(row | cell for row in separated(widened(ours, factor)))
        theirs = Bounds(ours.names, others.scores, others.low, others.high)
        measured.rows.extend(row | {"arm": "alpaca-eval", "models": name} for row in separated(theirs))
        every, both = agreement(ours, theirs)
        run.metric(**{f"{name}: agreement of the boards": every, f"{name}: of pairs that both separate": both})
        run.metric(**{f"{name}: separability": {"arena-hard": separability(ours), "alpaca-eval": separability(theirs)}})


def _more(models: str) -> Criterion:
    return Criterion(
        name=f"separates more ({models})",
        text=f"Arena-Hard separates more of the pairs than AlpacaEval 2.0 ({models}).",
        statistic="difference",
        measure="separated",
        arm="arena-hard",
        against="alpaca-eval",
        where={"models": models},
        side="above",
    )


def _covers(by: str, side: Literal["above", "below"], margin: float) -> Criterion:
    return Criterion(
        name=f"coverage over {by} {side} {LEVEL + margin:g}",
        text=f"Of intervals that resample {by}, the share that holds the truth is {side} {LEVEL + margin:g}.",
        statistic="difference",
        measure="coverage",
        arm=by,
        against="level",
        margin=margin,
        side=side,
    )


COVERAGE = (_covers("prompts", "above", -NEAR), _covers("prompts", "below", NEAR), _covers("games", "below", -FAR))
NEEDS = (
    "arena_hard_leaderboard_20240731.csv (github.com/lmarena/arena-hard-auto, folder leaderboard, Apache-2.0) and "
    "weighted_alpaca_eval_gpt4_turbo_leaderboard.csv (the Python package alpaca-eval, Apache-2.0), in the folder arena_hard "
    "of --data or $BURNISH_DATA"
)

CLAIM = ArenaClaim(
    name="arena",
    title="a benchmark that separates models",
    sentence=(
        "By the intervals that each board publishes, Arena-Hard separates more pairs of models with confidence than "
        "AlpacaEval 2.0; and such intervals hold the truth as often as they say where prompts are resampled, not where "
        "games are, as Arena-Hard's were."
    ),
    paper=PAPER,
    figures=(
        Figure(
            where="table 1, 20 models",
            numbers={"Arena-Hard": 0.874, "AlpacaEval 2.0 LC": 0.832, "MT-Bench": 0.226, "Chatbot Arena": 0.858},
            measure="separated pairs",
        ),
        Figure(
            where="table 1, 20 models",
            numbers={"Arena-Hard": 0.909, "AlpacaEval 2.0 LC": 0.825, "MT-Bench": 0.266},
            measure="agreement with confidence",
        ),
    ),
    arms=(
        *(Arm(name=name, use="arena validity") for name in WIDENED),
        Arm(name="alpaca-eval", use="arena validity", baseline=True),
        Arm(name="prompts", use="arena score"),
        Arm(name="games", use="arena score", baseline=True),
    ),
    criteria=(*(_more(name) for name in SETS), *COVERAGE),
    smaller={"smoke": COVERAGE, "demo": COVERAGE},
    needs_data=NEEDS,
    times={"full": 1500, "demo": 300, "smoke": 40},
)
