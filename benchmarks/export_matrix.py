"""Every offered pair of rounding method and file format on one model, each loaded anew by the tool that it is for.

    python benchmarks/export_matrix.py --model smollm2-135m --gptqmodel A/bin/python

llama.cpp is found through BURNISH_NODE_MODULES. Prints a line a pair: the loader, how many weights differ, the largest
logit difference, the mean KL, the difference of the negative log-likelihoods; ends with 1 if any is beyond its limit.
For GGUF the perplexity through llama.cpp on a longer text stands beside burnish's own.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from burnish import GPTQ, RTN, BoA, data, load
from burnish.core.errors import BurnishError
from burnish.core.run import Run
from burnish.data.windows import windows
from burnish.models import Model, export
from burnish.models.loaders.llama_cpp import library, llama_cpp_nll
from burnish.models.reload import compare

SETTINGS: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({"bits": 2, "group": -1}, ("compressed-tensors",)),
    ({"bits": 3, "group": -1}, ("compressed-tensors",)),
    ({"bits": 4, "group": -1}, ("compressed-tensors",)),
    ({"bits": 4, "group": 64}, ("compressed-tensors", "gptq")),
    ({"bits": 4, "group": 128}, ("gptq",)),
    ({"bits": 4, "group": 32, "sym": True}, ("compressed-tensors", "gptq", "gguf")),
    ({"bits": 4, "group": 32, "zero": "float"}, ("gguf",)),
    ({"bits": 8, "group": -1, "sym": True}, ("compressed-tensors", "gptq")),
    ({"bits": 8, "group": 32, "sym": True}, ("compressed-tensors", "gptq", "gguf")),
]


def perplexities(model: Model, folder: Path, samples: int, length: int) -> tuple[float, float]:
    """Ours and llama.cpp's, on the same windows."""
    tokens = windows(model.tokenizer, data.read("builtin:test"), samples, length)
    total = 0.0
    with torch.no_grad():
        for row in tokens:
            logits = model.net(row[None]).logits[0, :-1].float()
            total += float(torch.nn.functional.cross_entropy(logits, row[1:], reduction="sum"))
    theirs = float(llama_cpp_nll(folder / "model.gguf", tokens).mean())
    return math.exp(total / (samples * (length - 1))), math.exp(theirs)


def main() -> int:
    """Go through all pairs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--gptqmodel", default="", metavar="PYTHON")
    parser.add_argument("--methods", nargs="*", default=["rtn", "gptq", "boa"])
    parser.add_argument("--samples", type=int, default=4, help="calibration windows of 256 tokens")
    parser.add_argument("--windows", type=int, default=6, help="windows of 512 tokens for the perplexity")
    options = parser.parse_args()
    base, calib = load(options.model, device="cpu"), data.read("builtin:calibration")
    wrong = 0
    for name in options.methods:
        for settings, formats in SETTINGS:
            cls = {"rtn": RTN, "gptq": GPTQ, "boa": BoA}[name]
            method = cls(**settings, samples=options.samples, length=256)
            goods = {} if name == "rtn" else {"calib": calib}
            model = method(base, **goods, run=Run.scratch())
            for format in formats:
                said = [name, format, " ".join(f"{k}={v}" for k, v in settings.items())]
                with tempfile.TemporaryDirectory() as scratch:
                    folder = export(model, Path(scratch) / "out", format)
                    try:
                        found = compare(folder, python=options.gptqmodel if format == "gptq" else "")
                    except BurnishError as error:
                        wrong += 1
                        print(*said, f"not loaded: {error.problem}", sep=" | ", flush=True)
                        continue
                    wrong += bool(found.faults())
                    said += [found.loader, "-" if found.weights is None else f"{len(found.weights)} weights differ"]
                    said += [
                        f"logits {found.logits:.2g}",
                        f"KL {found.kl:.2g}",
                        f"NLL {found.nll - found.base_nll:+.2g}",
                    ]
                    if format == "gguf" and library() is not None:
                        ours, theirs = perplexities(model, folder, options.windows, 512)
                        said.append(f"ppl {theirs:.4f} against {ours:.4f} ({theirs / ours - 1:+.2%})")
                        wrong += abs(theirs / ours - 1) > 0.005
                said += found.faults()
                print(*said, sep=" | ", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
