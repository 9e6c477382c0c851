"""llama.cpp, through the Node package node-llama-cpp, which brings it ready-made: log-probabilities and logits.

llama.cpp multiplies quantized weights with activations that it rounds to 8 bits in blocks of 32, and keeps keys and
values in half precision: its logits are near ours, never equal.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from burnish.core.errors import BadInput, Unsupported

NODE_MODULES = "BURNISH_NODE_MODULES"
"""Environment variable: the folder that holds ``node_modules`` with node-llama-cpp in it."""
SCRIPT = Path(__file__).with_suffix(".mjs")
INSTALL = (
    "in a folder of your choice: npm install --ignore-scripts node-llama-cpp; then set "
    f"{NODE_MODULES} to that folder (Node.js 20 or newer must be on the path)"
)


@dataclass(frozen=True)
class Answer:
    """What llama.cpp found.

    Attributes:
        logprobs: For each window the log-probability of each token but the first.
        logits: (last, vocabulary) float32: logits of the last positions of the last window.
        ids: Tokens of the text.
    """

    logprobs: list[list[float]]
    logits: torch.Tensor
    ids: list[int]


def library() -> Path | None:
    """The module of node-llama-cpp, or None when it, or Node itself, is not installed."""
    where = os.environ.get(NODE_MODULES)
    if not where or shutil.which("node") is None:
        return None
    path = Path(where).expanduser().absolute() / "node_modules" / "node-llama-cpp" / "dist" / "index.js"
    return path if path.is_file() else None


def evaluate(gguf: Path, windows: list[list[int]], last: int = 0, text: str = "", threads: int = 0) -> Answer:
    """Evaluate token sequences, each from an empty context.

    Args:
        gguf: The model file.
        windows: Token ids.
        last: How many positions of the last window give their logits.
        text: A text to cut into tokens, as llama.cpp does.
        threads: Threads; 0 for as many as torch uses here.

    Raises:
        Unsupported: node-llama-cpp is not installed; says how to install it.
        BadInput: llama.cpp cannot load the file; with its own words.
    """
    module = library()
    if module is None:
        raise Unsupported("the loader llama.cpp", "the Node package node-llama-cpp was not found", INSTALL)
    with tempfile.TemporaryDirectory(prefix="burnish-") as scratch:
        out = Path(scratch) / "logits.f32"
        request: dict[str, Any] = {
            "library": str(module),
            "gguf": str(gguf.absolute()),
            "windows": windows,
            "last": last,
            "out": str(out),
            "text": text,
            "threads": threads or torch.get_num_threads(),
        }
        asked = Path(scratch) / "request.json"
        asked.write_text(json.dumps(request), encoding="utf-8")
        done = subprocess.run(["node", str(SCRIPT), str(asked)], capture_output=True, text=True, check=False)
        try:
            answer = json.loads(done.stdout)
        except ValueError:
            words = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
            reason = next((line for line in words if "rror" in line), words[-1] if words else "no word of why")
            raise BadInput(f"llama.cpp cannot evaluate {gguf}: {reason.strip()}", "export the model again") from None
        flat = np.fromfile(out, np.float32) if last else np.empty(0, np.float32)
    return Answer(answer["logprobs"], torch.from_numpy(flat.reshape(max(last, 1), -1)), answer["ids"])


def llama_cpp_nll(gguf: str | Path, tokens: torch.Tensor) -> torch.Tensor:
    """Negative log-likelihood, by llama.cpp, of each token but the first of each window.

    llama.cpp's Node interface adds up the probabilities in single precision, which makes it about 2e-4 too small.

    Args:
        gguf: A GGUF file.
        tokens: (windows, length), or one window.

    Returns:
        (windows, length - 1) float64, in nats.

    Raises:
        Unsupported: node-llama-cpp is not installed.
        BadInput: llama.cpp cannot load the file.
    """
    windows = tokens.view(-1, tokens.shape[-1]).tolist()
    return -torch.tensor(evaluate(Path(gguf), windows).logprobs, dtype=torch.float64)
