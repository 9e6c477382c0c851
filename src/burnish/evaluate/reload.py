"""Reload: does another tool, in another process, find in an exported folder the model that was measured?

## How it works

An export writes a small record beside the weights: a fixed text as tokens, the logits and log-probabilities that the
model in memory gives them, and a digest of every weight. `reload` starts a fresh process in which the named loader reads
the folder, feeds it the same tokens and compares: the largest difference of a logit, the mean KL divergence, the
negative log-likelihood, every weight, and whether the loader's tokenizer cuts the text into the same tokens. Beyond the
limits it ends with an error.

| loader | reads | weights | allowed | why |
|---|---|---|---|---|
| transformers | hf, compressed-tensors, gguf | equal to the bit | logits 1e-5 | the same operations on the same numbers |
| transformers | 16-bit models with 8-bit activations | | KL 0.01, NLL 0.01 | it rounds scales and activations in 16 bits |
| packed | compressed-tensors | equal to the bit | logits 1e-3, KL 1e-8 | burnish on the codes themselves: sums in another order |
| gptqmodel | gptq | equal to the bit, in half precision | KL 1e-3, NLL 0.005 | its kernels compute in half precision |
| llama.cpp | gguf | not shown | KL 0.02, NLL 0.02 | activations in 8 bits, keys and values in half precision |

`auto` takes the loader that the format is meant for, and transformers for GGUF where llama.cpp is not installed. gptqmodel
wants an environment of its own, whose interpreter `--python` names. llama.cpp comes ready-made with the Node package
node-llama-cpp, whose folder the variable BURNISH_NODE_MODULES names; nothing is built or fetched.

## Differences

None: there is no paper. Packing that does not match what was measured is the most repeated fault of quantization tools.

## When not to use it

It proves that a file is right, not that the model is good: for that see divergence.

## References

KL divergence as the measure of agreement: llama.cpp's perplexity tool.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from burnish.core.run import Run, ensure
from burnish.core.shapes import Analysis
from burnish.data.scores import Table
from burnish.models.reload import compare


class Reload(Analysis):
    """Load an exported folder with another tool, and compare it with the model that was measured."""

    needs: ClassVar[tuple[str, ...]] = ("models",)
    repeats: ClassVar[bool] = True  # what it looks at may have changed under the same name

    loader: Literal["auto", "transformers", "gptqmodel", "llama.cpp", "packed"] = "auto"
    """Who loads it; auto for the one that the format is meant for."""
    python: str = ""
    """Interpreter of an environment that has the loader; by default this one."""
    tolerance: Annotated[float, Field(ge=0)] | None = None
    """Largest difference of a logit that passes, instead of the loader's own limit: for another machine, say."""

    def __call__(self, folder: Path, run: Run | None = None) -> Table:
        """Reload and compare.

        Args:
            folder: What was exported, or the run folder around it.
            run: Where figures go.

        Returns:
            A row a measure: item_id, value, limit (NaN for none), holds.

        Raises:
            Mismatch: the loader finds another model; lists every measure beyond its limit.
            BadInput: the folder was not exported by burnish, or the loader cannot load it.
            Unsupported: the loader is not installed, or does not read this format.
        """
        run = ensure(run)
        found = compare(Path(folder), self.loader, self.python, self.tolerance)
        run.metric(
            logit_difference=found.logits,
            kl=found.kl,
            nll=found.nll,
            nll_difference=found.nll - found.base_nll,
            **({} if found.weights is None else {"weights_that_differ": len(found.weights)}),
        )
        found.require(folder)
        return Table.of(found.rows(), loader=found.loader, format=found.format)
