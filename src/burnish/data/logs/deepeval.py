"""deepeval's `.deepeval/.latest_test_run.json`: test cases with the data of their metrics."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from burnish.data.logs.log import Ask, Log, cluster_of, digest, mapping
from burnish.data.logs.stream import JsonFile

NAME = "deepeval test run"


def read(path: Path, ask: Ask) -> Log:
    """A test run. Every metric has two measures: its score, and whether that passed the threshold.

    A metric that ended with an error (such as a judge's broken JSON) is unscored, never 0.

    Raises:
        BadInput: there are no test cases.
    """
    log = Log(NAME, path)
    header = JsonFile(path).read()
    run = header.get("testRunData", header) if isinstance(header, dict) else None
    if not isinstance(run, dict) or not isinstance(run.get("testCases"), list):
        raise log.refuse("it has no list of test cases")
    log.task = str(run.get("identifier") or run.get("testFile") or "")
    model = str(mapping(run.get("hyperparameters")).get("model") or "unknown")
    log.facts["model"] = model
    cases = [*run["testCases"], *(run.get("conversationalTestCases") or [])]
    runs: Counter[str] = Counter()
    names: dict[str, str] = {}
    failed = 0
    for number, case in enumerate(sorted(cases, key=lambda case: case.get("order") or 0)):
        content = [case.get("input"), case.get("expectedOutput"), case.get("context"), case.get("turns")]
        item = digest(content)
        runs[item] += 1
        scores: dict[str, Any] = {}
        for metric in case.get("metricsData") or []:
            name, broken = str(metric.get("name")), metric.get("error") is not None
            failed += broken
            scores[name] = None if broken else metric.get("score")
            scores[f"{name} passed"] = None if broken else metric.get("success")
        log.add(
            names.setdefault(item, str(case.get("name") or f"case {number}")),
            model,
            scores,
            epoch=runs[item],
            content=content,
            output=case.get("actualOutput"),
            cluster=cluster_of(ask, log, case.get("additionalMetadata")),
        )
    if failed:
        log.warn(f"{failed} values are of metrics that ended with an error, and count as unscored")
    return log
