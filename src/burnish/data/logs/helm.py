"""A run folder of HELM: `per_instance_stats.json`, with `run_spec.json` and `scenario_state.json` beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from burnish.data.logs.log import Ask, Log, cluster_of, mapping
from burnish.data.logs.stream import JsonFile

NAME = "HELM run"
ITEMS = "per_instance_stats.json"

BOOKKEEPING = ("num_", "finish_reason_", "batch_size", "prompt_truncated", "inference_", "training_", "max_prob")
"""How the names of stats begin that measure the request and not the answer."""


def read(path: Path, ask: Ask) -> Log:
    """A run folder, or the `per_instance_stats.json` in it.

    Raises:
        BadInput: the file is not a list of instances.
    """
    folder = path if path.is_dir() else path.parent
    log = Log(NAME, path)
    rows = JsonFile(folder / ITEMS).read()
    if not isinstance(rows, list) or not all(isinstance(row, dict) and "instance_id" in row for row in rows):
        raise log.refuse(f"{ITEMS} is not a list of instances")
    spec = _load(folder / "run_spec.json")
    adapter = mapping(spec.get("adapter_spec"))
    model = str(adapter.get("model_deployment") or adapter.get("model") or folder.name)
    log.task = str(spec.get("name") or folder.name).partition(":model=")[0].partition(",model=")[0]
    log.facts["model"] = model
    named = _named(spec)
    contents = _contents(folder / "scenario_state.json")
    perturbed = 0
    for row in rows:
        if row.get("perturbation"):
            perturbed += 1
            continue
        item = contents.get(row["instance_id"])
        log.add(
            row["instance_id"],
            model,
            _stats(row, named),
            epoch=int(row.get("train_trial_index") or 0) + 1,
            content=item,
            cluster=cluster_of(ask, log, (item or {}).get("extra_data")) if ask.cluster else None,
        )
    if perturbed:
        log.warn(f"{perturbed} rows are of perturbed instances, and are left out")
    return log


def _load(path: Path) -> dict[str, Any]:
    found = JsonFile(path).read() if path.is_file() else {}
    return found if isinstance(found, dict) else {}


def _named(spec: Mapping[str, Any]) -> set[str]:
    """The metrics that the run was asked for."""
    return {
        str(name) for metric in spec.get("metric_specs") or [] for name in (metric.get("args") or {}).get("names") or []
    }


def _stats(row: Mapping[str, Any], named: set[str]) -> dict[str, Any]:
    """Means of an instance's stats: those that were asked for (and theirs at k), else all that judge the answer."""
    found = {}
    for stat in row.get("stats") or []:
        name = str((stat.get("name") or {}).get("name"))
        judged = name.partition("@")[0] in named if named else not name.startswith(BOOKKEEPING)
        if judged:
            # The mean is absent where nothing was counted; the sum is then 0 and says nothing.
            found[name] = stat["sum"] / stat["count"] if stat.get("count") else None
    return found


def _contents(path: Path) -> dict[str, dict[str, Any]]:
    """Instance to its input and references."""
    found: dict[str, dict[str, Any]] = {}

    def keep(state: Any) -> None:
        instance = state.get("instance") if isinstance(state, dict) else None
        if isinstance(instance, dict) and not instance.get("perturbation"):
            kept = {"input": instance.get("input"), "references": instance.get("references")}
            if isinstance(instance.get("extra_data"), dict):
                kept["extra_data"] = instance["extra_data"]
            found[str(instance.get("id"))] = kept

    if path.is_file():
        JsonFile(path, "request_states", keep).read()
    return found
