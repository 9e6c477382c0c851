"""What the report of any run says: what was asked, what came out, how it went along, and on what machine."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from statistics import median
from typing import Any

from markupsafe import Markup

from burnish.core.method import Paper
from burnish.data.scores import Scores, Table
from burnish.report import charts, estimates, palette, profiles, words
from burnish.report.folder import Event, LayerRow, Made, Manifest, RunFolder, StepFolder
from burnish.report.page import Chip, Column, Head, Section, cell, facts, figure, folded, listed, paragraph, table

STATUS = {"done": Chip("done", "holds", "✓"), "failed": Chip("failed", "fails", "✕")}
KILLED = "The run was killed before it ended; the command below goes on where it was."

CELLS = ("bits", "seed", "layers", "data", "tokens", "block")
"""Columns of items that say which cell of an experiment an item belongs to, and are no measures."""

MOST_GROUPS, MOST_MEASURES, MOST_ROWS, MOST_STEPS, MOST_TILES = 8, 12, 200, 4, 8
"""How much is drawn or listed before a report says that there is more."""
LONG_SOURCE = 40
"""Characters of a path after which a headline names only its end."""


def head(run: RunFolder) -> Head:
    """A headline from the request and the metrics, the status, and the key figures."""
    manifest = run.manifest
    last = deciding(run.steps)
    measured = figures(last.metrics if last else manifest.metrics)
    title = asked(manifest, run.name)
    best = [(name, value) for name, value in measured.items() if not isinstance(value, int | str)]
    if said := estimates.headline(last.table if last else run.table):
        title = f"{title}: {said}" if last else said
    elif best:
        told = [f"{words.title_of(name)}\N{NO-BREAK SPACE}{_short(value)}" for name, value in best[:2]]
        title = f"{title}: {', '.join(told)}"
    return Head(
        title=title,
        over=[text for text in (run.name, f"seed {manifest.seed}", manifest.updated[:10]) if text],
        chip=STATUS.get(manifest.status, Chip(manifest.status)),
        lead=[spent(manifest)] if spent(manifest) else [],
        notes=notes(run),
        tiles=[(words.title_of(name), cell(value)) for name, value in _tiles(measured)],
    )


def deciding(steps: Sequence[StepFolder]) -> StepFolder | None:
    """The step of a recipe whose figures stand for all: the last that measures something, else the last."""
    return next((step for step in reversed(steps) if step.measures), steps[-1] if steps else None)


def figures(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Metrics that are one value, or one estimate with its interval, those that people ask for first."""
    return words.folded(scalars(metrics))


def _tiles(measured: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The figures that stand above everything: words have no place there."""
    return [(name, value) for name, value in measured.items() if not isinstance(value, str)][:MOST_TILES]


def notes(run: RunFolder) -> list[str]:
    """What has to be known before the rest is believed: that the run failed, and what could not be read."""
    ended = [f"The run failed: {run.manifest.error}"] if run.manifest.error else []
    ended += [KILLED] if run.manifest.status == "killed" else []
    return [*ended, *run.notes]


def asked(manifest: Manifest, otherwise: str = "") -> str:
    """What a run was asked to do, in a few words: "boa on smollm2-135m, bits 3"."""
    request = manifest.request
    if isinstance(recipe := request.get("recipe"), Mapping):
        return str(recipe.get("title") or "a recipe")
    if "claim" in request:
        return "claim " + " on ".join(str(request[key]) for key in ("claim", "model") if request.get(key))
    if "use" not in request:
        return otherwise or "a run"
    goods = request.get("goods")
    on = [_brief(str(source)) for source in goods.values()][:1] if isinstance(goods, Mapping) else []
    settings = request.get("settings")
    bits = settings.get("bits") if isinstance(settings, Mapping) else None
    return " on ".join([str(request["use"]), *on]) + (f" at {bits}\N{NO-BREAK SPACE}bits" if bits is not None else "")


def _brief(source: str) -> str:
    """The last part of a whole or long path, which stands below, under what was asked; anything else as it is."""
    path = PurePath(source)
    return path.name if "://" not in source and (path.is_absolute() or len(source) > LONG_SOURCE) else source


def spent(manifest: Manifest) -> str:
    """Time and memory as a sentence; empty when neither is known."""
    took = f"took {words.duration(60 * manifest.minutes)}" if manifest.minutes else ""
    held = f"held at most {words.size(1e6 * manifest.peak_memory_mb)} of memory" if manifest.peak_memory_mb else ""
    said = " and ".join(text for text in (took, held) if text)
    return f"The run {said}." if said else ""


def scalars(metrics: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Metrics that are one value, or one estimate with its interval, by dotted name."""
    found: dict[str, Any] = {}
    for key, value in metrics.items():
        if isinstance(value, Mapping) and not isinstance(value.get("estimate"), int | float):
            found |= scalars(value, f"{before}{key}.")
        elif isinstance(value, int | float | str | Mapping):
            found[f"{before}{key}"] = value
    return found


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        value = value["estimate"]
    return words.number(value) if isinstance(value, int | float) else words.plain(value)


def request(manifest: Manifest) -> Section | None:
    """What was asked: settings and goods, or a recipe's steps."""
    asked_for = manifest.request
    if isinstance(recipe := asked_for.get("recipe"), Mapping):
        steps = recipe.get("steps")
        top = facts({key: value for key, value in recipe.items() if key != "steps"})
        if isinstance(steps, list):
            top += listed([words.plain(step) for step in steps])
        return Section("What was asked", top)
    values = words.flat({**asked_for, "settings": "", "goods": ""})
    values = {key: value for key, value in values.items() if value != "" and key != "burnish"}
    for part in ("goods", "settings"):
        if isinstance(inner := asked_for.get(part), Mapping):
            values |= {name: value for name, value in inner.items() if value not in ("", [])}
    return Section("What was asked", facts(values)) if values else None


def metrics(manifest: Manifest) -> Section | None:
    """All metrics, when the tiles do not hold them."""
    measured = figures(manifest.metrics)
    if len(_tiles(measured)) == len(measured):
        return None
    return Section("What came out", metrics_table(manifest.metrics))


def metrics_table(values: Mapping[str, Any]) -> Markup:
    """Metrics with their names for people, and what those names mean."""
    measured = figures(values)
    rows = [{"metric": words.title_of(name), "value": value} for name, value in measured.items()]
    told = [f"{words.title_of(name)}: {words.meaning_of(name)}" for name in measured if words.meaning_of(name)]
    body = table(rows, [Column("metric"), Column("value", right=True)], caption="Metrics")
    return body + (listed(told, "quiet") if told else Markup(""))


def step(done: StepFolder) -> Section:
    """What one step of a recipe gave: its metrics, its table, its items, its layers."""
    shown = estimates.section(done.table)
    body = metrics_table(done.metrics) if figures(done.metrics) and shown is None else Markup("")
    if done.minutes:
        body = paragraph(f"It took {words.duration(60 * done.minutes)}.", "quiet") + body
    parts = [
        shown,
        rows_of(done.table),
        items(done.items) if shown is None else None,
        layers(done.layers, {}, {}, done.name.partition(": ")[2]),
    ]
    return Section(f"Step {done.name}", body, parts=[part for part in parts if part is not None])


# -- what was made ----------------------------------------------------------------------------------------------

LOADERS = {
    "gptq": ("import gptqmodel; model = gptqmodel.GPTQModel.load({path!r})", "burnish evaluate reload {shell}"),
    "gguf": ("import llama_cpp; model = llama_cpp.Llama({path!r})", "llama-cli -m {shell}"),
}
"""Format of a saved model to how it is loaded, in a line of Python and one of shell; others are as transformers has it."""
PLAIN = (
    "import transformers; model = transformers.AutoModelForCausalLM.from_pretrained({path!r})",
    "burnish generate {shell} --prompt 'Once upon a time'",
)


def made(models: Sequence[Made]) -> Section | None:
    """Where the saved models are, and how they are loaded."""
    if not models:
        return None
    body = Markup("")
    for one in models:
        path = str(one.folder / one.file) if one.format == "gguf" and one.file else str(one.folder)
        lines = [line.format(path=path, shell=shlex.quote(path)) for line in LOADERS.get(one.format, PLAIN)]
        body += Markup("<p><code>{}</code> ({}). In Python, and in a shell:</p>").format(one.folder, one.format)
        body += Markup("<pre><code>{}</code></pre>").format("\n".join(lines))
    return Section("The saved model" if len(models) == 1 else "The saved models", body)


def remarks(manifest: Manifest) -> list[Section]:
    """Metrics that are lists of sentences, each in a section of its own."""
    return [
        Section(words.title_of(name), listed(value))
        for name, value in manifest.metrics.items()
        if isinstance(value, list) and value and all(isinstance(one, str) for one in value)
    ]


# -- how it went along ------------------------------------------------------------------------------------------


def layers(
    rows: Sequence[LayerRow], places: Mapping[str, tuple[str, str]], looks: Mapping[str, palette.Look], own: str = ""
) -> Section | None:
    """Error by block and role: a figure a cell, the first one open; and what the methods noted.

    Args:
        rows: The rows of ``layers.json``.
        places: What the rows call an arm, to its name and its cell; a row of another arm is its own, in the cell of
            its bits.
        looks: How arms are drawn.
        own: What to call an arm without a name.
    """
    figures: dict[str, list[tuple[str, LayerRow]]] = {}
    for row in rows:
        bits = f"{row.bits:g}\N{NO-BREAK SPACE}bits" if row.bits is not None else ""
        arm, cell = places.get(row.arm, (row.arm or own or "this run", bits))
        figures.setdefault(cell, []).append((arm, row))
    if not figures:
        return None
    arms = list(dict.fromkeys(arm for members in figures.values() for arm, _ in members))
    leading = next((arm for arm, look in looks.items() if look.colour == palette.SERIES[0].light), "")
    looks = palette.looks([*looks, *arms], leading)
    (first, members), *others = figures.items()
    body = paragraph(first, "quiet") if others else Markup("")
    body += _layer_figure(members, looks)
    for cell, members in others:
        body += folded(cell, _layer_figure(members, looks))
    noted = [
        {"cell": cell, "arm": arm, "block": str(row.block), "role": row.role, "note": row.note}
        for cell, members in figures.items()
        for arm, row in members
        if row.note
    ]
    if noted:
        notes = table(noted, caption="Notes from the layers", group="cell")
        body += folded(f"{words.plural(len(noted), 'note')} from the layers", notes)
    return Section("Error by layer", body)


def _layer_figure(rows: Sequence[tuple[str, LayerRow]], looks: Mapping[str, palette.Look]) -> Markup:
    """Output errors, or weight errors where no method saw any text; the mean over seeds."""
    of_output = any(row.error is not None for _, row in rows)
    cells: dict[tuple[int, str], dict[str, list[float]]] = {}
    for arm, row in rows:
        error = row.error if of_output else row.weight_error
        if error is not None:
            cells.setdefault((row.block, row.role), {}).setdefault(arm, []).append(error)
    means = {
        place: {arm: sum(found) / len(found) for arm, found in cells[place].items()}
        for place in sorted(cells, key=lambda place: (place[0], profiles.place(place[1]), place[1]))
    }
    points = [
        {"block": block, "role": role, "series": arm, "error": error}
        for (block, role), errors in means.items()
        for arm, error in errors.items()
    ]
    shown = [name for name in looks if any(name in errors for errors in means.values())]
    data = table(
        [
            {"group": f"block {block}", "role": role} | {f"arm {arm}": error for arm, error in errors.items()}
            for (block, role), errors in means.items()
        ],
        ["role", *(Column(f"arm {name}", name) for name in shown)],
        caption="Relative error by block and linear map",
        group="group",
    )
    lost = (
        "Share of each linear map's output on the calibration text that rounding lost, tr(ΔW H ΔWᵀ) / tr(W H Wᵀ)"
        if of_output
        else "Share of each linear map's weights that rounding lost, ‖ΔW‖² / ‖W‖²"
    )
    caption = f"{lost}, by block; log scale, lower is better."
    drawing = profiles.by_block(points, looks, "relative output error" if of_output else "relative weight error")
    return figure(drawing, caption, data) if drawing else data


def sizes(amounts: Mapping[str, float]) -> Section | None:
    """How big things are, the biggest first."""
    if not amounts:
        return None
    ordered = sorted(amounts.items(), key=lambda item: -item[1])
    biggest = ordered[0][1]
    rows = [
        {"what": what, "bytes": int(count), "share": f"{100 * count / biggest:.0f} %" if biggest > 0 else words.ABSENT}
        for what, count in ordered
    ]
    drawing = charts.bars([charts.Bar(what, count, words.size(count)) for what, count in ordered], "Sizes")
    columns = [Column("what"), Column("bytes", "bytes"), Column("share", "of the biggest")]
    return Section("Sizes", figure(drawing, "Bytes on disk.", table(rows, columns, caption="Sizes")))


def timeline(events: Sequence[Event]) -> Section | None:
    """Seconds for each block, in the order in which they were done."""
    if not events:
        return None
    rows = [{"step": _lane(event), "seconds": event.seconds} for event in events]
    steps: dict[str, list[Event]] = {}
    for row, event in zip(rows, events, strict=True):
        steps.setdefault(str(row["step"]), []).append(event)
    summary = []
    for step, done in steps.items():
        times, slowest = [event.seconds for event in done], max(done, key=lambda event: event.seconds)
        spread = {"total": sum(times), "median": median(times), "slowest": slowest.seconds}
        summary.append({"step": step, "units": len(done), **spread, "which": slowest.key})
    columns = [Column("step"), Column("units")]
    columns += [Column(key, key, words.duration) for key in ("total", "median", "slowest")]
    data = table(summary, [*columns, Column("which", "slowest unit")], caption="Seconds of each step")
    drawn = [row for row in rows if row["step"] in list(steps)[:MOST_STEPS]]
    caption = "Seconds that each block took, in order." + (
        f" The first {MOST_STEPS} of {len(steps)} steps are drawn." if len(steps) > MOST_STEPS else ""
    )
    return Section("How it ran", figure(profiles.timeline(drawn), caption, data))


def _lane(event: Event) -> str:
    """What a link belongs to, for people: its part without the digest at its end, and its step where that adds a word."""
    part = re.sub(r"-[0-9a-f]{10}$", "", event.part)
    return f"{part}: {event.step}".removeprefix(": ") if event.step not in part else part


# -- items and tables -------------------------------------------------------------------------------------------


def items(scores: Scores | None) -> Section | None:
    """How the items lie along each measure."""
    import numpy as np
    import pyarrow as pa

    if scores is None or not len(scores):
        return None
    names = scores.table.column_names
    group = next((name for name in ("arm", "model") if name in names), "")
    groups = [str(value) for value in scores.table.column(group).to_pylist()] if group else ["items"] * len(scores)
    order = list(dict.fromkeys(groups))[:MOST_GROUPS]
    parts = []
    kinds = {name: scores.table.schema.field(name).type for name in scores.measures if name not in CELLS}
    wanted = [
        n for n, k in kinds.items() if pa.types.is_floating(k) or pa.types.is_integer(k) or pa.types.is_boolean(k)
    ]
    for measure in wanted[:MOST_MEASURES]:
        column = scores.table.column(measure).cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        values = {name: column[[place for place, one in enumerate(groups) if one == name]] for name in order}
        good = {name: part[np.isfinite(part)] for name, part in values.items()}
        rows = [_spread(name, part, len(values[name])) for name, part in good.items()]
        data = table(rows, caption=f"{words.title_of(measure)} of the items")
        drawing, kind = profiles.distribution(good, measure, palette.looks(order))
        caption = f"{kind.capitalize()}."
        parts.append(Section(words.title_of(measure), figure(drawing, caption, data) if drawing else data))
    if not parts:
        return None
    told = f"{words.plural(len(scores), 'row')} in items.parquet."
    if len(set(groups)) > MOST_GROUPS or len(wanted) > MOST_MEASURES:
        told += f" Drawn are the first {len(order)} of {len(set(groups))} groups and {len(parts)} of {len(wanted)} measures."
    return Section("The items", paragraph(told), parts=parts)


def _spread(name: str, values: Any, count: int) -> dict[str, Any]:
    import numpy as np

    row: dict[str, Any] = {"series": name, "items": len(values), "missing": count - len(values)}
    if len(values):
        row |= {"mean": float(values.mean()), "least": float(values.min()), "most": float(values.max())}
        row |= {"median": float(np.median(values))}
        row |= {"standard deviation": float(values.std(ddof=1)) if len(values) > 1 else None}
    return row


def rows_of(kept: Table | None) -> Section | None:
    """The run's own table, as it is."""
    if kept is None or not len(kept) or estimates.are(kept):
        return None
    rows = kept.table.slice(0, MOST_ROWS).to_pylist()
    more = f"The first {MOST_ROWS} of {len(kept)} rows of table.parquet." if len(kept) > MOST_ROWS else ""
    body = table(rows, list(kept.table.column_names), caption="The run's table")
    return Section("The table", body + (paragraph(more, "quiet") if more else Markup("")))


# -- what stands behind -----------------------------------------------------------------------------------------


def machine(environment: Mapping[str, str], manifest: Manifest) -> Section | None:
    """Where it ran, with which versions."""
    values: dict[str, Any] = dict(environment)
    if manifest.seed is not None:
        values["seed"] = str(manifest.seed)
    return Section("The machine", facts(values)) if values else None


def references(papers: Sequence[Paper]) -> Section | None:
    """The papers that the methods come from."""
    if not papers:
        return None
    link = Markup('{} <a href="{}">{}</a>')
    return Section("References", listed([link.format(p.cite(), p.url, p.url) if p.url else p.cite() for p in papers]))


def is_number(value: Any) -> bool:
    """Whether a metric can be compared: a finite number, or an estimate with its interval."""
    if isinstance(value, Mapping):
        value = value.get("estimate")
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
