"""The claim behind the specialist, without a model: ratings of the same source tell where a rater will find errors.

## What is compared

Professional raters marked error spans in translations of three test sets. Each rating is predicted by copying: what was
marked in other systems' translations is marked again wherever it occurs (`specialist copy`). Arms differ in what is copied
from: all ratings of the same source (any), those of the same rater (same), ratings of another source (shuffled), nothing,
with everything marked as one minor error (minor). The rated system under any name, and every translation equal to the one
at hand, are kept out. Shown beside them, and deciding nothing, is what leaks where they are not (lenient).

F1 is per character and micro-averaged. A row holds not a rating but a source with its share in F1 (`linear_f1`), of which
the mean is that F1 and the spread that of F1, so that sources are what intervals resample.

Each arm's scores are also held against the humans' (`specialist rank`): Kendall's tau and soft pairwise accuracy over
systems, acc* over translations of one source.

## What must hold

In every set F1 of "any" is above that of "shuffled" and above that of "minor", with the whole interval; and in WMT'23, where
each rater of a source rated all its translations side by side, F1 of "same" is above that of "any".

The paper has no such baseline. What it reports is what a large model makes of the same examples.

## References

Finkelstein et al., From Jack of All Trades to Master of One, ICML 2025, arXiv 2411.15387.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from burnish.claims.base import Claim, Measured, Part, Scale
from burnish.claims.decide import Measure
from burnish.claims.digest import digest
from burnish.core.claim import Arm, Criterion, Evidence, Figure
from burnish.core.errors import BadInput
from burnish.core.files import sha256
from burnish.core.method import Paper
from burnish.core.run import Run

FOLDER = "specialist_mqm"
SETS = {
    "TED en-de": "mqm_ted_ende.tsv.gz",
    "TED zh-en": "mqm_ted_zhen.tsv.gz",
    "WMT'23 en-de": "sxs_mqm_generalMT2023_ende.3ratingsPerSegment.nometa.tsv.gz",
}
"""Test set to its file of ratings."""
SIDE_BY_SIDE = "WMT'23 en-de"
"""The set in which each rater of a source rated all its translations."""
PLANTED = "planted"
"""The set of the smaller scale."""
PUBLIC = (
    "professional MQM ratings, Apache-2.0: in the folder specialist_mqm of --data or $BURNISH_DATA the files ted/ende/"
    "mqm_ted_ende.tsv and ted/zhen/mqm_ted_zhen.tsv of github.com/google/wmt-mqm-human-evaluation, gzipped, and the first "
    f"nine columns of its generalMT2023/ende side-by-side file with three ratings a segment as {SETS[SIDE_BY_SIDE]}"
)
ARMS = (
    Arm(name="any", use="specialist copy", settings={"arms": ["any"], "modes": ["strict"]}),
    Arm(name="same", use="specialist copy", settings={"arms": ["same"], "modes": ["strict"]}),
    Arm(name="shuffled", use="specialist copy", settings={"arms": ["shuffled"]}, baseline=True),
    Arm(name="minor", use="specialist copy", settings={"arms": ["minor"]}, baseline=True),
    Arm(name="any, lenient", use="specialist copy", settings={"arms": ["any"], "modes": ["lenient"]}),
    Arm(name="same, lenient", use="specialist copy", settings={"arms": ["same"], "modes": ["lenient"]}),
)
NAMES = {"any strict": "any", "same strict": "same", "any lenient": "any, lenient", "same lenient": "same, lenient"}
"""What `specialist copy` calls an arm, where it is another name."""
RANKED = {"kendall": "Kendall's tau", "spa": "soft pairwise accuracy", "acc_star": "acc*"}
"""Columns of `specialist rank`, those that have an interval of which are shown."""


def ratings_of(name: str, run: Run) -> Path:
    """The file of ratings of a set.

    Raises:
        BadInput: it is not at hand.
    """
    if name == PLANTED:
        from burnish.data.planted_ratings import plant_ratings

        return plant_ratings(run.folder / "planted.tsv")
    folder = Path(os.environ.get("BURNISH_DATA", "")) / FOLDER
    path = folder / SETS[name]
    if not os.environ.get("BURNISH_DATA") or not path.is_file():
        raise BadInput(f"the ratings of {name} are not at hand: {path}", PUBLIC)
    return path


@dataclass(frozen=True)
class Ranked(Measured):
    """With what `specialist rank` says of each (arm, set)."""

    ranks: dict[tuple[str, str], dict[str, dict[str, float]]] = field(default_factory=dict)


class CopyClaim(Claim):
    """A claim about predictions that need no model."""

    sets: dict[Scale, tuple[str, ...]]
    """Which sets are measured."""
    cells: tuple[str, ...] = ("set",)
    measures: tuple[Measure, ...] = (Measure(name="F1", column="f1"),)
    tools: tuple[str, ...] = ("specialist rank",)
    code: tuple[str, ...] = ("burnish.claims.specialist_copy", "burnish.claims.decide")
    default_model: str = ""

    def measure(self, model: str, run: Run, scale: Scale, *, device: str = "auto", dtype: str = "auto") -> Measured:
        """Copy in every set; nothing is loaded."""
        from burnish import catalogue

        paths = {name: ratings_of(name, run) for name in self.sets[scale]}
        measured = Ranked(rows=[], data={name: f"SHA-256 {sha256(path)}" for name, path in paths.items()})
        methods = [digest(catalogue.module_of(use)) for use in ("specialist copy", "specialist rank")]
        for name, path in paths.items():
            # What other code or other ratings gave is never taken up.
            depends = json.dumps([measured.data[name], *methods])
            part = run.sub(f"{name}-{hashlib.sha256(depends.encode()).hexdigest()[:10]}")
            found = part.once("set", partial(_one, path, part))
            measured.rows.extend({**row, "set": name} for row in found["rows"])
            for arm in self.arms:
                measured.parts.append(Part(arm.name, {"set": name}, round(found["seconds"] / len(self.arms), 2)))
                measured.ranks[arm.name, name] = found["ranks"][arm.name]
            run.metric(**{f"{name}: {figure}": value for figure, value in found["figures"].items()})
        return measured

    def collect(self, measured: Measured, **facts: Any) -> Evidence:
        """With how each arm ranks systems and translations."""
        evidence = super().collect(measured, **facts)
        ranks = measured.ranks if isinstance(measured, Ranked) else {}
        arms = [
            arm.model_copy(update={"measures": {**arm.measures, **ranks.get((arm.arm, arm.cell["set"]), {})}})
            for arm in evidence.arms
        ]
        return evidence.model_copy(update={"arms": arms})

    def label(self, arm: str, cell: Mapping[str, Any]) -> str:
        """E.g. "same, lenient: TED en-de"."""
        return f"{arm}: {cell['set']}"

    def ours(self, evidence: Evidence) -> str:
        """F1 of the four strict arms in each set, and how many criteria hold."""
        shown = []
        for name in dict.fromkeys(arm.cell["set"] for arm in evidence.arms):
            values = [
                f"{one.arm} {one.measures['F1']['estimate']:.3f}"
                for one in evidence.arms
                if one.cell["set"] == name and "lenient" not in one.arm
            ]
            shown.append(f"{name}: {', '.join(values)}")
        return f"F1, {'; '.join(shown)}; {super().ours(evidence)}"


def _one(path: Path, part: Run) -> dict[str, Any]:
    """All arms on one set: shares in F1 by source, ranks, headline figures."""
    from burnish import catalogue

    began = time.monotonic()
    copy: Any = catalogue.load("specialist copy").build({})
    scores = copy(path, run=part)
    rows: list[dict[str, Any]] = []
    by_arm: dict[str, list[dict[str, Any]]] = {}
    for row in scores.rows():
        by_arm.setdefault(NAMES.get(row["model"], row["model"]), []).append(row)
    for arm, ratings in by_arm.items():
        rows += [{"arm": arm, **row} for row in shares(ratings)]
    ranked = part.sub("ranks")
    rank: Any = catalogue.load("specialist rank").build({})
    ranks = {NAMES.get(row["item_id"], row["item_id"]): _shown(row) for row in rank(scores, run=ranked).rows()}
    figures = {**part.metrics, **ranked.metrics}
    return {"rows": rows, "ranks": ranks, "figures": figures, "seconds": round(time.monotonic() - began, 2)}


def shares(ratings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row a source with its share in F1; a rating that is not scored has nothing marked."""
    from burnish.stats.spans import linear_f1

    counts = [[row["credit"] or 0.0, row["predicted"] or 0.0, row["gold"]] for row in ratings]
    found = linear_f1(counts, [row["cluster"] for row in ratings])
    return [{"item_id": source, "f1": share} for source, share in found.items()]


def _shown(row: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    return {
        said: {"estimate": row[name], "low": row[f"{name}_low"], "high": row[f"{name}_high"]}
        for name, said in RANKED.items()
        if row.get(f"{name}_low") is not None
    }


def _above(arm: str, against: str, name: str, text: str) -> Criterion:
    return Criterion(
        name=f"F1 {arm} > {against} ({name})",
        text=f"{name}: {text}",
        statistic="difference",
        measure="f1",
        arm=arm,
        against=against,
        where={"set": name},
        side="above",
    )


def _criteria(*names: str) -> tuple[Criterion, ...]:
    found = []
    for name in names:
        text = "copying ratings of the same source finds more than copying those of another."
        found.append(_above("any", "shuffled", name, text))
        text = "copying ratings of the same source finds more than marking everything."
        found.append(_above("any", "minor", name, text))
        if name in (SIDE_BY_SIDE, PLANTED):
            text = "the rater's own ratings say more than everybody's."
            found.append(_above("same", "any", name, text))
    return tuple(found)


FIGURES = (
    Figure(
        where="gain of the specialist over XCOMET in fine-grained F1, %",
        numbers={"WMT'23": 54, "WMT'24": 119},
        measure="F1",
        source="abstract of the paper",
    ),
)
PAPER = Paper(
    title="From Jack of All Trades to Master of One: Specializing LLM-based Autoraters to a Test Set",
    authors="Finkelstein, Deutsch, Riley, Juraska, Kovacs, Freitag",
    year=2025,
    venue="ICML 2025",
    arxiv="2411.15387",
)

CLAIM = CopyClaim(
    name="specialist-copy",
    title="ratings of the same source, copied",
    sentence=(
        "Ratings of other systems' translations of the same source, copied without a model, tell where a rater will find "
        "errors, where ratings of another source tell next to nothing; and where raters see all translations of a source, "
        "their own ratings tell more than everybody's."
    ),
    paper=PAPER,
    figures=FIGURES,
    arms=ARMS,
    criteria=_criteria(*SETS),
    smaller={"smoke": _criteria(PLANTED)},
    needs_data=PUBLIC,
    sets={"full": tuple(SETS), "smoke": (PLANTED,)},
)
