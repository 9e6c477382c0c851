"""What FlatQuant's online step costs beside the linear layer that it serves.

    python benchmarks/flatquant_cost.py --threads 1

For the spec's four shapes and 128 rows: the Kronecker transform with the 4-bit grid after it, by the compiled kernel and in plain
torch, over the time of the float32 and the bfloat16 product; taking turns, medians over turns. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import statistics
from functools import partial

import torch
from packed_speed import alternate
from torch.nn import functional

from burnish.nn import kernels
from burnish.nn.flat import FlatStage
from burnish.nn.kronecker import balanced

SHAPES = ((576, 1536), (1536, 576), (896, 4864), (4864, 896))
ROWS = 128


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--turns", type=int, default=15)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    found = []
    for inputs, outputs in SHAPES:
        weight, x = torch.randn(outputs, inputs), torch.randn(ROWS, inputs)
        stage = FlatStage(balanced(inputs), left=True, right=True, bits=4)
        for factor in (stage.left, stage.right):
            factor.copy_(torch.linalg.qr(torch.randn(*factor.shape)).Q)
        compiled = kernels.native()

        def plain(stage: FlatStage, x: torch.Tensor) -> torch.Tensor:
            kept, kernels.native = kernels.native, lambda: None
            try:
                return stage(x)
            finally:
                kernels.native = kept

        jobs = {
            "linear float32": partial(functional.linear, x, weight),
            "linear bfloat16": partial(functional.linear, x.bfloat16(), weight.bfloat16()),
            "plain float32": partial(plain, stage, x),
            "plain bfloat16": partial(plain, stage, x.bfloat16()),
        }
        if compiled is not None:
            jobs["compiled float32"] = partial(stage, x)
        with torch.inference_mode():
            times = alternate(jobs, given.turns)
        row = {"inputs": inputs, "outputs": outputs, "size": balanced(inputs)}
        for name in list(times):
            if name.startswith("linear"):
                row[f"{name} us"] = round(statistics.median(times[name]) * 1e6, 1)
                continue
            dtype = name.split()[1]
            share = statistics.median(a / b for a, b in zip(times[name], times[f"linear {dtype}"], strict=True))
            row[f"{name} / linear"] = round(share, 3)
        if compiled is not None:
            pairs = zip(times["compiled float32"], times["linear bfloat16"], strict=True)
            row["compiled float32 / linear bfloat16"] = round(statistics.median(a / b for a, b in pairs), 3)
        found.append(row)
    print(json.dumps({"path": kernels.path_taken(), "rows": ROWS, "threads": given.threads, "shapes": found}, indent=1))


if __name__ == "__main__":
    with torch.no_grad():
        main()
