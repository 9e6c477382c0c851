"""Commands that look: what there is (list, show, env), and what was done (runs, report)."""

from __future__ import annotations

import difflib
import inspect
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Group, Parameter

from burnish import catalogue
from burnish.cli import fields, look
from burnish.cli.flags import JsonFlag
from burnish.cli.threads import default_threads
from burnish.core.errors import BadInput
from burnish.core.extras import EXTRAS, missing
from burnish.core.run import environment


def register(app: App, do: Group) -> None:
    """Add these commands; `do` is the group of those that work."""
    app.command(list_, name="list")
    app.command(show)
    app.command(env)
    app.command(runs)
    app.command(report)


# -- what there is ----------------------------------------------------------------------------------------------


def list_(*, json: JsonFlag = False) -> None:
    """List every method, with its verb, its kind, and whether its claim has fresh evidence."""
    stable = _stable()
    rows = [_listed(entry, stable) for entry in catalogue.entries()]
    if json:
        look.as_json(rows)
        return
    faults = [row for row in rows if row["fault"]]
    look.records([row for row in rows if not row["fault"]], ("name", "verb", "kind", "status", "summary"))
    if faults:
        look.heading("Plug-ins that cannot be used")
        look.records(faults, ("name", "package", "fault"))
    look.say()
    look.say(f"recipes: {', '.join(catalogue.recipes()) or 'none'}")
    look.say(f"claims:  {', '.join(catalogue.CLAIMS) or 'none'}")


def _listed(entry: catalogue.Entry, stable: set[str]) -> dict[str, Any]:
    return {
        "name": entry.name,
        "verb": entry.verb,
        "kind": entry.kind,
        "status": "" if entry.kind != "paper" else "stable" if entry.name in stable else "preview",
        "summary": catalogue.summary_of(entry.target) if not entry.fault else "",
        "package": entry.package,
        "fault": entry.fault,
    }


def _stable() -> set[str]:
    """Methods that have a recipe, and fresh evidence for a claim about them."""
    rows = catalogue.reference("burnish.claims:evidence_rows")()
    fresh = [catalogue.claim(row.claim) for row in rows if row.freshness.state == "fresh"]
    claimed = {arm.use for claim in fresh for arm in claim.arms if not arm.baseline}
    return {name for name in claimed if name.replace(" ", "-") in catalogue.recipes()}


def show(name: str, /, *, json: JsonFlag = False) -> None:
    """Describe one method: its settings, its goods, its paper, and its documentation.

    Parameters
    ----------
    name
        The method, as `burnish list` names it.
    """
    entry = catalogue.find(name)
    cls = catalogue.load(name)
    settings = [
        {
            "setting": setting,
            "default": fields.default_text(field),
            "type": fields.type_text(field.annotation),
            "limits": fields.bounds_text(field),
            "what it is": " ".join((field.description or "").split()),
        }
        for setting, field in cls.model_fields.items()
    ]
    goods = [{"good": good.name, "kind": good.kind, "required": good.required} for good in cls.goods()]
    documentation = inspect.getdoc(sys.modules[cls.__module__]) or ""
    if json:
        paper = cls.paper.model_dump() if cls.paper else None
        facts = {
            **_listed(entry, _stable()),
            "needs": list(cls.needs),
            "gives": cls.gives(),
            "goods": goods,
            "paper": paper,
        }
        look.as_json({**facts, "settings": settings, "schema": cls.model_json_schema(), "documentation": documentation})
        return
    look.say(f"{name}: {inspect.getdoc(cls) or ''}")
    look.pairs(
        {
            "command": f"burnish {entry.verb} {name}",
            "kind": entry.kind,
            "takes": ", ".join(f"{g['good']} ({g['kind']}{'' if g['required'] else ', optional'})" for g in goods),
            "gives": cls.gives() or "nothing",
            "needs": ", ".join(f"burnish[{extra}]" for extra in cls.needs) or "nothing else",
            **({"paper": cls.paper.cite(), "read": cls.paper.url} if cls.paper else {}),
        }
    )
    look.heading("Settings")
    look.records(settings)
    look.heading("Documentation")
    look.markdown(documentation)


def env(*, json: JsonFlag = False) -> None:
    """Show the machine, the versions, and which extras are installed."""
    import psutil

    facts: dict[str, Any] = {
        **environment(),
        "threads": default_threads(),
        "memory": f"{psutil.virtual_memory().total / 1e9:.1f} GB",
        "free disk here": f"{psutil.disk_usage('.').free / 1e9:.1f} GB",
    }
    if not missing("models"):
        torch = catalogue.reference("torch:cuda")
        names = [torch.get_device_name(number) for number in range(torch.device_count())]
        facts["accelerators"] = ", ".join(names) or "none"
        facts["models are kept in"] = catalogue.reference("burnish.models.fetch:cache_folder")()
    extras = [{"extra": extra, "lacks": missing(extra)} for extra in EXTRAS]
    if json:
        look.as_json({**facts, "extras": {row["extra"]: row["lacks"] for row in extras}})
        return
    look.pairs(facts)
    look.heading("Extras")
    rows = [(e["extra"], "installed" if not e["lacks"] else "lacks " + ", ".join(e["lacks"])) for e in extras]
    look.table(("extra", "state"), rows)


# -- what was done ----------------------------------------------------------------------------------------------

RUNS = Path("runs")
_COLUMNS = ("folder", "status", "use", "model", "minutes", "metrics")


def runs(folder: Path = RUNS, /, *, where: str = "", json: JsonFlag = False) -> None:
    """List the runs in a folder, and ask for some of them.

    Parameters
    ----------
    folder
        Where to look; every folder below is searched.
    where
        A condition in SQL on the columns folder, status, use, model, minutes, seed, updated and metrics,
        such as "metrics.ppl < 30 and use = 'boa'".
    """
    if not folder.is_dir() and folder != RUNS:
        raise BadInput(f"there is no folder {folder}", "runs are kept in ./runs unless --out says otherwise")
    found, damaged = _read_runs(folder)
    for path in damaged:
        look.note(f"{path} is damaged and is left out")
    rows = _query(found, where) if found else []
    if json:
        look.as_json(rows)
    elif rows:
        look.records(rows, _COLUMNS)
    else:
        look.say(f"no run in {folder}" + (f" of which it is true that {where}" if where and found else ""))


def _read_runs(folder: Path) -> tuple[list[dict[str, Any]], list[Path]]:
    status_of = catalogue.reference("burnish.report.folder:status_of")
    rows, damaged = [], []
    for path in sorted(folder.glob("**/run.json")):
        try:
            state = json.loads(path.read_text(encoding="utf-8"))
            asked = state["request"]
            recipe = asked.get("recipe", {})
            use = asked.get("use") or (f"claim {asked['claim']}" if "claim" in asked else recipe.get("title", ""))
            model = asked.get("model") or asked.get("goods", {}).get("model") or recipe.get("model", "")
            status = status_of(path.parent, str(state["status"]))
            row = {"folder": str(path.parent), "status": status, "use": use, "model": model}
            kept = {name: state.get(name) for name in ("minutes", "seed", "updated")}
            rows.append({**row, **kept, "metrics": dict(state.get("metrics", {}))})
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            damaged.append(path)
    return rows, damaged


def _query(found: list[dict[str, Any]], where: str) -> list[dict[str, Any]]:
    """The rows for which a condition in SQL is true, by DuckDB, which is kept from reading or writing files."""
    import duckdb

    with tempfile.TemporaryDirectory(prefix="burnish-") as folder, duckdb.connect() as connection:
        lines = Path(folder, "runs.jsonl")
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in found)
        lines.write_text(text, encoding="utf-8", errors="replace")
        connection.execute(
            "create table runs as select * from read_json(?, format='newline_delimited', sample_size=-1)", [str(lines)]
        )
        connection.execute("set enable_external_access=false")
        asked = f" where ({where})" if where else ""
        try:
            chosen = connection.execute(f"select rowid from runs{asked}").fetchall()
        except duckdb.Error as error:
            columns = [name for name, *_ in connection.execute("describe runs").fetchall()]
            raise BadInput(f"--where {where}: {str(error).splitlines()[0]}", _known(where, found, columns)) from None
    places = {place for (place,) in chosen}
    return [row for place, row in enumerate(found) if place in places]


def _known(where: str, found: list[dict[str, Any]], columns: list[str]) -> str:
    """What a condition can name: near names for those in it that are unknown, or else all."""
    known = [*columns, *dict.fromkeys(f"metrics.{name}" for row in found for name in row["metrics"])]
    words = [word for word in re.findall(r"[A-Za-z_][\w.]*", re.sub("'[^']*'", "", where)) if word not in known]
    near = {word: difflib.get_close_matches(word, known, n=1, cutoff=0.75) for word in words}
    hints = [f"did you mean {names[0]} for {word}?" for word, names in near.items() if names]
    return " ".join(hints) or f"the columns are {', '.join(known)}"


def report(
    *folders: Annotated[Path, Parameter(name="RUN", help="Run folders.")],
    out: Annotated[Path | None, Parameter(help="The HTML file; by default report.html in the run, or here.")] = None,
) -> None:
    """Write one HTML file that shows one run, or several side by side."""
    if not folders:
        raise BadInput("`burnish report` needs at least one run folder", "`burnish runs` lists them")
    wrong = [f"{folder}: holds no run" for folder in folders if not (folder / "run.json").is_file()]
    if wrong:
        raise BadInput.of("these are no run folders", wrong, "`burnish runs` lists them")
    target = out or (folders[0] / "report.html" if len(folders) == 1 else Path("report.html"))
    look.say(str(catalogue.reference("burnish.report:render")(list(folders), target)))
