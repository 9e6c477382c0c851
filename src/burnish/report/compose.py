"""From run folders to one HTML file: which sections a page has, and in which order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from markupsafe import Markup

from burnish.core.errors import BadInput
from burnish.core.files import write_text
from burnish.report import charts, claim_page, estimates, run_page, training, words
from burnish.report.citation import papers
from burnish.report.folder import RunFolder, read
from burnish.report.page import Column, Foot, Head, Section, figure, fragment, mark, page, table

MOST_METRICS = 8
MARK = b'<meta name="generator" content="burnish'
"""Stands in every report."""
FIRST = 4096
"""Bytes at the beginning of a report that hold the mark, but for titles as long as a book's page."""


def render(folders: Sequence[Path], out: Path | None = None) -> Path:
    """Write one self-contained HTML file about some runs.

    Args:
        folders: Run folders; several are compared first and then told one after the other.
        out: The file; by default ``report.html`` in the run's folder, or for several in the folder that holds the first.

    Returns:
        The file that was written.

    Raises:
        BadInput: no folders, or some that hold no run (all of them are named), or the file cannot be written.
    """
    wanted = list(dict.fromkeys(Path(folder) for folder in folders))
    if not wanted:
        raise BadInput("there is nothing to report on", "give one or more folders of runs")
    runs, wrong = [], []
    for folder in wanted:
        try:
            runs.append(read(folder))
        except BadInput as error:
            wrong.append(error)
    if len(wrong) == 1:
        raise wrong[0]
    if wrong:
        raise BadInput.of("these are no runs", [error.problem for error in wrong], wrong[0].fix)
    if out is None:
        out = (runs[0].folder if len(runs) == 1 else runs[0].folder.resolve().parent) / "report.html"
    _check_place(out)
    written = one(runs[0]) if len(runs) == 1 else several(runs)
    try:
        write_text(out, written)
    except OSError as error:
        raise BadInput(f"the report cannot be written to {out}: {error.strerror}", "give another --out") from None
    return out


def _check_place(out: Path) -> None:
    """Refuse to write over anything but an earlier report.

    Raises:
        BadInput: a file that burnish did not write is there, or no file at all.
    """
    if not (out.exists() or out.is_symlink()):
        return
    if not out.is_file():
        what = "is a link that leads nowhere" if out.is_symlink() and not out.exists() else "is there and is no file"
        raise BadInput(f"the report cannot be written to {out}: it {what}", "give another --out")
    try:
        with out.open("rb") as file:
            ours = MARK in file.read(FIRST)
            empty = not out.stat().st_size
    except OSError as error:
        raise BadInput(f"{out} is there and cannot be read: {error.strerror}", "give another --out") from None
    if not (ours or empty):
        raise BadInput(f"{out} is there and is no report of burnish", "give another --out, or move that file away")


def one(run: RunFolder) -> str:
    """The page of one run."""
    return page(head_of(run), anchored(sections_of(run)), Foot(commands_of([run]), facts_of(run)))


def several(runs: Sequence[RunFolder]) -> str:
    """The page of several runs: a table that compares them, then each."""
    names = names_of(runs)
    sections = [section for section in (comparison(runs, names), costs(runs, names)) if section]
    for number, (run, name) in enumerate(zip(runs, names, strict=True), 1):
        head = head_of(run)
        own = anchored(sections_of(run), f"run-{number}-")
        body = Markup(fragment("head.html", head=head))
        title = head.title if name in head.title else f"{name}: {head.title}"
        sections.append(Section(title, body, f"run-{number}", own, short=name))
    return page(Head(f"{len(runs)} runs side by side", over=["comparison"]), sections, Foot(commands_of(runs)))


def head_of(run: RunFolder) -> Head:
    """What stands above one run's sections."""
    if run.evidence is None:
        return run_page.head(run)
    manifest = run.manifest
    tiles = [("time", words.duration(60 * run.evidence.minutes))]
    if manifest.peak_memory_mb:
        tiles.append(("peak memory", words.size(1e6 * manifest.peak_memory_mb)))
    return claim_page.head(run.evidence, run_page.notes(run), tiles)


def sections_of(run: RunFolder) -> list[Section]:
    """The sections of one run; what the folder does not hold has none."""
    found = _claim_sections(run) if run.evidence is not None else _run_sections(run)
    return [section for section in found if section is not None]


def _claim_sections(run: RunFolder) -> list[Section | None]:
    evidence = run.evidence
    assert evidence is not None
    places = {arm.label: (claim_page.name_of(arm), words.cell_name(claim_page.place_of(arm))) for arm in evidence.arms}
    return [
        claim_page.criteria(evidence),
        claim_page.arms(evidence, run.sizes),
        claim_page.figures(evidence),
        run_page.made(run.made),
        run_page.layers(run.layers, places, claim_page.looks_of(evidence)),
        run_page.sizes(run.sizes),
        claim_page.costs(evidence, run_page.spent(run.manifest)),
        run_page.timeline(run.events),
        *claim_page.behind(evidence),
        run_page.machine(evidence.environment, run.manifest),
        run_page.references(papers([evidence.claim, *evidence.digests])),
    ]


def _run_sections(run: RunFolder) -> list[Section | None]:
    shown = estimates.section(run.table)
    return [
        shown,
        run_page.request(run.manifest),
        run_page.made(run.made),
        *map(run_page.step, run.steps),
        run_page.metrics(run.manifest) if shown is None and not run.steps else None,
        *run_page.remarks(run.manifest),
        run_page.rows_of(run.table),
        run_page.items(run.items) if shown is None else None,
        *(training.section(name, losses) for name, losses in run.losses.items()),
        run_page.layers(run.layers, {}, {}, str(run.manifest.request.get("use", ""))) if not run.steps else None,
        run_page.sizes(run.sizes),
        run_page.timeline(run.events),
        run_page.machine(run.manifest.environment, run.manifest),
        run_page.references(papers(methods_of(run.manifest.request))),
    ]


def methods_of(request: dict[str, Any]) -> list[str]:
    """The names of the methods that a request uses."""
    recipe = request.get("recipe")
    steps = recipe.get("steps") if isinstance(recipe, dict) else None
    used = [request.get("use"), *(step.get("use") for step in steps or [] if isinstance(step, dict))]
    return [str(name) for name in used if name]


# -- several runs -----------------------------------------------------------------------------------------------


def comparison(runs: Sequence[RunFolder], names: Sequence[str]) -> Section:
    """One row a run: what it was, how it ended, the metrics that most runs share, time and memory."""
    measured = [run_page.figures(run.manifest.metrics) for run in runs]
    shared = Counter(name for metrics in measured for name, value in metrics.items() if run_page.is_number(value))
    kept = [name for name, _ in shared.most_common(MOST_METRICS)]
    rows = []
    for number, (run, name, metrics) in enumerate(zip(runs, names, measured, strict=True), 1):
        chip = head_of(run).chip
        rows.append(
            {
                "run": Markup('<a href="#run-{}">{}</a> <small class="under">{}</small>').format(
                    number, name, run_page.asked(run.manifest)
                ),
                "end": mark(chip) if chip else run.manifest.status,
                **{f"metric {key}": metrics[key] for key in kept if run_page.is_number(metrics.get(key))},
                "time": None if run.manifest.minutes is None else 60 * run.manifest.minutes,
                "memory": run.manifest.peak_memory_mb,
            }
        )
    columns = [
        Column("run"),
        Column("end", "outcome"),
        *(Column(f"metric {name}", words.title_of(name)) for name in kept),
        Column("time", "time", lambda value: words.ABSENT if value is None else words.duration(value)),
        Column("memory", "peak memory", lambda value: words.size(1e6 * value) if value else words.ABSENT),
    ]
    return Section("The runs", table(rows, columns, caption="The runs side by side"))


def costs(runs: Sequence[RunFolder], names: Sequence[str]) -> Section | None:
    """Time and memory of each run."""
    found = []
    spent = {name: run.manifest.minutes * 60 for run, name in zip(runs, names, strict=True) if run.manifest.minutes}
    if spent:
        found.append(_cost("Time", spent, words.duration))
    held = {
        name: run.manifest.peak_memory_mb * 1e6
        for run, name in zip(runs, names, strict=True)
        if run.manifest.peak_memory_mb
    }
    if held:
        found.append(_cost("Peak memory", held, words.size))
    return Section("Time and memory", Markup(""), parts=found) if found else None


def _cost(title: str, amounts: dict[str, float], show: Any) -> Section:
    drawing = charts.bars([charts.Bar(name, value, show(value)) for name, value in amounts.items()], title)
    rows = [{"run": name, "amount": value} for name, value in amounts.items()]
    data = table(rows, [Column("run"), Column("amount", title.lower(), show)], caption=title)
    return Section(title, figure(drawing, f"{title} of each run.", data))


def names_of(runs: Sequence[RunFolder]) -> list[str]:
    """The runs' names; where two folders have the same, the whole paths."""
    count = Counter(run.name for run in runs)
    return [run.name if count[run.name] == 1 else str(run.folder) for run in runs]


def anchored(sections: Iterable[Section], before: str = "") -> list[Section]:
    """The sections with anchors that no other section of the page has."""
    return [
        replace(section, anchor=f"{before}{section.id}", parts=anchored(section.parts, f"{before}{section.id}-"))
        for section in sections
    ]


def commands_of(runs: Sequence[RunFolder]) -> list[str]:
    """The commands that give the runs again."""
    given = [words.command_line(run.evidence.command if run.evidence else run.manifest.command) for run in runs]
    return [command for command in dict.fromkeys(given) if command]


def facts_of(run: RunFolder) -> list[str]:
    """Small print: when it ended."""
    return [f"run of {run.manifest.updated[:16].replace('T', ' ')} UTC"] if run.manifest.updated else []
