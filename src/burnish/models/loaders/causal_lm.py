"""Load a model folder in a process of its own, and write down what it holds and computes.

    python causal_lm.py transformers|gptqmodel|packed FOLDER OUT

FOLDER holds a reload record, whose tokens are fed to the model. OUT becomes a safetensors file: the logits of the last
positions, the log-probability of each token but the first, the ids that the folder's tokenizer gives the record's text,
and (as JSON in its metadata) a SHA-256 of each weight. The file is run, not imported: the interpreter that runs it may
be one that has no burnish.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

RECORD = "burnish-reload.safetensors"


def main(loader: str, folder: Path, out: Path) -> None:
    """See the module."""
    import torch
    from safetensors import safe_open
    from safetensors.torch import save_file

    with safe_open(folder / RECORD, "pt") as record:
        facts = json.loads(record.metadata()["facts"])
        tokens = record.get_tensor("tokens").long()
    torch.set_num_threads(min(facts["threads"], os.cpu_count() or 1))
    device = facts["device"] if facts["device"] != "cuda" or torch.cuda.is_available() else "cpu"
    dtype = getattr(torch, facts["dtype"])
    load = {"transformers": with_transformers, "gptqmodel": with_gptqmodel, "packed": on_its_codes}[loader]
    net = load(folder, facts["format"], dtype, device)
    with torch.no_grad():
        logits = net(input_ids=tokens[None].to(device), use_cache=False).logits[0].float().cpu()
    found = {"logits": logits[-facts["last"] :].clone(), "logprobs": log_probabilities(logits, tokens)}
    found["ids"] = torch.tensor(tokenizer(folder)(facts["text"], add_special_tokens=False)["input_ids"])
    save_file(found, out, metadata={"weights": json.dumps(digests(weights(net), dtype))})


def with_transformers(folder: Path, format: str, dtype: Any, device: str) -> Any:
    """The model as transformers loads it; compressed weights are decompressed by its first forward pass."""
    from transformers import AutoModelForCausalLM

    config = folder / "config.json"  # a GGUF file has none beside it
    if config.is_file() and json.loads(config.read_text(encoding="utf-8")).get("model_type", "").startswith("burnish"):
        from burnish.models.quantized import register  # the one thing here that takes burnish

        register()
    more: dict[str, Any] = {}
    if format == "gguf":
        from transformers import GgufConfig

        more = {"gguf_file": "model.gguf", "quantization_config": GgufConfig(dequantize=True)}
    net = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, local_files_only=True, **more)
    return net.eval().to(device)


def with_gptqmodel(folder: Path, format: str, dtype: Any, device: str) -> Any:
    """The model as gptqmodel loads it, with its plain torch kernel."""
    from gptqmodel import BACKEND, GPTQModel

    backend = BACKEND.GPTQ_TORCH if hasattr(BACKEND, "GPTQ_TORCH") else BACKEND.TORCH
    return GPTQModel.load(str(folder.absolute()), device=device, backend=backend, dtype=dtype).model.eval()


def on_its_codes(folder: Path, format: str, dtype: Any, device: str) -> Any:
    """The model as burnish runs it packed; embedding and head as they are, so that every number can be compared.

    Compiled steps are compared with it whenever they are made: see `burnish.engine.fused.fuse`.
    """
    from burnish.models.packed_folder import open_packed

    return open_packed(folder, head_bits=16).net


def tokenizer(folder: Path) -> Any:
    """The folder's tokenizer."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder, local_files_only=True)


def weights(net: Any) -> dict[str, Any]:
    """Every weight by name; those of packed layers as the layer itself dequantizes them."""
    found = dict(net.state_dict())
    for name, module in net.named_modules():
        if hasattr(module, "dequantize_weight"):
            # gptqmodel keeps a matrix as (inputs, outputs); it pads inputs that fill no whole word
            found[f"{name}.weight"] = module.dequantize_weight().T[: module.out_features, : module.in_features]
        elif hasattr(module, "dequantized"):
            found[f"{name}.weight"] = module.dequantized()
    return found


def log_probabilities(logits: Any, tokens: Any) -> Any:
    """Log-probability of each token but the first: (tokens - 1,) float32, from (tokens, vocabulary) logits."""
    chosen = logits[:-1].gather(1, tokens[1:, None])[:, 0]
    return chosen - logits[:-1].logsumexp(1)


def digests(tensors: dict[str, Any], dtype: Any) -> dict[str, str]:
    """SHA-256 of each floating-point tensor's shape and values, in that dtype."""
    import torch

    found = {}
    for name, tensor in tensors.items():
        if not tensor.is_floating_point():
            continue
        plain = tensor.detach().to("cpu", dtype).contiguous()
        digest = hashlib.sha256(str(tuple(plain.shape)).encode())
        digest.update(plain.reshape(-1).view(torch.uint8).numpy())
        found[name] = digest.hexdigest()
    return found


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
