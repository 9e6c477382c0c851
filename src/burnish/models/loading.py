"""Loading a model by name, folder, GGUF file or hub id, and saving it as an ordinary folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from logging import Filter, LogRecord
from pathlib import Path
from typing import Any

import torch

from burnish.core.errors import BadInput, BurnishError, Unsupported
from burnish.models.checkpoint import require_sound
from burnish.models.export import export
from burnish.models.model import Lineage, Model
from burnish.models.resolve import Resolved, resolve

MOST = 5
"""Weights that an error lists."""

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
        BadInput: nothing of that name, or a damaged folder: files that cannot be read or contradict each other, and
            weights that are missing, of another shape or left over (transformers would go on with random numbers).
        Unsupported: no causal language model, an architecture that transformers does not know, or one that needs code
            from the checkpoint, which is never run.
    """
    target = pick_device(device)
    if dtype != "auto" and dtype not in DTYPES:
        raise BadInput(f"dtype {dtype!r} is not known", "one of: auto, " + ", ".join(DTYPES))
    return open_folder(resolve(str(name), notify or (lambda line: None)), target, dtype)


def open_folder(found: Resolved, device: torch.device, dtype: str = "auto") -> Model:
    """Load a folder that `resolve` found; the errors are those of `load`."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    require_sound(found.folder)
    kind: Any = DTYPES.get(dtype) or (torch.float32 if device.type == "cpu" else "auto")
    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    try:
        with quiet():
            # Weights of another shape are listed too, instead of ending the load with a table.
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                found.folder, dtype=kind, output_loading_info=True, ignore_mismatched_sizes=True, **options
            )
            tokenizer = AutoTokenizer.from_pretrained(found.folder, **options)
        net, info = loaded
    except (BurnishError, MemoryError):
        raise
    except Exception as error:  # whatever a configuration or a file that lies brings a reader to
        reason = " ".join(str(error).split())[:200] or "no reason is given"
        if "trust_remote_code" in str(error) or "does not recognize this architecture" in str(error):
            raise Unsupported(f"the model in {found.folder}", f"transformers cannot build it: {reason}") from None
        raise BadInput(
            f"{found.folder} cannot be loaded: {type(error).__name__}: {reason}", "check that its files are whole"
        ) from error
    _require_whole(found.folder, info)
    net.requires_grad_(False)
    return Model(net.eval().to(device), tokenizer, Lineage(found.name, found.source))


def _require_whole(folder: Path, info: dict[str, Any]) -> None:
    """Refuse weights that were made up, and layers left over; other extra tensors (old rotary caches) do no harm."""
    mismatched = [str(name[0] if isinstance(name, tuple) else name) for name in info["mismatched_keys"]]
    left = [name for name in info["unexpected_keys"] if "layers." in name and name.endswith(".weight")]
    names = [*sorted(info["missing_keys"]), *sorted(mismatched), *sorted(left)]
    if names:
        more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
        raise BadInput(
            f"configuration and weights in {folder} do not fit: {', '.join(names[:MOST])}{more} missing, "
            "of another shape or left over",
            "give a whole checkpoint with its own config.json: missing weights would be random numbers",
        )


@contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers from drawing progress bars of its own, and tables of weights that become an error here."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    tables = logging.get_logger("transformers.modeling_utils")
    no_table = _NoTable()
    tables.addFilter(no_table)
    try:
        yield
    finally:
        tables.removeFilter(no_table)
        if shown:
            logging.enable_progress_bar()


class _NoTable(Filter):
    def filter(self, record: LogRecord) -> bool:
        return "LOAD REPORT" not in record.getMessage()


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
