"""What the report of a claim says: the verdict, the criteria, the arms, the paper's figures, and what stands behind."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from burnish.core.claim import ArmResult, Evidence, Finding
from burnish.report import charts, palette, words
from burnish.report.forest import Row, forest
from burnish.report.page import Column, Head, Section, figure, folded, listed, mark, paragraph, table, verdict_chip

PARTIAL = {
    "smoke": "This is the smoke scale: it shows that the machinery works, and its verdict decides nothing.",
    "demo": (
        "This is the demo scale, a part of the claim that takes minutes: the verdict is on the criteria shown here "
        "and on no others. The command `{command}` asks all of it."
    ),
}
"""What to know of a verdict at a smaller scale."""

COSTS = (
    ("seconds", "time", lambda seconds: words.duration(seconds) if seconds else words.ABSENT),
    ("size", "size", lambda count: words.size(count) if count else words.ABSENT),
)
"""Columns of what an arm costs: key, title, and how it is shown."""

MOST_OPEN = 24
"""Rows up to which the table of the arms stands open."""


def head(evidence: Evidence, notes: Sequence[str] = (), tiles: Sequence[tuple[str, str]] = ()) -> Head:
    """The claim's sentence, the verdict in words, and the finding that settles it."""
    lead = [words.verdict_sentence(evidence)]
    if first := words.deciding(evidence):
        lead.append(words.found(first))
    held = sum(finding.verdict == "holds" for finding in evidence.findings)
    items = max((finding.items for finding in evidence.findings), default=0)
    return Head(
        title=evidence.sentence,
        over=[
            text for text in (f"claim {evidence.claim}", evidence.model, scale_of(evidence), evidence.date[:10]) if text
        ],
        chip=verdict_chip(evidence.verdict),
        lead=lead,
        notes=[*partial(evidence), *notes],
        tiles=[
            ("criteria that hold", f"{held} of {len(evidence.findings)}"),
            ("items, paired", words.number(items)),
            *tiles,
        ],
    )


def partial(evidence: Evidence) -> list[str]:
    """What to know of the verdict where only a part of the claim was asked."""
    command = evidence.command.replace(f" --scale {evidence.scale}", "")
    return [PARTIAL[evidence.scale].format(command=command)] if evidence.scale in PARTIAL else []


def scale_of(evidence: Evidence) -> str:
    """Such as "full scale"; empty when the evidence does not say."""
    return f"{evidence.scale} scale" if evidence.scale else ""


def name_of(arm: ArmResult) -> str:
    """An arm's name for people: its label without what the label says of the cell."""
    return arm.label.partition(", ")[0] or arm.arm


def looks_of(evidence: Evidence) -> dict[str, palette.Look]:
    """How the arms are drawn, by name; the claim's own has the first colour."""
    own = next((name_of(arm) for arm in evidence.arms if arm.arm == evidence.claim), "")
    return palette.looks((name_of(arm) for arm in evidence.arms), own)


def place_of(arm: ArmResult) -> dict[str, Any]:
    """An arm's cell without the seed, over which one cell is looked at together."""
    return {key: value for key, value in arm.cell.items() if "seed" not in key}


def places_of(evidence: Evidence) -> list[tuple[str, list[ArmResult]]]:
    """Each cell, by name, with the arms that belong to it.

    An arm has no column on which it does not depend, so it belongs to every cell that agrees with those it has.
    """
    cells: list[dict[str, Any]] = []
    for arm in evidence.arms:
        if (cell := place_of(arm)) not in cells:
            cells.append(cell)
    whole = [cell for cell in cells if not any(cell != other and _within(cell, other) for other in cells)]
    return [(words.cell_name(cell), [arm for arm in evidence.arms if _within(place_of(arm), cell)]) for cell in whole]


def _within(part: Mapping[str, Any], whole: Mapping[str, Any]) -> bool:
    return all(key in whole and whole[key] == value for key, value in part.items())


def criteria(evidence: Evidence) -> Section | None:
    """A forest plot of the findings, and their table."""
    if not evidence.findings:
        return None
    rows = rows_of(evidence.findings)
    levels = " and ".join(sorted({f"{100 * finding.level:g} %" for finding in evidence.findings}))
    caption = (
        f"Dot: estimate. Bar: its {levels} interval. Dashed line: margin. Shaded: where the claim is true. A criterion "
        "holds (✓) when its whole interval lies in the shade, does not hold (✕) when none of it does, and is undecided "
        "(?) otherwise."
    )
    ratios = {"ratio" in finding.statistic for finding in evidence.findings if finding.statistic}
    told = [("differences between two arms (0: none)", False), ("ratios of two arms (1: no difference)", True)]
    if kinds := [text for text, ratio in told if ratio in ratios]:
        caption += f" Estimates are {' or '.join(kinds)}; the table says of what."
    data = table(
        [
            {
                "text": f.text,
                "of": words.quantity(f) or None,
                "estimate": f.model_dump(include={"estimate", "low", "high"}),
                "margin": f"{f.side} {words.as_given(f.margin)}",
                "items": f.items,
                "verdict": mark(verdict_chip(f.verdict)),
                "note": f.note or None,
            }
            for f in evidence.findings
        ],
        [
            Column("text", "criterion"),
            *([Column("of", "what is estimated")] if any(map(words.quantity, evidence.findings)) else []),
            Column("estimate", "estimate"),
            Column("margin", "has to lie"),
            Column("items", "items"),
            Column("verdict", "verdict"),
            *([Column("note", "note")] if any(f.note for f in evidence.findings) else []),
        ],
        caption="What was found for each criterion",
    )
    drawing = forest(rows)
    more = paragraph(f"On several criteria at once: {evidence.multiplicity.rstrip('.')}.", "quiet")
    return Section("The criteria", (figure(drawing, caption, data) if drawing else data) + more)


def rows_of(findings: Sequence[Finding]) -> list[Row]:
    """Findings as rows of a forest plot.

    Texts of the form "cell: statement" are grouped by statement where several cells share one.
    """
    parts = [finding.text.partition(": ") for finding in findings]
    shared = Counter(statement for _, _, statement in parts if statement)
    return [
        Row(
            label=cell if shared[statement] > 1 else finding.text,
            group=statement if shared[statement] > 1 else "",
            **finding.model_dump(include={"estimate", "low", "high", "margin", "side", "verdict"}),
        )
        for finding, (cell, _, statement) in zip(findings, parts, strict=True)
    ]


def arms(evidence: Evidence, sizes: Mapping[str, float]) -> Section | None:
    """How each arm did in each cell: a chart and a table."""
    if not evidence.arms:
        return None
    measures = measures_of(evidence)
    known = {what.casefold(): count for what, count in sizes.items()}
    points: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    seeded = len({str(seed) for arm in evidence.arms if (seed := _seed(arm))}) > 1
    for cell, members in places_of(evidence):
        for arm in members:
            point = {"cell": cell, "series": name_of(arm)}
            points += [{**point, **ends} for ends in _finite(arm, measures)]
            named = [name_of(arm), *([_seed(arm)] if seeded and _seed(arm) else [])]
            row: dict[str, Any] = {"cell": cell, "arm": ", ".join(named)}
            size = known.get(arm.arm.casefold(), known.get(name_of(arm).casefold()))
            row |= {f"measure {name}": value for name, value in arm.measures.items() if "estimate" in value}
            rows.append({**row, "seconds": arm.seconds or None, "size": size})
    drawing = charts.dots(points, looks_of(evidence))
    columns = [Column("arm", "arm")]
    columns += [Column(f"measure {name}", words.title_of(name), hint=words.meaning_of(name)) for name in measures]
    columns += [Column(key, title, show) for key, title, show in COSTS if any(row[key] for row in rows)]
    body = Markup("<figure>{}</figure>").format(drawing) if drawing else Markup("")
    full = table(rows, columns, caption="How each arm did in each cell", group="cell")
    body += folded(f"All arms in all cells ({len(rows)} rows)", full) if len(rows) > MOST_OPEN else full
    told = [f"{words.title_of(name)}: {words.meaning_of(name)}" for name in measures if words.meaning_of(name)]
    return Section("The arms", body + (listed(told, "quiet") if told else Markup("")))


def _seed(arm: ArmResult) -> str:
    return words.cell_name({key: value for key, value in arm.cell.items() if "seed" in key})


def _finite(arm: ArmResult, measures: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Estimates with their intervals that have a place on an axis."""
    for measure in measures:
        value = arm.measures.get(measure, {})
        middle = value.get("estimate", math.nan)
        ends = {"low": value.get("low", middle), "estimate": middle, "high": value.get("high", middle)}
        if all(map(math.isfinite, ends.values())):
            yield {"measure": measure, **ends}


def measures_of(evidence: Evidence) -> list[str]:
    """The measures of all arms, those that several methods share first."""
    order = list(words.MEASURES)
    names = list(dict.fromkeys(name for arm in evidence.arms for name in arm.measures))
    return sorted(
        names, key=lambda name: order.index(known) if (known := words.canonical(name)) in order else len(order)
    )


def figures(evidence: Evidence) -> Section | None:
    """The paper's figures beside ours: a table a measure."""
    tables = [_beside(evidence, measure) for measure in dict.fromkeys(fig.measure for fig in evidence.figures)]
    if not tables:
        return None
    said = paragraph(
        "Another model, other text and other code may stand behind the paper's figures: compare the order of the arms "
        "and how far they are apart, not the figures themselves."
    )
    return Section("The paper's figures beside ours", said + Markup("").join(tables))


def _beside(evidence: Evidence, measure: str) -> Markup:
    """A row for each place of the paper and for each of our cells, a column for each arm."""
    names: dict[str, str] = {}
    rows: list[dict[str, Any]] = []
    for fig in evidence.figures:
        if fig.measure == measure:
            source = "The paper" if fig.source == "paper" else f"The paper ({fig.source})"
            rows.append({"source": source, "where": fig.where})
            for name, value in fig.numbers.items():
                names.setdefault(name.casefold(), name)
                rows[-1][f"arm {name.casefold()}"] = Markup("{}").format(words.as_given(value))
    for cell, members in places_of(evidence):
        row: dict[str, Any] = {"source": f"Here, {evidence.model}".rstrip(", "), "where": cell or "all items"}
        for arm in members:
            found = [
                value["estimate"]
                for other in members
                for name, value in other.measures.items()
                if other.arm == arm.arm and words.canonical(name) == words.canonical(measure) and "estimate" in value
            ]
            if found:
                key = arm.arm.casefold() if arm.arm.casefold() in names else name_of(arm).casefold()
                names.setdefault(key, name_of(arm))
                row[f"arm {key}"] = Markup("{}").format(words.number(sum(found) / len(found), 4))
        rows.append(row)
    columns = [Column("where", "where"), *(Column(f"arm {key}", name, right=True) for key, name in names.items())]
    return table(rows, columns, caption=f"{words.title_of(measure)}: the paper's figures and ours", group="source")


def behind(evidence: Evidence) -> list[Section]:
    """What the figures rest on: where the weights come from, the data, the digests."""
    found = []
    if evidence.lineage:
        found.append(Section("Where the weights come from", listed(evidence.lineage)))
    hashes = {arm.label: arm.weights for arm in evidence.arms if arm.weights}
    parts = [
        ("Texts and other data", evidence.data),
        ("Weights that were measured", hashes),
        ("Digests of what computes the figures", evidence.digests),
    ]
    rows = [{"group": title, "what": what, "is": is_} for title, values in parts for what, is_ in values.items()]
    if rows:
        columns = [Column("what"), Column("is", "is", lambda text: Markup("<code>{}</code>").format(text))]
        data = table(rows, columns, caption="Data and digests", group="group")
        said = paragraph("By these, another run can be told to have used the same texts, weights and code.")
        found.append(Section("Data and digests", said + folded(words.plural(len(rows), "digest"), data)))
    return found


def costs(evidence: Evidence, spent_in_all: str) -> Section | None:
    """How long each arm took, on average over the cells, and what the whole run took."""
    spent: dict[str, list[float]] = {}
    for arm in evidence.arms:
        if math.isfinite(arm.seconds) and arm.seconds > 0:
            spent.setdefault(name_of(arm), []).append(arm.seconds)
    means = {label: sum(times) / len(times) for label, times in spent.items()}
    said = paragraph(spent_in_all) if spent_in_all else Markup("")
    if not means:
        return Section("Time and memory", said) if said else None
    drawing = charts.bars([charts.Bar(k, v, words.duration(v)) for k, v in means.items()], "Time of each arm")
    rows = [
        {"arm": label, "cells": len(times), "mean": means[label], "least": min(times), "most": max(times)}
        for label, times in spent.items()
    ]
    columns = [Column("arm"), Column("cells"), *(Column(key, key, words.duration) for key in ("mean", "least", "most"))]
    data = table(rows, columns, caption="Time of each arm")
    return Section("Time and memory", said + figure(drawing, "Mean over the cells of each arm's time.", data))
