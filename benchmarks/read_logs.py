"""How fast, and in how much memory, a big samples file of lm-evaluation-harness is read.

    python benchmarks/read_logs.py [--lines 100000] [--size 5000] [--folder /tmp/logs]

Writes a file of made-up samples (half a gigabyte by default), reads it in a fresh process with `burnish evaluate
interval`, and prints seconds and peak memory. The bar is 60 seconds and 400 MB.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import time
from hashlib import sha256
from pathlib import Path

SECONDS, MEGABYTES = 60, 400


def write(path: Path, lines: int, size: int) -> None:
    """Samples as the harness writes them: the document, the prompt, and an answer that fills the line."""
    draw = random.Random(0)
    words = ["".join(draw.choices("etaoinshrdlu", k=draw.randint(2, 9))) for _ in range(4000)]
    with path.open("w", encoding="utf-8") as out:
        for number in range(lines):
            text = " ".join(draw.choices(words, k=60))
            line = {
                "doc_id": number,
                "doc": {"question": text, "answer": draw.choice(words), "level": f"level {number % 5}"},
                "target": draw.choice(words),
                "arguments": {"gen_args_0": {"arg_0": text, "arg_1": {"until": ["\n\n"], "temperature": 0.0}}},
                "filter": "none",
                "metrics": ["exact_match"],
                "doc_hash": sha256(text.encode()).hexdigest(),
                "prompt_hash": sha256(b"prompt" + text.encode()).hexdigest(),
                "target_hash": sha256(b"target").hexdigest(),
                "exact_match": float(draw.random() < 0.7),
            }
            room = max(0, size - len(json.dumps(line)) - 40)
            answer = " ".join(draw.choices(words, k=room // 14 + 1))[: room // 2]
            out.write(json.dumps(line | {"resps": [[answer]], "filtered_resps": [answer]}) + "\n")


def main() -> None:
    """Write, read, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=5_000, help="bytes of a line")
    parser.add_argument("--folder", type=Path, default=Path("/tmp/burnish-logs"))
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    path = asked.folder / "samples_made_up_2026-01-01T00-00-00.jsonl"
    if not path.exists():
        write(path, asked.lines, asked.size)
    command = [sys.executable, "-m", "burnish", "evaluate", "interval", str(path), "--cluster", "level"]
    began = time.monotonic()
    subprocess.run([*command, "--out", str(asked.folder / f"run-{time.time_ns()}")], check=True)
    seconds = time.monotonic() - began
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e3
    print(
        f"{path.stat().st_size / 1e6:.0f} MB: {seconds:.1f} s (bar {SECONDS}), {peak:.0f} MB resident (bar {MEGABYTES})"
    )


if __name__ == "__main__":
    main()
