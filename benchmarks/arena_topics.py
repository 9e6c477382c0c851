"""Does curation put prompts together that the published benchmark has under one topic?

    BURNISH_DATA=... python benchmarks/arena_topics.py [--embeddings FILE.npy]

The 500 prompts of Arena-Hard v0.1 come in 250 topics of two. Pair recall is the share of those 250 pairs that a
grouping keeps together. Large groups keep more by chance, so each grouping stands beside a shuffle of its own labels,
which has the same sizes of groups.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import numpy as np
from sklearn.cluster import KMeans

from burnish.data.arena_hard import read_questions
from burnish.evaluate.arena.topics import find_topics


def recall(labels: np.ndarray, topics: np.ndarray) -> float:
    """The share of pairs of one topic with one label."""
    pairs = [np.flatnonzero(topics == topic) for topic in np.unique(topics)]
    return float(np.mean([len(set(labels[rows])) == 1 for rows in pairs if len(rows) > 1]))


def main() -> int:
    """Print the pair recall of each grouping and of its shuffles."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--embeddings", type=Path)
    parser.add_argument("--model", default="minilm")
    asked = parser.parse_args()
    questions = read_questions(Path(os.environ["BURNISH_DATA"]) / "arena_hard" / "question_v0.1.jsonl")
    topics = np.array([question.cluster for question in questions])
    if asked.embeddings:
        vectors = np.load(asked.embeddings, allow_pickle=False)
    else:
        from burnish.engine.embed import Embedder
        from burnish.models.resolve import resolve

        vectors = Embedder(resolve(asked.model).folder).embed([question.prompt for question in questions])
    groupings = {"k-means, 250 groups": KMeans(250, n_init=3, random_state=0).fit(vectors).labels_}
    for smallest in (2, 3, 8):
        how = {"reduce": "umap", "neighbours": 15, "components": 5, "smallest": smallest, "seed": 0}
        groupings[f"curation, smallest topic {smallest}"] = find_topics(vectors, **how).labels
    rng = np.random.default_rng(0)
    print("grouping | groups | pair recall | of shuffled labels")
    for name, labels in groupings.items():
        chance = np.mean([recall(rng.permutation(labels), topics) for _ in range(200)])
        print(f"{name} | {len(set(labels.tolist()))} | {recall(labels, topics):.3f} | {chance:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
