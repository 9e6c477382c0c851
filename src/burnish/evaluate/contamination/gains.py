"""What branches gained over the clean one, and how well each sign finds what was injected into them.

Branches differ in length, for each reads its copies on top of what the clean one reads, and so in how well they translate any
sentence. What decides is therefore the `excess`: the gain on the injected sentences less that on the control.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from burnish.data import bleu
from burnish.stats.bootstrap import bootstrap
from burnish.stats.interval import Interval
from burnish.stats.items import FloatArray
from burnish.stats.membership import auroc, min_k, min_k_plus_plus

Rows = list[dict[str, Any]]
"""Of one branch: a test pair each, in the same order in every branch."""


def counts(metric: bleu.Metric, rows: Rows) -> bleu.Counts:
    """What each row's translation adds to the corpus score, (rows, counts)."""
    return bleu.counts(metric, [row["hypothesis"] for row in rows], [row["reference"] for row in rows])


def signs(rows: Rows) -> dict[str, FloatArray]:
    """The signs of `contamination probe` for each row, each larger for what looks seen."""
    logprobs = [np.array(row["logprobs"]) for row in rows]
    found = {"loss": [tokens.mean() for tokens in logprobs], "min_k": [min_k(tokens) for tokens in logprobs]}
    if "reference_nll" in rows[0]:
        found["ratio"] = [1 - row["nll"] / row["reference_nll"] for row in rows]
    found["min_k_pp"] = [
        min_k_plus_plus(tokens, row["mean_logprobs"], row["std_logprobs"])
        for tokens, row in zip(logprobs, rows, strict=True)
    ]
    return {name: np.array(values) for name, values in found.items()}


def gains(found: dict[str, Rows], where: str, level: float, draws: int) -> dict[str, dict[str, Any]]:
    """Scores of each branch, gains over the clean one with intervals, and the AUROC of each sign.

    Args:
        found: Rows by branch; "clean" is among them.
        where: Which size and seed.
        level: Of the intervals.
        draws: Resamples of sentences.

    Returns:
        For each branch, by "<where>, <branch>": auroc_<sign>; <metric>_injected and <metric>_control; and of all but the base
        and the clean one <metric>_gain_injected, <metric>_gain_control and <metric>_excess as [estimate, low, high].
    """
    told: dict[str, dict[str, Any]] = {}
    for name, rows in found.items():
        flags = np.array([row["injected"] for row in rows])
        own: dict[str, Any] = {f"auroc_{sign}": auroc(values, flags) for sign, values in signs(rows).items()}
        for metric in bleu.METRICS:
            ours, clean = counts(metric, rows), counts(metric, found["clean"])
            for group, chosen in (("injected", flags), ("control", ~flags)):
                own[f"{metric}_{group}"] = bleu.corpus(metric, ours[chosen])
                if name not in ("base", "clean"):
                    gain = difference(metric, ours[chosen], clean[chosen], level, draws)
                    own[f"{metric}_gain_{group}"] = _ends(gain)
            if name not in ("base", "clean"):
                own[f"{metric}_excess"] = _ends(excess(metric, ours, clean, flags, level, draws))
        told[f"{where}, {name}"] = own
    return told


def headlines(told: dict[str, dict[str, Any]]) -> dict[str, float]:
    """Excess BLEU, and BLEU gained on injected sentences, of each branch but the clean one, by size: means over seeds."""
    groups: dict[str, list[float]] = {}
    for name, own in told.items():
        size, _, branch = name.split(", ")
        for said, key in (("Excess BLEU", "bleu_excess"), ("BLEU gained", "bleu_gain_injected")):
            if key in own:
                groups.setdefault(f"{said}, {size}, {branch}", []).append(own[key][0])
    return {name: float(np.mean(values)) for name, values in groups.items()}


def sentences(told: dict[str, dict[str, Any]]) -> list[str]:
    """What was found, a line a branch."""
    lines = []
    for name, own in told.items():
        auc = f"AUROC of Min-K%++ {own['auroc_min_k_pp']:.2f}, of the loss {own['auroc_loss']:.2f}"
        scores = f"BLEU {own['bleu_injected']:.1f} on the injected and {own['bleu_control']:.1f} on the other sentences"
        if "bleu_excess" in own:
            parts = [
                f"{said} {value:+.1f} [{low:.1f}, {high:.1f}]"
                for said, key in (
                    ("excess", "bleu_excess"),
                    ("gained", "bleu_gain_injected"),
                    ("on the others", "bleu_gain_control"),
                    ("excess in chrF", "chrf_excess"),
                )
                for value, low, high in [own[key]]
            ]
            scores = f"{scores}; {', '.join(parts)}"
        lines.append(f"{name}: {scores}; {auc}")
    return lines


def difference(
    metric: bleu.Metric, ours: bleu.Counts, theirs: bleu.Counts, level: float = 0.95, draws: int = 1000
) -> Interval:
    """Corpus score of one system less that of another, with a paired bootstrap interval over sentences.

    Args:
        metric: Of the score.
        ours: Counts of the one, (sentences, counts).
        theirs: Counts of the other on the same sentences in the same order.
        level: Of the interval.
        draws: Resamples.
    """
    width = ours.shape[1]
    return bootstrap(
        np.column_stack([ours, theirs]),
        lambda rows: bleu.corpus(metric, rows[:, :width]) - bleu.corpus(metric, rows[:, width:]),
        over="rows",
        level=level,
        draws=draws,
    )


def excess(
    metric: bleu.Metric, ours: bleu.Counts, clean: bleu.Counts, injected: Any, level: float, draws: int
) -> Interval:
    """The gain on injected sentences less that on the others, with an interval over sentences of both kinds."""
    width = ours.shape[1]

    def statistic(rows: Any) -> float:
        sides = [rows[rows[:, -1] > 0], rows[rows[:, -1] == 0]]
        parts = [bleu.corpus(metric, side[:, :width]) - bleu.corpus(metric, side[:, width:-1]) for side in sides]
        return parts[0] - parts[1]

    values = np.column_stack([ours, clean, injected])
    return bootstrap(values, statistic, over="rows", level=level, draws=draws)


def excess_shares(metric: bleu.Metric, rows: bleu.Counts, injected: Any) -> FloatArray:
    """Each sentence's jackknife pseudo-value of the score on the injected sentences less that on the others, (sentences,).

    n T - (n - 1) T without the sentence, over the n sentences of both kinds: the mean is T, less most of its bias, and the spread
    is T's own. Taken of a branch and of the clean one, and subtracted, they are those of the `excess`, and still one a sentence:
    so excesses of two branches on the same sentences can be compared in pairs.

    Args:
        metric: Of the score.
        rows: Counts of one branch, (sentences, counts).
        injected: Which sentences were injected; at least two of each kind.
    """
    flags = np.asarray(injected, dtype=bool)
    inside, outside = rows[flags], rows[~flags]
    scores = bleu.corpus(metric, inside), bleu.corpus(metric, outside)
    left = np.empty(len(rows))
    left[flags] = bleu.without(metric, inside) - scores[1]
    left[~flags] = scores[0] - bleu.without(metric, outside)
    return len(rows) * (scores[0] - scores[1]) - (len(rows) - 1) * left


def add_excess(rows: Rows, clean: Rows) -> None:
    """Add to each row its jackknife pseudo-value of the branch's excess over the clean one, in each metric."""
    flags = [row["injected"] for row in rows]
    for metric in bleu.METRICS:
        ours, theirs = (excess_shares(metric, counts(metric, group), flags) for group in (rows, clean))
        for row, value in zip(rows, ours - theirs, strict=True):
            row[f"{metric}_excess"] = float(value)


def _ends(interval: Interval) -> list[float]:
    return [interval.estimate, interval.low, interval.high]
