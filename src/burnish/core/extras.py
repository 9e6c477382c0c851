"""Optional dependencies: which packages an extra brings, and a clear refusal when they are absent."""

from __future__ import annotations

import importlib.util

from burnish.core.errors import MissingExtra

EXTRAS: dict[str, tuple[str, ...]] = {
    "models": ("torch", "transformers", "datasets", "safetensors", "gguf", "compressed_tensors", "jaxtyping"),
    "train": ("trl", "peft"),
    "cluster": ("sklearn", "umap"),
    "chem": ("rdkit", "matchms"),
    "graphs": ("torch_geometric",),
    "mesh": ("trimesh",),
    "inspect": ("inspect_ai",),
    "overlap": ("rensa",),
    "translation": ("sacrebleu",),
    "serve": ("fastapi", "uvicorn", "sse_starlette"),
    "workspaces": (
        "tree_sitter",
        "tree_sitter_python",
        "networkx",
        "bm25s",
        "rapidfuzz",
        "pypdf",
        "docx",
        "openpyxl",
        "pptx",
        "PIL",
    ),
    "ray": ("ray",),
    "ppi": ("ppi_py",),
    "kernels": ("burnish_kernels",),
    "triton": ("triton",),
}
"""Import names that each extra must bring."""


def missing(extra: str) -> list[str]:
    """Import names of `extra` that cannot be found; nothing is imported."""
    return [name for name in EXTRAS[extra] if importlib.util.find_spec(name) is None]


def require(what: str, *extras: str) -> None:
    """Refuse, naming the exact pip line, when an extra that `what` needs is not installed.

    Raises:
        MissingExtra: for the first extra that is incomplete.
    """
    for extra in extras:
        if lacks := missing(extra):
            raise MissingExtra(what, extra, lacks)
