"""GPTQ checkpoints: codes packed along the inputs, zeros along the outputs, as gptqmodel, vLLM and others read them.

For a layer of n inputs and m outputs in groups of g: ``qweight`` int32 (n·bits/32, m), ``qzeros`` int32
(groups, m·bits/32), ``scales`` float16 (groups, m), ``g_idx`` int32 (n), the group of each input; a last group may be
short. Version 1 of the format stores zero - 1, and cannot say that a zero is 0: some loaders add the 1 to whole words,
some to each zero without wrapping. Symmetric models are written so, since all their zeros are in the middle. Asymmetric
ones are written as version 2 (``checkpoint_format`` "gptq_v2"), which stores the zero itself; gptqmodel would take an
asymmetric version 1 from no tool but itself. Loaders compute in half precision, so all else is stored in it too.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from burnish.core.errors import Unsupported
from burnish.core.method import Method
from burnish.models.export.contents import Contents, Rounded
from burnish.models.export.folder import finish, replacing
from burnish.models.export.intent import Intent
from burnish.models.export.weights import repacked, write_folder
from burnish.models.model import Model
from burnish.nn.grid import GridSpec

NAME = "gptq"
BITS = (2, 3, 4, 8)
GROUPS = (-1, 16, 32, 64, 128, 256, 512, 1024)
"""Group sizes that loaders know."""
WORD = 32
"""Codes and zeros are packed in runs of as many as fill whole 32-bit words: 32 of them, whatever their width."""


def check(method: Method) -> None:
    """Refuse grids that the format does not have, and whatever happens online."""
    intent = Intent.of(method)
    intent.refuse_online(NAME)
    if intent.spec is not None:
        intent.refuse(NAME, _faults(intent.spec), FIX)


FIX = "use --bits 4 --group 128 (or 32, 64, -1) with --zero integer or --sym"


def _faults(spec: GridSpec) -> list[str]:
    return [
        *([f"it packs {', '.join(map(str, BITS))} bits, not {spec.bits}"] if spec.bits not in BITS else []),
        *([f"loaders know groups of {', '.join(map(str, GROUPS[1:]))} or -1"] if spec.group not in GROUPS else []),
        *(["its zero points are integers"] if spec.float_zero else []),
    ]


def write(model: Model, folder: Path) -> None:
    """Write a model whose linear layers lie on grids of one kind.

    Raises:
        Unsupported: something that the format cannot say; names the layer or the setting.
    """
    contents = Contents.of(model, NAME)
    spec = contents.single_spec(model, NAME)
    if faults := _faults(spec):
        raise Unsupported(f"{NAME} for {model.name}", "; ".join(faults), FIX)
    for layer in contents.rounded:
        if layer.linear.in_features % WORD or layer.linear.out_features % WORD:
            shape = f"{layer.linear.out_features} x {layer.linear.in_features}"
            raise Unsupported(
                f"{NAME} for {model.name}",
                f"{layer.name} is {shape}, and codes are packed in runs of {WORD} along both sides",
                "use --format compressed-tensors",
            )
    dtype = torch.bfloat16 if model.net.dtype == torch.bfloat16 else torch.float16
    packed = {layer.name: _pack(layer) for layer in contents.rounded}
    tensors = {
        name: tensor.to(dtype) if tensor.is_floating_point() and not name.endswith(".scales") else tensor
        for name, tensor in repacked(model, packed).items()
    }
    with replacing(folder, sum(tensor.nbytes for tensor in tensors.values())) as temporary:
        name = str(dtype).removeprefix("torch.")
        write_folder(model, temporary, tensors, _config(model, contents, spec), name)
        finish(model, temporary, NAME, name)


def _pack(layer: Rounded) -> dict[str, Tensor]:
    """The tensors that stand for a layer's weight."""
    from compressed_tensors.compressors.pack_quantized import pack_to_int32

    codes, grid = layer.quantized.codes, layer.quantized.grid
    spec, inputs = grid.spec, codes.shape[1]
    stored = grid.zero.short() - int(spec.sym)
    return {
        "qweight": pack_to_int32((codes.short() - spec.middle).char().T, spec.bits, packed_dim=0),
        "qzeros": pack_to_int32((stored - spec.middle).char().T, spec.bits),
        "scales": grid.scale.T.half(),
        "g_idx": (torch.arange(inputs) // spec.width(inputs)).int(),
    }


def _config(model: Model, contents: Contents, spec: GridSpec) -> dict[str, Any]:
    """The ``quantization_config``; layers that were not rounded are named, but for the head."""
    config: dict[str, Any] = {
        "quant_method": "gptq",
        "checkpoint_format": "gptq" if spec.sym else "gptq_v2",
        "bits": spec.bits,
        "group_size": spec.group,
        "sym": spec.sym,
        "desc_act": False,
        "lm_head": False,
        "pack_dtype": "int32",
    }
    head = model.net.get_output_embeddings()
    if skipped := [name for name in contents.floating if model.at(name) is not head]:
        config["dynamic"] = {f"-:^{re.escape(name)}$": {} for name in skipped}
    return config
