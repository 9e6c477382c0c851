"""Compare: which of two models is better on the items that both were asked, and whether that can be told at all.

## How it works

The items of the two logs are matched by the hash of what they are (their names, where a log has no hashes), never by
their place in the file. Items that only one log holds are left out, with a warning; documents that differ under one
name are refused. Then, by `method = "auto"`:

| scores of the shared items | interval of θ_A - θ_B |
|---|---|
| 0 and 1, one run an item | posterior of a bivariate probit model on the table (both, only A, only B, neither): θ_A, θ_B ~ U(0, 1), ρ = 2 Beta(4, 2) - 1 |
| 0 and 1, several runs an item, or a cluster key | Tango's score interval, at the number of independent items that would say as much: by how much the items' (or clusters') mean differences vary, against single answers |
| any others | Student's t interval of the mean of the items' differences, whole clusters at a time |

One file with several models compares each with a baseline (by default the best), or every pair; the intervals then hold
together (Bonferroni), and p-values are Holm's. Counts can be given without logs: a 2 × 2 table of shared items, or right
answers and items of two separate tests.

## Differences

* The paper's importance sampler proposes from the prior: above some hundred items a few draws carry all the weight.
  Here the posterior is integrated on a lattice: one answer at every number of items, the same at every call, and
  comparing B with A gives the exact mirror.
* lm-evaluation-harness compares paired scores by an unpaired z test; the pairs are used here.

## When not to use it

Two logs of different prompts or few-shot examples compare prompts and models at once (a warning says so). With many
models and few items, ask for one pair that was chosen before looking.

## References

"Position: Don't Use the CLT in LLM Evals With Fewer Than a Few Hundred Datapoints", arXiv 2503.01747. Tango, "Equivalence
test and confidence interval for the difference in proportions for the paired-sample design", Statistics in Medicine 1998.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import pyarrow as pa
from pydantic import Field, model_validator

from burnish.core.errors import BadInput
from burnish.core.method import Paper
from burnish.core.run import Run, ensure
from burnish.data.logs.analysis import LogAnalysis
from burnish.data.logs.items import Items, align, measures, models, one_of, select
from burnish.data.scores import Scores, Table
from burnish.stats.multiplicity import bonferroni_level, holm
from burnish.stats.paired import PairedResult, mcnemar, paired_binary
from burnish.stats.rows import estimate_row
from burnish.stats.scores import paired_scores
from burnish.stats.unpaired import unpaired_binary

WHY = {
    "table": "right or wrong answers to the same {n} items: a posterior that uses how often both models agree",
    "runs": "several 0/1 runs an item: the table of single answers, at as many items as hold the same information",
    "clusters": "{clusters} clusters of items: the items' differences, a cluster at a time",
    "scores": "scores other than 0 and 1: the items' differences",
    "counts": "two separate tests: the difference of two Beta posteriors",
    "mcnemar": "McNemar's test as asked, with Tango's score interval, which inverts a score test of the same table",
    "asked": "the method that was asked for",
}
Count = Annotated[int, Field(ge=0)]


class Compare(LogAnalysis):
    """Which of two models is better on the items that both were asked, with a paired interval, from any tools' logs."""

    paper: ClassVar[Paper | None] = Paper(
        title="Position: Don't Use the CLT in LLM Evals With Fewer Than a Few Hundred Datapoints",
        authors="Bowyer, Aitchison, Ivanova",
        year=2025,
        venue="ICML 2025",
        arxiv="2503.01747",
    )
    arguments: ClassVar[tuple[str, ...]] = ("a", "b")
    """Goods that are given by their place on the command line, though they may be absent."""

    model_a: str = ""
    """The model of the first log; needed where it holds several and there is a second log."""
    model_b: str = ""
    """The model of the second log."""
    baseline: str = ""
    """In one log of several models: which the others are compared with; by default the one with the best score."""
    pairs: Literal["baseline", "all"] = "baseline"
    """In one log of several models: each against the baseline, or every pair."""
    method: Literal["auto", "probit", "tango", "mcnemar", "wald", "bootstrap", "student-t"] = "auto"
    """How bounds are found; auto chooses by the scores, and says why. From probit to wald they are for 0/1 scores."""
    table: tuple[Count, ...] = ()
    """Both right, only A right, only B right, neither: instead of logs."""
    counts: tuple[Count, ...] = ()
    """Right answers and items of A, then of B, of two separate tests: instead of logs."""

    @model_validator(mode="after")
    def _counts_fit(self) -> Self:
        for name, meaning in (("table", "S,T,U,V"), ("counts", "KA,NA,KB,NB")):
            given = getattr(self, name)
            if given and len(given) != 4:
                raise ValueError(f"{name}: {len(given)} numbers, and {meaning} are four")
        if self.table and self.counts:
            raise ValueError("table and counts are two questions: ask one of them")
        if self.counts and self.method not in ("auto", "wald"):
            raise ValueError(f"method: {self.method} is none for two separate tests; auto or wald")
        if self.table and self.method == "student-t":
            raise ValueError("method: student-t needs scores, and a table has none")
        return self

    def __call__(self, a: Path | None = None, b: Path | None = None, run: Run | None = None) -> Table:
        """Compare models pair by pair.

        Args:
            a: A log; one with several models may stand alone.
            b: The log of another model.
            run: Where figures go.

        Returns:
            A row a pair: label, a, b, measure, estimate (A - B), low, high, level, method, why, n, n_clusters,
            score_a, score_b, both, only_a, only_b, neither, p_better, p_value, p_holm, verdict, warnings.

        Raises:
            BadInput: neither logs nor counts, or both; logs of different documents; a method that does not fit.
        """
        run = ensure(run)
        given = bool(self.table or self.counts)
        if given == (a is not None):
            both = "both logs and counts are given" if given else "neither logs nor counts are given"
            raise BadInput(both, "give two logs, or one of several models, or --table, or --counts")
        if a is None:
            rows = [self._counted()]
            notes: dict[str, Any] = {}
        else:
            pairs, notes = self._pairs(a, b)
            level = bonferroni_level(self.level, len(pairs))
            rows = [self._row(one, other, level, warnings) for one, other, warnings in pairs]
            run.items(_items(pairs))
        for row, p in zip(rows, holm([row["p_value"] for row in rows]).tolist(), strict=True):
            row["p_holm"] = p
        if len(rows) > 1:
            notes["together"] = f"the {len(rows)} intervals hold together at {self.level:.0%} (Bonferroni)"
        for row in rows[:4]:
            run.metric(**{row["label"]: {key: row[key] for key in ("estimate", "low", "high", "level")}})
        return Table.of(rows, **notes)

    # -- logs -----------------------------------------------------------------------------------------------------

    def _pairs(self, a: Path, b: Path | None) -> tuple[list[tuple[Items, Items, list[str]]], dict[str, Any]]:
        first = self.read(a)
        second = first if b is None else self.read(b)
        measure = self._measure(first, second)
        notes: dict[str, Any] = {
            "measure": measure,
            "warnings": _told(first) + (_told(second) if b is not None else []),
        }
        if b is not None:
            one = select(first, measure, one_of("model", models(first), self.model_a, "--model-a", str(a)))
            other = select(second, measure, one_of("model", models(second), self.model_b, "--model-b", str(b)))
            if one.model == other.model:
                told = (a.name, b.name) if a.name != b.name else ("first log", "second log")
                one, other = (
                    replace(x, model=f"{x.model} ({name})") for x, name in zip((one, other), told, strict=True)
                )
            return [_aligned(one, other)], notes
        found = {name: select(first, measure, name) for name in models(first)}
        if self.model_a or self.model_b:
            names = [one_of("model", list(found), name, flag, str(a)) for name, flag in
                     ((self.model_a, "--model-a"), (self.model_b, "--model-b"))]  # fmt: skip
            return [_aligned(*(found[name] for name in names))], notes
        if len(found) < 2:
            raise BadInput(f"{a} holds one model: {', '.join(found)}", "give the log of another one too")
        # Best first; names settle ties, so that the order does not depend on the file's.
        order = sorted(found, key=lambda name: (-float(found[name].means.mean()), name))
        if self.pairs == "all":
            return [_aligned(found[one], found[other]) for one, other in combinations(order, 2)], notes
        base = one_of("model", order, self.baseline, "--baseline", str(a)) if self.baseline else order[0]
        notes["baseline"] = base + ("" if self.baseline else ", which has the best score")
        return [_aligned(found[name], found[base]) for name in order if name != base], notes

    def _measure(self, first: Scores, second: Scores) -> str:
        shared = [name for name in measures(first) if name in measures(second)]
        if not shared:
            for scores in (first, second):
                if not measures(scores):
                    raise BadInput(
                        f"{scores.notes['file']} holds no scores of items",
                        "give the log of items, not the one of results",
                    )
            raise BadInput(
                f"the logs share no measure: {', '.join(measures(first))} and {', '.join(measures(second))}",
                "name the score of plain tables: --columns score=NAME",
            )
        return one_of("shared measure", shared, self.measure, "--measure", str(first.notes["file"]))

    def _row(self, a: Items, b: Items, level: float, warnings: list[str]) -> dict[str, Any]:
        plain = a.binary and b.binary and not (a.repeated or b.repeated) and a.clusters is None
        cells = _cells(a, b) if plain else None
        if cells is not None and self.method != "student-t":
            return self._of_table(cells, level, a, b, warnings)
        binary = a.binary and b.binary
        if self.method in ("probit", "mcnemar", "wald") or (self.method == "tango" and not binary):
            raise BadInput(
                f"method {self.method} is for one 0/1 score of every item, without clusters",
                f"auto, {'tango, ' * binary}student-t or bootstrap",
            )
        # A method that looks at single answers has to know of how many a mean is.
        runs = np.minimum(a.sizes, b.sizes) if binary else None
        found = paired_scores(a.means, b.means, a.clusters, level=level, method=self.method, runs=runs)
        if a.inside and b.inside:
            found = _kept(found)
        kind = "clusters" if a.clusters else "runs" if binary else "scores"
        why = WHY[kind].format(clusters=len(set(a.clusters or ())))
        return _row(a, b, found, why if self.method == "auto" else WHY["asked"], len(a), warnings)

    def _of_table(
        self, cells: tuple[int, int, int, int], level: float, a: Items | None, b: Items | None, warnings: list[str]
    ) -> dict[str, Any]:
        method = {"auto": "probit", "mcnemar": "tango"}.get(self.method, self.method)
        found = paired_binary(*cells, method=method, level=level)
        why = WHY.get({"auto": "table"}.get(self.method, self.method), WHY["asked"]).format(n=sum(cells))
        row = _row(a, b, found, why, sum(cells), warnings)
        shares = {"score_a": (cells[0] + cells[1]) / sum(cells), "score_b": (cells[0] + cells[2]) / sum(cells)}
        named = dict(zip(("both", "only_a", "only_b", "neither"), cells, strict=True))
        return row | shares | named | {"p_value": mcnemar(cells[1], cells[2])}

    def _counted(self) -> dict[str, Any]:
        if self.table:
            if not sum(self.table):
                raise BadInput("the table is empty: no items")
            return self._of_table(self.table, self.level, None, None, [])  # type: ignore[arg-type]
        k_a, n_a, k_b, n_b = self.counts
        found = unpaired_binary(
            k_a, n_a, k_b, n_b, level=self.level, method="beta" if self.method == "auto" else self.method
        )
        row = _row(None, None, found, WHY["counts" if self.method == "auto" else "asked"], n_a + n_b, [])
        return row | {"score_a": k_a / n_a, "score_b": k_b / n_b}


def _kept(result: PairedResult) -> PairedResult:
    """Bounds of a difference of scores in [0, 1], kept on [-1, 1]."""
    found = result.interval
    return replace(result, interval=replace(found, low=max(found.low, -1.0), high=min(found.high, 1.0)))


def _told(scores: Scores) -> list[str]:
    return [f"{scores.notes['file']}: {warning}" for warning in scores.notes["warnings"]]


def _aligned(a: Items, b: Items) -> tuple[Items, Items, list[str]]:
    one, other, warnings = align(a, b)
    return one, other, [*a.warnings, *b.warnings, *warnings]


def _cells(a: Items, b: Items) -> tuple[int, int, int, int]:
    both = int(((a.means == 1) & (b.means == 1)).sum())
    return both, int(a.means.sum()) - both, int(b.means.sum()) - both, int(((a.means == 0) & (b.means == 0)).sum())


def _items(pairs: list[tuple[Items, Items, list[str]]]) -> pa.Table:
    """Every item of every model once, of those that some pair shares."""
    whole = pa.concat_tables([items.table() for pair in pairs for items in pair[:2]])
    kept = whole.group_by(whole.column_names[:3], use_threads=False).aggregate([("score", "first"), ("runs", "first")])
    return kept.rename_columns(whole.column_names)


def _row(
    a: Items | None, b: Items | None, result: PairedResult, why: str, n: int, warnings: list[str]
) -> dict[str, Any]:
    found = result.interval
    names = ("A", "B") if a is None or b is None else (a.model, b.model)
    verdict = (
        f"{names[0]} is better" if found.low > 0 else f"{names[1]} is better" if found.high < 0 else "cannot be told"
    )
    return {
        "label": f"{names[0]} − {names[1]}",
        "a": names[0],
        "b": names[1],
        "measure": a.measure if a is not None else "share",
        **estimate_row(found, why, n, warnings),
        "score_a": float(a.means.mean()) if a is not None else None,
        "score_b": float(b.means.mean()) if b is not None else None,
        **dict.fromkeys(("both", "only_a", "only_b", "neither")),
        "p_better": result.p_better,
        "p_value": 2 * min(result.p_better, 1 - result.p_better),
        "p_holm": None,
        "verdict": verdict,
    }
