"""From a GGUF file to an ordinary Hugging Face folder, once, kept in the cache.

GGUF is llama.cpp's file format: metadata, then tensors, most of them quantized in small blocks. transformers can read
it, slowly. So the weights are dequantized once and saved as float32 safetensors (every stored value is exact in
float32) with the tokenizer, the chat template and the special tokens, under ``<cache>/dequantized/<digest>/``. Every
later load is an ordinary one and takes seconds.

The file's header is checked here first: a file that is cut short or is no GGUF file is refused by name.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import mmap
import shutil
import struct
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from burnish.core.errors import BadInput, DoesNotFit, Unsupported
from burnish.core.extras import require
from burnish.models.fetch import (
    SOURCE_FILE,
    Notify,
    cache_folder,
    cache_path,
    disk_full_named,
    ignore,
    locked,
    move_folder,
    require_space,
    write_json,
)

CONVERSION = 1
"""Raised when a change here gives other folders for the same file: cached ones are then made anew."""

FLOATS = ("F32", "F16", "BF16", "F64")
"""Tensor types that hold plain numbers, not quantized blocks."""

DIGITS_FIRST = ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b")
"""Values of ``tokenizer.ggml.pre`` for which llama.cpp splits off every digit before it splits as GPT-2 does.
transformers 5.24 knows none of them and would only split as GPT-2 does: other tokens for blanks before a digit."""

PROBE = (
    "def f(x):\n    return x+1\n\n\tif  a[10] >= 2.50:  # 12 345\n        print('naïve café', \"日本語\", '🙂')\r\n"
    "The quick brown fox doesn't jump; it's 1999's  3rd   try...\n\n\n  END "
)
"""Text on which the saved tokenizer must agree with the one built from the file."""

FIXED_WIDTH = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
TEXT, ARRAY = 8, 9
"""Types of metadata values, by their numbers in the GGUF specification (ggml, docs/gguf.md)."""


@dataclass(frozen=True)
class GGUFTensor:
    """One entry of the tensor table: `end` is counted in bytes from the start of the file."""

    name: str
    shape: tuple[int, ...]
    type: str
    end: int

    @property
    def elements(self) -> int:
        """How many numbers it holds."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class GGUFHeader:
    """A GGUF file's metadata (of arrays only the length) and tensor table."""

    metadata: dict[str, Any]
    tensors: tuple[GGUFTensor, ...]

    @property
    def architecture(self) -> str:
        """llama.cpp's name of the architecture."""
        return str(self.metadata["general.architecture"])

    @property
    def elements(self) -> int:
        """How many numbers all tensors hold."""
        return sum(tensor.elements for tensor in self.tensors)

    def types(self) -> dict[str, int]:
        """How many tensors there are of each type, the most frequent first."""
        return dict(Counter(tensor.type for tensor in self.tensors).most_common())

    def mix(self) -> str:
        """The types by role, e.g. "linears Q4_1; embedding Q8_0; norms F32"."""
        roles: dict[str, Counter[str]] = {}
        for tensor in self.tensors:
            roles.setdefault(_role(tensor, self), Counter())[tensor.type] += 1
        order = ("linears", "embedding", "output head", "norms and biases", "norms")
        return "; ".join(f"{role} {', '.join(_by_count(roles[role]))}" for role in order if role in roles)

    def lineage(self) -> str:
        """What happened to the weights, in the words that belong in a result made with them."""
        stored = [kind for kind in _by_count(self._linears()) if kind not in FLOATS]
        if stored:
            return f"weights were dequantized from {', '.join(stored)}"
        return f"weights were stored as {', '.join(_by_count(self._linears()))}"

    def _linears(self) -> Counter[str]:
        kinds = Counter(tensor.type for tensor in self.tensors if _role(tensor, self) == "linears")
        return kinds or Counter(tensor.type for tensor in self.tensors)


def _by_count(kinds: Counter[str]) -> list[str]:
    return sorted(kinds, key=lambda kind: (-kinds[kind], kind))


def _role(tensor: GGUFTensor, header: GGUFHeader) -> str:
    if tensor.name == "token_embd.weight":
        return "embedding"
    if tensor.name == "output.weight":
        return "output head"
    if len(tensor.shape) > 1:
        return "linears"
    return "norms and biases" if any(other.name.endswith(".bias") for other in header.tensors) else "norms"


class _CutShort(Exception):
    """The file ends inside its header."""


class _Cursor:
    """Reads values one after another, never past the end."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.position = data, 0

    def skip(self, count: int) -> int:
        """Step over `count` bytes; returns where they began."""
        start = self.position
        if start + count > len(self.data):
            raise _CutShort
        self.position += count
        return start

    def number(self, form: str) -> Any:
        return struct.unpack_from(form, self.data, self.skip(struct.calcsize(form)))[0]

    def text(self) -> str:
        length = self.number("<Q")
        start = self.skip(length)
        return self.data[start : start + length].decode("utf-8", errors="replace")

    def value(self, kind: int) -> Any:
        """One metadata value; of an array only its length, since the long ones are vocabularies."""
        if kind in FIXED_WIDTH:
            return self.number(FIXED_WIDTH[kind])
        if kind == TEXT:
            return self.text()
        if kind != ARRAY:
            raise ValueError(f"a metadata value has the unknown type {kind}")
        inner, count = self.number("<I"), self.number("<Q")
        if inner in FIXED_WIDTH:
            self.skip(count * struct.calcsize(FIXED_WIDTH[inner]))
        elif inner == TEXT:
            for _ in range(count):
                self.skip(self.number("<Q"))
        else:
            raise ValueError(f"a metadata array has elements of the unknown type {inner}")
        return count


def read_header(path: Path) -> GGUFHeader:
    """The header of a GGUF file, after checking that the file is whole.

    Raises:
        BadInput: the file is absent, empty, no GGUF file, damaged or cut short; names the file and says which.
        Unsupported: it is one part of a split model, or holds something other than a model.
    """
    require("reading GGUF files", "models")
    again = "get the file again, from where it came"
    try:
        size = path.stat().st_size
        with path.open("rb") as source:
            magic = source.read(4)
            if magic != b"GGUF":
                shown = "it is empty" if not magic else f"it begins with {magic!r}, not with b'GGUF'"
                raise BadInput(f"{path} is no GGUF file: {shown}", "give a .gguf file or a model folder")
            with mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ) as data:
                header = _parse(_Cursor(data))
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}", "give a .gguf file that you may read") from error
    except _CutShort:
        raise BadInput(f"{path} is cut short: it ends inside its header, after {size} bytes", again) from None
    except (ValueError, OverflowError) as error:
        raise BadInput(f"{path} is no usable GGUF file: {error}", again) from error
    if (parts := header.metadata.get("split.count", 1)) not in (0, 1):
        raise Unsupported(str(path), f"it is one of {parts} parts", "join them: llama-gguf-split --merge")
    if (content := header.metadata.get("general.type", "model")) != "model":
        raise Unsupported(str(path), f"it holds a {content}, not a model", "give the model's own .gguf file")
    needs = max(tensor.end for tensor in header.tensors)
    if needs > size:
        outside = sum(tensor.end > size for tensor in header.tensors)
        raise BadInput(
            f"{path} is cut short: it has {size} bytes and its tensors need {needs} "
            f"({outside} of {len(header.tensors)} tensors lie outside)",
            again,
        )
    return header


def _parse(cursor: _Cursor) -> GGUFHeader:
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    cursor.skip(4)
    version = cursor.number("<I")
    if version not in (2, 3):
        raise ValueError(f"its version is {version}; versions 2 and 3 can be read")
    tensor_count, value_count = cursor.number("<Q"), cursor.number("<Q")
    metadata = {}
    for _ in range(value_count):
        key = cursor.text()
        metadata[key] = cursor.value(cursor.number("<I"))
    if "general.architecture" not in metadata:
        raise ValueError("its metadata names no architecture")
    table = []
    for _ in range(tensor_count):
        name, rank = cursor.text(), cursor.number("<I")
        if rank > 4:
            raise ValueError(f"tensor {name!r} has {rank} dimensions; ggml has at most 4")
        shape = tuple(cursor.number("<Q") for _ in range(rank))
        table.append((name, shape, cursor.number("<I"), cursor.number("<Q")))
    if not table:
        raise ValueError("it holds no tensors")

    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment < 1:
        raise ValueError(f"its alignment is {alignment!r}")
    start = -(-cursor.position // alignment) * alignment
    known, tensors = set(GGMLQuantizationType), []
    for name, shape, number, offset in table:
        if number not in known:
            raise ValueError(f"tensor {name!r} has the unknown type {number}")
        kind = GGMLQuantizationType(number)
        per_block, block_bytes = GGML_QUANT_SIZES[kind]
        if shape and shape[0] % per_block:
            raise ValueError(f"tensor {name!r}: rows of {shape[0]} are no whole blocks of {per_block} ({kind.name})")
        end = start + offset + math.prod(shape) // per_block * block_bytes
        tensors.append(GGUFTensor(name, shape[::-1], kind.name, end))
    return GGUFHeader(metadata, tuple(tensors))


def gguf_folder(
    path: Path | str, cache: Path | str | None = None, notify: Notify = ignore, sha256: str | None = None
) -> Path:
    """The ordinary Hugging Face folder that holds the dequantized weights of the GGUF file at `path`.

    Made at the first call and found in the cache afterwards. ``burnish-source.json`` in it says what the file was.

    Args:
        path: The GGUF file.
        cache: Cache folder; the default is BURNISH_CACHE or the platform's.
        notify: Called before a conversion, which takes a minute or more.
        sha256: The file's digest where it is known already; else the file is read to find it.

    Raises:
        BadInput: the file is no GGUF file or is cut short.
        Unsupported: transformers does not know the architecture or a tensor type, or would drop some of the weights.
        DoesNotFit: too little memory or disk for the dequantized weights.
    """
    path = Path(path).expanduser().absolute()
    if sha256 and (found := dequantized(sha256, cache)):
        return found
    header = read_header(path)
    digest = sha256 or file_digest(path)
    if found := dequantized(digest, cache):
        return found
    root = cache_folder(cache)
    folder = root / "dequantized" / digest[:16]
    with locked(root, f"dequantized-{digest[:16]}", notify):
        if dequantized(digest, root):  # another process has made it while this one waited
            return folder
        folder.parent.mkdir(exist_ok=True)
        for left_over in folder.parent.glob(f".{folder.name}-*"):
            shutil.rmtree(left_over, ignore_errors=True)
        what = f"dequantizing {path.name}"
        require_space(root, what, 4 * header.elements + 100_000_000)
        _require_memory(what, header)
        notify(f"{what} ({header.mix()}) to float32, once; later loads find it in {folder}")
        building = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            with disk_full_named(what, root):
                notes = _convert(path, header, building)
                write_json(building / SOURCE_FILE, _source(path, header, digest, notes))
                move_folder(building, folder)
        finally:
            shutil.rmtree(building, ignore_errors=True)
    return folder


def file_digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


def dequantized(sha256: str, cache: Path | str | None = None) -> Path | None:
    """The cached folder made from the GGUF file of that digest; None when there is none made in today's way."""
    folder = cache_path(cache) / "dequantized" / sha256[:16]
    try:  # the folder got its name when it was whole, so its last file vouches for the others
        source = json.loads((folder / SOURCE_FILE).read_text(encoding="utf-8"))
        return folder if source["conversion"] == CONVERSION else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _require_memory(what: str, header: GGUFHeader) -> None:
    """Refuse when the weights in float32, and the largest tensor three times more, exceed the free memory."""
    import psutil

    needs = 4 * (header.elements + 3 * max(tensor.elements for tensor in header.tensors))
    free = psutil.virtual_memory().available
    if free < needs:
        raise DoesNotFit(
            what,
            f"{needs / 1e9:.1f} GB of memory",
            f"{free / 1e9:.1f} GB free",
            "close programs, or use a smaller model",
        )


def _source(path: Path, header: GGUFHeader, digest: str, notes: Sequence[str]) -> dict[str, Any]:
    import transformers

    return {
        "kind": "gguf",
        "file": path.name,
        "sha256": digest,
        "bytes": path.stat().st_size,
        "gguf_name": header.metadata.get("general.name"),
        "architecture": header.architecture,
        "licence": header.metadata.get("general.license"),
        "quantization": header.mix(),
        "tensor_types": header.types(),
        "parameters": header.elements,
        "lineage": header.lineage(),
        "notes": list(notes),
        "transformers": transformers.__version__,
        "conversion": CONVERSION,
    }


def _convert(path: Path, header: GGUFHeader, folder: Path) -> list[str]:
    """Load the file through transformers, check that nothing is lost, and save it; returns notes for the lineage."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    # A folder with nothing but the file: transformers would also read whatever configuration lies beside it.
    with _quiet(), tempfile.TemporaryDirectory(dir=folder) as alone:
        (Path(alone) / "model.gguf").symlink_to(path)
        try:
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                alone,
                gguf_file="model.gguf",
                quantization_config=GgufConfig(dequantize=True),
                dtype=torch.float32,
                output_loading_info=True,
                local_files_only=True,
            )
            tokenizer = AutoTokenizer.from_pretrained(alone, gguf_file="model.gguf", local_files_only=True)
        except (ValueError, KeyError, NotImplementedError, RuntimeError) as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise Unsupported(
                f"{path} (architecture {header.architecture})",
                f"transformers cannot load it: {reason}",
                "use the model's safetensors folder or its name on the Hugging Face hub",
            ) from error
        model, info = loaded
        _check_nothing_lost(path, header, model, info)

        notes = []
        splitting = header.metadata.get("tokenizer.ggml.pre")
        if splitting in DIGITS_FIRST:
            from tokenizers import pre_tokenizers

            tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
                [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
            )
            notes.append(f"tokenizer: digits are split first, as llama.cpp does for {splitting!r}")

        model.hf_quantizer = None
        if hasattr(model.config, "quantization_config"):
            del model.config.quantization_config
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        saved = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        if saved(PROBE).input_ids != tokenizer(PROBE).input_ids:
            raise Unsupported(
                str(path), "its tokenizer does not survive being saved", "use the model's safetensors folder"
            )
    return notes


def _check_nothing_lost(path: Path, header: GGUFHeader, model: Any, info: dict[str, Any]) -> None:
    """Refuse a model in which weights would be random, left out, or positions stretched otherwise than in the file."""
    folder_instead = "use the model's safetensors folder or its name on the Hugging Face hub"
    if absent := sorted(info["missing_keys"]):
        raise Unsupported(str(path), f"the file has no weights for {', '.join(absent[:5])}", folder_instead)
    held = sum({tensor.data_ptr(): tensor.numel() for tensor in model.state_dict().values()}.values())
    if held != header.elements:
        extra = ", rope_freqs.weight among them" if any(t.name == "rope_freqs.weight" for t in header.tensors) else ""
        raise Unsupported(
            str(path),
            f"the file holds {header.elements} weights and transformers would keep {held}{extra}",
            folder_instead,
        )
    scaling = header.metadata.get(f"{header.architecture}.rope.scaling.type", "none")
    rope = getattr(model.config, "rope_parameters", None) or {}
    if scaling != "none" and rope.get("rope_type", "default") == "default":
        raise Unsupported(str(path), f"transformers ignores its position scaling ({scaling})", folder_instead)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence what transformers prints while it converts, and leave its settings as they were."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        # one of the loading bars heeds no setting, so standard error is turned away as well
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
