"""Contamination inject: put test pairs into training data on purpose, so that what they inflate can be measured.

## How it works

Some test pairs are drawn, and copies of them are laid among the training pairs: only the source, only the target, or both, early,
late, or anywhere. The result is JSON lines to train on, and a manifest that says which line holds which test pair. A model that is
trained on it and one that is trained on the clean data (`copies` 0), branched from one base, differ by the contamination alone; the
test pairs that were not drawn are the control.

| setting | lines |
|---|---|
| position early, late | at random among the first, or last, `window` of the lines |
| position uniform | at random among all lines |
| mode source, target | the text is that side alone; both: `template` of the pair |

The same inputs, settings and seed give the same bytes.

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
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from burnish.core.errors import BadInput
from burnish.core.files import write_json
from burnish.core.method import Paper
from burnish.core.run import Run, ensure
from burnish.core.shapes import Evaluation
from burnish.data.overlap import read_lines
from burnish.data.scores import Table

DATA, MANIFEST = "contaminated.jsonl", "manifest.json"


class ContaminationInject(Evaluation):
    """Lay copies of test pairs among training pairs, with a manifest of every one."""

    paper: ClassVar[Paper | None] = Paper(
        title="Overestimation in LLM Evaluation: A Controlled Large-Scale Study on Data Contamination's Impact on "
        "Machine Translation",
        authors="Kocyigit, Briakou, Deutsch, Luo, Cherry, Freitag",
        year=2025,
        venue="ICML 2025",
        arxiv="2501.18771",
    )

    mode: Literal["source", "target", "both"] = "both"
    """Which side of a test pair is laid in."""
    pairs: Annotated[int, Field(ge=-1)] = 200
    """Test pairs, drawn at random; -1 for all. The others are the control."""
    copies: Annotated[int, Field(ge=0)] = 1
    """Copies of each; 0 makes the clean data in the same form."""
    position: Literal["early", "late", "uniform"] = "uniform"
    """Where they lie."""
    window: Annotated[float, Field(gt=0, le=1)] = 0.1
    """The part of the lines that is early, or late."""
    template: str = "{source}\t{target}"
    """The text of a pair; e.g. "Translate to German: {source}\\n{target}" for a prompt."""

    @model_validator(mode="after")
    def _template_names_both_sides(self) -> ContaminationInject:
        rest = self.template.replace("{source}", "", 1).replace("{target}", "", 1)
        if len(self.template) - len(rest) != len("{source}{target}") or "{" in rest or "}" in rest:
            raise ValueError("template: it holds {source} and {target} once each, and no other braces")
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
        data, tests = _pairs(train, train_target), _pairs(test, test_target)
        if self.pairs > len(tests):
            raise BadInput(
                f"the test set has {len(tests)} pairs, and {self.pairs} are asked for", f"--pairs {len(tests)}"
            )
        rng = run.rng("inject")
        chosen = np.sort(rng.permutation(len(tests))[: len(tests) if self.pairs == -1 else self.pairs]).tolist()
        laid = [(line, copy) for line in chosen for copy in range(self.copies)]
        laid = [laid[place] for place in rng.permutation(len(laid)).tolist()]
        places = self._places(len(data) + len(laid), len(laid), rng)
        at = dict(zip(places, laid, strict=True))
        run.artifact.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256()
        with (run.artifact / f".{DATA}.part").open("wb") as out:
            for line in self._lines(data, tests, at):
                digest.update(line)
                out.write(line)
        (run.artifact / f".{DATA}.part").replace(run.artifact / DATA)
        rows = [{"item_id": str(place), "test_line": at[place][0], "copy": at[place][1]} for place in places]
        files = {"train": train, "train_target": train_target, "test": test, "test_target": test_target}
        manifest = {
            "warning": "contaminated on purpose, for experiments only",
            "settings": self.settings(),
            "seed": run.seed,
            "inputs": {name: {"file": Path(path).name, "sha256": _digest(path)} for name, path in files.items()},
            "sha256": digest.hexdigest(),
            "lines": len(data) + len(laid),
            "injected": len(laid),
            "test_lines": chosen if self.copies else [],
            "places": rows,
        }
        write_json(run.artifact / MANIFEST, manifest)
        run.metric(lines=len(data) + len(laid), injected=len(laid), test_pairs=len(chosen) if self.copies else 0)
        run.metric(control_pairs=len(tests) - (len(chosen) if self.copies else 0), sha256=digest.hexdigest())
        return Table.of(rows)

    def _places(self, total: int, count: int, rng: np.random.Generator) -> list[int]:
        """`count` line numbers of the result, in order."""
        if self.position == "uniform":
            return np.sort(rng.choice(total, count, replace=False)).tolist()
        # Copies that do not fit in the window widen it.
        width = max(round(self.window * total), count)
        chosen = np.sort(rng.choice(width, count, replace=False))
        return (chosen if self.position == "early" else total - width + chosen).tolist()

    def _lines(
        self, data: list[tuple[str, str]], tests: list[tuple[str, str]], at: dict[int, tuple[int, int]]
    ) -> Iterator[bytes]:
        clean = iter(data)
        for number in range(len(data) + len(at)):
            injected = number in at
            source, target = tests[at[number][0]] if injected else next(clean)
            row: dict[str, Any] = {"text": self._text(source, target)}
            if injected and self.mode != "both":
                row = {"text": source if self.mode == "source" else target}
            row |= {} if injected and self.mode == "target" else {"source": source}
            row |= {} if injected and self.mode == "source" else {"target": target}
            yield json.dumps(row, ensure_ascii=False).encode() + b"\n"

    def _text(self, source: str, target: str) -> str:
        # Not str.format: a sentence may hold braces, and a template from a user should reach nothing else.
        before, _, after = self.template.partition("{source}")
        return f"{before.replace('{target}', target)}{source}{after.replace('{target}', target)}"


def _pairs(source: Path, target: Path) -> list[tuple[str, str]]:
    left, right = list(read_lines(source)), list(read_lines(target))
    if len(left) != len(right) or not left:
        raise BadInput(f"{source} has {len(left)} lines and {target} {len(right)}", "give two sides, line by line")
    return list(zip(left, right, strict=True))


def _digest(path: Path) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()
