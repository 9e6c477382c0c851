"""Files of segment scores: a system, its score and the segment on each line, "None" where it was not rated."""

from __future__ import annotations

import math
from pathlib import Path

from burnish.core.errors import BadInput
from burnish.data.mqm import read_utf8

_SHOWN = 10


def read_segment_scores(path: str | Path) -> dict[tuple[str, str], float] | None:
    """(system, segment) to the score, those that were not rated left out; None when it is another kind of file.

    Cells are parted by blanks or tabs. A first line of column names is passed over.

    Raises:
        BadInput: a score is no number; names the lines.
    """
    path = Path(path)
    lines = [line.split() for line in read_utf8(path).split("\n") if line.strip()]
    if not lines or any(len(cells) != 3 for cells in lines):
        return None
    if not _is_score(lines[0][1]):
        lines = lines[1:]
    wrong = [
        f"line {number}: {cells[1]!r} is no score" for number, cells in enumerate(lines, 1) if not _is_score(cells[1])
    ]
    if wrong:
        raise BadInput.of(f"{path} is no file of segment scores", wrong[:_SHOWN], "lines are: system, score, segment")
    return {(system, segment): float(score) for system, score, segment in lines if score != "None"}


def _is_score(cell: str) -> bool:
    try:
        return cell == "None" or math.isfinite(float(cell))
    except ValueError:
        return False
