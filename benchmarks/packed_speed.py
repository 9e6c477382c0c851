"""How fast packed weights are: single layers against torch's own, whole models against transformers and llama.cpp.

    python benchmarks/packed_speed.py linears --threads 2
    BURNISH_NODE_MODULES=DIR python benchmarks/packed_speed.py model --model smollm2-135m --threads 2

`linears` times one layer with 4-bit weights in groups of 32, one row of input and 128: ours, torch's int4 operator, and bfloat16 and
float32 products, taking turns; the ratios are medians over turns. `model` rounds a model to nearest (4 bits, groups of 32,
symmetric), writes it as compressed-tensors and as GGUF (Q4_0: the same codes), and times each engine in a process of its own, taking
turns: tokens written a second after a short prompt, tokens read a second of a prompt of 2,048. It also prints how much resident memory
grows beyond a process that has done its imports, and which share of the memory's bandwidth, measured in the same process, decoding
reaches. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

SHAPES = ((576, 1536), (2048, 2048), (896, 4864))
READ, WRITE, PROMPT = 2048, 128, 16

ENGINE = """
import gc, json, os, sys, time
import torch
import transformers
import accelerate, compressed_tensors.compressors.pack_quantized
from burnish.engine.fused import open_fused
from burnish.models import load
from burnish.nn import kernels
kernels.native()
kind, folder, ids, threads, repeats, read, write, prompt = json.loads(sys.argv[1])
torch.set_num_threads(threads)
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
# Whatever generation imports when it is first used is no memory of the model.
tiny = load("tiny", device="cpu")
tiny.net.generate(torch.tensor([[5, 6, 7]]), max_new_tokens=3, do_sample=False, pad_token_id=0)
del tiny
gc.collect()
before = resident()
if kind == "packed":
    net = open_fused(folder, notify=lambda line: print(line, file=sys.stderr)).net
else:
    dtype = getattr(torch, kind)
    net = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval().to(dtype)
ids = torch.tensor([ids])
found = dict(read=[], write=[])
def timed(tokens, count):
    began = time.perf_counter()
    out = net.generate(tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=count, min_new_tokens=count, do_sample=False)
    assert out.shape[1] == tokens.shape[1] + count
    return time.perf_counter() - began
with torch.inference_mode():
    net.generate(ids[:, :prompt], attention_mask=torch.ones_like(ids[:, :prompt]), max_new_tokens=4, min_new_tokens=4, do_sample=False)
    found["grown"] = resident() - before
    for _ in range(repeats):
        began = time.perf_counter()
        net(ids[:, :read], use_cache=True, logits_to_keep=1)
        found["read"].append(time.perf_counter() - began)
        short = ids[:, :prompt]
        # The first token is the prompt's; what follows is decoding.
        one = timed(short, 1)
        found["write"].append(timed(short, write + 1) - one)
large = torch.ones(2**27)
large.sum()
began = time.perf_counter()
for _ in range(4):
    large.sum()
found["bandwidth"] = 4 * large.nbytes / (time.perf_counter() - began)
found["moved"] = sum(p.nbytes for p in {p.data_ptr(): p for p in [*net.parameters(), *net.buffers()]}.values())
found["path"] = kernels.path_taken() if kind == "packed" else "transformers"
print(json.dumps(found))
"""


def alternate(jobs: dict[str, Callable[[], object]], turns: int, seconds: float = 0.05) -> dict[str, list[float]]:
    """Seconds a call of each job, turn by turn, each turn long enough to be measured."""
    counts = {}
    for name, job in jobs.items():
        job()
        began, count = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            job()
            count += 1
        counts[name] = max(1, count)
    found: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(turns):
        for name, job in jobs.items():
            began = time.perf_counter()
            for _ in range(counts[name]):
                job()
            found[name].append((time.perf_counter() - began) / counts[name])
    return found


def linears(threads: int, turns: int) -> dict[str, object]:
    """One layer of each shape."""
    import torch
    from torch.nn import functional

    from burnish.nn import kernels
    from burnish.nn.grid import GridSpec, Quantized, find_grid
    from burnish.nn.packed import PackedLinear

    torch.set_num_threads(threads)
    rows, ratios = [], {}
    for inputs, outputs in SHAPES:
        weight = torch.randn(outputs, inputs) * 0.02
        layers = {}
        for bits in (2, 3, 4, 8):
            grid = find_grid(weight, GridSpec(bits, group=32))
            layers[bits] = PackedLinear.of(Quantized(grid.encode(weight), grid))
        codes = torch.randint(0, 16, (outputs, inputs), dtype=torch.int32)
        theirs = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes, 1)
        scales = torch.rand(inputs // 32, outputs, 2, dtype=torch.bfloat16)
        for count in (1, 128):
            x = torch.randn(count, inputs)
            jobs: dict[str, Callable[[], object]] = {f"packed W{b}": partial(layer, x) for b, layer in layers.items()}
            int4 = torch.ops.aten._weight_int4pack_mm_for_cpu
            jobs["torch int4"] = partial(int4, x.bfloat16(), theirs, 32, scales)
            jobs["bfloat16"] = partial(functional.linear, x.bfloat16(), weight.bfloat16())
            jobs["float32"] = partial(functional.linear, x, weight)
            with torch.inference_mode():
                found = alternate(jobs, turns)
            ours = found["packed W4"]
            for other in ("torch int4", "bfloat16", "float32"):
                ratio = statistics.median(b / a for a, b in zip(ours, found[other], strict=True))
                ratios.setdefault(f"{other} / packed W4, {count} rows", []).append(round(ratio, 3))
            micro = {name: round(statistics.median(times) * 1e6, 1) for name, times in found.items()}
            rows.append({"inputs": inputs, "outputs": outputs, "rows": count, "microseconds": micro})
    means = {name: round(statistics.geometric_mean(values), 3) for name, values in ratios.items()}
    return {"path": kernels.path_taken(), "layers": rows, "ratios": ratios, "geometric means": means}


def model(name: str, threads: int, repeats: int, turns: int, kinds: list[str]) -> dict[str, object]:
    """A whole model in each engine."""
    import torch

    from burnish.models import export, load
    from burnish.models.loaders import llama_cpp
    from burnish.nn.grid import GridSpec

    with tempfile.TemporaryDirectory() as scratch:
        folder, gguf = Path(scratch) / "packed", Path(scratch) / "gguf"
        opened = load(name, device="cpu")
        for site in opened.sites():
            site.round(GridSpec(4, sym=True, group=32))
        export(opened, folder, "compressed-tensors")
        export(opened, gguf, "gguf")
        export(opened, Path(scratch) / "plain", "hf")
        ids = torch.randint(
            10, opened.config.vocab_size - 10, (READ,), generator=torch.Generator().manual_seed(0)
        ).tolist()
        del opened
        sizes = {"packed": sum(p.stat().st_size for p in folder.glob("model*.safetensors"))}
        sizes["gguf"] = (gguf / "model.gguf").stat().st_size
        found: dict[str, list[dict]] = {}
        library = llama_cpp.library()
        for _ in range(turns):
            for kind in kinds:
                where = folder if kind == "packed" else Path(scratch) / "plain"
                if kind == "llama.cpp":
                    if library is None:
                        continue
                    request = Path(scratch) / "request.json"
                    asked = {"library": str(library), "gguf": str(gguf / "model.gguf"), "threads": threads}
                    request.write_text(json.dumps(asked | {"read": ids, "write": WRITE, "repeats": repeats}))
                    command = ["node", str(Path(__file__).with_name("llama_speed.mjs")), str(request)]
                else:
                    given = json.dumps([kind, str(where), ids, threads, repeats, READ, WRITE, PROMPT])
                    command = [sys.executable, "-c", ENGINE, given]
                environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
                done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
                if done.returncode:
                    raise SystemExit(f"{kind}: {done.stderr[-2000:]}")
                found.setdefault(kind, []).append(json.loads(done.stdout.splitlines()[-1]))
    rows = {}
    for kind, answers in found.items():
        write = [WRITE / t for answer in answers for t in answer["write"]]
        read = [READ / t for answer in answers for t in answer["read"]]
        rows[kind] = {
            "write tokens/s": round(statistics.median(write), 1),
            "read tokens/s": round(statistics.median(read), 1),
        }
        last = answers[-1]
        if "grown" in last:
            share = (
                last["moved"]
                / statistics.median(t / WRITE for answer in answers for t in answer["write"])
                / last["bandwidth"]
            )
            rows[kind] |= {"memory grown MB": round(last["grown"] / 1e6, 1), "path": last["path"]}
            rows[kind] |= {"bandwidth GB/s": round(last["bandwidth"] / 1e9, 1), "bandwidth reached": round(share, 3)}
    ours = rows.get("packed")
    ratios = {}
    if ours:
        for kind, row in rows.items():
            if kind != "packed":
                ratios[kind] = {what: round(ours[what] / row[what], 3) for what in ("write tokens/s", "read tokens/s")}
        ratios["memory grown / file"] = round(found["packed"][-1]["grown"] / sizes["packed"], 3)
    return {"model": name, "threads": threads, "file sizes": sizes, "engines": rows, "packed / other": ratios}


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["linears", "model"])
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--kinds", default="packed,llama.cpp,float32,bfloat16")
    given = parser.parse_args()
    if given.what == "linears":
        found = linears(given.threads, given.turns)
    else:
        found = model(given.model, given.threads, given.repeats, min(given.turns, 3), given.kinds.split(","))
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
