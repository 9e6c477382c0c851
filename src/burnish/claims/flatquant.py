"""The claim of FlatQuant: learned affine transforms make 4-bit weights and activations cost far less than Hadamard rotations do.

## What is compared
Arms share calibration windows, test windows and evaluation; weights lie on one symmetric grid a row, activations on one a token.
Every arm has its paper's settings: SmoothQuant with half of the outliers moved; QuaRot rounding to nearest with a range search, and by
GPTQ; FlatQuant rounding to nearest, as the paper's headline does. They are fixed beforehand.

Two cells: the cache of keys and values as it is, and at 4 bits. SmoothQuant never rounds the cache, which in the second cell is to its
advantage.

## What must hold
In every cell and calibration seed: the mean KL divergence from the unquantized model is lower for FlatQuant than for QuaRot (either
way of rounding), and for QuaRot rounding to nearest than for SmoothQuant, with an interval that leaves out 0; and FlatQuant takes away
at least 40 % of the log-perplexity that QuaRot, rounding to nearest as FlatQuant does, adds. In the paper it takes away about 80 % on a
model of 8 billion parameters: (6.98 - 6.14) against (10.60 - 6.14).

## References
Sun et al., FlatQuant: Flatness Matters for LLM Quantization, ICML 2025, arXiv 2410.09426.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from burnish.claims.base import Scale
from burnish.claims.boa import BUILTIN, WIKITEXT2
from burnish.claims.quantization import Design, Job, QuantizationClaim
from burnish.core.claim import Arm, Criterion, Figure
from burnish.core.method import Paper

LEFT = 0.6
"""What FlatQuant may add of the log-perplexity that QuaRot adds."""
CACHES = (16, 4)
"""Bits of keys and values, by cell."""

ARMS = (
    Arm(name="smoothquant", use="smoothquant", settings={"a_bits": 4, "alpha": 0.5}, baseline=True),
    Arm(name="quarot", use="quarot", settings={"a_bits": 4, "weights": "rtn"}, baseline=True),
    Arm(name="quarot-gptq", use="quarot", settings={"a_bits": 4, "weights": "gptq"}, baseline=True),
    Arm(name="flatquant", use="flatquant", settings={"a_bits": 4, "weights": "rtn"}),
)
NAMES = {
    "smoothquant": "SmoothQuant",
    "quarot": "QuaRot, rounding to nearest,",
    "quarot-gptq": "QuaRot by GPTQ",
    "flatquant": "FlatQuant",
}
ORDER = (("flatquant", "quarot"), ("flatquant", "quarot-gptq"), ("quarot", "smoothquant"))

FULL = Design(
    arms=tuple(arm.name for arm in ARMS),
    targets=("whole",),
    bits=(4,),
    texts=(WIKITEXT2,),
    seeds=(0, 1),
    calib=(32, 256),
    test=(24, 512),
)
DEMO = FULL.model_copy(update={"texts": (BUILTIN,), "seeds": (0,)})
SMOKE = Design(
    arms=FULL.arms, targets=("whole",), bits=(4,), texts=(BUILTIN,), calib=(8, 64), test=(24, 64), documents=20
)
SMOKE_EPOCHS = 2


@dataclass(frozen=True)
class CacheJob(Job):
    """One arm in one cell; cells differ in the bits of the cache too."""

    @property
    def name(self) -> str:
        """The name of its folder, but for the hash."""
        kv = f"-kv{self.cell['kv']}" if "kv" in self.cell else ""
        return super().name + kv


class ActivationClaim(QuantizationClaim):
    """A claim about methods that make weights, activations and cache coarser, in cells by the bits of the cache."""

    cells: tuple[str, ...] = ("target", "bits", "kv", "data", "seed")

    def label(self, arm: str, cell: Mapping[str, Any]) -> str:
        """E.g. "flatquant, W4A4, cache at 4 bits, wikitext2, seed 0"."""
        words = ["unquantized" if arm == "fp" else arm]
        words += [f"W{cell['bits']}A4"] if "bits" in cell else []
        if "kv" in cell:
            words.append("cache as it is" if cell["kv"] == 16 else f"cache at {cell['kv']} bits")
        words += [str(cell["data"])] if "data" in cell else []
        words += [f"seed {cell['seed']}"] if "seed" in cell else []
        return ", ".join(words)

    def jobs(self, design: Design) -> list[Job]:
        """Every arm in every cell on which it depends; the cache's bits are no setting of SmoothQuant."""
        from burnish import catalogue

        samples, length = design.calib
        arms = [arm for arm in self.arms if arm.name in design.arms]
        found: dict[str, Job] = {}
        for text, bits, seed, kv, arm in product(design.texts, design.bits, design.seeds, CACHES, arms):
            cls = catalogue.load(arm.use)
            given: dict[str, Any] = {"samples": samples, "length": length, "calib_seed": seed, "kv_bits": kv}
            if design is self.designs.get("smoke"):
                given["epochs"] = SMOKE_EPOCHS
            known = {name: value for name, value in given.items() if name in cls.model_fields}
            method = cls.build({**arm.settings, "bits": bits, **known})
            calibrated = arm.name != "quarot"
            cell = {"target": "whole", "bits": bits, "data": text.name}
            cell |= {"kv": kv} if "kv_bits" in cls.model_fields else {}
            cell |= {"seed": seed} if calibrated else {}
            job = CacheJob(arm, method, cell, text, calibrated)
            found.setdefault(job.name, job)
        return list(found.values())


def _cells(design: Design) -> list[dict[str, Any]]:
    return [
        {"target": "whole", "bits": bits, "kv": kv, "data": text.name, "seed": seed}
        for text, bits, kv, seed in product(design.texts, design.bits, CACHES, design.seeds)
    ]


def _criteria(design: Design) -> tuple[Criterion, ...]:
    found = []
    for cell in _cells(design):
        cache = "the cache as it is" if cell["kv"] == 16 else f"a cache of {cell['kv']} bits"
        said = f"4-bit weights and activations, {cache}, {cell['data']}, calibration seed {cell['seed']}"
        place = f"kv{cell['kv']}, {cell['data']}, seed {cell['seed']}"
        found += [
            Criterion(
                name=f"kl {arm} < {against} ({place})",
                text=f"{said}: {NAMES[arm]}'s KL divergence is lower than that of {NAMES[against].rstrip(',')}.",
                statistic="difference",
                measure="kl",
                arm=arm,
                against=against,
                where=cell,
            )
            for arm, against in ORDER
        ]
        found.append(
            Criterion(
                name=f"excess nll flatquant / quarot < {LEFT} ({place})",
                text=f"{said}: FlatQuant takes away at least 40 % of the log-perplexity that QuaRot adds.",
                statistic="excess_ratio",
                measure="nll",
                arm="flatquant",
                against="quarot",
                where=cell,
                margin=LEFT,
            )
        )
    return tuple(found)


PUBLISHED = "the paper's table, WikiText-2 perplexity"
DESIGNS: dict[Scale, Design] = {"full": FULL, "demo": DEMO, "smoke": SMOKE}

CLAIM = ActivationClaim(
    name="flatquant",
    title="learned transforms for 4 bits",
    sentence=(
        "With 4-bit weights and activations, learned Kronecker-factored transforms keep a language model closer to the original "
        "than Hadamard rotations do, and these closer than smoothing, with the cache at 4 bits and without."
    ),
    paper=Paper(
        title="FlatQuant: Flatness Matters for LLM Quantization",
        authors="Sun, Liu, Bai, Bao, Zhao, Li, Hu, Yu, Hou, Yuan, Jiang, Liu, Yao",
        year=2025,
        venue="ICML 2025",
        arxiv="2410.09426",
    ),
    figures=(
        Figure(
            where="LLaMA-3-8B, W4A4KV4",
            numbers={"FP": 6.14, "SmoothQuant": 210.0, "QuaRot": 10.60, "QuaRot-GPTQ": 8.16, "FlatQuant": 6.98},
            source=PUBLISHED,
        ),
        Figure(
            where="LLaMA-2-7B, W4A4KV4",
            numbers={"FP": 5.47, "SmoothQuant": 83.1, "QuaRot": 8.56, "QuaRot-GPTQ": 6.10, "FlatQuant": 5.79},
            source=PUBLISHED,
        ),
    ),
    arms=ARMS,
    criteria=_criteria(FULL),
    smaller={"demo": _criteria(DEMO), "smoke": _criteria(SMOKE)},
    default_model="smollm2-135m",
    needs_data=(
        "WikiText-2 (CC BY-SA): the hub's Salesforce/wikitext, or wiki.test.raw and valid.txt (or wiki.valid.raw) in "
        "the folder wikitext2 of --data or $BURNISH_DATA"
    ),
    designs=DESIGNS,
    shown={"target": "whole", "bits": 4, "kv": 4, "data": "wikitext2", "seed": 0},
)
