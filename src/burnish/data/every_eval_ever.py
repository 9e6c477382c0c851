"""Results in the schema of Every Eval Ever (0.3.0), so that they flow onward to its data set.

The schema is that of github.com/evaleval/every_eval_ever, every_eval_ever/schemas/eval.schema.json. What a log does not
tell (who ran it, where the model ran) is written as unknown, never guessed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from burnish.core.errors import BadInput
from burnish.core.files import write_json
from burnish.data.scores import Scores

SCHEMA = "0.3.0"

LIBRARIES = {
    "Inspect log": "inspect_ai",
    "lm-evaluation-harness samples": "lm_eval",
    "lm-evaluation-harness results": "lm_eval",
    "HELM run": "helm",
    "promptfoo results": "promptfoo",
    "deepeval test run": "deepeval",
    "Arena-Hard judgments": "arena-hard-auto",
    "AlpacaEval annotations": "alpaca_eval",
}
"""Format of a log to the name of the tool that wrote it, as the schema's examples spell it."""


def write(path: Path, scores: Scores, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Write the results of one model.

    Args:
        path: The file, whole or not at all.
        scores: The log's scores; their notes tell task, format and data.
        rows: Results with model, measure, estimate, low, high, level, method, n, stderr.

    Raises:
        BadInput: the rows are of several models, which the schema keeps apart.
    """
    models = list(dict.fromkeys(row["model"] for row in rows))
    if len(models) != 1:
        raise BadInput(f"a file of Every Eval Ever holds one model, and these are {len(models)}", "--model NAME")
    write_json(path, record(models[0], scores.notes, rows, _measures(scores)))
    return path


def record(
    model: str, notes: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], ranges: Mapping[str, tuple[float, float]]
) -> dict[str, Any]:
    """The aggregate record of one model's results.

    Args:
        model: Its name.
        notes: Of the log.
        rows: Results.
        ranges: Measure to its least and greatest score.
    """
    now = str(int(time.time()))
    task = str(notes.get("task") or notes.get("file") or "unknown")
    data = {"dataset_name": str(notes.get("dataset") or task), "source_type": "other"}
    return {
        "schema_version": SCHEMA,
        "evaluation_id": f"{task}/{model}/{now}".replace(" ", "_"),
        **({"evaluation_timestamp": str(notes["created"])} if notes.get("created") else {}),
        "retrieved_timestamp": now,
        "source_metadata": {
            "source_name": str(notes.get("file") or "unknown"),
            "source_type": "evaluation_run",
            "source_organization_name": "unknown",
            "evaluator_relationship": "other",
        },
        "eval_library": {
            "name": LIBRARIES.get(str(notes.get("format")), "unknown"),
            "version": str(notes.get("version") or "unknown"),
        },
        "model_info": {
            "name": model,
            "id": model,
            "additional_details": {"deployment_type": "unknown", "model_availability": "unknown"},
        },
        "evaluation_results": [_result(task, data, row, ranges.get(row["measure"])) for row in rows],
    }


def _result(
    task: str, data: Mapping[str, Any], row: Mapping[str, Any], span: tuple[float, float] | None
) -> dict[str, Any]:
    share = span is None or (span[0] >= 0 and span[1] <= 1)
    config: dict[str, Any] = {
        "metric_id": row["measure"],
        "metric_name": row["measure"],
        "lower_is_better": False,
        "score_type": "continuous",
    }
    if share:
        config |= {"metric_unit": "proportion", "min_score": 0, "max_score": 1}
    interval = {"lower": row["low"], "upper": row["high"], "confidence_level": row["level"], "method": row["method"]}
    uncertainty: dict[str, Any] = {"confidence_interval": interval, "num_samples": row["n"]}
    if row.get("stderr") is not None:
        uncertainty["standard_error"] = {"value": row["stderr"], "method": "analytic"}
    details = {name: str(row[name]) for name in ("why", "warnings") if row.get(name)}
    return {
        "evaluation_result_id": f"{task}/{row['measure']}",
        "evaluation_name": task,
        "source_data": dict(data),
        "metric_config": config,
        "score_details": {"score": row["estimate"], "uncertainty": uncertainty, "details": details},
    }


def _measures(scores: Scores) -> dict[str, tuple[float, float]]:
    import pyarrow.compute as pc

    found = {}
    for name in scores.measures:
        column = scores.table.column(name)
        if str(column.type) in ("double", "int64"):
            span = pc.min_max(column).as_py()
            if span["min"] is not None:
                found[name] = (span["min"], span["max"])
    return found
