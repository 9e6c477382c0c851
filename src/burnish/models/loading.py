"""Loading a model by name, folder, GGUF file or hub id, and saving it as an ordinary folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from burnish.core.errors import BadInput, Unsupported
from burnish.models.export import export
from burnish.models.model import Lineage, Model
from burnish.models.resolve import Resolved, resolve

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def load(
    name: str | Path, *, device: str = "auto", dtype: str = "auto", notify: Callable[[str], None] | None = None
) -> Model:
    """Load a causal language model for evaluation.

    Args:
        name: A short name (`burnish models list`), a Hugging Face folder, a .gguf file, or a hub id.
        device: "auto" (a GPU where there is one), "cpu", "cuda", "mps".
        dtype: "auto" (float32 on a CPU, the checkpoint's own elsewhere), "float32", "bfloat16", "float16".
        notify: Is told, in a line, what is fetched and under which licence.

    Raises:
        BadInput: nothing of that name, or a damaged folder.
        Unsupported: an architecture that transformers does not know, or that needs code from the checkpoint.
    """
    target = pick_device(device)
    if dtype != "auto" and dtype not in DTYPES:
        raise BadInput(f"dtype {dtype!r} is not known", "one of: auto, " + ", ".join(DTYPES))
    return open_folder(resolve(str(name), notify or (lambda line: None)), target, dtype)


def open_folder(found: Resolved, device: torch.device, dtype: str = "auto") -> Model:
    """Load a folder that `resolve` found."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    kind: Any = DTYPES.get(dtype) or (torch.float32 if device.type == "cpu" else "auto")
    try:
        with quiet():
            net = AutoModelForCausalLM.from_pretrained(found.folder, dtype=kind, local_files_only=True)
            tokenizer = AutoTokenizer.from_pretrained(found.folder, local_files_only=True)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        if "trust_remote_code" in str(error) or "does not recognize this architecture" in str(error):
            raise Unsupported(f"the model in {found.folder}", f"transformers cannot build it: {reason}") from None
        raise BadInput(f"{found.folder} cannot be loaded: {reason}", "check that its files are whole") from None
    net.requires_grad_(False)
    return Model(net.eval().to(device), tokenizer, Lineage(found.name, found.source))


@contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers from drawing progress bars of its own."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def save(model: Model, folder: str | Path) -> Path:
    """Write an ordinary Hugging Face folder, and ``burnish.json`` beside it."""
    return export(model, folder, "hf")


def pick_device(name: str) -> torch.device:
    """The device that a name means; "auto" is a GPU where there is one.

    Raises:
        BadInput: a device that this machine does not have.
    """
    present = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        return torch.device("cuda" if present["cuda"] else "mps" if present["mps"] else "cpu")
    kind = name.split(":")[0]
    if kind not in present:
        raise BadInput(f"device {name!r} is not known", "one of: auto, " + ", ".join(present))
    if not present[kind]:
        raise BadInput(f"there is no device {name!r} on this machine", "use --device cpu")
    return torch.device(name)
