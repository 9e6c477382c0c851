"""Opening an exported folder on its codes: compressed-tensors in, a packed model out, no floating-point weights in between.

transformers reads such a folder too, but decompresses it: the file shrinks, memory and time do not.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from burnish.core.errors import BadInput, Unsupported
from burnish.models.adapters import at
from burnish.models.checkpoint import require_sound
from burnish.models.loading import quiet
from burnish.models.model import Lineage, Model
from burnish.models.packed import pack_ends, put
from burnish.models.reload import find_folder
from burnish.models.resolve import resolve
from burnish.nn.grid import Grid, GridSpec, Quantized
from burnish.nn.packed import PackedLinear

FORMAT = "pack-quantized"
PACKED = ("weight_packed", "weight_shape", "weight_scale", "weight_zero_point")
"""The tensors that stand for a weight."""
HOW = "compress it first: burnish compress gptq MODEL --bits 4 --group 32 --format compressed-tensors"


def open_packed(name: str | Path, head_bits: int = 8, notify: Callable[[str], None] = lambda line: None) -> Model:
    """Open a compressed-tensors folder on the CPU.

    Args:
        name: The folder, a run's folder around it, or whatever `burnish.load` finds such a folder by.
        head_bits: 8 puts embedding and head on the grid of Q8_0; 16 leaves them as they are.
        notify: Is told what is fetched.

    Raises:
        BadInput: no such model, or a damaged folder.
        Unsupported: it is not packed, or packed in a way that the layers here do not know.
    """
    path = Path(name)
    found = resolve(str(find_folder(path)) if path.is_dir() else str(name), notify)
    require_sound(found.folder)
    said = json.loads((found.folder / "config.json").read_text(encoding="utf-8"))
    specs = _specs(found.folder, said.get("quantization_config") or {})
    net = _empty(found.folder)
    kept: dict[str, Tensor] = {}
    with quiet():
        for layer, tensors in _by_layer(found.folder):
            if any(name in tensors for name in PACKED):
                put(net, layer, _layer(layer, _linear(net, layer), specs, tensors))
                continue
            # Copies: a tensor of the file would keep all of it in memory.
            kept |= {f"{layer}.{key}": value.to(torch.float32, copy=True) for key, value in tensors.items()}
    try:
        net.load_state_dict(kept, strict=False, assign=True)
    except RuntimeError as error:
        raise BadInput(f"{found.folder}: {' '.join(str(error).split())[:200]}", "export the model again") from None
    net.tie_weights()
    missing = [key for key, tensor in net.state_dict().items() if tensor.is_meta]
    if missing:
        raise BadInput(f"{found.folder} lacks {', '.join(missing[:3])}", "export the model again")
    net.requires_grad_(False)
    if (found.folder / "generation_config.json").is_file():
        net.generation_config = _generation(found.folder)
    model = Model(net.eval(), _tokenizer(found.folder), Lineage(found.name, found.source))
    if head_bits == 8:
        pack_ends(model)
    del kept
    give_back()
    return model.then(f"opened on its codes{', embedding and head in 8 bits' if head_bits == 8 else ''}")


def give_back() -> None:
    """Return memory that was freed to the system, where the C library knows how: packing leaves holes of all sizes."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _specs(folder: Path, config: dict[str, Any]) -> dict[str, GridSpec]:
    """Grid of each target: a layer's name, or "Linear" for all."""
    kind = str(config.get("format", "none"))
    if config.get("quant_method") != "compressed-tensors" or kind != FORMAT:
        raise Unsupported(f"running {folder} on its codes", f"its format is {kind}, not {FORMAT}", HOW)
    specs: dict[str, GridSpec] = {}
    for group in config.get("config_groups", {}).values():
        weights = group["weights"]
        if group.get("input_activations") or weights.get("type") != "int" or weights.get("dynamic"):
            raise Unsupported(f"running {folder} on its codes", "it has other grids than integers for weights", HOW)
        if patterns := [target for target in group["targets"] if target.startswith("re:")]:
            raise Unsupported(f"running {folder} on its codes", f"its layers are told by patterns ({patterns[0]})", HOW)
        if weights.get("actorder") == "group":
            raise Unsupported(f"running {folder} on its codes", "its groups are not of neighbouring inputs", HOW)
        size = int(weights.get("group_size") or -1)
        spec = GridSpec(int(weights["num_bits"]), bool(weights["symmetric"]), size)
        specs |= dict.fromkeys(group["targets"], spec)
    return specs


def _empty(folder: Path) -> Any:
    """The model without its weights; small tables, as of RoPE, are there."""
    from accelerate import init_empty_weights
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    with init_empty_weights(include_buffers=False):
        return AutoModelForCausalLM.from_config(config, dtype=torch.float32)


def _tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)


def _generation(folder: Path) -> Any:
    """Which tokens end a text, and how the model's makers want it sampled."""
    from transformers import GenerationConfig

    return GenerationConfig.from_pretrained(folder, local_files_only=True)


def _by_layer(folder: Path) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Tensors of the folder by the module that they belong to, whichever files they lie in; one module in memory at a time."""
    from safetensors import safe_open

    with ExitStack() as stack:
        names: dict[str, dict[str, Any]] = {}
        for path in sorted(folder.glob("*.safetensors")):
            if path.name.startswith("burnish-"):
                continue
            file = stack.enter_context(safe_open(path, "pt"))
            for name in file.keys():  # noqa: SIM118 (no dictionary)
                layer, _, tensor = name.rpartition(".")
                names.setdefault(layer, {})[tensor] = file
        for layer, files in names.items():
            yield layer, {tensor: file.get_tensor(f"{layer}.{tensor}") for tensor, file in files.items()}


def _linear(net: Any, name: str) -> nn.Linear:
    """The layer that packed tensors are for."""
    try:
        linear = at(net, name)
    except AttributeError:
        raise BadInput(f"{name} is packed, and the model of config.json has no such layer") from None
    if not isinstance(linear, nn.Linear):
        raise BadInput(f"{name} is packed, and in the model of config.json it is no linear layer")
    return linear


def _layer(name: str, linear: nn.Linear, specs: dict[str, GridSpec], tensors: dict[str, Tensor]) -> PackedLinear:
    from compressed_tensors.compressors.pack_quantized import unpack_from_int32

    spec = specs.get(name) or specs.get("Linear")
    if spec is None:
        raise BadInput(f"{name} is packed, and config.json does not say how", "export the model again")
    if foreign := sorted(set(tensors) - {*PACKED, "bias"}):
        raise Unsupported(f"running {name} on its codes", f"it has {', '.join(foreign)}, which is not known here", HOW)
    needed = [key for key in PACKED if key != "weight_zero_point" or not spec.sym]
    if missing := [key for key in needed if key not in tensors]:
        raise BadInput(f"{name} lacks {', '.join(missing)}", "export the model again")
    rows, columns = shape = torch.Size(tensors["weight_shape"].tolist())
    if tuple(shape) != (linear.out_features, linear.in_features):
        raise BadInput(f"{name} is packed as {tuple(shape)}, and config.json makes it {tuple(linear.weight.shape)}")
    grid = (rows, -(-columns // spec.width(columns)))
    sizes = {
        "weight_packed": (rows, -(-columns * spec.bits // 32)),
        "weight_scale": grid,
        "weight_zero_point": (-(-rows * spec.bits // 32), grid[1]),
        "bias": (rows,),
    }
    for key, wanted in sizes.items():
        if key in tensors and tuple(tensors[key].shape) != wanted:
            raise BadInput(f"{name}.{key} has the shape {tuple(tensors[key].shape)}, and {wanted} is due")
    codes = (unpack_from_int32(tensors["weight_packed"], spec.bits, shape).short() + spec.middle).to(torch.uint8)
    scale = tensors["weight_scale"].float()
    zero = torch.full_like(scale, spec.middle)
    if not spec.sym:
        packed = unpack_from_int32(tensors["weight_zero_point"], spec.bits, scale.shape, packed_dim=0)
        zero = packed.float() + spec.middle
    if not torch.equal(scale, scale.half().float()):
        raise Unsupported(f"running {name} on its codes", "its scales do not fit half precision", HOW)
    return PackedLinear.of(Quantized(codes, Grid(spec, scale, zero)), tensors.get("bias"))
