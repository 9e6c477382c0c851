"""Contamination inject: put test pairs into training data on purpose, so that what they inflate can be measured.

## How it works

Some test pairs are drawn, and copies of them are laid among the training pairs: only the source, only the target, or both, early,
late, or anywhere. The result is JSON lines to train on, and a manifest that says which line holds which test pair. A model that is
trained on it and one that is trained on the clean data (`copies` 0), branched from one base, differ by the contamination alone; the
test pairs that were not drawn are the control.

| setting | lines |
|---|---|
| position early, late | at random among the first, or last, `window` of the lines; copies that do not fit there widen it |
| position uniform | at random among all lines |
| mode source, target | the text is that side alone; both: `template` of the pair |

The same inputs, settings and seed give the same bytes. The figure `window` is the share of the lines among which the copies
came to lie; where that is more than was asked for, `widened` says so.

## Differences

The order of the training pairs is kept. The manifest also holds the digests of all inputs.

## When not to use it

To publish a data set: a contaminated corpus should never leave the experiment. The manifest's name for it says so.

## References

Kocyigit et al. 2025: modes, formats, copies and positions.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from burnish.core.files import sha256, write_json
from burnish.core.method import Paper
from burnish.core.run import Run, ensure
from burnish.core.shapes import Evaluation
from burnish.data.injection import (
    Injection,
    Mode,
    Pair,
    Position,
    check_template,
    draw,
    read_pairs,
    text_of,
)
from burnish.data.scores import Table
from burnish.evaluate.contamination import PAPER

DATA, MANIFEST = "contaminated.jsonl", "manifest.json"


class ContaminationInject(Evaluation):
    """Lay copies of test pairs among training pairs, with a manifest of every one."""

    paper: ClassVar[Paper | None] = PAPER

    mode: Mode = "both"
    """Which side of a test pair is laid in."""
    pairs: Annotated[int, Field(ge=-1)] = 200
    """Test pairs, drawn at random; -1 for all. The others are the control."""
    copies: Annotated[int, Field(ge=0)] = 1
    """Copies of each; 0 makes the clean data in the same form."""
    position: Position = "uniform"
    """Where they lie."""
    window: Annotated[float, Field(gt=0, le=1)] = 0.1
    """The part of the lines that is early, or late."""
    template: str = "{source}\t{target}"
    """The text of a pair; e.g. "Translate to German: {source}\\n{target}" for a prompt."""

    @model_validator(mode="after")
    def _template_names_both_sides(self) -> ContaminationInject:
        check_template(self.template)
        return self

    def __call__(self, train: Path, train_target: Path, test: Path, test_target: Path, run: Run | None = None) -> Table:
        """Inject.

        Args:
            train: The training data's source side: a text with a sentence a line, plain or .gz.
            train_target: Its target side.
            test: The test set's source side.
            test_target: Its target side.
            run: Its artifact holds contaminated.jsonl (text; source and target where they are laid in) and manifest.json.

        Returns:
            A row for each injected line: item_id (its number in the result, from 0), test_line (from 0), copy.

        Raises:
            BadInput: files that cannot be read, sides of different length, fewer test pairs than are asked for.
        """
        run = ensure(run)
        data, tests = read_pairs(train, train_target), read_pairs(test, test_target)
        drawn = draw(len(data), len(tests), self.pairs, self.copies, self.position, self.window, run.rng("inject"))
        chosen = drawn.chosen if self.copies else []
        run.artifact.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256()
        with (run.artifact / f".{DATA}.part").open("wb") as out:
            for line in self._lines(drawn, data, tests):
                digest.update(line)
                out.write(line)
        (run.artifact / f".{DATA}.part").replace(run.artifact / DATA)
        rows = [{"item_id": str(place), "test_line": line, "copy": copy} for place, (line, copy) in drawn.at.items()]
        files = {"train": train, "train_target": train_target, "test": test, "test_target": test_target}
        manifest = {
            "warning": "contaminated on purpose, for experiments only",
            "settings": self.settings(),
            "seed": run.seed,
            "inputs": {name: {"file": Path(path).name, "sha256": sha256(path)} for name, path in files.items()},
            "sha256": digest.hexdigest(),
            "lines": drawn.lines,
            "injected": len(rows),
            "window": drawn.window,
            "test_lines": chosen,
            "places": rows,
        }
        write_json(run.artifact / MANIFEST, manifest)
        run.metric(lines=drawn.lines, injected=len(rows), test_pairs=len(chosen))
        run.metric(control_pairs=len(tests) - len(chosen), sha256=digest.hexdigest(), window=drawn.window)
        if widened := drawn.widened(self.position, self.window):
            run.metric(widened=widened)
        return Table.of(rows)

    def _lines(self, drawn: Injection, data: list[Pair], tests: list[Pair]) -> Iterator[bytes]:
        for pair, injected in drawn.lay(data, tests):
            mode = self.mode if injected else "both"
            row = {"text": text_of(self.template, mode, pair)}
            row |= {} if mode == "target" else {"source": pair[0]}
            row |= {} if mode == "source" else {"target": pair[1]}
            yield json.dumps(row, ensure_ascii=False).encode() + b"\n"
