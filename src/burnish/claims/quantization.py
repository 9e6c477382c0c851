"""How claims about weight quantizers are measured: every arm on the same calibration text, judged on the same windows.

One unit of work is an arm in one cell: quantize the model, then compare its next-token distributions with those of the
model as it was (`divergence`). Units are resumable: finished ones are kept, and a method that was stopped inside goes
on at its last finished block. A unit's folder carries a hash of all that its result depends on, so results of other
code, weights or text are never taken up.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pydantic import model_validator

from burnish.claims.base import Claim, Measured, Part, Scale
from burnish.claims.decide import Measure, Row
from burnish.claims.digest import digest
from burnish.core.claim import Arm, Evidence, Frozen
from burnish.core.errors import BadInput
from burnish.core.files import write_json
from burnish.core.method import Method
from burnish.core.run import Run, slug

if TYPE_CHECKING:
    from datasets import Dataset

    from burnish.models.model import Model

UNQUANTIZED = "fp"
"""Name of the arm that is the model as it was."""
TARGETS: dict[str, tuple[tuple[str, ...], str]] = {
    "qkv": (("q", "k", "v"), "q, k, v only"),
    "whole": ((), "whole model"),
}
"""What is quantized: the roles of the linears (none: all of every block), and its name for people."""
MEASURES = ("tokens", "nll", "kl", "top1", "base_nll")
"""Columns of the evaluation that become columns of the rows."""
FORMAT = "compressed-tensors"
"""Format in which an artifact is written."""


class Text(Frozen):
    """One source of text, with its part to calibrate on and its part to measure on."""

    name: str
    calib: str
    test: str
    targets: tuple[str, ...] = ()
    """What is quantized on this text; all of the design's targets when empty."""


class Design(Frozen):
    """Which cells are measured, and on how much text."""

    arms: tuple[str, ...]
    targets: tuple[str, ...]
    """Of `TARGETS`."""
    bits: tuple[int, ...]
    texts: tuple[Text, ...]
    seeds: tuple[int, ...] = (0,)
    """Of the choice of calibration windows."""
    calib: tuple[int, int]
    """Windows, and tokens of each."""
    test: tuple[int, int]
    """Windows, and tokens of each."""
    documents: int | None = None
    """Documents of each text that are read; all by default."""
    keep: str = ""
    """The arm whose model is written to the run's ``artifact``; it must be measured in one cell only."""

    @model_validator(mode="after")
    def _one_artifact(self) -> Self:
        cells = sum(len(text.targets or self.targets) for text in self.texts) * len(self.bits) * len(self.seeds)
        if self.keep and (self.keep not in self.arms or cells > 1):
            raise ValueError(f"keep: {self.keep!r} must be an arm that is measured in one cell, and there are {cells}")
        return self


@dataclass(frozen=True)
class Job:
    """One arm in one cell."""

    arm: Arm
    method: Method
    cell: dict[str, Any]
    text: Text
    calibrated: bool

    @property
    def name(self) -> str:
        """The name of its folder, but for the hash."""
        seed = f"-seed{self.cell['seed']}" if "seed" in self.cell else ""
        return f"{self.arm.name}-{self.cell['target']}-{self.cell['bits']}bits-{self.cell['data']}{seed}"


class QuantizationClaim(Claim):
    """A claim about methods that make a model's weights coarser and leave everything else alone."""

    designs: dict[Scale, Design]
    shown: dict[str, Any]
    """The cell that stands for all in a one-line summary; chosen before anything was measured."""
    cells: tuple[str, ...] = ("target", "bits", "data", "seed")
    measures: tuple[Measure, ...] = (
        Measure(name="perplexity", column="nll", transform="exp"),
        Measure(name="kl", column="kl"),
        Measure(name="top1", column="top1"),
    )
    tools: tuple[str, ...] = ("divergence",)
    code: tuple[str, ...] = ("burnish.claims.quantization",)

    def declaration(self) -> dict[str, Any]:
        """With the design of the full scale."""
        return {**super().declaration(), "design": self.designs["full"].model_dump()}

    def label(self, arm: str, cell: Mapping[str, Any]) -> str:
        """E.g. "boa, 3 bits, whole model, wikitext2, seed 0"."""
        words = ["unquantized" if arm == UNQUANTIZED else arm]
        words += [f"{cell['bits']} bits"] if "bits" in cell else []
        words += [TARGETS[cell["target"]][1]] if "target" in cell else []
        words += [str(cell["data"])] if "data" in cell else []
        words += [f"seed {cell['seed']}"] if "seed" in cell else []
        return ", ".join(words)

    def jobs(self, design: Design) -> list[Job]:
        """Every arm in every cell on which it depends, so ordered that one cell's arms come together.

        Raises:
            BadInput: settings that a method does not take, for all arms at once.
        """
        from burnish import catalogue

        arms = [arm for arm in self.arms if arm.name in design.arms]
        classes = {arm.name: catalogue.load(arm.use) for arm in arms}
        found: dict[str, Job] = {}
        wrong: list[str] = []
        for text in design.texts:
            for target in text.targets or design.targets:
                for bits in design.bits:
                    for seed in design.seeds:
                        for arm in arms:
                            cls = classes[arm.name]
                            cell = {"target": target, "bits": bits, "data": text.name}
                            try:
                                method = cls.build(_settings(cls, arm, design, {**cell, "seed": seed}))
                            except BadInput as error:
                                wrong += [f"{arm.name}: {line.strip()}" for line in error.problem.splitlines()[1:]]
                                continue
                            calibrated = _reads_calibration(method)
                            cell |= {"seed": seed} if calibrated else {}
                            job = Job(arm, method, cell, text, calibrated)
                            found.setdefault(job.name, job)
        if wrong:
            raise BadInput.of(f"arms of the claim {self.name!r} have wrong settings", list(dict.fromkeys(wrong)))
        return list(found.values())

    def measure(self, model: str, run: Run, scale: Scale, *, device: str = "auto", dtype: str = "auto") -> Measured:
        """Quantize the model and measure it, once for each arm and cell."""
        from burnish import catalogue

        design = self.designs[scale]
        jobs = self.jobs(design)
        kept = next((job for job in jobs if job.arm.name == design.keep), None)
        if kept:
            check_format(kept.method)
        samples, length = design.test
        evaluate = catalogue.load("divergence").build({"samples": samples, "length": length})
        code = {use: _digest(use) for use in {*(job.arm.use for job in jobs), *self.tools}}
        sources = [source for text in design.texts for source in (text.calib, text.test)]
        texts = {source: read_text(source, design.documents) for source in sources}
        read = {source: describe(text) for source, text in texts.items()}
        base = load_model(model, device, dtype)
        origin = hash_of(base)
        fixed = {
            "weights": origin,
            "dtype": dtype,
            "texts": read,
            "test": evaluate.settings(),
            "evaluation": code["divergence"],
        }

        measured = Measured(rows=[], lineage=base.lineage.lines(), data=read)
        layers: list[dict[str, Any]] = []
        for number, job in enumerate(jobs, 1):
            run.metric(arm=f"{number} of {len(jobs)}")
            depends = {**fixed, "settings": job.method.settings(), "method": code[job.arm.use]}
            part = run.sub(f"{slug(job.name)}-{_short(depends)}")
            artifact = run.artifact if job is kept else None
            if artifact is not None and not artifact.exists():
                (part.folder / "once.jsonl").unlink(missing_ok=True)
            found = part.once("arm", partial(_one, job, evaluate, base, texts, part, artifact))
            # Finished blocks are kept for an arm that was stopped; this one is done, and they may fill a disk.
            shutil.rmtree(part.folder / "blobs", ignore_errors=True)
            if job.text.name not in {row["data"] for row in measured.rows}:
                cell = {"data": job.text.name}
                measured.rows.extend(_unquantized(found["rows"], cell))
                measured.parts.append(Part(UNQUANTIZED, cell, 0.0, origin))
            measured.rows.extend(
                {"item_id": row["item_id"], "arm": job.arm.name, **job.cell, **row} for row in found["rows"]
            )
            measured.parts.append(Part(job.arm.name, job.cell, found["seconds"], found["weights"]))
            layers += _layers(part.folder / "layers.json", self.label(job.arm.name, job.cell))
        if layers:
            write_json(run.folder / "layers.json", layers)
        if kept:
            write_json(run.folder / "sizes.json", sizes(base, run.artifact))
        return measured

    def ours(self, evidence: Evidence) -> str:
        """Perplexities in the shown cell, where it was measured, and how many criteria hold."""
        shown = []
        for result in evidence.arms:
            if all(self.shown.get(name) == value for name, value in result.cell.items()):
                name = "unquantized" if result.arm == UNQUANTIZED else result.arm
                shown.append(f"{name} {result.measures['perplexity']['estimate']:.4g}")
        if not any(result.arm != UNQUANTIZED and result.cell == self.shown for result in evidence.arms):
            return super().ours(evidence)
        where = self.label("", self.shown).removeprefix(", ")
        return f"{where}: perplexity {', '.join(shown)}; {super().ours(evidence)}"


def _reads_calibration(method: Method) -> bool:
    """Whether a method's result depends on calibration text: it needs some, or says that its settings make it so."""
    needed = any(good.name == "calib" and good.required for good in method.goods())
    return needed or bool(getattr(method, "reads_calibration", False))


def _settings(cls: type[Method], arm: Arm, design: Design, cell: Mapping[str, Any]) -> dict[str, Any]:
    """The arm's own settings, those of the cell, and of the design's those that the method has."""
    samples, length = design.calib
    optional = {"samples": samples, "length": length, "calib_seed": cell.get("seed", 0)}
    known = {name: value for name, value in optional.items() if name in cls.model_fields}
    return {**arm.settings, "bits": cell["bits"], "layers": TARGETS[cell["target"]][0], **known}


def _one(
    job: Job, evaluate: Method, base: Model, texts: Mapping[str, Dataset], part: Run, artifact: Path | None
) -> dict[str, Any]:
    """Quantize and measure: rows without arm and cell, seconds of quantizing, hash of the weights."""
    # Blocks that an interrupted attempt finished are not done again; their seconds count.
    before = sum(event["seconds"] for event in part.events("link"))
    began = time.monotonic()
    goods = {"calib": texts[job.text.calib]} if job.calibrated else {}
    model = job.method(base, **goods, run=part)  # type: ignore[operator]
    seconds = before + time.monotonic() - began
    scores = evaluate(model, text=texts[job.text.test], against=base, run=part.sub("test"))  # type: ignore[operator]
    rows = [
        {"item_id": f"{job.text.name}/{row['item_id']}", **{name: row[name] for name in MEASURES}}
        for row in scores.rows()
    ]
    if artifact is not None:
        shutil.rmtree(artifact, ignore_errors=True)
        write_model(model, artifact)
    return {"rows": rows, "seconds": round(seconds, 2), "weights": hash_of(model)}


def _unquantized(rows: list[Row], cell: Mapping[str, Any]) -> list[Row]:
    """Rows of the model as it was, from the base values beside another arm's."""
    return [
        {"item_id": row["item_id"], "arm": UNQUANTIZED, **cell, "tokens": row["tokens"], "nll": row["base_nll"]}
        for row in rows
    ]


def _layers(path: Path, label: str) -> list[dict[str, Any]]:
    """The layers' errors that a method recorded, if it did, under the arm's label."""
    if not path.is_file():
        return []
    rows = json.loads(path.read_text(encoding="utf-8"))
    return [{**row, "arm": label} for row in rows if "error" in row]


def _digest(method: str) -> str:
    from burnish import catalogue

    return digest(catalogue.find(method).target.partition(":")[0])


def _short(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:10]


# -- models and texts, whose packages are imported only when something is measured ---------------------------------


def read_text(source: str, documents: int | None = None) -> Dataset:
    """The first documents of a text, or all, by the name that `burnish.data.text.read` takes."""
    from burnish.data.text import read

    text = read(source)
    return text if documents is None else text.select(range(min(documents, len(text))))


def describe(text: Dataset) -> str:
    """What was read, exactly: source, size and digest."""
    from burnish.data.text import provenance

    facts = provenance(text)
    return f"{facts['source']}: {facts['documents']} documents, {facts['characters']} characters, SHA-256 {facts['sha256']}"


def load_model(source: str, device: str, dtype: str) -> Model:
    """A model by the name that `burnish.models.load` takes."""
    from burnish.models.loading import load

    return load(source, device=device, dtype=dtype)


def hash_of(model: Model) -> str:
    """Hash of a model's weights."""
    from burnish.models.model import weight_hash

    return weight_hash(model)


def check_format(method: Method) -> None:
    """Refuse a method whose model could not be written afterwards."""
    from burnish.models import check_export

    check_export(method, FORMAT)


def write_model(model: Model, folder: Path) -> None:
    """Write a quantized model as ordinary files."""
    from burnish.models import export

    export(model, folder, FORMAT)


def sizes(base: Model, artifact: Path) -> dict[str, int]:
    """Bytes of the weights, before and after; what lies beside them (tokenizer, reload check) is not counted."""
    weights = sum(parameter.numel() for parameter in base.net.parameters())
    written = sum(path.stat().st_size for path in artifact.glob("model*.safetensors"))
    return {
        "float32 checkpoint": 4 * weights,
        "float16 checkpoint": 2 * weights,
        f"artifact ({FORMAT})": written,
    }
