"""How long, and in how much memory, a million training sentences are scanned for five thousand test lines.

    python benchmarks/contamination_scan.py [--lines 1000000] [--tests 5000] [--near 0.8] [--folder /tmp/burnish-scan]

Writes made-up sentences of 5 to 35 words with the frequencies of a language (Zipf), lays every 50th test line into the
training text, scans in a fresh process with `burnish evaluate contamination scan`, checks that all of them were found, and
prints seconds and peak memory. The bar is 90 seconds and 1500 MB, for one side.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

SECONDS, MEGABYTES, VOCABULARY, EVERY = 90, 1500, 60_000, 50


def sentences(count: int, seed: int) -> list[str]:
    """Made-up sentences; word number r is drawn about 1 / r as often as the first."""
    rng = np.random.default_rng(seed)
    letters = np.array(list("etaoinshrdlucmfwyp"))
    draw = np.random.default_rng(0)
    words = ["".join(draw.choice(letters, size=size)) for size in draw.integers(2, 10, size=VOCABULARY)]
    chances = 1 / np.arange(1, VOCABULARY + 1)
    lengths = rng.integers(5, 36, size=count)
    flat = rng.choice(VOCABULARY, size=int(lengths.sum()), p=chances / chances.sum())
    ends = np.cumsum(lengths)
    return [" ".join(words[word] for word in flat[end - size : end]) for end, size in zip(ends, lengths, strict=True)]


def main() -> None:
    """Write, scan, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--tests", type=int, default=5_000)
    parser.add_argument("--near", type=float)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/burnish-scan"))
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    train, test = (asked.folder / f"{name}-{asked.lines}-{asked.tests}.txt" for name in ("train", "test"))
    if not train.exists():
        tests, lines = sentences(asked.tests, 1), sentences(asked.lines, 2)
        laid = tests[::EVERY]
        for number, line in enumerate(laid):
            lines[number * (asked.lines // len(laid))] = line
        test.write_text("".join(f"{line}\n" for line in tests), encoding="utf-8")
        train.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    out = asked.folder / f"run-{time.time_ns()}"
    command = [sys.executable, "-m", "burnish", "evaluate", "contamination", "scan", str(test), str(train)]
    command += ["--out", str(out), *(["--near", str(asked.near)] if asked.near else [])]
    began = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    seconds = time.monotonic() - began
    megabytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e3
    found = json.loads((out / "run.json").read_text(encoding="utf-8"))["metrics"]["exact_source"]
    expected = len(range(0, asked.tests, EVERY))
    print(f"{asked.lines} lines against {asked.tests}: {found} of {expected} laid lines found")
    print(f"{seconds:.1f} s (bar {SECONDS}), {megabytes:.0f} MB at most (bar {MEGABYTES})")
    sys.exit(found < expected or seconds > SECONDS or megabytes > MEGABYTES)


if __name__ == "__main__":
    main()
