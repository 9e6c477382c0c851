"""GGUF, llama.cpp's file: blocks of 32 weights made from the codes themselves, and checked by decoding them.

========  ============================  ==========================================  ==============
type      weight                        a block's bytes                             grid
========  ============================  ==========================================  ==============
Q4_0      d · (q − 8)                   d (2), 16 of codes                          4 bits, symmetric
Q4_1      d · q + m                     d (2), m (2), 16 of codes                   4 bits, float zero
Q8_0      d · q                         d (2), 32 of signed codes                   8 bits, symmetric
========  ============================  ==========================================  ==============

All in groups of 32, d and m in half precision. Four-bit codes lie in two halves: the low nibbles are the first 16, the
high ones the last 16. llama.cpp rotates neighbouring features by position where transformers rotates halves, so the
rows of Llama's q and k are reordered within each head. Norms and biases are float32. Matrices that were not rounded
stay as the model's own GGUF file has them, as long as they are equal; else they are float16 where that is exact, and
float32 where it is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from burnish.core.errors import Mismatch, Unsupported
from burnish.core.method import Method
from burnish.models.export import gguf_metadata
from burnish.models.export.contents import Contents, Rounded
from burnish.models.export.folder import finish, replacing
from burnish.models.export.intent import Intent
from burnish.models.model import Model
from burnish.nn.grid import GridSpec

if TYPE_CHECKING:
    from gguf import GGUFReader

NAME = "gguf"
FILE = "model.gguf"
BLOCK = 32

FILE_TYPES = {"Q4_0": 2, "Q4_1": 3, "Q8_0": 7}
"""``general.file_type``: "mostly of this type"."""


@dataclass(frozen=True)
class Family:
    """How llama.cpp keeps one architecture.

    Attributes:
        name: Its name for it.
        halves: Rows of q and k are reordered within each head.
        norm_offset: What is added to the weights of norms.
        metadata: Whether metadata can be written for it; else they are copied from the model's own GGUF file.
    """

    name: str
    halves: bool = False
    norm_offset: float = 0.0
    metadata: bool = True


FAMILIES = {
    "llama": Family("llama", halves=True),
    "qwen2": Family("qwen2"),
    "gemma3_text": Family("gemma3", norm_offset=1.0, metadata=False),
}

FIX = (
    "use --bits 4 --group 32 --sym (Q4_0), --bits 4 --group 32 --zero float (Q4_1) or --bits 8 --group 32 --sym (Q8_0)"
)


def check(method: Method) -> None:
    """Refuse every grid but those of the three types, and whatever happens online."""
    intent = Intent.of(method)
    intent.refuse_online(NAME)
    if intent.spec is not None and kind(intent.spec) is None:
        intent.refuse(NAME, [_unfit(intent.spec)], FIX)


def kind(spec: GridSpec) -> str | None:
    """The type that holds a grid's codes as they are; None when there is none."""
    if spec.group != BLOCK:
        return None
    return {(4, True, False): "Q4_0", (4, False, True): "Q4_1", (8, True, False): "Q8_0"}.get(
        (spec.bits, spec.sym, spec.float_zero)
    )


def _unfit(spec: GridSpec) -> str:
    zero = (
        "symmetric" if spec.sym else f"asymmetric with {'a floating-point' if spec.float_zero else 'an integer'} zero"
    )
    group = "whole rows" if spec.group == -1 else f"groups of {spec.group}"
    return f"no type of block holds {spec.bits} bits in {group}, {zero}, without rounding again"


def write(model: Model, folder: Path) -> None:
    """Write a model whose linear layers lie on grids of one kind.

    Raises:
        Unsupported: a grid, an architecture or a tokenizer that the file cannot hold.
        Mismatch: blocks do not decode to the model's weights.
    """
    from gguf import GGUFReader, GGUFWriter

    what = f"{NAME} for {model.name}"
    contents = Contents.of(model, NAME)
    spec = contents.single_spec(model, NAME)
    type_name = kind(spec)
    if type_name is None:
        raise Unsupported(what, _unfit(spec), FIX)
    if ragged := [layer for layer in contents.rounded if not layer.divisible]:
        inputs = ragged[0].linear.in_features
        raise Unsupported(what, f"{ragged[0].name} has {inputs} inputs, not a multiple of {BLOCK}", "use --format gptq")
    family = FAMILIES.get(model.config.model_type)
    if family is None:
        known = ", ".join(FAMILIES)
        raise Unsupported(what, f"no GGUF writer for the architecture {model.config.model_type!r}", f"it has: {known}")
    origin = gguf_metadata.source_file(model)
    if origin is None and not family.metadata:
        raise Unsupported(
            what, f"metadata of {model.config.model_type} are only copied, and no GGUF file is at hand", "load one"
        )
    reader = GGUFReader(origin) if origin is not None else None
    tensors = _tensors(model, family, contents, type_name, reader)
    with replacing(folder, sum(data.nbytes for _, data, _ in tensors)) as temporary:
        writer: Any = GGUFWriter(temporary / FILE, family.name)
        if reader is not None:
            gguf_metadata.copy(writer, reader)
        else:
            gguf_metadata.compose(writer, model)
        writer.add_file_type(FILE_TYPES[type_name])
        writer.add_quantization_version(2)
        for name, data, raw in tensors:
            writer.add_tensor(name, data, raw_dtype=raw)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        finish(model, temporary, NAME)


Tensor = tuple[str, np.ndarray, Any]
"""Name, data, and the type of raw blocks (None for plain numbers)."""


def _tensors(
    model: Model, family: Family, contents: Contents, type_name: str, reader: GGUFReader | None
) -> list[Tensor]:
    """Every tensor of the file; tied ones once."""
    from gguf import MODEL_ARCH, MODEL_ARCH_NAMES, GGMLQuantizationType, get_tensor_name_map

    arch = next(arch for arch in MODEL_ARCH if MODEL_ARCH_NAMES[arch] == family.name)
    names = get_tensor_name_map(arch, model.config.num_hidden_layers)
    rounded = {f"{layer.name}.weight": layer for layer in contents.rounded}
    stored = {tensor.name: tensor for tensor in reader.tensors} if reader is not None else {}
    order = _row_orders(model) if family.halves else {}
    found: list[Tensor] = []
    seen: set[int] = set()
    for name, tensor in model.net.state_dict().items():
        if tensor.data_ptr() in seen:
            continue
        seen.add(tensor.data_ptr())
        target = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if target is None:
            raise Unsupported(f"{NAME} for {model.name}", f"llama.cpp's {family.name} has no tensor {name}")
        # what codes stand for in full, where a 16-bit model holds it rounded
        exact = rounded[name].quantized.weight() if name in rounded else tensor.detach().float()
        values = exact.cpu().numpy()
        rows = order.get(name.rpartition(".")[0])
        values = values if rows is None else values[rows]
        if name in rounded:
            raw = getattr(GGMLQuantizationType, type_name)
            data = blocks(rounded[name], type_name, rows)
            _prove(name, data, raw, values)
            found.append((target, data, raw))
        elif values.ndim == 1:
            found.append((target, _norm(name, values, family.norm_offset), None))
        else:
            found.append((target, *_matrix(values, stored.get(target))))
    return found


def _row_orders(model: Model) -> dict[str, np.ndarray]:
    """For each q and k layer, where llama.cpp's rows are among ours: halves of a head become neighbours."""
    shape = model.heads
    return {
        site.name: np.arange(site.linear.out_features).reshape(-1, 2, shape.width // 2).swapaxes(1, 2).ravel()
        for site in model.sites()
        if site.role in ("q", "k")
    }


def blocks(layer: Rounded, type_name: str, rows: np.ndarray | None = None) -> np.ndarray:
    """A layer's codes and scales as blocks: (outputs, bytes of a row) uint8.

    Args:
        layer: The layer; its inputs are a multiple of 32.
        type_name: "Q4_0", "Q4_1" or "Q8_0".
        rows: The order of its rows, if not their own.
    """
    grid = layer.quantized.grid
    parts = [tensor.cpu().numpy() for tensor in (layer.quantized.codes, grid.scale, grid.zero)]
    codes, scale, zero = parts if rows is None else [part[rows] for part in parts]
    codes = codes.reshape(len(codes), -1, BLOCK)
    pieces = [scale.astype(np.float16)[..., None].view(np.uint8)]
    if type_name == "Q4_1":
        pieces.append(zero.astype(np.float16)[..., None].view(np.uint8))
    if type_name == "Q8_0":
        pieces.append((codes.astype(np.int16) - 128).astype(np.int8).view(np.uint8))
    else:
        pieces.append(codes[..., : BLOCK // 2] | (codes[..., BLOCK // 2 :] << 4))
    return np.concatenate(pieces, axis=-1).reshape(len(codes), -1)


def _prove(name: str, data: np.ndarray, raw: Any, values: np.ndarray) -> None:
    """Decode blocks by the gguf package, and compare."""
    from gguf import quants

    if not np.array_equal(quants.dequantize(data, raw), values):
        raise Mismatch(f"the blocks of {name} do not decode to its weights")


def _norm(name: str, values: np.ndarray, offset: float) -> np.ndarray:
    if not (offset and "norm" in name):
        return values
    moved = values + np.float32(offset)
    if not np.array_equal(moved - np.float32(offset), values):
        raise Mismatch(f"{name} cannot be stored exactly, as llama.cpp adds {offset:g} to it")
    return moved


def _matrix(values: np.ndarray, stored: Any) -> tuple[np.ndarray, Any]:
    """An unrounded matrix: as the model's own file has it, in float16 or in float32, whichever is the first exact one."""
    from gguf import quants

    if stored is not None:
        decoded = quants.dequantize(stored.data, stored.tensor_type).reshape(values.shape)
        if np.array_equal(decoded, values):
            return np.array(stored.data), stored.tensor_type
    with np.errstate(over="ignore"):
        half = values.astype(np.float16)
    return (half if np.array_equal(half.astype(np.float32), values) else values), None
