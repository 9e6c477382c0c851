"""compressed-tensors: codes packed into 32-bit words, or 8-bit weights with 8-bit activations.

Weights alone become ``pack-quantized``, weights with activation grids ``int-quantized``. Scales are stored in float32
(in half precision for a half-precision model): loaders multiply codes and scales in the dtype of the scale, and only so
do they get the weights that were measured. ``"dequantize": true`` makes transformers decompress while it loads; without
it, it refuses packed zero points, and rounds scales to the model's dtype first.

It cannot be told so for activation grids, nor for several kinds of grid in one model. A bfloat16 model of that sort is
written exactly, and computed by transformers with scales of 8 significant bits; in both 16-bit dtypes it also rounds
activations in 16 bits. The reload check allows for that.
"""

from __future__ import annotations

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
from burnish.nn.activation import TokenGrid
from burnish.nn.grid import GridSpec

NAME = "compressed-tensors"


def check(method: Method) -> None:
    """Refuse grids with a floating-point zero, and what happens online beside activation grids."""
    intent = Intent.of(method)
    intent.refuse_online(NAME, activations=True)
    if intent.spec is not None and intent.spec.float_zero:
        intent.refuse(NAME, [FLOAT_ZERO], FLOAT_ZERO_FIX)


FLOAT_ZERO = "its zero points are integers"
FLOAT_ZERO_FIX = "use --zero integer or --sym; or --format gguf with --bits 4 --group 32 --zero float"


def write(model: Model, folder: Path) -> None:
    """Write a model whose linear layers lie on grids.

    Raises:
        Unsupported: something that the format cannot say; names the layer or the setting.
    """
    contents = Contents.of(model, NAME, activations=True)
    _refuse(model, contents)
    dtype = model.net.dtype
    tensors = repacked(model, {layer.name: _pack(layer, dtype) for layer in contents.rounded})
    config = _config(contents)
    with replacing(folder, sum(tensor.nbytes for tensor in tensors.values())) as temporary:
        write_folder(model, temporary, tensors, config, str(dtype).removeprefix("torch."))
        activations = config["format"] == "int-quantized"
        exact = dtype == torch.float32 or (not activations and ("dequantize" in config or dtype == torch.float16))
        finish(model, temporary, NAME, exact=exact)


def _refuse(model: Model, contents: Contents) -> None:
    what = f"{NAME} for {model.name}"
    ragged = [layer for layer in contents.rounded if not layer.divisible]
    if ragged:
        inputs = sorted({layer.linear.in_features for layer in ragged})
        group = ragged[0].spec.group
        fits = [g for g in (128, 64, 32, 16) if g < group and all(n % g == 0 for n in _widths(contents))]
        raise Unsupported(
            what,
            f"groups of {group} do not divide the {' and '.join(map(str, inputs))} inputs of {ragged[0].name}"
            + (f" and {len(ragged) - 1} other layers" if len(ragged) > 1 else ""),
            f"use --group {fits[0] if fits else -1}, or --format gptq",
        )
    if any(layer.spec.float_zero for layer in contents.rounded):
        raise Unsupported(what, FLOAT_ZERO, FLOAT_ZERO_FIX)
    grids = {layer.tokens for layer in contents.rounded if layer.tokens is not None}
    if wrong := [grid for grid in grids if not grid.sym or grid.clip != 1]:
        raise Unsupported(what, f"its activation grids cover the whole range symmetrically, not as {wrong[0]}")
    schemes = {(layer.spec, layer.tokens) for layer in contents.rounded}
    if len(schemes) > 1 and not grids and any(not layer.spec.sym for layer in contents.rounded):
        raise Unsupported(
            what,
            "its layers lie on several kinds of grid, some of them asymmetric, and transformers decompresses "
            "asymmetric layers only if all are of one kind",
            "use one kind of grid, or --sym",
        )


def _widths(contents: Contents) -> set[int]:
    return {layer.linear.in_features for layer in contents.rounded}


def _pack(layer: Rounded, dtype: torch.dtype) -> dict[str, Tensor]:
    """The tensors that stand for a layer's weight."""
    from compressed_tensors.compressors.pack_quantized import pack_to_int32

    codes, grid = layer.quantized.codes, layer.quantized.grid
    signed = (codes.short() - grid.spec.middle).char()
    scale = grid.scale.to(torch.float16 if dtype == torch.float16 else torch.float32)
    zero = (grid.zero - grid.spec.middle).char()
    if layer.tokens is not None:
        return {"weight": signed, "weight_scale": scale} | ({} if grid.spec.sym else {"weight_zero_point": zero})
    tensors = {
        "weight_packed": pack_to_int32(signed, grid.spec.bits),
        "weight_scale": scale,
        "weight_shape": torch.tensor(codes.shape),
    }
    if not grid.spec.sym:
        tensors["weight_zero_point"] = pack_to_int32(zero, grid.spec.bits, packed_dim=0)
    return tensors


def _config(contents: Contents) -> dict[str, Any]:
    """The ``quantization_config``, checked by the library's own models."""
    from compressed_tensors.quantization import QuantizationConfig

    named: dict[tuple[GridSpec, TokenGrid | None], list[str]] = {}
    for layer in contents.rounded:
        named.setdefault((layer.spec, layer.tokens), []).append(layer.name)
    activations = any(tokens is not None for _, tokens in named)
    groups = {
        f"group_{number}": {
            "targets": ["Linear"] if len(named) == 1 else names,
            "weights": _weights(spec),
            "input_activations": None if tokens is None else _tokens(tokens),
        }
        for number, ((spec, tokens), names) in enumerate(named.items())
    }
    config = QuantizationConfig.model_validate(
        {
            "quant_method": NAME,
            "format": "int-quantized" if activations else "pack-quantized",
            "quantization_status": "compressed",
            "ignore": list(contents.floating),
            "config_groups": groups,
        }
    ).model_dump(mode="json", exclude_none=True)
    # With several kinds, transformers would decompress all layers as the first kind.
    return config | {"dequantize": True} if len(groups) == 1 and not activations else config


def _weights(spec: GridSpec) -> dict[str, Any]:
    shape = {"strategy": "channel"} if spec.group == -1 else {"strategy": "group", "group_size": spec.group}
    return {"num_bits": spec.bits, "type": "int", "symmetric": spec.sym, "dynamic": False, **shape}


def _tokens(grid: TokenGrid) -> dict[str, Any]:
    return {"num_bits": grid.bits, "type": "int", "symmetric": True, "dynamic": True, "strategy": "token"}
