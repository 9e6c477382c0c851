"""Contamination scan: which lines of a test set stand in the training data, side by side and each side on its own.

## How it works

Three looks at each side (source, target) of each test pair:

| look | a line counts when |
|---|---|
| exact | it is a training line |
| n-gram | one of its n-grams of lower-cased words stands in a training line (where a script puts no blanks between words, of characters) |
| near | a training line has nearly the same words: Jaccard similarity of at least `near`, proposed by MinHash and verified |

"both" is a pair of which both sides count. Sides are told apart since they matter apart: source and target together in training
inflate scores most, and a target alone is what document-level decontamination leaves behind.

Long n-grams are also boilerplate. An n-gram that occurs in many test lines says nothing about any of them: those whose inverse
document frequency over the test set, ln(lines / lines with it), is below `min_idf` are cut, and so are n-grams that share a word
with one of them (its ragged edges). Both counts are given, before and after the cut, and every hit shows its n-gram and in how
many test and training lines it occurs.

The share of a line's words that lie in such n-grams is given too; `min_share` asks for that much of it before a line is kept for
its n-grams (.7 is the usual threshold where training data are cleaned of tests).

With `scores` the mean of each measure is compared between dirty and clean lines, as two models on different items would be:
right or wrong answers by their posteriors, other scores by Welch's t, in clusters where the scores have them. Several scores of
one line (epochs) are averaged first.

## Differences

* N-grams and lines are looked up in exact tables; a Bloom filter's false positives would be read as contamination.
* The cut looks at n-grams, not at single words.
* A line of fewer than `n` words has no n-gram: how many there are is told.

## When not to use it

A clean scan of the data that one has says nothing about data that one has not. Translated or paraphrased tests pass it.
Dirty lines may be easier anyway (short, formulaic): the difference of scores is no proof of inflation; inject to measure that.

## References

Kocyigit et al. 2025, "Overestimation in LLM evaluation" (8-grams are the common rule in machine translation).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from burnish.core.errors import BadInput
from burnish.core.files import write_text
from burnish.core.run import Run, ensure
from burnish.core.shapes import Evaluation
from burnish.data.lines import Side, read_side
from burnish.data.overlap import Overlap, overlap
from burnish.data.scores import Scores
from burnish.stats.auto import choose

SIDES: tuple[Side, ...] = ("source", "target")
HITS = "hits.tsv"
MOSTLY = 0.7
"""Share of a line's words in n-grams of the training text from which it mostly stands there; the usual threshold."""


class ContaminationScan(Evaluation):
    """Find test lines in training data, source and target each on its own, and compare the scores of both kinds."""

    n: Annotated[int, Field(ge=1)] = 8
    """Words of an n-gram; 8 is the common rule in machine translation."""
    min_idf: Annotated[float, Field(ge=0)] = 4.5
    """Least inverse document frequency of an n-gram that counts after the cut: 4.5 cuts what 1.1 % of the lines share."""
    min_share: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of a line's words that n-grams of the training text must cover before it is kept for them; 0: one is enough."""
    near: Annotated[float, Field(ge=0.7, le=1)] | None = None
    """Jaccard similarity from which two lines are nearly the same, e.g. 0.8; none does not look (it needs rensa)."""
    level: Annotated[float, Field(gt=0, lt=1)] = 0.95
    """Confidence level of the difference of scores."""

    def __call__(
        self,
        test: Path,
        train: Path,
        test_target: Path | None = None,
        train_target: Path | None = None,
        scores: Scores | None = None,
        run: Run | None = None,
    ) -> Scores:
        """Scan.

        Args:
            test: The test set's source side (or its only side): a text with a sentence a line, plain or .gz; or JSON lines
                with source and target, which are given again as the target.
            train: The training data's source side.
            test_target: The test set's target side, line by line.
            train_target: The training data's target side.
            scores: Measures of the test's lines; their item_id is the line's number, from 0.
            run: Where figures go; its artifact holds hits.tsv, a line for every hit, the rarest n-grams first.

        Returns:
            A row a test line: item_id, model (the training file), and for each side exact, ngram, near, kept (after the cut)
            and the matched n-gram with its document frequencies; for pairs both and both_kept.

        Raises:
            BadInput: files that cannot be read, sides of different length, one target without the other, scores of other
                lines.
            MissingExtra: `near`, and rensa is not installed.
        """
        run = ensure(run)
        if (test_target is None) != (train_target is None):
            raise BadInput("one target side is given and the other is not", "give --test-target and --train-target")
        pairs: dict[Side, tuple[Path, Path]] = {"source": (test, train)}
        if test_target is not None and train_target is not None:
            pairs["target"] = (test_target, train_target)
        lines = {side: list(read_side(path, side)) for side, (path, _) in pairs.items()}
        count = len(lines["source"])
        if not count or any(len(side) != count for side in lines.values()):
            sizes = " and ".join(f"{pairs[side][0]} has {len(text)}" for side, text in lines.items())
            raise BadInput(f"the sides of a test set are as long as each other, and not empty: {sizes} lines")
        most = max(1, math.floor(count * math.exp(-self.min_idf)))
        found = {}
        for side, (_, data) in pairs.items():
            text = run.track(read_side(data, side), f"scan of the {side}", unit="lines")
            found[side] = overlap(lines[side], text, self.n, most, self.near, self.min_share)
        training = {side: part.training for side, part in found.items()}
        if len(set(training.values())) > 1 or not all(training.values()):
            raise BadInput(f"the training sides have {' and '.join(map(str, training.values()))} lines", "give pairs")
        rows = [self._row(number, Path(train).name, found) for number in range(count)]
        run.items(rows)
        run.metric(lines=count, training_lines=training["source"], **_counts(found, self.near is not None))
        run.metric(most_lines_of_an_ngram=most)
        write_text(run.artifact / HITS, _hits(rows, lines))
        if scores is not None:
            run.metric(**self._difference(scores, rows))
        return Scores.of(rows)

    def _row(self, number: int, train: str, found: Mapping[Side, Overlap]) -> dict[str, Any]:
        row: dict[str, Any] = {"item_id": str(number), "model": train}
        for side, part in found.items():
            row |= {
                f"{side}_{name}": bool(getattr(part, name)[number])
                for name in ("exact", "ngram", "near", "kept", "short")
                if name != "near" or self.near is not None
            }
            row[f"{side}_share"] = float(part.share[number])
            row[f"{side}_match"] = part.shown[number]
            row[f"{side}_test_lines"] = int(part.test_lines[number])
            row[f"{side}_train_lines"] = int(part.train_lines[number])
        row["dirty"] = any(row[f"{side}_kept"] for side in found)
        if len(found) == 2:
            row["both_ngram"] = all(row[f"{side}_ngram"] for side in SIDES)
            row["both_kept"] = all(row[f"{side}_kept"] for side in SIDES)
        return row

    def _difference(self, scores: Scores, rows: list[dict[str, Any]]) -> dict[str, Any]:
        dirty = {row["item_id"]: row["dirty"] for row in rows}
        given = scores.rows()
        unknown = sorted({str(row["item_id"]) for row in given} - dirty.keys())
        if unknown:
            raise BadInput(
                f"{len(unknown)} scores are of no test line, the first is {unknown[0]!r}",
                f"item_id is the line's number, 0 to {len(rows) - 1}",
            )
        told: dict[str, Any] = {}
        for model in dict.fromkeys(str(row["model"]) for row in given):
            mine = [row for row in given if str(row["model"]) == model]
            for measure in _measures(scores):
                name = f"{measure}_{model}"
                lines = _by_line(mine, measure)
                sides = [[line for line in lines if dirty[line] == flag] for flag in (True, False)]
                for side, said in zip(sides, ("dirty", "clean"), strict=True):
                    told[f"{name}_{said}"] = float(np.mean([lines[line][0] for line in side])) if side else None
                    told[f"{name}_{said}_lines"] = len(side)
                if min(map(len, sides)) < 2:
                    told[f"{name}_gap_note"] = "no interval: it takes two lines of each kind that have a score"
                    continue
                values = [[lines[line][0] for line in side] for side in sides]
                labels = [[lines[line][1] for line in side] for side in sides]
                clustered = all(label is not None for side in labels for label in side)
                groups: dict[str, Any] = {"clusters": labels[0], "clusters_b": labels[1]} if clustered else {}
                gap = choose(values[0], values[1], paired=False, level=self.level, **groups).interval
                told |= {f"{name}_gap": gap.estimate, f"{name}_gap_low": gap.low, f"{name}_gap_high": gap.high}
                told |= {f"{name}_gap_method": gap.method} | ({f"{name}_gap_note": gap.note} if gap.note else {})
        return told


def _by_line(rows: list[dict[str, Any]], measure: str) -> dict[str, tuple[float, Any]]:
    """Each line's mean score and cluster; what has no score is left out."""
    found: dict[str, list[float]] = {}
    clusters: dict[str, Any] = {}
    for row in rows:
        value = row[measure]
        if value is not None and math.isfinite(value):
            found.setdefault(str(row["item_id"]), []).append(float(value))
            clusters[str(row["item_id"])] = row.get("cluster")
    return {line: (float(np.mean(values)), clusters[line]) for line, values in found.items()}


def _hits(rows: list[dict[str, Any]], lines: Mapping[Side, list[str]]) -> str:
    """Every hit in a table for people: those that are kept first, and of them the rarest n-grams."""
    found = []
    for number, row in enumerate(rows):
        for side in lines:
            ways = [way for way in ("exact", "ngram", "near") if row.get(f"{side}_{way}")]
            if ways:
                kept = row[f"{side}_kept"]
                figures = (row[f"{side}_test_lines"], row[f"{side}_train_lines"])
                cells = ("yes" if kept else "no", side, number, "+".join(ways), *figures)
                texts = (row[f"{side}_match"], lines[side][number].replace("\t", " "))
                found.append(((not kept, figures[0], number), (*cells, *texts)))
    head = ("kept", "side", "line", "by", "test lines with it", "training lines with it", "n-gram", "test line")
    table = [head, *(cells for _, cells in sorted(found, key=lambda hit: hit[0]))]
    return "".join("\t".join(map(str, cells)) + "\n" for cells in table)


def _measures(scores: Scores) -> list[str]:
    import pyarrow.types as kinds

    schema = scores.table.schema
    return [
        name
        for name in scores.measures
        if kinds.is_floating(schema.field(name).type)
        or kinds.is_integer(schema.field(name).type)
        or kinds.is_boolean(schema.field(name).type)
    ]


def _counts(found: Mapping[Side, Overlap], near: bool) -> dict[str, int]:
    told: dict[str, int] = {}
    for name in ("kept", "ngram", "exact", *(["near"] if near else []), "kept_ngram", "short"):
        parts = {side: getattr(part, name) for side, part in found.items()}
        told |= {f"{name}_{side}": int(flags.sum()) for side, flags in parts.items()}
        if len(parts) == 2 and name != "short":
            told[f"{name}_both"] = int((parts["source"] & parts["target"]).sum())
    told |= {f"mostly_{side}": int((part.share >= MOSTLY).sum()) for side, part in found.items()}
    return told
