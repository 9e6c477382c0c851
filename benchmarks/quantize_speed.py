"""How long quantization takes: burnish's GPTQ and BoA, gptqmodel's GPTQ and auto-round, on the same weights and tokens.

    python benchmarks/quantize_speed.py --model smollm2-135m --gptqmodel A/bin/python --auto-round B/bin/python

Each job runs in a process of its own, one after another, with the same number of threads; loading is not counted.
The two flags name interpreters that have these packages (they do not live beside burnish's own dependencies); without
them only burnish's two methods are compared. Prints one JSON object: seconds, versions, ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

OURS = """
import json, sys, time
import torch
torch.set_num_threads(int(sys.argv[4]))
from datasets import Dataset
from burnish.core.run import Run
from burnish.models import load
import burnish.data.windows as windows
from burnish import BoA, GPTQ
tokens = torch.tensor(json.load(open(sys.argv[2])))
windows.windows = lambda *args, **kwargs: tokens
model = load(sys.argv[1], device="cpu")
settings = dict(bits=4, group=128, samples=len(tokens), length=tokens.shape[1])
name, _, grid = sys.argv[3].partition("-")
method = {"gptq": GPTQ, "boa": BoA}[name](**settings, qparam=grid or "minmax")
began, used = time.perf_counter(), time.process_time()
method(model, None, run=Run.scratch())
print(json.dumps({"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - used}))
"""

THEIRS = {
    "gptqmodel": """
import json, sys, time
import torch
torch.set_num_threads(int(sys.argv[4]))
from gptqmodel import GPTQModel, QuantizeConfig
rows = [dict(input_ids=row, attention_mask=[1] * len(row)) for row in json.load(open(sys.argv[2]))]
model = GPTQModel.load(sys.argv[1], QuantizeConfig(bits=4, group_size=128, sym=False, desc_act=False), device="cpu")
began, used = time.perf_counter(), time.process_time()
model.quantize(rows, batch_size=8)
print(json.dumps({"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - used}))
""",
    # Another method for the same job, in its light setting (50 steps of signed gradient descent a block).
    "auto-round": """
import json, sys, time
import torch
torch.set_num_threads(int(sys.argv[4]))
from auto_round import AutoRound
from transformers import AutoModelForCausalLM, AutoTokenizer
rows = [dict(input_ids=torch.tensor([row])) for row in json.load(open(sys.argv[2]))]
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32)
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
job = AutoRound(model, tokenizer, bits=4, group_size=128, sym=False, iters=50, nsamples=len(rows),
                seqlen=rows[0]["input_ids"].shape[1], dataset=rows, device_map="cpu", enable_torch_compile=False)
began, used = time.perf_counter(), time.process_time()
job.quantize()
print(json.dumps({"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - used}))
""",
}
"""Rivals, each in an environment of its own."""


def child(python: str, code: str, *arguments: str, threads: int) -> dict[str, float]:
    """Run one job in a process of its own; its last line of output is its result."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "GPTQMODEL_CPU_WORKERS": str(threads)}
    done = subprocess.run(
        [python, "-c", code, *arguments, str(threads)],
        check=False,
        capture_output=True,
        text=True,
        env=environment,
        cwd=tempfile.gettempdir(),  # gptqmodel writes logs where it is started
    )
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    return json.loads([line for line in done.stdout.splitlines() if line.startswith("{")][-1])


def version(python: str, package: str) -> str:
    """The version of a package that an interpreter has."""
    code = f"from importlib.metadata import version; print(version({package!r}))"
    return subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def main() -> None:
    """Run the jobs and print what they took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    for rival in THEIRS:
        parser.add_argument(f"--{rival}", default="", metavar="PYTHON")
    parser.add_argument("--samples", type=int, default=32)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--jobs", nargs="*", default=["gptq", "boa", "gptq-hessian", "boa-hessian"])
    options = parser.parse_args()

    from transformers import AutoTokenizer

    from burnish.data import read
    from burnish.data.windows import windows
    from burnish.models.resolve import resolve

    folder = resolve(options.model, lambda line: None).folder
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokens = windows(tokenizer, read("builtin:calibration"), options.samples, options.length, seed=0)
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "tokens.json"
        path.write_text(json.dumps(tokens.tolist()))
        arguments = (str(folder), str(path))
        found = {job: child(sys.executable, OURS, *arguments, job, threads=options.threads) for job in options.jobs}
        versions = {name: version(sys.executable, name) for name in ("burnish", "torch", "transformers")}
        for rival, code in THEIRS.items():
            if python := getattr(options, rival.replace("-", "_")):
                found[rival] = child(python, code, *arguments, "gptq", threads=options.threads)
                versions |= {rival: version(python, rival), f"torch beside {rival}": version(python, "torch")}
    ratios = {
        f"{one} / {other}": round(found[one]["seconds"] / found[other]["seconds"], 3)
        for one, other in (
            ("gptq", "gptqmodel"),
            ("gptq", "auto-round"),
            ("boa", "gptq"),
            ("boa-hessian", "gptq-hessian"),
        )
        if one in found and other in found
    }
    print(json.dumps({"job": vars(options), "seconds": found, "ratios": ratios, "versions": versions}, indent=1))


if __name__ == "__main__":
    main()
