"""Running one method on goods that are named by strings."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path

from burnish import catalogue
from burnish.core.errors import Unsupported
from burnish.core.files import require_folder
from burnish.core.method import Method
from burnish.core.recipe import Planned
from burnish.core.run import Run, slug
from burnish.workflow.goods import ANYWHERE, Place, Shelf, call, check
from burnish.workflow.plan import Plan, plan_of
from burnish.workflow.results import PLAIN, Result, default_folder, finished, keep, result_of, saved_at


def folder_of(use: str, method: Method, goods: Mapping[str, str]) -> Path:
    """The folder of a method's run when none is given.

    What gives a table is quick and asked in many ways: each way has a folder of its own, named by its settings.
    """
    if type(method).gives() != "Table":
        return default_folder(use, goods)
    asked = json.dumps([method.settings(), dict(goods)], sort_keys=True)
    name = [
        use,
        *(Path(source.partition("\n")[0]).name for source in goods.values()),
        hashlib.sha256(asked.encode()).hexdigest()[:8],
    ]
    return Path("runs") / slug("-".join(name))


def run_method(
    use: str,
    method: Method,
    goods: Mapping[str, str],
    out: str | Path | None = None,
    *,
    seed: int = 0,
    format: str = PLAIN,
    reload: bool = True,
    loader: str = "auto",
    place: Place = ANYWHERE,
) -> Result:
    """Run one method on goods that are named by strings.

    Args:
        use: The method's name in the catalogue.
        method: The method with its settings.
        goods: Name of a parameter of ``method.__call__`` to a source: a model's name, a path, …
        out: The run's folder; by default `folder_of`.
        seed: The run's seed.
        format: How a model that the method gives is saved: "hf" or another format of `burnish.models.export`. It is no
            part of the request: the same folder with another format saves anew what was computed before.
        reload: Load a saved model in a fresh process, and compare.
        loader: With what, of `burnish.models.reload`; "auto" is the tool that the format is for.
        place: Device and dtype.

    Raises:
        BadInput: goods that are missing or unknown; a folder that holds another run.
        MissingExtra: the method or its goods need one.
        Mismatch: the saved model, loaded anew, is not the one that was made.
    """
    step = Planned(use=use, method=method, goods=dict(goods))
    check([step], format)
    folder = require_folder(Path(out) if out is not None else folder_of(use, method, goods))
    request = {"use": use, "settings": method.settings(), "goods": dict(goods), "burnish": version("burnish")}
    if place.dtype != "auto":
        request["dtype"] = place.dtype
    gives = type(method).gives()
    again = getattr(method, "repeats", False)
    if not again and (found := finished(folder, request, seed, saved_at(folder, gives), format)) is not None:
        return found
    with Run(folder, request, seed=seed) as run:
        keep(call(step, {}, Shelf(place), run), gives, run, format)
        if gives == "Model" and reload:
            prove(run, place.notify, loader)
    return result_of(run, saved_at(folder, gives))


def plan_method(
    use: str,
    method: Method,
    goods: Mapping[str, str],
    out: str | Path | None = None,
    *,
    seed: int = 0,
    format: str = PLAIN,
) -> Plan:
    """What `run_method` would do; everything is checked and nothing is loaded."""
    step = Planned(use=use, method=method, goods=dict(goods))
    check([step], format)
    return plan_of([step], Path(out) if out is not None else folder_of(use, method, goods), seed)


def prove(run: Run, notify: Callable[[str], None] | None = None, loader: str = "auto") -> None:
    """Load a run's artifact in a fresh process, with the tool that its format is for or another, and compare.

    Where that tool is not installed, the run's events and `notify` say so.

    Raises:
        Mismatch: it is not the model that was made.
    """
    tell = notify or (lambda line: None)
    try:
        found = catalogue.reference("burnish.models.reload:compare")(run.folder / "artifact", loader)
    except Unsupported as error:
        run.event("not reloaded", why=error.problem)
        tell(f"the saved model was not loaded for a check: {error.problem}; {error.fix}")
        return
    found.require(run.folder)
    run.metric(reload_loader=found.loader, reload_logit_difference=found.logits, reload_kl=found.kl)
    tell(found.said())
