"""The claim about training with one to four bits: QuEST ends lower than a learned step and than the straight-through estimator.

## What is compared

A Llama of about a million parameters is trained from nothing on Python's documentation, with weights and activations of all
linear layers of its blocks at 4, 2 and 1 bits from the first step: by QuEST, by a learned step (LSQ) with one step a tensor, as
published and as the paper has it, by the straight-through estimator on QuEST's grid without rotation and trust, and unrounded.
All arms read the same windows in the same order from the same first weights, in single precision, as often as they have seeds.

Every arm tries the same learning rates, with first weights and an order that are used for nothing else. The rate with the
lowest loss on validation text is taken; then each seed is trained with it and measured once on test text. The item of the
claim is a seed: losses on the same test text, paired, so that intervals (Student's t over seeds) say what other first weights
and another order would do, and nothing of other texts.

Shown, and deciding nothing: a learned step for each row of a weight, the fairer rival of grids that follow each row.

## What must hold

* At 2 and at 1 bits QuEST's loss is below LSQ's, and below the straight-through estimator's.
* At 4 bits what QuEST loses to full precision is at most 35 % of what the straight-through estimator loses.
* At 1 bit QuEST ends below a prediction by the tokens' frequencies alone: it does not diverge.

## Differences

The paper trains 30 million parameters and more on 100 tokens a parameter; here it is a fifth of a token a parameter. The
vocabulary is of 512 tokens, and the learning rate is searched where the paper fixes it.

## References

Panferov et al., QuEST, ICML 2025, arXiv 2502.05003, table of losses at 30 million parameters.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Literal

from burnish.claims.base import Claim, Measured, Part, Scale
from burnish.claims.decide import Measure, Row
from burnish.claims.digest import digest
from burnish.core.claim import Arm, Criterion, Evidence, Figure, Frozen
from burnish.core.method import Paper
from burnish.core.run import Run

METHOD = "pretrain"
WHOLE, QUEST, LSQ, ROW, STE = "full precision", "quest", "lsq", "lsq, a step a row", "straight-through"
FREQUENCIES = "token frequencies"
QUANTIZERS = {QUEST: "quest", LSQ: "lsq", ROW: "lsq-row", STE: "ste"}
"""Arm to the method's quantizer."""
TUNING = 1_000
"""Seed with which rates are tried; the others count from 0."""
SHARE = 0.35
"""How much of the straight-through estimator's loss QuEST may lose at 4 bits."""
TEXTS = {"train": "builtin:calibration", "validation": "builtin:validation", "test": "builtin:test"}


class Design(Frozen):
    """How much is trained and measured."""

    bits: tuple[int, ...]
    seeds: int
    rates: tuple[float, ...]
    settings: dict[str, Any]
    """Of the method."""
    windows: int
    """Of validation text, and of test text."""
    documents: int | None = None
    """Of each text; None for all."""


class Job(Frozen):
    """One training."""

    arm: str
    bits: int
    """16 for full precision."""
    seed: int
    rate: float

    @property
    def name(self) -> str:
        """The same in every run of the same design."""
        return f"{self.arm}-{self.bits}-seed{self.seed}-rate{self.rate:g}"


class QuestClaim(Claim):
    """A claim about training with few bits, measured on models that are trained for it."""

    designs: dict[Scale, Design]
    cells: tuple[str, ...] = ("bits",)
    measures: tuple[Measure, ...] = (
        Measure(name="test loss, nats a token", column="loss"),
        Measure(name="perplexity", column="loss", transform="exp"),
        Measure(name="learning rate", column="rate"),
    )
    code: tuple[str, ...] = ("burnish.claims.quest", "burnish.claims.decide")
    default_model: str = ""

    def declaration(self) -> dict[str, Any]:
        """With the design of the full scale."""
        return {**super().declaration(), "design": self.designs["full"].model_dump()}

    def measure(self, model: str, run: Run, scale: Scale, *, device: str = "auto", dtype: str = "auto") -> Measured:
        """Try the rates, and train every arm with the best; no model is loaded, and no training is done twice."""
        from burnish import catalogue
        from burnish.data.text import provenance

        design = self.designs[scale]
        read_of = {name: provenance(_text(name, design)) for name in TEXTS}
        texts = {name: facts["sha256"] for name, facts in read_of.items()}
        depends = [design.model_dump(), texts, digest(catalogue.module_of(METHOD))]
        part = run.sub(f"train-{hashlib.sha256(json.dumps(depends).encode()).hexdigest()[:10]}")
        cells = [(WHOLE, 16), *((arm, bits) for bits in design.bits for arm in QUANTIZERS)]
        rates = self._rates(cells, design, part)
        jobs = [
            Job(arm=arm, bits=bits, seed=seed, rate=rates[arm, bits])
            for arm, bits in cells
            for seed in range(design.seeds)
        ]
        results = _all(jobs, "test", design, part)
        data = {TEXTS[name]: f"SHA-256 {facts['sha256']}" for name, facts in read_of.items()}
        measured = Measured(rows=list(_rows(jobs, results)), data=data)
        for arm, bits in cells:
            spent = sum(
                found["seconds"] for job, found in zip(jobs, results, strict=True) if (job.arm, job.bits) == (arm, bits)
            )
            measured.parts.append(Part(arm, {} if arm == WHOLE else {"bits": bits}, round(spent, 1)))
        measured.lineage.append(f"{results[0]['parameters']} parameters, trained from nothing")
        return measured

    def label(self, arm: str, cell: Mapping[str, Any]) -> str:
        """E.g. "quest, W2A2"."""
        return f"{arm}, W{cell['bits']}A{cell['bits']}" if "bits" in cell else arm

    def ours(self, evidence: Evidence) -> str:
        """Test losses of all arms, by bits."""
        shown: dict[str, list[str]] = {}
        for found in evidence.arms:
            cell = f"W{found.cell['bits']}A{found.cell['bits']}" if "bits" in found.cell else ""
            value = found.measures["test loss, nats a token"]["estimate"]
            shown.setdefault(cell, []).append(f"{found.arm} {value:.3f}")
        parts = [f"{cell}: {', '.join(arms)}" if cell else ", ".join(arms) for cell, arms in shown.items()]
        return f"test loss, {'; '.join(parts)}; {super().ours(evidence)}"

    def _rates(self, cells: list[tuple[str, int]], design: Design, part: Run) -> dict[tuple[str, int], float]:
        """The rate of each arm with the lowest loss on validation text; where one alone is tried, that one."""
        if len(design.rates) == 1:
            return dict.fromkeys(cells, design.rates[0])
        tried = [Job(arm=arm, bits=bits, seed=TUNING, rate=rate) for arm, bits in cells for rate in design.rates]
        losses = [found["loss"] for found in _all(tried, "validation", design, part)]
        found = {}
        for cell in cells:
            own = [(loss, job.rate) for loss, job in zip(losses, tried, strict=True) if (job.arm, job.bits) == cell]
            found[cell] = min(own)[1]
            part.event("rate", arm=cell[0], bits=cell[1], losses={f"{rate:g}": loss for loss, rate in own})
        return found


def _all(jobs: list[Job], text: str, design: Design, part: Run) -> list[dict[str, Any]]:
    """What each training came to on a text; as many at once as there are CPUs, each on one."""
    work = partial(train, text=text, design=design)
    at_once = max(1, min(os.cpu_count() or 1, len(jobs))) if design.settings["steps"] > 100 else 1
    return list(part.map(work, jobs, key=lambda job: job.name, step=f"training, {text}", jobs=at_once))


def train(job: Job, text: str, design: Design) -> dict[str, Any]:
    """One training, on one CPU so that its sums do not depend on how many are done at once.

    Args:
        job: What is trained.
        text: Of `TEXTS`: what its loss is measured on.
        design: How.

    Returns:
        loss (infinite where training ended in no number), frequencies (the loss of predicting by token frequencies),
        parameters, seconds.
    """
    import torch

    from burnish import catalogue
    from burnish.core.errors import BadInput
    from burnish.data.windows import windows
    from burnish.train.pretrain import held_loss

    began, threads = time.monotonic(), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        rounded = {} if job.arm == WHOLE else {"bits": job.bits, "a_bits": job.bits, "quantizer": QUANTIZERS[job.arm]}
        settings = {
            **design.settings,
            **rounded,
            "draw": job.seed,
            "rate": job.rate,
            "precision": "float32",
            "on": "cpu",
        }
        method: Any = catalogue.load(METHOD).build(settings)
        data = _text("train", design)
        try:
            model = method(data)
        except BadInput as error:
            if "no number" not in error.problem and " is nan" not in error.problem and " is inf" not in error.problem:
                raise
            return {"loss": math.inf, "frequencies": 0.0, "parameters": 0, "seconds": time.monotonic() - began}
        tokens = windows(model.tokenizer, _text(text, design), design.windows, method.length, seed=0)
        counts = torch.bincount(
            windows(model.tokenizer, data, -1, method.length).flatten(), minlength=len(model.tokenizer)
        )
        logs = ((counts + 1) / (counts + 1).sum()).log()
        return {
            "loss": held_loss(model.net, tokens),
            "frequencies": -float(logs[tokens[:, 1:]].mean()),
            "parameters": sum(weight.numel() for weight in model.net.parameters()),
            "seconds": round(time.monotonic() - began, 1),
        }
    finally:
        torch.set_num_threads(threads)


def _text(name: str, design: Design) -> Any:
    from burnish.data.text import read

    data = read(TEXTS[name])
    return data if design.documents is None else data.select(range(design.documents))


def _rows(jobs: list[Job], results: list[dict[str, Any]]) -> Iterator[Row]:
    """A row a seed of each arm, with the loss of full precision beside it."""
    pairs = list(zip(jobs, results, strict=True))
    base = {job.seed: found["loss"] for job, found in pairs if job.arm == WHOLE}
    for job, found in pairs:
        row: Row = {"item_id": f"seed {job.seed}", "arm": job.arm, "loss": found["loss"], "rate": job.rate}
        yield {**row, "base_loss": base[job.seed], **({} if job.arm == WHOLE else {"bits": job.bits})}
        if job.arm == WHOLE:
            yield {"item_id": f"seed {job.seed}", "arm": FREQUENCIES, "loss": found["frequencies"]}


def _criteria(bits: tuple[int, ...]) -> tuple[Criterion, ...]:
    found = []
    for width in (b for b in bits if b < 4):
        for other in (LSQ, STE):
            text = f"W{width}A{width}: QuEST's test loss is below that of {other}."
            found.append(
                _below(f"quest < {other}, {width} bit{'s' * (width > 1)}", text, other, "difference", 0.0, width)
            )
    if 4 in bits:
        text = f"W4A4: QuEST loses at most {SHARE:.0%} of what the straight-through estimator loses to full precision."
        found.append(_below("gap at 4 bits", text, STE, "excess_ratio", SHARE, 4))
    if 1 in bits:
        text = "W1A1: QuEST ends below a prediction by token frequencies."
        found.append(_below("1 bit learns", text, FREQUENCIES, "difference", 0.0, 1))
    return tuple(found)


def _below(
    name: str, text: str, against: str, statistic: Literal["difference", "excess_ratio"], margin: float, bits: int
) -> Criterion:
    return Criterion(
        name=name,
        text=text,
        statistic=statistic,
        measure="loss",
        arm=QUEST,
        against=against,
        where={"bits": bits},
        margin=margin,
    )


_LLAMA = {"width": 128, "layers": 4, "heads": 4, "mlp": 384, "tied": False, "vocabulary": 512, "length": 128}
"""About 0.98 million parameters; 128 is the Hadamard block, as in the paper."""

CLAIM = QuestClaim(
    name="quest",
    title="training with 1 to 4 bits",
    sentence=(
        "Trained from nothing with 1- and 2-bit weights and activations, a Llama ends lower by QuEST than by a learned step or "
        "the straight-through estimator, and at 4 bits QuEST loses about a third of what the latter loses, or less."
    ),
    paper=Paper(
        title="QuEST: Stable Training of LLMs with 1-Bit Weights and Activations",
        authors="Panferov, Chen, Tabesh, Castro, Nikdan, Alistarh",
        year=2025,
        venue="ICML 2025",
        arxiv="2502.05003",
    ),
    figures=(
        Figure(
            where="30M parameters, C4, W2A2",
            numbers={"full precision": 3.207, "QuEST": 3.574, "LSQ": 3.60, "straight-through": 4.79},
            measure="loss",
        ),
        Figure(
            where="30M parameters, C4, W1A1",
            numbers={"full precision": 3.207, "QuEST": 3.945, "LSQ": 3.99, "straight-through": 5.26},
            measure="loss",
        ),
        Figure(
            where="30M parameters, C4, W4A4",
            numbers={"full precision": 3.207, "QuEST": 3.272, "LSQ": 3.31, "straight-through": 3.79},
            measure="loss",
        ),
    ),
    arms=(
        Arm(name=WHOLE, use=METHOD, baseline=True),
        *(
            Arm(name=arm, use=METHOD, settings={"quantizer": kind}, baseline=arm != QUEST)
            for arm, kind in QUANTIZERS.items()
        ),
    ),
    criteria=_criteria((4, 2, 1)),
    smaller={"smoke": _criteria((4, 2, 1)), "demo": _criteria((2,))},
    designs={
        # About 75 minutes of one core: 39 trainings to choose rates, and 52 that are measured.
        "full": Design(
            bits=(4, 2, 1),
            seeds=4,
            rates=(1e-3, 3e-3, 1e-2),
            settings={**_LLAMA, "steps": 400, "batch": 4},
            windows=128,
        ),
        "demo": Design(bits=(2,), seeds=3, rates=(3e-3,), settings={**_LLAMA, "steps": 400, "batch": 4}, windows=64),
        "smoke": Design(
            bits=(4, 2, 1),
            seeds=2,
            rates=(1e-3, 3e-3),
            settings={
                **_LLAMA,
                "width": 16,
                "layers": 1,
                "heads": 2,
                "mlp": 32,
                "vocabulary": 300,
                "length": 32,
                "held": 4,
                "steps": 6,
                "batch": 2,
            },
            windows=4,
            documents=3,
        ),
    },
)
