"""Topics of prompts: embeddings are reduced to a few dimensions, dense groups become topics, the rest joins the nearest.

The same vectors and seed give the same topics: UMAP runs on one thread with a fixed state, HDBSCAN has no chance in it.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from burnish.core.errors import BadInput


@dataclass(frozen=True)
class Topics:
    """A topic for every prompt."""

    labels: NDArray[np.intp]
    """(prompts,), numbered from 0."""
    outlier: NDArray[np.bool_]
    """Whether the prompt lay in no dense group and was put to the nearest one, (prompts,)."""
    central: list[NDArray[np.intp]]
    """The prompts of each topic, the most central first."""


def find_topics(
    vectors: NDArray[np.float32],
    *,
    reduce: Literal["umap", "pca"],
    neighbours: int,
    components: int,
    smallest: int,
    seed: int,
) -> Topics:
    """Group prompts.

    Args:
        vectors: (prompts, dimensions), of any length but 0.
        reduce: UMAP as BERTopic sets it, or principal components.
        neighbours: UMAP's, that is how local its picture is.
        components: Dimensions to reduce to.
        smallest: Prompts in the smallest topic.
        seed: UMAP's.

    Raises:
        BadInput: too few prompts, or no dense group among them.
    """
    from sklearn.cluster import HDBSCAN

    least = max(2 * smallest, components + 2, neighbours + 1 if reduce == "umap" else 0)
    if len(vectors) < least:
        raise BadInput(
            f"{len(vectors)} prompts are too few to group: these settings need {least}",
            "give more prompts, or a smaller --min-cluster, --neighbours or --components",
        )
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    low = _umap(unit, neighbours, components, seed) if reduce == "umap" else principal_components(unit, components)
    labels = HDBSCAN(min_cluster_size=smallest, copy=True).fit(low).labels_.astype(np.intp)
    count = int(labels.max()) + 1
    if count < 1:
        raise BadInput("no group of prompts is dense enough for a topic", "a smaller --min-cluster, or more prompts")
    centres = np.stack([unit[labels == topic].mean(0) for topic in range(count)])
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    likeness = unit @ centres.T
    outlier = labels < 0
    labels = np.where(outlier, likeness.argmax(1), labels)
    central = []
    for topic in range(count):
        members = np.flatnonzero(labels == topic)
        central.append(members[np.argsort(-likeness[members, topic], kind="stable")])
    return Topics(labels, outlier, central)


def principal_components(vectors: NDArray[np.float32], count: int) -> NDArray[np.float64]:
    """The first principal components, (vectors, count), each with its largest weight positive."""
    centred = (vectors - vectors.mean(0)).astype(np.float64)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    axes = axes[:count]
    signs = np.sign(axes[np.arange(len(axes)), np.abs(axes).argmax(1)])
    return np.asarray(centred @ (axes * signs[:, None]).T)


def _umap(unit: NDArray[np.float32], neighbours: int, components: int, seed: int) -> Any:
    with warnings.catch_warnings():
        # It warns about what it cannot offer without TensorFlow, and that a fixed state means one thread.
        warnings.simplefilter("ignore")
        from umap import UMAP

        settings = {"n_neighbors": neighbours, "n_components": components, "min_dist": 0.0, "metric": "cosine"}
        return UMAP(**settings, random_state=seed, n_jobs=1).fit_transform(unit)
