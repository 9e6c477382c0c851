"""Run folders as they are written, with made-up but likely figures, and a reader of the pages made of them."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from burnish.core.claim import ArmResult, Evidence, Figure, Finding, judge, settle

ROLES = ("q", "k", "v", "o", "gate", "up", "down")
ENVIRONMENT = {"python": "3.11.9", "system": "Linux x86_64", "cpus": "2", "burnish": "0.1.0", "torch": "2.13.0"}


def write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def finding(name: str, text: str, estimate: float, half: float, margin: float = 0.0) -> Finding:
    low, high = estimate - half, estimate + half
    verdict = judge(low, high, margin, "below")
    ends = {"estimate": estimate, "low": low, "high": high, "level": 0.95, "margin": margin, "side": "below"}
    return Finding(criterion=name, text=text, items=64, verdict=verdict, **ends)


def cell_label(arm: str, cell: dict[str, Any]) -> str:
    said = [arm, f"{cell['bits']} bits", cell["target"], *([f"seed {cell['seed']}"] if "seed" in cell else [])]
    return ", ".join(said)


def arm_results() -> list[ArmResult]:
    """The model as it was, and three arms in three cells; those that see text with two seeds."""
    table = {
        ("qkv", 3): {"rtn": (42.5, 0.557, 0.608), "gptq": (30.8, 0.202, 0.744), "boa": (27.8, 0.100, 0.817)},
        ("whole", 3): {"rtn": (509.0, 2.90, 0.230), "gptq": (45.7, 0.661, 0.599), "boa": (41.1, 0.581, 0.614)},
        ("qkv", 2): {"rtn": (502.0, 2.90, 0.196), "gptq": (44.5, 0.617, 0.592), "boa": (34.9, 0.387, 0.669)},
    }
    original = {"perplexity": {"estimate": 26.04, "low": 24.1, "high": 28.2}}
    arms = [ArmResult(arm="fp", label="unquantized, wikitext2", cell={}, measures=original, seconds=0.0)]
    for (target, bits), results in table.items():
        for arm, (ppl, kl, top1) in results.items():
            for seed in (0, 1) if arm != "rtn" else (None,):
                cell = {"target": target, "bits": bits} | ({} if seed is None else {"seed": seed})
                shift = 1 + 0.02 * (seed or 0)
                measures = {
                    "perplexity": {"estimate": ppl * shift, "low": ppl * shift * 0.93, "high": ppl * shift * 1.08},
                    "kl": {"estimate": kl * shift, "low": kl * shift * 0.94, "high": kl * shift * 1.06},
                    "top1": {"estimate": top1, "low": top1 - 0.012, "high": top1 + 0.012},
                }
                seconds = {"rtn": 72.0, "gptq": 422.0, "boa": 498.0}[arm] * shift
                weights = {"weights": 16 * "3f9a"}
                label = cell_label(arm, cell)
                arms.append(ArmResult(arm=arm, label=label, cell=cell, measures=measures, seconds=seconds, **weights))
    return arms


def evidence(**changes: Any) -> Evidence:
    """A claim as it is measured on a small model."""
    findings = [
        finding("kl-3-whole", "3 bits, whole model: BoA's KL from the original is below GPTQ's.", -0.080, 0.018),
        finding("kl-3-qkv", "3 bits, q, k, v only: BoA's KL from the original is below GPTQ's.", -0.102, 0.009),
        finding("kl-2-qkv", "2 bits, q, k, v only: BoA's KL from the original is below GPTQ's.", -0.230, 0.025),
        finding("ratio-qkv", "3 bits, q, k, v only: BoA's KL is less than 0.75 of GPTQ's.", 0.495, 0.04, 0.75),
        finding("ratio-whole", "3 bits, whole model: BoA's KL is less than 0.95 of GPTQ's.", 0.879, 0.03, 0.95),
    ]
    values: dict[str, Any] = {
        "claim": "boa",
        "sentence": "BoA keeps a model closer to the original than GPTQ at the same number of bits",
        "verdict": settle(found.verdict for found in findings),
        "findings": findings,
        "arms": arm_results(),
        "figures": [
            Figure(
                where="Table 10, OPT-125M, 3 bits", numbers={"FP": 27.65, "RTN": 233.9, "GPTQ": 50.75, "BoA": 31.95}
            ),
            Figure(where="Table 10, OPT-125M, 2 bits", numbers={"FP": 27.65, "RTN": 1e4, "GPTQ": 411.3, "BoA": 85.63}),
            Figure(where="Qwen2.5-0.5B, 3 bits", numbers={"BoA": 20.12}, source="the authors' README"),
        ],
        "model": "smollm2-135m",
        "lineage": ["weights were dequantized from Q4_1 (embedding from Q8_0)"],
        "data": {"calibration": "sha256:9b1f0c2d77aa", "test": "sha256:04d2c11e35b8"},
        "scale": "full",
        "environment": ENVIRONMENT,
        "digests": {"rtn": "5f3e…", "gptq": "77a0…", "boa": "c1d9…"},
        "command": "burnish claim boa --scale full --out runs/boa",
        "minutes": 41.3,
        "date": "2026-11-30T14:06:00+00:00",
    }
    return Evidence(**{**values, **changes})


def layer_rows(
    arms: tuple[str, ...] = ("rtn", "gptq", "boa"), bits: int = 3, named: bool = True
) -> list[dict[str, Any]]:
    """Errors of 30 blocks of 7 linear maps, as methods record them, or as a claim does, which adds the arm."""
    rng = np.random.default_rng(0)
    level = {"rtn": 0.09, "gptq": 0.022, "boa": 0.016}
    role_level = dict(zip(ROLES, (0.5, 0.4, 1.4, 1.0, 0.9, 1.1, 1.8), strict=True))
    rows = []
    for arm in arms:
        for block in range(30):
            for role in ROLES:
                rise = np.exp(0.035 * block + rng.normal(0, 0.16))
                gain = 0.45 if arm == "boa" and role in "qk" else 1.0
                error = float(level[arm] * role_level[role] * rise * gain)
                where = "self_attn" if role in "qkvo" else "mlp"
                site = f"model.layers.{block}.{where}.{role}_proj"
                row = {"block": block, "site": site, "role": role, "error": error, "bits": bits}
                if named:
                    cell = {"target": "whole", "bits": bits} | ({} if arm == "rtn" else {"seed": 0})
                    row["arm"] = cell_label(arm, cell)
                note = "damping raised to 2 %" if arm != "rtn" and role == "down" and block in (1, 29) else ""
                rows.append({**row, "weight_error": error * 0.6, "damping": 0.01, "note": note})
    return rows


def manifest(**changes: Any) -> dict[str, Any]:
    values = {
        "status": "done",
        "request": {
            "use": "boa",
            "settings": {"bits": 3, "sym": False, "group": -1, "block_v": True, "qparam": "Hessian"},
            "goods": {"model": "smollm2-135m", "calib": "builtin:calibration"},
            "burnish": "0.1.0",
        },
        "seed": 0,
        "metrics": {"ppl": 41.1, "kl": {"estimate": 0.581, "low": 0.55, "high": 0.612}, "top1": 0.614},
        "minutes": 8.3,
        "peak_memory_mb": 2143.0,
        "environment": ENVIRONMENT,
        "command": ["/home/me/.venv/bin/burnish", "compress", "boa", "smollm2-135m", "--bits", "3", "--out", "runs/a"],
        "updated": "2026-11-30T14:06:00+00:00",
    }
    return {**values, **changes}


def events(path: Path, steps: tuple[str, ...] = ("hessians", "round")) -> None:
    rng = np.random.default_rng(1)
    lines = [{"at": "2026-11-30T14:00:00.000+00:00", "kind": "start"}]
    for step in steps:
        for block in range(30):
            seconds = round(float(rng.gamma(30, 0.2 if step == "round" else 0.07)), 3)
            lines.append({"at": "", "kind": "link", "step": step, "key": f"block-{block}", "seconds": seconds})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def items(path: Path, count: int) -> None:
    rng = np.random.default_rng(2)
    nll = rng.gamma(40, 0.092, count)
    rows = {
        "item_id": [f"window-{number}" for number in range(count)],
        "model": ["smollm2-135m"] * count,
        "nll": nll,
        "kl": rng.gamma(9, 0.064, count),
        "right": rng.integers(0, 2, count),
        "tokens": [511] * count,
    }
    pq.write_table(pa.table(rows), path)


def claim_folder(folder: Path) -> Path:
    found = evidence()
    request = {"claim": "boa", "model": "smollm2-135m", "scale": "full"}
    command = ["/home/me/.venv/bin/burnish", "claim", "boa"]
    write(folder / "run.json", manifest(request=request, command=command, minutes=41.3))
    (folder / "evidence.json").write_text(found.model_dump_json())
    write(folder / "layers.json", layer_rows())
    sizes = {"float32 checkpoint": 538_090_408, "artifact (compressed-tensors)": 168_400_120, "GGUF source": 92_360_000}
    write(folder / "sizes.json", sizes)
    for arm in ("gptq", "boa"):
        events(folder / "parts" / arm / "events.jsonl", ("round",))
    return folder


def plain_folder(folder: Path, count: int = 240, **changes: Any) -> Path:
    write(folder / "run.json", manifest(**changes))
    write(folder / "layers.json", layer_rows(("boa",), named=False))
    events(folder / "events.jsonl")
    items(folder / "items.parquet", count)
    return folder


class Audit(HTMLParser):
    """Reads a page as a browser does, and notes whatever a page that stands alone must not have."""

    KNOWN = re.compile(
        "html|head|meta|title|style|body|main|header|footer|nav|section|h[1-5]|p|ul|li|a|d[ltd]|div|span|small|figure|"
        "figcaption|details|summary|table|caption|thead|tbody|t[rhd]|pre|code|svg|g|path|rect|text|tspan|line|defs|clippath"
    )
    VOID = frozenset({"meta"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.wrong: list[str] = []
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.words: list[str] = []
        self.headings: list[str] = []
        self.feed(page)
        self.wrong += [f"not closed: {self.open}"] if self.open else []
        self.wrong += [f"{name} twice" for name in set(self.ids) if self.ids.count(name) > 1]
        self.wrong += [f"{link} leads nowhere" for link in self.links if link[0] == "#" and link[1:] not in self.ids]
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.wrong += [f"<{tag}>"] if not self.KNOWN.fullmatch(tag) else []
        for name, value in attrs:
            if name == "id":
                self.ids.append(str(value))
            elif name == "href":
                self.links.append(str(value))
                self.wrong += [f"link to {value}"] if not re.match(r"#|https://arxiv\.org/abs/", str(value)) else []
            elif name == "aria-labelledby":
                self.links.append(f"#{value}")
            elif name.startswith("on") or name in ("src", "srcset", "data", "style", "xlink:href"):
                self.wrong.append(f"{tag} {name}={value}")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"</{tag}> closes nothing")

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.words.append(data)
        if self.open and self.open[-1] in ("h1", "h2"):
            self.headings.append(data)


def audit(path: Path) -> Audit:
    page = path.read_text(encoding="utf-8")
    found = Audit(page)
    assert found.wrong == []
    assert "url(" not in re.sub(r"url\(#[\w-]+\)", "", page)
    return found
