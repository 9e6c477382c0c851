"""Sentence embeddings: a small BERT encoder, the mean of its token states, length one.

The folder is laid out as the sentence-transformers library writes it: ``modules.json`` names the steps,
``1_Pooling/config.json`` the way token states become one vector, ``sentence_bert_config.json`` the longest text and
whether case is dropped.
A step or a pooling that this file does not compute is refused.

Source: Reimers and Gurevych, Sentence-BERT (EMNLP 2019), section 3: mean pooling.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize
from transformers import AutoModel, AutoTokenizer

from burnish.core.errors import BadInput, Unsupported

_STEPS = (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"])


class Embedder:
    """Turns texts into vectors whose dot product is their cosine similarity.

    Args:
        folder: A sentence-transformers folder with mean pooling, e.g. that of all-MiniLM-L6-v2.
        device: Where to compute.
        batch_size: Texts that are embedded together; the vectors do not depend on it.

    Raises:
        BadInput: the folder, or one of its files, is missing or damaged.
        Unsupported: it asks for another pooling or for a step besides.
    """

    def __init__(self, folder: Path | str, *, device: str = "cpu", batch_size: int = 32) -> None:
        self.folder = Path(folder)
        _check(self.folder)
        local: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
        try:
            self.tokenizer = AutoTokenizer.from_pretrained(self.folder, **local)
            net = AutoModel.from_pretrained(self.folder, use_safetensors=True, dtype=torch.float32, **local)
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise BadInput(f"{self.folder} cannot be loaded: {reason}", "fetch the model again") from None
        self.net = net.eval().to(device)
        how = "sentence_bert_config.json"
        text = _read(self.folder, how) if (self.folder / how).exists() else {}
        self.longest = int(text.get("max_seq_length") or net.config.max_position_embeddings)
        self.lower = bool(text.get("do_lower_case"))
        self.batch_size = batch_size

    @torch.no_grad()
    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One vector of length 1 for each text, shape (texts, hidden); a text's end beyond the model's reach is cut."""
        vectors = np.empty((len(texts), self.net.config.hidden_size), dtype=np.float32)
        if not texts:
            return vectors
        given = [text.lower() for text in texts] if self.lower else list(texts)
        ids = self.tokenizer(given, truncation=True, max_length=self.longest)["input_ids"]
        order = sorted(range(len(texts)), key=lambda number: -len(ids[number]))
        for begin in range(0, len(order), self.batch_size):
            batch = order[begin : begin + self.batch_size]
            padded = self.tokenizer.pad({"input_ids": [ids[number] for number in batch]}, return_tensors="pt")
            padded = padded.to(self.net.device)
            states = self.net(**padded).last_hidden_state
            vectors[batch] = normalize(mean(states, padded["attention_mask"].bool()), dim=-1).cpu().numpy()
        return vectors


def mean(
    states: Float[Tensor, "texts tokens hidden"], real: Bool[Tensor, "texts tokens"]
) -> Float[Tensor, "texts hidden"]:
    """The mean of each text's own token states, padding left out."""
    weight = real[..., None].to(states.dtype)
    return (states * weight).sum(1) / weight.sum(1).clamp(min=1e-9)


def _check(folder: Path) -> None:
    steps = _read(folder, "modules.json")
    if not isinstance(steps, list) or not all(isinstance(step, dict) and "type" in step for step in steps):
        raise BadInput(f"{folder / 'modules.json'} lists no steps", "fetch the model again")
    kinds = [str(step["type"]).rsplit(".", 1)[-1] for step in steps]
    if kinds not in _STEPS:
        raise Unsupported(f"the embedding model in {folder}", f"its steps are {', '.join(kinds)}")
    pooling = _read(folder, f"{steps[1].get('path', '1_Pooling')}/config.json")
    # Older files have a switch for each way, newer ones name it.
    ways = [name.removeprefix("pooling_mode_") for name, on in pooling.items() if name != "pooling_mode" and on is True]
    ways = [way for way in ways if way != "include_prompt"]
    named = pooling.get("pooling_mode", ways)
    if named not in ("mean", ["mean"], ["mean_tokens"]):
        raise Unsupported(f"the embedding model in {folder}", f"it pools by {named}, not by the mean")


def _read(folder: Path, name: str) -> Any:
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise BadInput(f"{folder / 'modules.json'} points outside its folder: {name}", "do not use this model")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadInput(f"{folder} has no {name}", "give a folder as sentence-transformers writes it") from None
    except ValueError:
        raise BadInput(f"{path} is damaged", "fetch the model again") from None
