"""The claim of BoA: knowing how attention uses q, k and v makes low-bit rounding better than GPTQ, without training.

## What is compared
Arms share calibration windows, test windows, grid and evaluation. The grid, one scale and zero point for each output
channel, is chosen for the smallest output error on the calibration text in every arm that decides: round-to-nearest;
GPTQ, with columns in the order of the Hessian's diagonal; BoA with that order, rows ordered likewise. Two arms are shown
and decide nothing: round-to-nearest on the whole range, which is what the name usually means, and, at the smallest
scale, BoA without its value metric (`block_v`). Settings are fixed beforehand. The paper instead reports the better of
several orders by test perplexity, which selects on the test text.

Quantizing q, k and v alone shows the idea: BoA differs from GPTQ nowhere else. Quantizing the whole model shows what it
is worth.

## What must hold
In every cell (bits, target, text, calibration seed): the mean KL divergence from the unquantized model is lower for BoA
than for GPTQ, and for GPTQ than for round-to-nearest, with an interval that leaves out 0; the ratio of BoA's to GPTQ's
excess log-perplexity is below 0.9, and that of their KL below 0.75 (q, k, v only) or 0.95 (whole model), with the whole
interval.

## References
Kim et al., BoA: Attention-aware Post-training Quantization without Backpropagation, ICML 2025, arXiv 2406.13474.
"""

from __future__ import annotations

from itertools import product
from typing import Any

from burnish.claims.quantization import TARGETS, Design, QuantizationClaim, Text
from burnish.core.claim import Arm, Criterion, Figure
from burnish.core.method import Paper

WIKITEXT2 = Text(name="wikitext2", calib="wikitext2:valid", test="wikitext2:test")
BUILTIN = Text(name="builtin", calib="builtin:calibration", test="builtin:test")
BUILTIN_WHOLE = BUILTIN.model_copy(update={"targets": ("whole",)})

KL_RATIO = {"qkv": 0.75, "whole": 0.95}
"""What the ratio of BoA's to GPTQ's KL must stay below, by target."""
EXCESS_RATIO = 0.9
"""What the ratio of their excess log-perplexity must stay below."""

GRID: dict[str, Any] = {"sym": False, "group": -1}
ORDERED: dict[str, Any] = {**GRID, "qparam": "hessian"}
BOA: dict[str, Any] = {**ORDERED, "act_order_col": True, "act_order_row": True}

ARMS = (
    Arm(name="rtn", use="rtn", settings=ORDERED, baseline=True),
    Arm(name="rtn-minmax", use="rtn", settings=GRID, baseline=True),
    Arm(name="gptq", use="gptq", settings={**ORDERED, "act_order": True}, baseline=True),
    Arm(name="boa-without-block_v", use="boa", settings={**BOA, "block_v": False}),
    Arm(name="boa", use="boa", settings={**BOA, "block_v": True}),
)
NAMES = {"rtn": "RTN", "gptq": "GPTQ", "boa": "BoA"}

FULL = Design(
    arms=("rtn-minmax", "rtn", "gptq", "boa"),
    targets=("whole", "qkv"),
    bits=(3, 2),
    texts=(WIKITEXT2, BUILTIN_WHOLE),
    seeds=(0, 1),
    calib=(16, 512),
    test=(24, 512),
)
DEMO = Design(
    arms=("rtn", "gptq", "boa"),
    targets=("whole",),
    bits=(3,),
    texts=(BUILTIN,),
    calib=(8, 512),
    test=(32, 512),
    keep="boa",
)
SMOKE = Design(
    arms=("rtn-minmax", "rtn", "gptq", "boa-without-block_v", "boa"),
    targets=("qkv", "whole"),
    bits=(2,),
    texts=(BUILTIN,),
    calib=(16, 64),
    test=(24, 64),
    documents=20,
)


def _cells(design: Design) -> list[dict[str, Any]]:
    return [
        {"target": target, "bits": bits, "data": text.name, "seed": seed}
        for text in design.texts
        for target, bits, seed in product(text.targets or design.targets, design.bits, design.seeds)
    ]


def _lower(measure: str, said: str, cells: list[dict[str, Any]]) -> list[Criterion]:
    """In each cell, BoA is better than GPTQ, and GPTQ than round-to-nearest."""
    return [
        Criterion(
            name=f"{measure} {arm} < {against} ({_place(cell)})",
            text=f"{_said(cell)}: {NAMES[arm]}'s {said} is lower than {NAMES[against]}'s.",
            statistic="difference",
            measure=measure,
            arm=arm,
            against=against,
            where=cell,
        )
        for cell in cells
        for arm, against in (("boa", "gptq"), ("gptq", "rtn"))
    ]


def _ratios(cells: list[dict[str, Any]]) -> list[Criterion]:
    """In each cell, BoA is better than GPTQ by a margin."""
    found = []
    for cell in cells:
        margin = KL_RATIO[cell["target"]]
        found += [
            Criterion(
                name=f"kl boa / gptq < {margin} ({_place(cell)})",
                text=f"{_said(cell)}: BoA's KL from the unquantized model is less than {margin} of GPTQ's.",
                statistic="ratio",
                measure="kl",
                arm="boa",
                against="gptq",
                where=cell,
                margin=margin,
            ),
            Criterion(
                name=f"excess nll boa / gptq < {EXCESS_RATIO} ({_place(cell)})",
                text=f"{_said(cell)}: BoA adds less than {EXCESS_RATIO} of the log-perplexity that GPTQ adds.",
                statistic="excess_ratio",
                measure="nll",
                arm="boa",
                against="gptq",
                where=cell,
                margin=EXCESS_RATIO,
            ),
        ]
    return found


def _place(cell: dict[str, Any]) -> str:
    return f"{cell['target']}, {cell['bits']} bits, {cell['data']}, seed {cell['seed']}"


def _said(cell: dict[str, Any]) -> str:
    return f"{cell['bits']} bits, {TARGETS[cell['target']][1]}, {cell['data']}, calibration seed {cell['seed']}"


KL = "KL divergence from the unquantized model"
TABLE_10 = "through an independent replication (PseudoHunt/boa-kronecker-gap), which found 31.94 and 85.88 for BoA"
README = "the authors' README: the best of four act-order settings by WikiText-2 test perplexity"

CLAIM = QuantizationClaim(
    name="boa",
    title="attention-aware rounding",
    sentence=(
        "At 3 and at 2 bits per weight, rounding q, k and v with Hessians that know what attention does with them keeps "
        "a language model closer to the original than GPTQ does, and GPTQ keeps it closer than round-to-nearest."
    ),
    paper=Paper(
        title="BoA: Attention-aware Post-training Quantization without Backpropagation",
        authors="Junhan Kim, Ho-young Kim, Eulrang Cho, Chungman Lee, Joonyoung Kim, Yongkweon Jeon",
        year=2025,
        venue="ICML 2025",
        arxiv="2406.13474",
    ),
    figures=(
        Figure(
            where="Table 10, OPT-125M, WikiText-2, 3 bits",
            numbers={"FP": 27.65, "RTN": 233.9, "GPTQ": 50.75, "BoA": 31.95},
            source=TABLE_10,
        ),
        Figure(
            where="Table 10, OPT-125M, WikiText-2, 2 bits",
            numbers={"FP": 27.65, "RTN": 1.0e4, "GPTQ": 411.3, "BoA": 85.63},
            source=TABLE_10,
        ),
        Figure(where="Qwen2.5-0.5B, WikiText-2, 3 bits", numbers={"BoA": 20.12}, source=README),
        Figure(where="Qwen2.5-0.5B, C4, 3 bits", numbers={"BoA": 40.14}, source=README),
        Figure(where="Qwen2.5-0.5B, WikiText-2, 2 bits", numbers={"BoA": 144.7}, source=README),
        Figure(where="Qwen2.5-1.5B, WikiText-2, 3 bits", numbers={"BoA": 12.03}, source=README),
        Figure(where="Qwen2.5-7B, WikiText-2, 3 bits", numbers={"BoA": 9.05}, source=README),
    ),
    arms=ARMS,
    criteria=(*_lower("kl", KL, _cells(FULL)), *_ratios(_cells(FULL))),
    smaller={
        "demo": (*_lower("kl", KL, _cells(DEMO)), *_lower("nll", "perplexity", _cells(DEMO))),
        "smoke": (*_lower("kl", KL, _cells(SMOKE)), *_ratios(_cells(SMOKE))),
    },
    default_model="smollm2-135m",
    needs_data=(
        "WikiText-2 (CC BY-SA): the hub's Salesforce/wikitext, or wiki.test.raw and valid.txt (or wiki.valid.raw) in "
        "the folder wikitext2 of --data or $BURNISH_DATA"
    ),
    designs={"full": FULL, "demo": DEMO, "smoke": SMOKE},
    shown={"target": "whole", "bits": 3, "data": "wikitext2", "seed": 0},
)
