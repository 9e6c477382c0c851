"""Interval: how well a model does, with bounds that are right for few items, from the logs of any evaluation tool.

## How it works

A log is read into scores: one row for every run of every item. Runs of an item are never counted as items, and scores
that are missing are left out and counted, never taken for 0. Then, for every model and measure, by `method = "auto"`:

| scores | method |
|---|---|
| 0 and 1, one run an item | quantiles of the posterior Beta(1 + k, 1 + n - k) |
| 0 and 1, several runs an item, or a cluster key; fewer than 20 items, or clusters | the clustered posterior: θ ~ U(0, 1), d ~ Gamma(1, 1), θ_t ~ Beta(dθ, d(1 - θ)), k_t ~ Binomial(n_t, θ_t); the items, or the clusters, are t |
| the same, 20 or more | quantiles of the posterior of a proportion, at the number of independent items that would say as much |
| any others | an interval of the mean of the items' means |

Counts can be given without a log: `--successes` and `--n`, or a confusion table and a metric of it.

Every figure that a log states about itself is compared with its items: a standard error of exactly 0 beside a score
between 0 and 1 is impossible, and the one that the items give is shown.

## Differences

* The paper samples from the prior and reweights; the clustered posterior is integrated on a lattice instead, and is the
  same at every call.
* The paper's clustered bootstrap redraws items inside clusters and never the clusters. It is here as
  `within-bootstrap`; `cluster-bootstrap` draws whole clusters.
* Bounds never leave the scale.

## When not to use it

Items that all come from one source (one document, one conversation) say little about others: name the cluster. An
interval is about items like these, not about another benchmark; and not about contamination.

## References

"Position: Don't Use the CLT in LLM Evals With Fewer Than a Few Hundred Datapoints", arXiv 2503.01747. Miller, "Adding
Error Bars to Evals", arXiv 2411.00640, for standard errors of clustered items.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import pyarrow as pa
from pydantic import Field, model_validator

from burnish.core.errors import BadInput
from burnish.core.method import Paper
from burnish.core.run import Run, ensure
from burnish.data.logs import Reported
from burnish.data.logs.analysis import LogAnalysis
from burnish.data.logs.items import Items, measures, models, one_of, select
from burnish.data.logs.several import Logs
from burnish.data.scores import Scores, Table
from burnish.stats.clustered import clustered
from burnish.stats.confusion import confusion_interval
from burnish.stats.epochs import epochs
from burnish.stats.interval import Interval as Bounds
from burnish.stats.proportion import proportion
from burnish.stats.reported import doubt, sample_error, share_error, stated_interval
from burnish.stats.rows import estimate_row
from burnish.stats.scores import mean_score

FEW = 15
"""Items below which a result is labelled: some packages refuse to report them."""

SINGLE = ("beta", "jeffreys", "wilson", "clopper-pearson", "wald", "student-t", "bootstrap")
CLUSTERED = (
    "bayes",
    "beta-effective",
    "miller",
    "inspect-t",
    "inspect-wilson",
    "cluster-bootstrap",
    "within-bootstrap",
)

WHY = {
    "counts": "right and wrong answers to independent items: the Beta posterior is right at every number of them",
    "runs": "0/1 scores with up to {runs} runs an item: runs of one item are alike, so items are the clusters",
    "clusters": "0/1 scores in {clusters} clusters: items of a cluster are alike, so clusters are what is counted",
    "scores": "scores other than 0 and 1: an interval of the mean of the items' means",
    "confusion": "cells of a confusion table: the posterior of the metric under a uniform prior on the cells",
    "stated": "the log holds a mean and a standard error, and neither items nor counts: ± z standard errors",
    "passing": "{name} of every item from up to {runs} runs, under the clustered posterior with items as clusters",
    "asked": "the method that was asked for",
}


class Interval(LogAnalysis):
    """How well a model does, with an interval that is right for few items, from any tool's log or from counts."""

    paper: ClassVar[Paper | None] = Paper(
        title="Position: Don't Use the CLT in LLM Evals With Fewer Than a Few Hundred Datapoints",
        authors="Bowyer, Aitchison, Ivanova",
        year=2025,
        venue="ICML 2025",
        arxiv="2503.01747",
    )

    model: str = ""
    """One of the log's models; by default all of them."""
    method: Literal[
        "auto",
        "beta",
        "jeffreys",
        "wilson",
        "clopper-pearson",
        "wald",
        "student-t",
        "logit-t",
        "bootstrap",
        "bayes",
        "beta-effective",
        "miller",
        "inspect-t",
        "inspect-wilson",
        "cluster-bootstrap",
        "within-bootstrap",
    ] = "auto"
    """How bounds are found; auto chooses by the scores, and says why. Those from bayes on are for clusters and runs."""
    reduce: Literal["mean", "pass@k", "pass^k"] = "mean"
    """What several runs of an item become: their mean; or how probably k runs hold a right one, or only right ones."""
    k: Annotated[int, Field(ge=1)] = 1
    """Runs of pass@k and pass^k."""
    successes: Annotated[int, Field(ge=0)] | None = None
    """Right answers, instead of a log; with n."""
    n: Annotated[int, Field(ge=1)] | None = None
    """Items, instead of a log; with successes."""
    confusion: tuple[Annotated[int, Field(ge=0)], ...] = ()
    """True positives, false positives, false negatives and true negatives, instead of a log; with metric."""
    metric: Literal["f1", "precision", "recall", "specificity", "accuracy", "jaccard", "mcc", "balanced-accuracy", "macro-f1"] = "f1"  # fmt: skip
    """What is computed of the confusion table."""
    export: str = ""
    """A file to write the results to in the schema of Every Eval Ever (0.3.0); one model."""

    @model_validator(mode="after")
    def _counts_fit(self) -> Self:
        if (self.successes is None) != (self.n is None):
            raise ValueError("successes and n are given together")
        if self.successes is not None and self.n is not None and self.successes > self.n:
            raise ValueError(f"successes: {self.successes} of only {self.n} items")
        if self.confusion and len(self.confusion) != 4:
            raise ValueError(f"confusion: {len(self.confusion)} numbers, and TP,FP,FN,TN are four")
        if self.confusion and self.successes is not None:
            raise ValueError("successes and confusion are two questions: ask one of them")
        if self.confusion and self.method not in ("auto", "beta", "jeffreys", "wilson", "clopper-pearson"):
            raise ValueError(f"method: {self.method} is none for a confusion table")
        if self.successes is not None and self.method in CLUSTERED:
            raise ValueError(f"method: {self.method} needs clusters, and counts have none")
        return self

    def __call__(self, file: Logs | Path | None = None, run: Run | None = None) -> Table:
        """Give every model and measure of every log its interval.

        Args:
            file: Logs, or folders that hold one each; None where counts are given.
            run: Where figures go.

        Returns:
            A row for each: label, model, measure, file, task, estimate, low, high, level, method, why, n, runs,
            n_clusters, stderr (what the items give), reported and reported_stderr (what the log states), warnings. Of
            several logs, one that cannot be read or has no scores is left out with a warning.

        Raises:
            BadInput: neither a log nor counts, or both; a log without scores; a method that does not fit the scores.
        """
        run = ensure(run)
        counts = self.successes is not None or bool(self.confusion)
        if counts == (file is not None):
            both = "both a log and counts are given" if counts else "neither a log nor counts are given"
            raise BadInput(both, "give a file, or --successes and --n, or --confusion")
        scores: Scores | None = None
        kept: list[pa.Table] = []
        notes: dict[str, Any] = {}
        if file is None:
            rows = [self._counted()]
        elif isinstance(file, Path) or len(file) == 1:
            scores = self.read(file if isinstance(file, Path) else file[0])
            rows, kept, left = self._rows(scores)
            named = {name: scores.notes[name] for name in ("format", "file", "task")}
            notes = {"warnings": [*scores.notes["warnings"], *left], **named}
        else:
            rows, kept, notes = self._several(file)
        # Best first within a task and measure; names settle ties, so that nothing depends on the file's order.
        rows.sort(key=lambda row: (row["task"], row["measure"], -row["estimate"], row["model"], row["file"]))
        _name(rows)
        if kept:
            run.items(pa.concat_tables(kept))
        for row in rows[:4]:
            run.metric(**{row["label"]: {key: row[key] for key in ("estimate", "low", "high", "level")}})
        if self.export:
            if scores is None:
                why = "counts tell neither model nor task" if file is None else "a record holds one model and task"
                raise BadInput(f"only results of one log can be exported: {why}")
            from burnish.data.every_eval_ever import write

            notes["exported"] = str(write(Path(self.export), scores, rows))
        return Table.of(rows, **notes)

    # -- counts ---------------------------------------------------------------------------------------------------

    def _counted(self) -> dict[str, Any]:
        if self.confusion:
            tp, fp, fn, tn = self.confusion
            found = confusion_interval(tp, fp, fn, tn, self.metric, self.level, self.method)
            return _row("", self.metric, found, WHY["confusion"], sum(self.confusion))
        assert self.successes is not None
        assert self.n is not None
        found = proportion(self.successes, self.n, "beta" if self.method == "auto" else self.method, self.level)
        why = WHY["counts" if self.method == "auto" else "asked"]
        stderr = share_error(self.successes / self.n, self.n) or None
        return _row("", "share", found, why, self.n, stderr=stderr)

    # -- a log ----------------------------------------------------------------------------------------------------

    def _several(self, logs: Logs) -> tuple[list[dict[str, Any]], list[pa.Table], dict[str, Any]]:
        """The rows and items of several logs, each with its file's name, and what is to be known about them."""
        rows: list[dict[str, Any]] = []
        kept: list[pa.Table] = []
        warnings: list[str] = []
        faults: list[str] = []
        for name, path in zip(logs.names, logs, strict=True):
            try:
                scores = self.read(path)
                found, items, left = self._rows(scores)
            except BadInput as error:
                faults.append(" ".join(error.problem.split()))
                continue
            rows += [row | {"file": name} for row in found]
            kept += [table.append_column("file", pa.array([name] * len(table), pa.string())) for table in items]
            warnings += [f"{name}: {text}" for text in (*scores.notes["warnings"], *left)]
        if not rows:
            raise BadInput.of("no log could be used", faults)
        warnings += [f"left out: {fault}" for fault in faults]
        return rows, kept, {"warnings": warnings, "logs": len(logs) - len(faults), "left_out": len(faults)}

    def _rows(self, scores: Scores) -> tuple[list[dict[str, Any]], list[pa.Table], list[str]]:
        """A row for every model and measure, their items, and why some have none."""
        rows, kept, left = self._found(scores)
        named = {"file": str(scores.notes["file"]), "task": str(scores.notes["task"] or "")}
        return [row | {name: row[name] or said for name, said in named.items()} for row in rows], kept, left

    def _found(self, scores: Scores) -> tuple[list[dict[str, Any]], list[pa.Table], list[str]]:
        reported = [Reported(**one) for one in scores.notes["reported"]]
        if not len(scores):
            return list(self._figures(scores, reported)), [], []
        file = str(scores.notes["file"])
        known, there = measures(scores), models(scores)
        if not known:
            raise BadInput(f"{file}: none of its {len(scores)} rows has a score", "the runs may have ended with errors")
        chosen = [one_of("measure", known, self.measure, "--measure", file)] if self.measure else known
        wanted = [one_of("model", there, self.model, "--model", file)] if self.model else there
        kept: list[pa.Table] = []
        faults: list[BadInput] = []
        rows: list[dict[str, Any]] = []
        for model in wanted:
            for measure in chosen:
                try:
                    items = select(scores, measure, model)
                    rows.append(self._row(items, [r for r in reported if (r.measure, r.model) == (measure, model)]))
                except BadInput as error:
                    faults.append(error)
                    continue
                kept.append(items.table())
        if not rows:
            raise faults[0]
        return rows, kept, [error.problem for error in faults]

    def _row(self, items: Items, reported: list[Reported]) -> dict[str, Any]:
        found, why = self._interval(items)
        # Scores without spread have no standard error: 0 would be read as precision.
        due = (sample_error(items.means, items.clusters) or None) if self.reduce == "mean" else None
        warnings = list(items.warnings)
        if len(items) < FEW:
            warnings.append(
                f"only {len(items)} item{'s' * (len(items) > 1)}: the bounds lean on the method's assumptions"
            )
        stated = reported[0] if reported and self.reduce == "mean" else None
        if stated is not None:
            warnings += self._doubts(items, stated, due)
        row = _row(items.model, items.measure, found, why, len(items), warnings, due, stated)
        return row | {"runs": int(items.sizes.sum())}

    def _doubts(self, items: Items, stated: Reported, due: float | None) -> list[str]:
        """What the log states and its items contradict."""
        scored = int(items.sizes.sum())
        if stated.n is not None and stated.n not in (len(items), scored):
            return [f"the stated {stated.estimate:.4g} is over {stated.n} items, of which the file holds {len(items)}"]
        found = []
        mean = float(items.means.mean())
        if abs(stated.estimate - mean) > 5e-4:
            found.append(f"the stated score is {stated.estimate:.4g}; the items give {mean:.4g}")
        wrong = doubt(stated.estimate, stated.stderr, due)
        return [*found, wrong] if wrong else found

    def _passing(self, items: Items) -> tuple[Bounds, str]:
        if not items.binary or items.clusters is not None or self.method != "auto":
            raise BadInput(f"{self.reduce} is of 0/1 scores without clusters, by method auto")
        found = epochs(items.successes, items.sizes, self.reduce, self.k, level=self.level)
        return found, WHY["passing"].format(name=self.reduce.replace("k", str(self.k)), runs=int(items.sizes.max()))

    def _interval(self, items: Items) -> tuple[Bounds, str]:
        if self.reduce != "mean":
            return self._passing(items)
        grouped = items.clusters is not None
        runs = int(items.sizes.max())
        auto = self.method == "auto"
        if items.binary and (grouped or items.repeated):
            if self.method in SINGLE:
                what = f"{len(set(items.clusters or ()))} clusters" if grouped else f"items with up to {runs} runs"
                raise BadInput(
                    f"method {self.method} is for independent items, and there are {what}",
                    f"one of {', '.join(CLUSTERED)}",
                )
            labels = np.unique(np.array(items.clusters), return_inverse=True)[1] if grouped else np.arange(len(items))
            k = np.bincount(labels, items.successes).astype(int)
            n = np.bincount(labels, items.sizes).astype(int)
            why = WHY["clusters" if grouped else "runs"].format(clusters=len(k), runs=runs)
            return clustered(k, n, self.method, self.level), why if auto else WHY["asked"]
        if items.binary and self.method != "logit-t":
            if self.method in CLUSTERED:
                raise BadInput(
                    f"method {self.method} is for clusters or runs, and every item stands alone", "--cluster KEY"
                )
            method = "beta" if auto else self.method
            why = WHY["counts"] if auto else WHY["asked"]
            return proportion(int(items.successes.sum()), len(items), method, self.level), why
        if not auto and self.method not in ("student-t", "logit-t", "bootstrap", "cluster-bootstrap"):
            raise BadInput(
                f"method {self.method} is for scores of 0 and 1, and these are others", "auto, student-t or bootstrap"
            )
        way = "bootstrap" if self.method == "cluster-bootstrap" else self.method
        found = mean_score(items.means, items.clusters, level=self.level, method=way)
        return found, WHY["scores" if auto else "asked"]

    def _figures(self, scores: Scores, reported: list[Reported]) -> Iterator[dict[str, Any]]:
        """Intervals from what a log without items states: of counts where its figures are shares."""
        wanted = [one for one in reported if self.measure in ("", one.measure) and self.model in ("", one.model)]
        if not wanted:
            raise BadInput(f"{scores.notes['file']} has no figure of that measure and model")
        for one in wanted:
            if one.n and one.successes is not None:
                method = "beta" if self.method == "auto" else self.method
                found = proportion(one.successes, one.n, method, self.level)
                due = share_error(one.estimate, one.n)
                why = WHY["counts" if self.method == "auto" else "asked"]
            elif one.stderr:
                found = stated_interval(one.estimate, one.stderr, one.n or 1, self.level)
                due, why = None, WHY["stated"]
            else:
                continue
            wrong = doubt(one.estimate, one.stderr, due)
            warnings = [f"{one.successes} of {one.n}, counted back from the stated score"] if due is not None else []
            row = _row(
                one.model,
                f"{one.task} {one.measure}",
                found,
                why,
                one.n or 0,
                warnings + [wrong] * bool(wrong),
                due,
                one,
            )
            yield row | {"runs": one.n or 0}


def _name(rows: list[dict[str, Any]]) -> None:
    """Label rows by what tells them apart: their models, their measures, their tasks, and if need be their files."""
    several = [name for name in ("model", "measure", "task", "file") if len({row[name] for row in rows}) > 1]
    while len(several) > 1 and len({tuple(row[name] for name in several[:-1]) for row in rows}) == len(rows):
        several.pop()
    for row in rows:
        row["label"] = " ".join(row[name] for name in several or ("model", "measure") if row[name])


def _row(
    model: str,
    measure: str,
    found: Bounds,
    why: str,
    n: int,
    warnings: list[str] | None = None,
    stderr: float | None = None,
    stated: Reported | None = None,
) -> dict[str, Any]:
    return {
        "label": "",
        "model": model,
        "measure": measure,
        "file": "",
        "task": "",
        **estimate_row(found, why, n, warnings or []),
        "runs": n,
        "stderr": stderr,
        "reported": stated.estimate if stated else None,
        "reported_stderr": stated.stderr if stated else None,
    }
