"""Reload: does the tool that an export is for find the model that was measured?

## How it works

Every exported folder holds a small record (``burnish-reload.safetensors``): a fixed text as tokens, logits and
log-probabilities of the model in memory, and a digest of every weight. Reload starts a fresh process, loads the folder
with the named loader, and compares: weights bit for bit where the loader shows them, the largest difference of a logit,
the mean KL divergence, and the mean negative log-likelihood. Beyond a limit it ends with an error.

## Differences

The limits follow from each loader's arithmetic. transformers does the same operations on the same weights: 1e-5 on
logits. gptqmodel's kernels compute in half precision, and llama.cpp rounds activations to 8 bits in blocks of 32: there
the limits are on KL and on perplexity (half a percent), and the weights are compared where they are shown.

## When not to use it

It proves that a file is read right, not that the model is good: see divergence.

## References

The loaders: transformers with compressed-tensors, gptqmodel, and llama.cpp through the npm package node-llama-cpp.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

from burnish.core.errors import Mismatch
from burnish.core.run import Run, ensure
from burnish.core.shapes import Analysis
from burnish.data.scores import Table


class Reload(Analysis):
    """Load an export in a fresh process with the tool that it is for, and compare it with what was measured."""

    needs: ClassVar[tuple[str, ...]] = ("models",)

    loader: Literal["auto", "transformers", "gptqmodel", "llama.cpp"] = "auto"
    """Which tool loads it; auto takes the one that the format is meant for."""
    python: str = ""
    """Interpreter that has the loader's package; this one when empty."""

    def __call__(self, folder: Path, run: Run | None = None) -> Table:
        """Compare.

        Args:
            folder: What `burnish compress` wrote: the artifact, or the run folder around it.
            run: Where the figures go.

        Raises:
            Mismatch: the loader found another model.
            BadInput: no record in the folder, or the loader cannot load it.
            Unsupported: the loader is not installed, or does not read the format.
        """
        from burnish.models.reload import compare

        run = ensure(run)
        found = compare(Path(folder), self.loader, self.python)
        rows = found.rows()
        run.metric(loader=found.loader, format=found.format, **{row["item_id"]: row["value"] for row in rows})
        if faults := found.faults():
            raise Mismatch(
                f"{found.loader} finds another model in {folder}\n" + "\n".join(f"  {line}" for line in faults)
            )
        return Table.of(rows, loader=found.loader, format=found.format)
