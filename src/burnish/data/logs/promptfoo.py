"""The output of `promptfoo eval -o out.json`: a result for every test, prompt and provider."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from burnish.data.logs.log import Ask, Log, cluster_of, digest, mapping
from burnish.data.logs.stream import JsonFile

NAME = "promptfoo results"
FAILED_TO_RUN = 2
"""The failure reason of a test that gave an error instead of an answer."""


def read(path: Path, ask: Ask) -> Log:
    """An output file, of version 2 or 3.

    Tests with the same variables and assertions are runs of one item (`--repeat`). A model is a provider; where the
    file has several prompts, a provider with a prompt.

    Raises:
        BadInput: there is no list of results.
    """
    log = Log(NAME, path)
    header = JsonFile(path).read()
    results = header.get("results") if isinstance(header, dict) else None
    rows = results.get("results") if isinstance(results, dict) else results
    if not isinstance(rows, list):
        raise log.refuse("it has no list of results")
    log.task = str(mapping(header.get("config")).get("description") or "")
    log.facts["created"] = str(mapping(results).get("timestamp") or "")
    rows = sorted((row for row in rows if isinstance(row, dict)), key=lambda row: row.get("testIdx") or 0)
    prompts = {_prompt(row) for row in rows}
    names: dict[str, int] = {}
    runs: Counter[tuple[str, str]] = Counter()
    cached = 0
    for row in rows:
        test = mapping(row.get("testCase"))
        variables = row.get("vars") or test.get("vars") or {}
        content = {"vars": variables, "assert": test.get("assert"), "description": test.get("description")}
        item = digest(content)
        names.setdefault(item, int(row["testIdx"]) if "testIdx" in row else len(names))
        model = _provider(row) + (f", prompt {_prompt(row)}" if len(prompts) > 1 else "")
        runs[model, item] += 1
        answer = mapping(row.get("response"))
        cached += bool(answer.get("cached"))
        failed = row.get("failureReason") == FAILED_TO_RUN or (bool(row.get("error")) and not row.get("gradingResult"))
        scores = {"success": row.get("success"), "score": row.get("score"), **(row.get("namedScores") or {})}
        log.add(
            f"test {names[item]}",
            model,
            dict.fromkeys(scores) if failed else scores,
            epoch=runs[model, item],
            content=content,
            output=answer.get("output"),
            cluster=cluster_of(ask, log, {**(test.get("metadata") or {}), **variables}),
            status="error" if failed else None,
        )
    if cached and max(runs.values(), default=0) > 1:
        log.warn(f"{cached} answers came out of the cache: repeats of them are copies; run with --no-cache")
    return log


def _provider(row: dict[str, Any]) -> str:
    provider = row.get("provider")
    if isinstance(provider, dict):
        return str(provider.get("label") or provider.get("id") or "unknown")
    return str(provider or "unknown")


def _prompt(row: dict[str, Any]) -> str:
    """A prompt's name: its number where there is one, else a hash of its text."""
    if "promptIdx" in row and not isinstance(row.get("provider"), dict):
        return str(row["promptIdx"])
    prompt = row.get("prompt")
    label = prompt.get("label") or prompt.get("raw") if isinstance(prompt, dict) else prompt
    text = str(label or "")
    return text if len(text) <= 40 else digest(text)[:8]
