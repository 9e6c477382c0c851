"""How long curation takes, step by step, and whether twice is the same.

    BURNISH_DATA=... python benchmarks/arena_curate.py [--prompts 5000] [--reduce umap]

One command prints what a run takes, and of that the embeddings and the topics (UMAP and HDBSCAN). Run it on a quiet
machine with both cores: OMP_NUM_THREADS=2.

Prompts are those of both versions of Arena-Hard, then pairs of them (one's beginning, another's end) until there are
enough. The annotator is a rule that takes no time, so the figure is that of embedding, topics and the rest.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from burnish.core.run import Run
from burnish.data.arena_hard import read_questions
from burnish.engine.embed import Embedder
from burnish.evaluate.arena import curate
from burnish.evaluate.arena.curate import ArenaCurate
from burnish.llm import Reply, Usage
from burnish.llm.budget import Spent
from burnish.llm.client import Journaled, Request

LIMIT_S = 240
"""What 5,000 prompts may take on two cores."""


class Rule(Journaled):
    """Marks more criteria the longer a prompt is."""

    name = "rule"

    def worst(self, request: Request) -> Spent:
        """Nothing."""
        return Spent()

    def answer(self, asked: list[Request], keep: Callable[[Request, Reply], None], run: Run) -> None:
        """At once."""
        for request in asked:
            count = min(7, 3 + len(request.chat[-1]["content"]) // 200)
            usage = Usage(prompt_tokens=0, completion_tokens=0)
            keep(
                request, Reply(text=str([*range(1, count + 1)]), finish="stop", usage=usage, model="rule", seconds=0.0)
            )


def prompts(count: int) -> list[str]:
    """So many different prompts."""
    folder = Path(os.environ["BURNISH_DATA"]) / "arena_hard"
    own = [
        q.prompt for name in ("question_v0.1.jsonl", "question_v2.0.jsonl.gz") for q in read_questions(folder / name)
    ]
    own = list(dict.fromkeys(own))
    joined = (
        a[: len(a) // 2] + "\n" + b[len(b) // 2 :]
        for step in range(1, len(own))
        for a, b in zip(own, own[step:], strict=False)
    )
    while len(own) < count:
        own.append(next(joined))
    return own[:count]


def timed(owner: Any, name: str, spent: dict[str, float]) -> None:
    """Let a function of a class or module add what it takes to `spent`."""
    plain = getattr(owner, name)

    @functools.wraps(plain)
    def measured(*args: Any, **settings: Any) -> Any:
        began = time.monotonic()
        try:
            return plain(*args, **settings)
        finally:
            spent[name] = spent.get(name, 0.0) + time.monotonic() - began

    setattr(owner, name, measured)


def main() -> int:
    """Print times; 1 where two runs differ, or 5,000 prompts take too long."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=5000)
    parser.add_argument("--reduce", choices=["umap", "pca"], default="umap")
    asked = parser.parse_args()
    steps: dict[str, float] = {}
    timed(Embedder, "embed", steps)
    timed(curate, "find_topics", steps)
    method = ArenaCurate(reduce=asked.reduce, min_score=0, min_mean=0)
    with tempfile.TemporaryDirectory() as place:
        source = Path(place) / "prompts.jsonl"
        source.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in prompts(asked.prompts)))
        made, spent = [], []
        for name in ("one", "two"):
            steps.clear()
            began, processor = time.monotonic(), time.process_time()
            with Run(Path(place) / name) as run:
                table = method(source, Rule(), run=run)
            spent.append(time.monotonic() - began)
            print(
                f"{name}: {spent[-1]:.1f} s, {time.process_time() - processor:.1f} s of processor time, {dict(table.notes)}"
            )
            rest = spent[-1] - sum(steps.values())
            print(
                f"  of that: {', '.join(f'{name} {took:.1f} s' for name, took in steps.items())}, the rest {rest:.1f} s"
            )
            made.append((Path(place) / name / "artifact" / "question.jsonl").read_bytes())
    same = made[0] == made[1]
    print(f"question.jsonl is {'identical' if same else 'NOT identical'}")
    slow = asked.prompts >= 5000 and max(spent) > LIMIT_S
    return 1 if slow or not same else 0


if __name__ == "__main__":
    sys.exit(main())
