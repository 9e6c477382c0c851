"""Human ratings of translations: MQM error annotations (TSV, one error a line) and average segment scores.

Ratings are read by `burnish.data.mqm` and weighed by `burnish.data.mqm_weights`. Lines of planted checks (HOTW) are left out.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from burnish.data.logs.log import Ask, Log, cluster_of, listed
from burnish.data.logs.stream import text
from burnish.data.mqm import PLANTED, read_tsv
from burnish.data.mqm_weights import Weights

RATINGS = "MQM ratings"
SEGMENTS = "MQM segment scores"


def read_ratings(path: Path, ask: Ask) -> Log:
    """A row is one rating: a segment of a system by a rater; raters of one segment are its runs.

    Raises:
        BadInput: a line has another number of fields than the header, or rows of one rating show different translations.
    """
    log = Log(RATINGS, path)
    sheet, weights = read_tsv(path), Weights.parse()
    raters: Counter[tuple[str, str]] = Counter()
    for one in sorted(sheet.ratings(PLANTED), key=lambda one: (one.system, one.segment, one.rater)):
        raters[one.system, one.segment] += 1
        facts = {"doc": one.document, "rater": one.rater, "system": one.system}
        log.add(
            one.segment,
            one.system,
            {"mqm": weights.score(one.errors)},
            epoch=raters[one.system, one.segment],
            content=one.source,
            cluster=cluster_of(ask, log, {name: fact for name, fact in facts.items() if fact}),
            rater=one.rater,
        )
    if max(raters.values(), default=0) == 1:
        for row in log.rows:
            row["epoch"] = None
    planted = sum(count for name, count in sheet.severities().items() if name in PLANTED)
    if planted:
        log.warn(f"{planted} lines are planted checks ({listed(PLANTED)}), and are left out")
    if unknown := weights.unknown(sheet, PLANTED):
        names = listed(f"{name} ({count})" for name, count in unknown.items())
        log.warn(f"severities without a known weight count as 0: {names}")
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
