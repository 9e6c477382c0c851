"""Commands for claims: claim measures one, claims shows what is known of all, demo shows one in minutes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Group, Parameter

from burnish import catalogue
from burnish.cli import look
from burnish.cli.flags import DeviceFlag, DryRunFlag, DtypeFlag, JsonFlag, OutFlag, ThreadsFlag
from burnish.core.errors import ClaimFails
from burnish.core.files import require_folder

if TYPE_CHECKING:
    from burnish.claims.plan import Plan
    from burnish.core.claim import Evidence

DEMO = "boa"
"""The claim that `burnish demo` shows."""
MOST_CRITERIA = 8
"""Criteria that a plan lists."""


def register(app: App, do: Group) -> None:
    """Add these commands; `do` is the group of those that work."""
    app.command(demo, group=do)
    app.command(claim, group=do)
    app.command(claims)


def claim(
    name: str,
    /,
    *,
    model: Annotated[str | None, Parameter(help="Your model; by default the claim's own.")] = None,
    scale: Annotated[
        Literal["smoke", "demo", "full"], Parameter(help="full is the comparison that the claim is about.")
    ] = "full",
    strict: Annotated[bool, Parameter(help="End with exit code 4 unless the claim holds.", negative="")] = False,
    data: Annotated[Path | None, Parameter(help="Folder of data that you have fetched.")] = None,
    keep: Annotated[
        bool, Parameter(help="For maintainers: make this the evidence that burnish comes with.", negative="")
    ] = False,
    out: OutFlag = None,
    device: DeviceFlag = "auto",
    dtype: DtypeFlag = "auto",
    threads: ThreadsFlag = None,
    dry_run: DryRunFlag = False,
) -> None:
    """Measure a paper's claim on a model: estimates, intervals, a verdict.

    Parameters
    ----------
    name
        The claim, as `burnish claims` names it.
    """
    from burnish.core.run import slug

    asked = model or catalogue.claim(name).default_model
    folder = out or Path("runs", slug("-".join(filter(None, ["claim", name, scale, asked]))))
    if dry_run:
        _show_plan(name, asked, scale, folder)
        return
    found = _measure(name, asked, scale, folder, data=data, device=device, dtype=dtype)
    if keep:
        look.say(f"kept: {catalogue.reference('burnish.claims:commit')(found)}")
    if strict and found.verdict != "holds":
        raise ClaimFails(
            f"the claim {name!r} is asked to hold, and the verdict is: {found.verdict}",
            f"leave out --strict to only see the verdict; {folder / 'report.html'} says why it is so",
        )


def demo(
    *,
    tiny: Annotated[
        bool, Parameter(help="A tiny model that comes with burnish: seconds, no download.", negative="")
    ] = False,
    out: OutFlag = Path("runs/demo"),
    device: DeviceFlag = "auto",
    dtype: DtypeFlag = "auto",
    threads: ThreadsFlag = None,
) -> None:
    """Show in minutes what burnish does: one claim, on a small model."""
    model = "tiny" if tiny else catalogue.claim(DEMO).default_model
    if tiny:
        look.note("the tiny model shows how burnish works; whether the claim holds, it cannot show")
    folder = out or Path("runs/demo")
    _measure(DEMO, model, "demo", folder, device=device, dtype=dtype)
    found = catalogue.reference("burnish.models.reload:compare")(folder / "artifact")
    found.require(folder)
    look.say(f"artifact: {folder / 'artifact'}\n{found.said()}")


def claims(*, json: JsonFlag = False) -> None:
    """Show every claim: the paper's figure, ours, the verdict, and the command that computes it."""
    rows = catalogue.reference("burnish.claims:evidence_rows")()
    if json:
        look.as_json([row.model_dump(mode="json") for row in rows])
        return
    look.table(
        ("claim", "paper", "ours", "verdict", "evidence", "command"),
        [(row.claim, row.paper, row.ours, row.verdict, row.freshness.state, row.command) for row in rows],
    )
    for row in rows:
        if row.freshness.changed:
            look.note(f"{row.claim}: changed since: {', '.join(row.freshness.changed)}")


def _show_plan(name: str, model: str, scale: str, folder: Path) -> None:
    """What would be measured, where, and about how long it takes."""
    plan: Plan = catalogue.reference("burnish.claims:plan")(name, model, scale=scale)
    look.say("Nothing is done: this is the plan.")
    look.pairs({"claim": plan.sentence, "run": folder, "model": model or "none", "scale": scale, **plan.facts})
    look.heading("Arms")
    look.table(("arm", "method", "settings", "cells"), [(a.name, a.use, a.settings, a.cells) for a in plan.arms])
    look.heading("Criteria")
    for text in plan.criteria[:MOST_CRITERIA]:
        look.say(f"- {text}")
    if len(plan.criteria) > MOST_CRITERIA:
        look.say(f"and {len(plan.criteria) - MOST_CRITERIA} more of this kind")


def _measure(name: str, model: str, scale: str, folder: Path, **options: Any) -> Evidence:
    require_folder(folder)
    look.note(f"run folder: {folder}")
    # Fetches the weights if they are not here yet, and says under which licence they come; a server or a recording has none.
    if model and not model.startswith(("replay:", "http://", "https://")):
        catalogue.reference("burnish.models.resolve:resolve")(model, look.note)
    found: Evidence = catalogue.reference("burnish.claims:run")(name, model, scale=scale, out=folder, **options)
    report = catalogue.reference("burnish.report:render")([folder], folder / "report.html")
    _show(found)
    look.say(f"report: {report}")
    return found


def _show(found: Evidence) -> None:
    look.heading(found.sentence)
    measures = list(dict.fromkeys(measure for arm in found.arms for measure in arm.measures))
    look.table(
        ("arm", *measures, "minutes"),
        [
            (arm.label, *(_bounded(arm.measures.get(measure)) for measure in measures), round(arm.seconds / 60, 2))
            for arm in found.arms
        ],
    )
    look.heading("Criteria")
    look.table(
        ("criterion", "what is estimated", "estimate", "interval", "level", "margin", "items", "verdict"),
        [
            (
                finding.text,
                catalogue.reference("burnish.report.words:quantity")(finding),
                finding.estimate,
                f"{look.figure(finding.low)} to {look.figure(finding.high)}",
                finding.level,
                f"{finding.side} {look.figure(finding.margin)}",
                finding.items,
                finding.verdict,
            )
            for finding in found.findings
        ],
    )
    look.say()
    look.say(f"verdict: {found.verdict}", look.COLOURS[found.verdict] + " bold")
    for line in catalogue.reference("burnish.report.claim_page:partial")(found):
        look.say(line)


def _bounded(value: Mapping[str, float] | None) -> str:
    """An estimate with its interval."""
    if not value:
        return ""
    return f"{look.figure(value['estimate'])} [{look.figure(value['low'])}, {look.figure(value['high'])}]"
