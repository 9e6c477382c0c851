"""Logs of Inspect (inspect_ai): the `.eval` zip and the JSON file, of every version so far, without inspect_ai.

The items are what `summaries.json` lists, or the samples themselves; what the header's results say is only compared
with them. Runs that were cut off have no header: their journal is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from burnish.data.logs.archive import Archive
from burnish.data.logs.log import Ask, Log, Reported, cluster_of, listed, mapping, score
from burnish.data.logs.stream import JsonFile

NAME = "Inspect log"
_SAMPLE = re.compile(r"samples/(?P<id>.*)_epoch_(?P<epoch>\d+)(?:\.json|/sample\.json)")


def read_eval(path: Path, ask: Ask) -> Log:
    """A `.eval` file."""
    log = Log(NAME, path)
    with Archive(path) as archive:
        names = set(archive.names)
        if not names & {"header.json", "_journal/start.json"}:
            raise log.refuse("the zip holds no header.json", f"it holds {listed(sorted(names)) or 'nothing'}")
        whole = "header.json" in names
        header = archive.json("header.json" if whole else "_journal/start.json")
        _header(log, header)
        if not whole:
            log.warn("the run was cut off: there is no header.json, and items come from its journal")
        for sample in _samples(archive, names):
            _sample(log, ask, sample)
        if not log.rows and "reductions.json" in names:
            _reductions(log, archive.json("reductions.json"))
    return log


def read_json(path: Path, ask: Ask) -> Log:
    """A JSON log; its samples are read one by one."""
    log = Log(NAME, path)
    kept: list[dict[str, Any]] = []
    header = JsonFile(path, "samples", lambda sample: kept.append(_thin(sample))).read()
    _header(log, header)
    for sample in kept:
        _sample(log, ask, sample)
    if not log.rows:
        _reductions(log, header.get("reductions") or [])
    return log


def _samples(archive: Archive, names: set[str]) -> Iterator[Mapping[str, Any]]:
    """The summaries, then the samples that no summary tells of."""
    known = set()
    parts = sorted(name for name in names if name.startswith("_journal/summaries/"))
    for name in ["summaries.json"] if "summaries.json" in names else parts:
        for summary in archive.json(name):
            run = (str(summary.get("id")), int(summary.get("epoch") or 1))
            if run not in known:
                known.add(run)
                yield summary
    for name in sorted(names):
        found = _SAMPLE.fullmatch(name)
        if found and (found["id"], int(found["epoch"])) not in known:
            sample = _thin(archive.json(name))
            run = (str(sample.get("id")), int(sample.get("epoch") or 1))
            if run not in known:
                known.add(run)
                yield sample


def _thin(sample: Any) -> dict[str, Any]:
    """What is needed of a sample, so that thousands with long transcripts fit in memory."""
    kept = ("id", "epoch", "input", "choices", "target", "metadata", "scores", "score", "error")
    return {name: sample[name] for name in kept if name in sample} if isinstance(sample, dict) else {}


def _header(log: Log, header: Any) -> None:
    spec = header.get("eval") if isinstance(header, dict) else None
    if not isinstance(spec, dict):
        raise log.refuse("its header names no eval")
    log.task = str(spec.get("task") or "")
    log.facts |= {"model": str(spec.get("model") or "unknown"), "status": str(header.get("status") or "started")}
    log.facts["version"] = str(mapping(spec.get("packages")).get("inspect_ai") or "")
    log.facts["created"] = str(spec.get("created") or "")
    dataset = mapping(spec.get("dataset"))
    log.facts["dataset"] = str(dataset.get("name") or dataset.get("location") or "")
    if log.facts["status"] not in ("success", "started"):
        why = mapping(header.get("error")).get("message")
        log.warn(f"the run's status is {log.facts['status']}" + (f": {str(why).splitlines()[0]}" if why else ""))
    results = header.get("results")
    if isinstance(results, dict):
        log.claimed = results.get("total_samples")
        log.reported += _reported(log, results)


def _reported(log: Log, results: Mapping[str, Any]) -> Iterator[Reported]:
    scorers = results.get("scores") or results.get("scorers") or ([results] if "metrics" in results else [])
    for scorer in scorers:
        metrics = {name: score(one.get("value")) for name, one in (scorer.get("metrics") or {}).items()}
        estimate = next((metrics[name] for name in ("accuracy", "mean") if metrics.get(name) is not None), None)
        if estimate is not None:
            n = scorer.get("scored_samples", results.get("completed_samples"))
            stderr = metrics.get("stderr", metrics.get("bootstrap_std"))
            name = str(scorer.get("name") or (scorer.get("scorer") or {}).get("name") or "score")
            yield Reported(log.facts["model"], log.task, name, estimate, stderr, n)


def _sample(log: Log, ask: Ask, sample: Mapping[str, Any]) -> None:
    scores = sample.get("scores") or ({"score": sample["score"]} if sample.get("score") else {})
    given = [(one.get("answer"), one.get("explanation")) for one in scores.values() if isinstance(one, dict)]
    failed = sample.get("error") is not None
    log.add(
        sample.get("id"),
        log.facts["model"],
        {name: one.get("value") if isinstance(one, dict) else one for name, one in scores.items()},
        epoch=int(sample.get("epoch") or 1),
        content=[_text(sample.get("input")), sample.get("choices") or [], sample.get("target")],
        output=given if any(answer is not None for answer, _ in given) else None,
        cluster=cluster_of(ask, log, mapping(sample.get("metadata"))),
        status="error" if failed else "unscored" if not scores else None,
    )


def _text(given: Any) -> Any:
    """An input as roles and texts: messages carry ids that differ from run to run."""
    if not isinstance(given, list):
        return given
    return [[one.get("role"), _parts(one.get("content"))] if isinstance(one, dict) else one for one in given]


def _parts(content: Any) -> Any:
    return [one.get("text") for one in content if isinstance(one, dict)] if isinstance(content, list) else content


def _reductions(log: Log, reductions: Any) -> None:
    """What was kept of items whose samples were not: their means over epochs."""
    rows: dict[str, dict[str, Any]] = {}
    for reduction in reductions if isinstance(reductions, list) else []:
        for one in reduction.get("samples") or []:
            rows.setdefault(str(one.get("sample_id")), {})[str(reduction.get("scorer"))] = one.get("value")
    for item, scores in rows.items():
        log.add(item, log.facts["model"], scores)
    if rows:
        log.warn(
            f"the samples are not in the file: the scores of {len(rows)} items come from its reductions, "
            "which are means over epochs"
        )
        log.claimed = None
