"""Measure the table by which the way to compute a Kronecker-sparse product is chosen, and print it.

    python benchmarks/ks_dispatch.py [--dtypes float32 bfloat16] [--patterns 60] [--seconds 0.05] [--threads 1]

Times every way on random patterns in both layouts, fits what a call, a small matrix, a multiplication and a number moved
take (least squares of relative errors, none below zero), and prints `COSTS` and `TRANSPOSITION` for
src/burnish/nn/ks_dispatch.py; then what choosing by that table loses against always taking the quickest, on patterns that were
not fitted. Run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import random

import numpy as np
import torch
from ks_clock import clock, interleaved
from scipy.optimize import nnls

from burnish.nn import ks_dispatch
from burnish.nn.kronecker_sparse import multiply
from burnish.nn.ks_dispatch import MEASURED, Layout, features, offered, supported
from burnish.nn.ks_pattern import Pattern, as_stored

LAYOUTS: tuple[Layout, ...] = ("first", "last")
BATCHES = (1, 16, 64, 512, 2048)
LARGEST = 40_000_000
"""Numbers in an input or output of a case, and entries of a matrix that "dense" is tried on."""
WORK = 3e10
"""Multiplications of a case."""
Case = tuple[Pattern, int]


def cases(count: int, seed: int) -> list[Case]:
    """Random patterns with a batch, sizes even on a logarithmic scale; a quarter has d = 1."""
    draw = random.Random(seed)
    found: list[Case] = []
    while len(found) < count:
        a, b, c, d = (round(2 ** draw.uniform(0, top)) for top in (6, 9, 9, 8))
        pattern, batch = Pattern(a, b, c, 1 if draw.random() < 0.25 else d), draw.choice(BATCHES)
        fits = batch * max(pattern.rows, pattern.columns) <= LARGEST and pattern.nonzeros <= LARGEST
        if fits and batch * pattern.nonzeros <= WORK:
            found.append((pattern, batch))
    return found


def ways(pattern: Pattern, batch: int, dtype: torch.dtype, layout: Layout) -> list[str]:
    """Those that are worth trying."""
    whole = pattern.rows * pattern.columns
    known = dict.fromkeys([*offered(pattern, dtype, layout), *MEASURED[:-1]])
    return [
        way
        for way in known
        if supported(way, pattern) and (way != "dense" or (whole <= LARGEST and batch * whole <= WORK))
    ]


def measure(case: Case, dtype: torch.dtype, layout: Layout, seconds: float) -> dict[str, float]:
    """Nanoseconds of each way."""
    pattern, batch = case
    weight = as_stored(torch.randn(pattern.shape).to(dtype))
    shape = (batch, pattern.columns) if layout == "first" else (pattern.columns, batch)
    x = torch.randn(shape).to(dtype)
    works = {way: lambda way=way: multiply(x, weight, layout, way) for way in ways(pattern, batch, dtype, layout)}
    return {way: 1e9 * found for way, found in interleaved(works, seconds).items()}


def fit(rows: list[tuple[tuple[float, ...], float]]) -> tuple[float, ...]:
    """Figures, none below zero, whose relative errors are smallest."""
    counts = np.array([[count / time for count in counted] for counted, time in rows])
    scale = counts.max(0).clip(1e-30)
    found, _ = nnls(counts / scale, np.ones(len(rows)))
    return tuple(float(f"{figure:.3g}") for figure in found / scale)


def transposition(seconds: float) -> tuple[float, ...]:
    """Nanoseconds of a transposition, and of a number in it."""
    rows = []
    for batch in (16, 256, 2048):
        for width in (64, 512, 4096):
            x = torch.randn(batch, width)
            rows.append(((1.0, float(x.numel())), 1e9 * clock(lambda x=x: x.t().contiguous(), seconds)))
    return fit(rows)


def main() -> None:
    """Measure, fit, print, and say what is lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtypes", nargs="*", default=["float32", "bfloat16"])
    parser.add_argument(
        "--patterns", type=int, default=60, help="patterns that are fitted; half as many are for checking"
    )
    parser.add_argument("--seconds", type=float, default=0.05, help="for each way on each pattern")
    parser.add_argument("--threads", type=int, default=1)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    fitted, checked = cases(asked.patterns, 0), cases(asked.patterns // 2, 1)
    table: dict[str, dict] = {}
    for name in asked.dtypes:
        dtype = getattr(torch, name)
        rows: dict[tuple[str, str], list] = {}
        for case in fitted:
            for layout in LAYOUTS:
                for way, time in measure(case, dtype, layout, asked.seconds).items():
                    rows.setdefault((layout, way), []).append((features(*case, way), time))
        table[name] = {key: fit(found) for key, found in rows.items()}
    print(f"# torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, {asked.threads} thread(s)")
    print("COSTS = {")
    for name, figures in table.items():
        print(f'    "{name}": {{')
        for (layout, way), four in figures.items():
            print(f'        ("{layout}", "{way}"): {four},')
        print("    },")
    print(f"}}\nTRANSPOSITION = {transposition(asked.seconds)}")
    ks_dispatch.COSTS.update(table)
    ks_dispatch.choose.cache_clear()
    for name in asked.dtypes:
        for layout in LAYOUTS:
            lost = []
            for pattern, batch in checked:
                times = measure((pattern, batch), getattr(torch, name), layout, asked.seconds)
                chosen = ks_dispatch.choose(pattern, batch, getattr(torch, name), layout)
                # A way that was too large to be tried is not chosen in earnest either.
                ratio = times.get(chosen, max(times.values())) / min(times.values())
                lost.append(
                    (ratio, f"({pattern}) with batch {batch}: {chosen}, not {min(times, key=times.__getitem__)}")
                )
            ratios = [ratio for ratio, _ in lost]
            best = sum(ratio < 1.05 for ratio in ratios) / len(lost)
            print(
                f"{name}, batch {layout}: within 5 % of the quickest on {best:.0%} of {len(lost)} other patterns, "
                f"median {np.median(ratios):.2f}, worst {max(lost)[0]:.2f} times its time, for {max(lost)[1]}"
            )


if __name__ == "__main__":
    main()
