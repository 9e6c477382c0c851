"""Files of lm-evaluation-harness: `samples_*.jsonl` (a line for every document and filter) and `results_*.json`.

A line of samples is one document *through one filter*: a task with two filters lists every document twice. Here a
document is one row, and every metric and filter a measure, "exact_match,strict-match", as the results name them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from burnish.data.logs.log import Ask, Log, Reported, cluster_of, digest, listed, mapping, natural, score
from burnish.data.logs.stream import JsonFile, lines

SAMPLES = "lm-evaluation-harness samples"
RESULTS = "lm-evaluation-harness results"
_NO_TASK = "samples"


def read_samples(path: Path, ask: Ask) -> Log:
    """A `samples_{task}_{time}.jsonl`; only what is scored is kept of each line.

    Raises:
        BadInput: a line lacks its document or its metrics, or a document occurs twice with different scores.
    """
    log = Log(SAMPLES, path, _task(path))
    found: dict[tuple[Any, str], dict[str, Any]] = {}
    filters: Counter[str] = Counter()
    pieces: set[str] = set()
    again = 0
    for number, line in lines(path):
        missing = [key for key in ("doc_id", "metrics") if key not in line]
        if missing:
            raise log.refuse(f"line {number} has no {' and no '.join(missing)}")
        through = str(line.get("filter", "none"))
        filters[through] += 1
        values = {f"{metric},{through}": line.get(metric) for metric in line["metrics"]}
        for name in [name for name, value in values.items() if isinstance(value, list | tuple | dict)]:
            pieces.add(name.partition(",")[0])
            del values[name]
        content = line.get("doc_hash") or digest(line.get("doc"))
        row = found.setdefault((line["doc_id"], content), {"values": {}})
        clash = [name for name in values if name in row["values"]]
        if any(row["values"][name] != values[name] for name in clash):
            raise log.refuse(f"line {number}: document {line['doc_id']} occurs twice, with different {listed(clash)}")
        again += bool(clash)
        row["values"] |= values
        row["prompt"] = line.get("prompt_hash")
        if ask.cluster and "cluster" not in row:
            row["cluster"] = cluster_of(ask, log, mapping(line.get("doc")))
    model = _beside(log, path)
    single = len(filters) == 1
    documents = len(found)
    while found:
        (doc, content), row = found.popitem()
        values = {name.partition(",")[0] if single else name: value for name, value in row["values"].items()}
        log.add(doc, model, values, cluster=row.get("cluster"), prompt_hash=row["prompt"])["content"] = content
    if not single and filters:
        log.warn(
            f"{sum(filters.values())} lines are {documents} documents through {len(filters)} filters "
            f"({listed(sorted(filters))}): every filter is a measure of its own"
        )
    if again:
        log.warn(f"{again} lines repeat a document and filter with the same scores, and count once")
    if pieces:
        log.warn(f"{listed(sorted(pieces))}: pieces of a figure over the whole corpus, which no item has; left out")
    return log


def _task(path: Path) -> str:
    stem = path.name.removesuffix(".gz").removesuffix(".jsonl").removeprefix("samples_")
    task, _, time = stem.rpartition("_")
    return task if task and time[:4].isdigit() else stem


def _beside(log: Log, path: Path) -> str:
    """The model's name, and what the results file of the same time claims of this task."""
    time = path.name.removesuffix(".gz").removesuffix(".jsonl").rpartition("_")[2]
    results = path.with_name(f"results_{time}.json")
    if not results.is_file():
        return path.parent.name or "unknown"
    header = JsonFile(results).read()
    if not isinstance(header, dict):
        return "unknown"
    log.reported += [one for one in _reported(log, header) if one.task == log.task]
    log.claimed = next((one.n for one in log.reported), None)
    return str(header.get("model_name") or header.get("model_name_sanitized") or "unknown")


def read_results(path: Path, ask: Ask) -> Log:
    """A `results_*.json`: figures without items. Right answers are counted from the figures where that is possible."""
    log = Log(RESULTS, path)
    log.figures_only = True
    header = JsonFile(path).read()
    if not isinstance(header, dict) or not isinstance(header.get("results"), dict):
        raise log.refuse("it has no table of results")
    if ask.cluster:
        raise log.refuse("it holds no items, and so no clusters", "give the samples_*.jsonl (--log_samples)")
    log.facts["model"] = str(header.get("model_name") or header.get("model_name_sanitized") or "unknown")
    log.facts["version"] = str(header.get("lm_eval_version") or "")
    log.reported += list(_reported(log, header))
    for group, tasks in sorted((header.get("group_subtasks") or {}).items()):
        if tasks:
            _group(log, group, tasks)
    counts = header.get("n-samples") or {}
    for task, count in sorted(counts.items()):
        if isinstance(count, dict) and count.get("original") != count.get("effective"):
            log.warn(f"{task}: {count.get('effective')} of {count.get('original')} documents were used")
    log.warn("the file holds figures and no items: give the samples_*.jsonl for clusters and comparisons")
    return log


def _reported(log: Log, header: Mapping[str, Any]) -> Iterator[Reported]:
    model = str(header.get("model_name") or header.get("model_name_sanitized") or "unknown")
    counts = header.get("n-samples") or {}
    for task, figures in sorted((header.get("results") or {}).items(), key=lambda pair: natural(pair[0])):
        count = counts.get(task)
        n = count.get("effective") if isinstance(count, dict) else None
        for key, value in figures.items():
            metric, comma, through = key.partition(",")
            estimate = score(value) if isinstance(value, int | float) else None
            if not comma or metric.endswith("_stderr") or estimate is None:
                continue
            name = metric if through == "none" else key
            yield Reported(model, task, name, estimate, score(figures.get(f"{metric}_stderr,{through}")), n)


def _group(log: Log, group: str, tasks: list[str]) -> None:
    """A group's figure, counted again from its tasks'; its own is kept out where it is another estimator."""
    own = [one for one in log.reported if one.task == group]
    for one in own:
        parts = [part for part in log.reported if part.task in tasks and part.measure == one.measure]
        counts = [part.successes for part in parts]
        if len(parts) != len(tasks) or any(count is None for count in counts):
            log.reported.remove(one)
            log.warn(f"group {group}, {one.measure}: its tasks' figures are no counts, so it is left out")
            continue
        total = sum(part.n or 0 for part in parts)
        pooled = sum(count or 0 for count in counts) / total
        even = sum(part.estimate for part in parts) / len(parts)
        log.reported[log.reported.index(one)] = Reported(one.model, group, one.measure, pooled, one.stderr, total)
        if abs(pooled - one.estimate) > 5e-5:
            kind = "the unweighted mean of its tasks" if abs(even - one.estimate) <= 5e-5 else "another estimator"
            log.warn(
                f"group {group}, {one.measure}: the reported {one.estimate:g} is {kind}; "
                f"over its {total} items it is {pooled:g}, and the interval is of that"
            )
