"""Contamination probe: signs that a model has seen test sentences, when nobody can say what it was trained on.

## How it works

From the log-probabilities that a model gave to the tokens of each sentence (`contamination score` has a model read them; any
other tool may have):

| sign | of a sentence | needs the columns |
|---|---|---|
| loss | mean log-probability | logprobs, or nll |
| ratio | 1 - nll / reference_nll: how much surer than a reference model | those, and reference_nll |
| min_k | mean of the lowest `share` of log-probabilities (Min-K%) | logprobs |
| min_k_pp | the same of (log p - mean) / deviation, those of log p under the model's own distribution there (Min-K%++) | logprobs, mean_logprobs, std_logprobs |
| completion | share of the rest that the model writes when given the beginning | completion |

All are larger the more a sentence looks seen. Where the column `injected` says which sentences were (as in the rows of
`contamination measure`), each sign gets its AUROC with an interval, model by model: the test of the probe itself.

Rows with published_logprob and shuffled_logprobs are shards of the test set in the published and in other orders; they get
the exchangeability test, model by model, whose p-value needs no reference and no threshold.

## Differences

The mean of log-probabilities, not the sum: long sentences are no likelier to be accused. Oren's shards are compared by a
permutation test within shards instead of a t-test over them.

## When not to use it

As proof about one sentence: frequent and formulaic sentences look seen. A sign without known seen and unseen sentences of the
same kind has no threshold.

## References

Shi et al. 2024 (Min-K%), Zhang et al. 2025 (Min-K%++), Oren et al. 2024 (exchangeability), Carlini et al. 2021 (ratio).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from burnish.core.errors import BadInput
from burnish.core.run import Run, ensure
from burnish.core.shapes import Evaluation
from burnish.data.scores import Scores
from burnish.stats.membership import auroc_interval, exchangeability, min_k, min_k_plus_plus

SIGNS = ("loss", "ratio", "min_k", "min_k_pp", "completion")
_SHOWN = 10


class ContaminationProbe(Evaluation):
    """Look for signs that a model has seen sentences, in the log-probabilities that it gave them."""

    share: Annotated[float, Field(gt=0, le=1)] = 0.2
    """The part of a sentence's tokens that Min-K% and Min-K%++ look at (the papers' default)."""
    level: Annotated[float, Field(gt=0, lt=1)] = 0.95
    """Confidence level of the AUROC."""

    def __call__(self, scores: Scores, run: Run | None = None) -> Scores:
        """Probe.

        Args:
            scores: A row a sentence with the columns of the signs that are wanted, and perhaps injected; or a row a shard.
            run: Where figures go.

        Returns:
            A row a sentence or shard: item_id, model and each sign; of a shard its p_value.

        Raises:
            BadInput: no column for any sign, or rows whose values cannot be used; lists them.
        """
        run = ensure(run)
        rows = scores.rows()
        columns = set(scores.table.column_names)
        if {"published_logprob", "shuffled_logprobs"} <= columns:
            return self._shards(rows, run)
        if not columns & {"logprobs", "nll"}:
            raise BadInput(
                "the scores have neither logprobs nor nll, and no shards",
                "columns: logprobs (a list a sentence) or nll; reference_nll; mean_logprobs and std_logprobs; injected",
            )
        found, faults = [], []
        for number, row in enumerate(rows):
            try:
                found.append({"item_id": row["item_id"], "model": row.get("model", ""), **self._signs(row)})
            except (BadInput, TypeError, ValueError) as error:
                faults.append(f"row {number}: {error.problem if isinstance(error, BadInput) else error}")
        if not rows:
            raise BadInput("there are no sentences", "give a row a sentence")
        signs = [name for name in SIGNS if found and name in found[0]]
        uneven = [row["item_id"] for row in found if [name for name in SIGNS if name in row] != signs]
        faults += [f"{item}: it lacks a value that {found[0]['item_id']} has, or has one more" for item in uneven]
        if faults:
            raise BadInput.of("some sentences cannot be probed", faults[:_SHOWN], "mend or leave out those rows")
        if "injected" in columns:
            injected = np.array([bool(row["injected"]) for row in rows])
            for row, flag in zip(found, injected, strict=True):
                row["injected"] = bool(flag)
            self._judge(found, signs, run)
        run.items(found)
        run.metric(
            sentences=len(found), **{f"mean_{name}": float(np.mean([row[name] for row in found])) for name in signs}
        )
        return Scores.of(found)

    def _judge(self, found: list[dict[str, Any]], signs: list[str], run: Run) -> None:
        """How well each sign tells what was injected, for each model; models of which nothing was injected are left out."""
        models = list(dict.fromkeys(row["model"] for row in found))
        for model in models:
            mine = [row for row in found if row["model"] == model]
            flags = np.array([row["injected"] for row in mine])
            if flags.all() or not flags.any():
                continue
            for name in signs:
                area = auroc_interval([row[name] for row in mine], flags, self.level)
                key = f"auroc_{name}" + (f"_{model}" if len(models) > 1 else "")
                run.metric(**{key: area.estimate, f"{key}_low": area.low, f"{key}_high": area.high})

    def _signs(self, row: Mapping[str, Any]) -> dict[str, float]:
        tokens = row.get("logprobs")
        loss = float(np.mean(tokens)) if tokens is not None and len(tokens) else -float(row["nll"])
        if not np.isfinite(loss):
            raise ValueError("its loss is no number")
        signs = {"loss": loss}
        if row.get("reference_nll") is not None:
            if not row["reference_nll"] > 0:
                raise ValueError(f"the reference's loss is {row['reference_nll']}, and has to be above 0")
            signs["ratio"] = 1 + loss / float(row["reference_nll"])
        if row.get("completion") is not None:
            signs["completion"] = float(row["completion"])
        if tokens is None:
            return signs
        signs["min_k"] = min_k(tokens, self.share)
        means, deviations = row.get("mean_logprobs"), row.get("std_logprobs")
        if means is not None and deviations is not None:
            if not len(tokens) == len(means) == len(deviations) or not np.all(np.asarray(deviations) >= 0):
                raise ValueError("mean_logprobs and std_logprobs need a value a token, and deviations of at least 0")
            signs["min_k_pp"] = min_k_plus_plus(tokens, means, deviations, self.share)
        return signs

    def _shards(self, rows: list[dict[str, Any]], run: Run) -> Scores:
        groups: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            groups.setdefault(row.get("model", ""), []).append(row)
        told = []
        for model, mine in groups.items():
            published = [row["published_logprob"] for row in mine]
            found = exchangeability(published, [row["shuffled_logprobs"] for row in mine])
            end = f"_{model}" if len(groups) > 1 else ""
            figures = {"shards": len(mine), "p_value": found.p_value, "excess": found.excess}
            run.metric(**{f"{name}{end}": value for name, value in figures.items()})
            told += [
                {"item_id": row["item_id"], "model": model, "p_value": float(p)}
                for row, p in zip(mine, found.by_shard, strict=True)
            ]
        run.items(told)
        return Scores.of(told)
