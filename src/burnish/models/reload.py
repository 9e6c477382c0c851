"""The proof of an export: another process loads the folder with another tool, and must find the model that was measured.

When a folder is written, a small record goes into it: a fixed text as tokens, the logits of the last positions as the
model in memory computes them, the log-probability of every token, and a digest of every weight. `compare` can then be
called at any time, with nothing but the folder.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from burnish.core.errors import BadInput, Mismatch, Unsupported
from burnish.models.loaders import causal_lm, llama_cpp
from burnish.models.loaders.causal_lm import RECORD, digests, log_probabilities
from burnish.models.model import Model

Loader = Literal["transformers", "gptqmodel", "llama.cpp", "packed"]

READERS: dict[str, tuple[Loader, ...]] = {
    "hf": ("transformers",),
    "compressed-tensors": ("transformers", "packed"),
    "gptq": ("gptqmodel",),
    "gguf": ("llama.cpp", "transformers"),
}
"""Format to the loaders that read it, the one it is meant for first."""

LENGTH = 256
"""Tokens of the record at most."""
LOGITS = 1_000_000
"""Logits that the record holds at most, but for four positions at least: 4 MB."""

QUIET = {
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    # gptqmodel would compile its dequantizer, which takes a C++ compiler and minutes
    "TORCHDYNAMO_DISABLE": "1",
}
"""Environment of the fresh process."""

PASSAGE = """The lighthouse keeper wrote down the weather every evening at six, and had done so since 1987. On calm days
the entry was short: wind from the west, 12 knots, clear, nothing to report. On other days she filled a page. In the
winter of her third year a storm took the small boat, two fences and most of the roof, and she noted the price of each:
£340 for the boat, £75 for the fences; the roof was paid for by the harbour office, which sent a man named Æmilius
Brandt to repair it. He stayed for 9 days, ate a great deal of soup, and asked why anyone would keep such a book.

"Because nobody remembers the weather," she said. "They remember that it was bad, or that it was good. Ask them which
way the wind blew on the day of the wedding, and they don't know. I do."

He thought about this. "And has anybody ever asked you?"

"Twice."   The first had been a lawyer, who needed to prove that a ship could not have seen the light; the second was a
child, who wanted to know whether it had rained on the day when she was born.

    def mean(values):
        return sum(values) / len(values)

It had: 4.5 mm, between three and five in the morning, with a light wind from the south-east (naïve to expect better).
"""
"""What the record's tokens are made of: prose, figures, a little code, letters outside ASCII, runs of blanks."""


@dataclass(frozen=True)
class Limits:
    """What a loader may differ by, and why it differs at all.

    Attributes:
        logits: Largest difference of a logit; None where the loader's arithmetic rules out a useful bound.
        kl: Mean KL divergence from the model in memory.
        nll: Difference of the mean negative log-likelihoods; 0.005 is half a percent of perplexity.
        weights: How many weights may differ; None where the loader keeps them otherwise.
    """

    logits: float | None
    kl: float
    nll: float
    weights: int | None = 0


LIMITS: dict[Loader, Limits] = {
    # The same weights and the same operations: nothing but the order of sums may differ.
    "transformers": Limits(1e-5, 1e-9, 1e-5),
    # The same weights; sums in another order than a product of plain matrices has.
    "packed": Limits(1e-3, 1e-8, 1e-5),
    # Its kernels compute in half precision.
    "gptqmodel": Limits(None, 1e-3, 5e-3),
    # It rounds activations to 8 bits in blocks of 32 and keeps keys and values in half precision. What that costs
    # averages out over a long text (far below half a percent of perplexity), less so over a record's few hundred tokens.
    "llama.cpp": Limits(None, 2e-2, 2e-2),
}
INEXACT = Limits(None, 1e-2, 1e-2, weights=None)
"""For a format whose loader rounds scales or activations to 16 bits where the model in memory does not."""


@dataclass(frozen=True)
class Record:
    """What an exported folder says about the model that it was made from.

    Attributes:
        facts: format, dtype, exact, device, threads, text, last, weights (name to digest).
        ids: (ids,) int64: the whole text as tokens, without special ones.
        tokens: (tokens,) int64: what was fed to the model, the text's beginning as the tokenizer gives it.
        logits: (last, vocabulary) float32, of the last positions.
        logprobs: (tokens - 1,) float32.
    """

    facts: dict[str, Any]
    ids: Tensor
    tokens: Tensor
    logits: Tensor
    logprobs: Tensor


@dataclass(frozen=True)
class Comparison:
    """What a loader made of a folder, beside the model in memory.

    Attributes:
        loader: Who loaded it.
        format: What it is.
        logits: Largest difference of a logit.
        kl: Mean KL divergence (nats a token) of the loader's predictions from those of the model in memory.
        nll: The loader's mean negative log-likelihood, nats a token.
        base_nll: That of the model in memory.
        weights: Names of the weights that differ; None when the loader does not show its weights.
        tokens: Whether the loader's tokenizer cuts the text into the same tokens.
        limits: What is allowed.
    """

    loader: Loader
    format: str
    logits: float
    kl: float
    nll: float
    base_nll: float
    weights: tuple[str, ...] | None
    tokens: bool
    limits: Limits

    def rows(self) -> list[dict[str, Any]]:
        """One row a measure: item_id, value, limit (NaN for none), holds."""
        measured: list[tuple[str, float, float | None]] = [
            ("largest logit difference", self.logits, self.limits.logits),
            ("mean KL", self.kl, self.limits.kl),
            ("NLL difference", abs(self.nll - self.base_nll), self.limits.nll),
            ("text cut into other tokens", float(not self.tokens), 0.0),
        ]
        if self.weights is not None:
            measured.insert(0, ("weights that differ", float(len(self.weights)), self.limits.weights))
        return [
            {
                "item_id": name,
                "value": value,
                "limit": float("nan") if limit is None else limit,
                # written so that a value that is no number fails
                "holds": limit is None or value <= limit,
            }
            for name, value, limit in measured
        ]

    def said(self) -> str:
        """In a line, for people."""
        weights = "" if self.weights is None or self.limits.weights is None else ", every weight equal"
        return (
            f"{self.loader} loads it in a fresh process{weights}: "
            f"largest logit difference {self.logits:.2g}, mean KL {self.kl:.2g}"
        )

    def require(self, folder: Path) -> None:
        """Raise Mismatch, with every measure beyond its limit, unless all are within."""
        if faults := self.faults():
            raise Mismatch(
                "\n  ".join([f"{self.loader} finds another model in {folder}:", *faults]),
                "do not use this export; if it was moved from another machine, "
                "`burnish evaluate reload --tolerance 1e-3` allows for its arithmetic",
            )

    def faults(self) -> list[str]:
        """A line for each measure beyond its limit."""
        lines = [f"{r['item_id']}: {r['value']:.3g}, allowed {r['limit']:.3g}" for r in self.rows() if not r["holds"]]
        if self.weights and self.limits.weights is not None:
            more = f" and {len(self.weights) - 3} more" if len(self.weights) > 3 else ""
            lines.append("weights: " + ", ".join(self.weights[:3]) + more)
        return lines


def write_record(model: Model, folder: Path, format: str, dtype: str = "", exact: bool = True) -> None:
    """Write the record of `model` into an exported folder.

    Args:
        model: The model in memory.
        folder: Where it was exported to.
        format: The format.
        dtype: What loaders of this format compute in; by default the model's own dtype.
        exact: Whether transformers computes the same as the model in memory.
    """
    from safetensors.torch import save_file

    own = str(next(model.net.parameters()).dtype).removeprefix("torch.")
    ids = torch.tensor(model.tokenizer(PASSAGE, add_special_tokens=False, verbose=False)["input_ids"])
    # with the beginning of a sequence where the tokenizer adds one: models that expect it are lost without it
    tokens = torch.tensor(model.tokenizer(PASSAGE, verbose=False)["input_ids"])
    tokens = tokens[: min(LENGTH, int(getattr(model.config, "max_position_embeddings", LENGTH)))].clone()
    with torch.no_grad():
        logits = model.net(input_ids=tokens[None].to(model.device), use_cache=False).logits[0].float().cpu()
    facts = {
        "format": format,
        "dtype": dtype or own,
        "exact": exact,
        "device": model.device.type,
        "threads": torch.get_num_threads(),
        "text": PASSAGE,
        "last": min(len(tokens), max(4, LOGITS // logits.shape[1])),
        "weights": digests(model.net.state_dict(), getattr(torch, dtype or own)),
    }
    tensors = {
        "ids": ids,
        "tokens": tokens,
        "logits": logits[-facts["last"] :].contiguous(),
        "logprobs": log_probabilities(logits, tokens),
    }
    save_file(tensors, folder / RECORD, metadata={"facts": json.dumps(facts)})


def read_record(folder: Path) -> Record:
    """The record in an exported folder.

    Raises:
        BadInput: there is none, or it is damaged.
    """
    from safetensors import SafetensorError, safe_open

    path = folder / RECORD
    if not path.is_file():
        raise BadInput(
            f"{folder} has no {RECORD}", "give a folder that burnish exported, as `--out` or `export` made it"
        )
    try:
        with safe_open(path, "pt") as file:
            facts = json.loads(file.metadata()["facts"])
            tensors = [file.get_tensor(name) for name in ("ids", "tokens", "logits", "logprobs")]
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{path} is damaged: {error}", "export the model again") from None
    return Record(facts, *tensors)


def find_folder(folder: Path) -> Path:
    """The exported folder itself, when a run's folder is given."""
    return folder / "artifact" if not (folder / RECORD).is_file() and (folder / "artifact").is_dir() else folder


def pick_loader(format: str) -> Loader:
    """The loader that a format is meant for; for GGUF, transformers where there is no llama.cpp."""
    if format not in READERS:
        raise BadInput(f"the record names the unknown format {format!r}", "export the model again")
    return "transformers" if format == "gguf" and llama_cpp.library() is None else READERS[format][0]


def compare(
    folder: Path, loader: Loader | Literal["auto"] = "auto", python: str = "", tolerance: float | None = None
) -> Comparison:
    """Load an exported folder in a fresh process and compare it with its record.

    Args:
        folder: What was exported, or the run folder around it.
        loader: Who loads it; "auto" for the one that the format is meant for.
        python: For the loaders in Python: the interpreter that has them, by default this one.
        tolerance: Largest difference of a logit that passes, instead of the loader's own limit.

    Raises:
        BadInput: no record, or the loader cannot load the folder; with the loader's own words.
        Unsupported: the loader is not installed (says how to install it), or does not read this format.
    """
    folder = find_folder(folder)
    record = read_record(folder)
    format = record.facts["format"]
    chosen = pick_loader(format) if loader == "auto" else loader
    if chosen not in READERS.get(format, ()):
        readers = " or ".join(READERS.get(format, ()))
        raise Unsupported(f"the loader {chosen} for {folder}", f"it does not read {format}", f"use --loader {readers}")
    limits = LIMITS[chosen] if record.facts["exact"] else INEXACT
    load = _llama_cpp if chosen == "llama.cpp" else _python
    logits, logprobs, ids, weights = load(folder, chosen, record, python)
    ours = record.logits.log_softmax(1).double()
    theirs = logits.log_softmax(1).double()
    return Comparison(
        loader=chosen,
        format=format,
        logits=float((logits - record.logits).abs().max()),
        kl=float((ours.exp() * (ours - theirs)).sum(1).mean()),
        nll=float(-logprobs.double().mean()),
        base_nll=float(-record.logprobs.double().mean()),
        weights=None if weights is None else _different(record.facts["weights"], weights),
        tokens=ids == record.ids.tolist(),
        limits=limits if tolerance is None else replace(limits, logits=tolerance),
    )


def _different(ours: dict[str, str], theirs: dict[str, str]) -> tuple[str, ...]:
    return tuple(name for name, digest in ours.items() if theirs.get(name) != digest)


def _threads(record: Record) -> int:
    """As many threads as computed the record, so that sums have the same order; on a smaller machine, all it has."""
    return min(int(record.facts["threads"]), os.cpu_count() or 1)


Found = tuple[Tensor, Tensor, list[int], dict[str, str] | None]
"""Logits, log-probabilities, token ids of the text, digests of the weights."""


def _llama_cpp(folder: Path, loader: str, record: Record, python: str) -> Found:
    answer = llama_cpp.evaluate(
        folder / "model.gguf",
        [record.tokens.tolist()],
        last=record.facts["last"],
        text=record.facts["text"],
        threads=_threads(record),
    )
    return answer.logits, torch.tensor(answer.logprobs[0]), answer.ids, None


def _python(folder: Path, loader: str, record: Record, python: str) -> Found:
    from safetensors import safe_open

    interpreter = python or sys.executable
    environment = {**os.environ, **QUIET, "OMP_NUM_THREADS": str(_threads(record))}
    with tempfile.TemporaryDirectory(prefix="burnish-") as scratch:
        out = Path(scratch) / "found.safetensors"
        script = Path(causal_lm.__file__)
        command = [interpreter, "-P", str(script), loader, str(folder.absolute()), str(out)]
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, env=environment
            )
        except OSError as error:
            raise BadInput(f"{interpreter} cannot be run: {error.strerror}", "give --python an interpreter") from None
        if not out.is_file():
            raise _failed(folder, loader, interpreter, done.stderr)
        with safe_open(out, "pt") as file:
            logits, logprobs, ids = (file.get_tensor(name) for name in ("logits", "logprobs", "ids"))
            weights = json.loads(file.metadata()["weights"])
    return logits, logprobs, ids.tolist(), weights


def _failed(folder: Path, loader: str, interpreter: str, words: str) -> BadInput | Unsupported:
    reason = next((line.strip() for line in reversed(words.splitlines()) if line.strip()), "it gave no reason")
    if "ModuleNotFoundError" in reason:
        package = {"gptqmodel": "gptqmodel"}.get(loader, "transformers")
        return Unsupported(
            f"the loader {loader}",
            f"{interpreter} lacks a package ({reason.partition(': ')[2]})",
            f"make an environment of its own (python -m venv DIR; DIR/bin/pip install {package}) and give "
            f"--python DIR/bin/python",
        )
    return BadInput(f"{loader} cannot load {folder}: {reason}", "export the model again")
