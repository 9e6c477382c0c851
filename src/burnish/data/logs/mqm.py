"""Human ratings of translations: MQM error annotations (TSV, one error a line) and average segment scores.

An MQM score is minus the sum of the errors' weights, by the most specific rule: Non-translation 25, minor punctuation
.1, Major 5, Minor 1. Lines of planted checks (HOTW) are left out.
"""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

from burnish.data.logs.log import Ask, Log, cluster_of, listed
from burnish.data.logs.stream import text

RATINGS = "MQM ratings"
SEGMENTS = "MQM segment scores"
PLANTED = "HOTW"


def weight(category: str, severity: str) -> float | None:
    """What an error costs; None for a severity that is not known.

    Args:
        category: Such as "Fluency/Punctuation".
        severity: Such as "Major".
    """
    kind, level = category.strip().lower().rstrip("!"), severity.strip().lower()
    if level in ("no-error", "no error", "neutral", "") or kind in ("no-error", "no error"):
        return 0.0
    if level not in ("major", "minor"):
        return None
    if level == "major" and kind.startswith("non-translation"):
        return 25.0
    if level == "minor" and kind == "fluency/punctuation":
        return 0.1
    return 5.0 if level == "major" else 1.0


def read_ratings(path: Path, ask: Ask) -> Log:
    """A row is one rating: a segment of a system by a rater; raters of one segment are its runs.

    Raises:
        BadInput: a line has another number of fields than the header.
    """
    log = Log(RATINGS, path)
    totals: dict[tuple[str, str, str], float] = {}
    facts: dict[tuple[str, str, str], dict[str, str]] = {}
    unknown: Counter[str] = Counter()
    planted = 0
    with text(path) as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        segment = next(name for name in ("globalSegId", "seg_id") if name in (rows.fieldnames or ()))
        for row in rows:
            if None in row or None in row.values():
                raise log.refuse(f"line {rows.line_num} has another number of fields than the header")
            if row["severity"].startswith(PLANTED) or row["category"].startswith(PLANTED):
                planted += 1
                continue
            key = (row["system"], row[segment], row["rater"])
            cost = weight(row["category"], row["severity"])
            if cost is None:
                unknown[row["severity"]] += 1
            totals[key] = totals.get(key, 0.0) + (cost or 0.0)
            facts.setdefault(key, row)
    raters: Counter[tuple[str, str]] = Counter()
    for system, item, rater in sorted(totals):
        raters[system, item] += 1
        row = facts[system, item, rater]
        log.add(
            item,
            system,
            {"mqm": -totals[system, item, rater]},
            epoch=raters[system, item],
            content=row["source"].replace("<v>", "").replace("</v>", ""),
            cluster=cluster_of(ask, log, {key: row[key] for key in ("doc", "rater", "system") if key in row}),
            rater=rater,
        )
    if max(raters.values(), default=0) == 1:
        for row in log.rows:
            row["epoch"] = None
    if planted:
        log.warn(f"{planted} lines are planted checks ({PLANTED}), and are left out")
    if unknown:
        log.warn(f"severities without a known weight count as 0: {listed(f'{k} ({n})' for k, n in unknown.items())}")
    return log


def read_segments(path: Path, ask: Ask) -> Log:
    """Lines of system, score and segment, separated by blanks; "None" is a segment that was not rated."""
    log = Log(SEGMENTS, path)
    with text(path) as lines:
        names = next(lines).split()
        place = {name: names.index(name) for name in ("system", "seg_id")}
        measure = next(name for name in names if name not in place)
        for number, line in enumerate(lines, 2):
            cells = line.split()
            if len(cells) != len(names):
                raise log.refuse(f"line {number} has {len(cells)} fields, and the header has {len(names)}")
            value = cells[names.index(measure)]
            log.add(cells[place["seg_id"]], cells[place["system"]], {measure: value})
    return log
