"""How fast Kronecker-sparse products and layers are here, against the ways that there were before.

    python benchmarks/ks_speed.py [--threads 1] [--batches 64 512 4096] [--seconds 0.2] [--only 6]
    python benchmarks/ks_speed.py --energy DATA/ksmm/1_ksmm_energy.csv
    python benchmarks/ks_speed.py --draw DATA/ksmm/patterns.in

Products, float32: `KSLinear` as it is used, on the patterns of ks_patterns.csv (40 with d >= 16 and 40 with d < 16, drawn from
the paper's grid with the seed 0; --draw draws them again), against permute-and-multiply, einsum, batch-last products in place
("strided") and the dense matrix (below 1 GiB), each with the batch where it is quickest. The caller has the batch first, and
what transposing costs is counted. The bar: against the best of these a median ratio of at least 1.4 over d >= 16, and never
below 0.95.

Layers: the MLP of GPT-2 medium and a block of ViT-S/16, of random weights, with products of two factors that hold at most a
quarter of each matrix, against dense ones.

--energy: the authors' table, kernel against the best other Kronecker-sparse way, by precision and d.
"""

from __future__ import annotations

import argparse
import csv
import random
import statistics
from collections.abc import Callable
from pathlib import Path

import torch
from ks_clock import interleaved
from torch import Tensor, nn

from burnish.nn.kronecker_sparse import KSLinear, multiply, put
from burnish.nn.ks_dispatch import cost
from burnish.nn.ks_pattern import Pattern
from burnish.nn.ks_project import pairs

SAMPLE = Path(__file__).parent / "ks_patterns.csv"
EACH = 40
WIDE = 16
"""From which d on the paper's kernel is said to win."""
DENSEST = 2**30
"""Bytes of the largest dense matrix that is tried."""
RIVALS = ("permute", "einsum", "strided", "dense")
DENSITY = 0.25


def draw(path: Path) -> None:
    """Write the sample."""
    lines = {line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()}
    known = sorted(Pattern.parse(line) for line in lines)
    dice = random.Random(0)
    chosen = [
        pattern
        for group in ([p for p in known if p.d >= WIDE], [p for p in known if p.d < WIDE])
        for pattern in sorted(dice.sample(group, EACH))
    ]
    with SAMPLE.open("w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow("abcd")
        writer.writerows(pattern.shape for pattern in chosen)


def sample(only: int) -> list[Pattern]:
    """The committed patterns, or the first few of each half."""
    with SAMPLE.open(encoding="utf-8", newline="") as lines:
        found = [Pattern(*map(int, row.values())) for row in csv.DictReader(lines)]
    return found if not only else [*found[: only // 2], *found[EACH : EACH + only - only // 2]]


# -- products ---------------------------------------------------------------------------------------------------------


def product_times(pattern: Pattern, batch: int, seconds: float) -> dict[str, float]:
    """Seconds of each way for a caller who has the batch first: "ks" is the layer, "strided" products in place."""
    layer = KSLinear([pattern], bias=False).requires_grad_(False)
    weight, x = layer.factors[0], torch.randn(batch, pattern.columns)

    def way(name: str, last: bool) -> Callable[[], Tensor]:
        if last:
            return lambda: multiply(x.t().contiguous(), weight, "last", name).t().contiguous()
        return lambda: multiply(x, weight, "first", name)

    works: dict[str, Callable[[], object]] = {"ks": lambda: layer(x), "strided": way("strided", last=True)}
    for name in RIVALS:
        if name != "dense":
            works |= {f"{name} first": way(name, last=False), f"{name} last": way(name, last=True)}
        elif 4 * pattern.rows * pattern.columns <= DENSEST:
            # The dense matrix is made once, as a dense layer's is.
            matrix = layer.dense()
            works["dense first"] = lambda matrix=matrix: nn.functional.linear(x, matrix)
    found = interleaved(works, seconds)
    best: dict[str, float] = {}
    for name, time in found.items():
        best[name.split()[0]] = min(time, best.get(name.split()[0], time))
    return best


def products(patterns: list[Pattern], batches: list[int], seconds: float) -> None:
    """Time all, and print the ratios."""
    print("| pattern | batch | ks ms | strided ms | permute ms | einsum ms | dense ms | best rival / ks |")
    print("|---|---|---|---|---|---|---|---|")
    ratios: dict[tuple[bool, int], list[float]] = {}
    with torch.no_grad():
        for pattern in patterns:
            for batch in batches:
                times = product_times(pattern, batch, seconds)
                ratio = min(times[name] for name in RIVALS if name in times) / times["ks"]
                ratios.setdefault((pattern.d >= WIDE, batch), []).append(ratio)
                shown = [
                    f"{1e3 * times[name]:.3f}" if name in times else ""
                    for name in ("ks", "strided", "permute", "einsum")
                ]
                dense = f"{1e3 * times['dense']:.3f}" if "dense" in times else ""
                print(f"| {pattern} | {batch} | {' | '.join(shown)} | {dense} | {ratio:.2f} |", flush=True)
    print()
    for wide in (True, False):
        found = {batch: ratios[wide, batch] for batch in batches if (wide, batch) in ratios}
        every = [ratio for some in found.values() for ratio in some]
        if every:
            said = ", ".join(f"batch {batch} {statistics.median(some):.2f}" for batch, some in found.items())
            print(f"{'d >= 16' if wide else 'd < 16'}: median ratio {statistics.median(every):.2f} ({said})")
    every = [ratio for some in ratios.values() for ratio in some]
    below = sum(ratio < 0.95 for ratio in every)
    print(
        f"over all {len(every)}: smallest ratio {min(every):.2f}, below 0.95 in {below} (bars: median 1.4, smallest 0.95)"
    )


# -- layers -----------------------------------------------------------------------------------------------------------


class MLP(nn.Sequential):
    """That of GPT-2: width to four times the width and back."""

    def __init__(self, width: int) -> None:
        super().__init__(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))


class Block(nn.Module):
    """A block of ViT: attention over all tokens, then an MLP, each after a norm and added."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.mlp = MLP(width)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, tokens, width) in and out."""
        normed = self.before(x)
        q, k, v = (
            part(normed).unflatten(-1, (self.heads, -1)).transpose(1, 2).contiguous()
            for part in (self.q, self.k, self.v)
        )
        seen = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + self.o(seen)
        return x + self.mlp(self.between(x))


def sparse(net: nn.Module, tokens: int) -> nn.Module:
    """The same with the pair of factors within the budget that is expected to be quickest in the place of each layer."""
    for path, layer in list(net.named_modules()):
        if isinstance(layer, nn.Linear):
            offered = [
                pair
                for pair in pairs(layer.out_features, layer.in_features, DENSITY)
                if sum(one.nonzeros for one in pair) >= 0.8 * DENSITY * layer.weight.numel()
            ]
            quickest = min(
                offered,
                key=lambda pair: min(
                    sum(cost(one, tokens, torch.float32, layout, way) for one in pair)
                    for layout, way in (("first", "permute"), ("last", "strided"))
                ),
            )
            put(net, path, KSLinear(quickest))
    return net


def layers(seconds: float) -> None:
    """Time dense and sparse nets of the two shapes."""
    shapes: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
        "GPT-2 medium's MLP, 1024 tokens": (lambda: MLP(1024), (1, 1024, 1024)),
        "ViT-S/16's block, 16 images": (lambda: Block(384, 6), (16, 197, 384)),
    }
    for name, (make, shape) in shapes.items():
        torch.manual_seed(0)
        x = torch.randn(shape)
        nets = {"dense": make().eval(), "ks": sparse(make(), shape[0] * shape[1]).eval()}
        with torch.no_grad():
            times = interleaved({kind: lambda net=net, x=x: net(x) for kind, net in nets.items()}, seconds)
        held = sum(p.numel() for p in nets["ks"].parameters()) / sum(p.numel() for p in nets["dense"].parameters())
        chain = next(one.extra_repr() for one in nets["ks"].modules() if isinstance(one, KSLinear))
        print(
            f"{name}: dense {1e3 * times['dense']:.1f} ms, ks {1e3 * times['ks']:.1f} ms, "
            f"{times['ks'] / times['dense']:.2f} of its time with {held:.2f} of its numbers; e.g. {chain}"
        )


def energy(path: Path) -> None:
    """What the authors' table says of energy."""
    from burnish.data.ksmm import compared, read_energy

    rows = compared(read_energy(path))
    for precision in ("fp32", "fp16"):
        for said, fits in (("all d", lambda d: True), ("d = 1", lambda d: d == 1), ("d > 1", lambda d: d > 1)):
            some = [row.ratio for row in rows if row.precision == precision and fits(row.pattern[3])]
            wins = sum(ratio < 1 for ratio in some) / len(some)
            change = statistics.median(some) - 1
            print(f"{precision}, {said}: {len(some)} patterns, median energy {change:+.1%}, less on {wins:.0%}")


def main() -> None:
    """Time, or draw, or read the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batches", type=int, nargs="*", default=[64, 512, 4096])
    parser.add_argument("--seconds", type=float, default=0.2, help="for each way on each pattern and batch")
    parser.add_argument("--only", type=int, default=0, help="so many of the patterns; 0 for all")
    parser.add_argument("--energy", type=Path)
    parser.add_argument("--draw", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    if asked.draw:
        draw(asked.draw)
    elif asked.energy:
        energy(asked.energy)
    else:
        print(f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, {asked.threads} thread(s)\n")
        products(sample(asked.only), asked.batches, asked.seconds)
        print()
        layers(10 * asked.seconds)


if __name__ == "__main__":
    main()
