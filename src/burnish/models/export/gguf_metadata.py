"""A GGUF file's metadata: copied from the file that a model came from, or written for the usual tokenizers.

llama.cpp cuts text by rules of its own, which the metadata only name (``tokenizer.ggml.pre``). A tokenizer that none of
the known names describes exactly is refused: with a wrong name the file would load, and read text wrongly.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from burnish.core.errors import BurnishError, Unsupported
from burnish.models.fetch import present
from burnish.models.gguf_folder import file_digest, read_header
from burnish.models.model import Model
from burnish.models.resolve import registered
from burnish.models.shelf import SHELF

if TYPE_CHECKING:
    from gguf import GGUFReader, GGUFWriter

OWN = ("GGUF.", "split.", "general.architecture", "general.file_type", "general.quantization_version")
"""Keys, or how they begin, that belong to one file and are not copied."""

NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5
"""Token types of llama.cpp."""

_LETTERS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SPLITS = {_LETTERS + r"\p{N}" + _REST: "qwen2", _LETTERS + r"\p{N}{1,3}" + _REST: "llama-bpe"}
"""Regular expressions by which tokenizers cut text before they merge bytes, to llama.cpp's names for them."""


def source_file(model: Model) -> Path | None:
    """The GGUF file that the model was loaded from, if it is still there, unchanged, and of the model's shape."""
    source, name = model.lineage.source, model.lineage.name
    digest = source.get("sha256")
    if source.get("architecture") is None or digest is None:
        return None
    places = [present(SHELF[source["shelf"]]) if source.get("shelf") in SHELF else None, registered().get(name)]
    for path in (*places, Path(name)):
        if path is None or path.suffix != ".gguf" or not path.is_file() or file_digest(path) != digest:
            continue
        try:
            header = read_header(path)
        except BurnishError:
            continue
        kept = {"block_count": model.config.num_hidden_layers, "embedding_length": model.config.hidden_size}
        if all(header.metadata.get(f"{header.architecture}.{key}") == value for key, value in kept.items()):
            return path
    return None


def copy(writer: GGUFWriter, reader: GGUFReader) -> None:
    """Take over everything that describes the model and its tokenizer."""
    for key, field in reader.fields.items():
        if not key.startswith(OWN):
            inner = field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(key, field.contents(), field.types[0], inner)


def compose(writer: GGUFWriter, model: Model) -> None:
    """Write what describes a Llama- or Qwen2-like model and its byte-level tokenizer.

    Raises:
        Unsupported: positions that are stretched, a sliding window, or a tokenizer that llama.cpp has no rules for.
    """
    config, what = model.config, f"gguf for {model.name}"
    rope = dict(getattr(config, "rope_parameters", None) or {})
    if rope.get("rope_type", "default") != "default":
        raise Unsupported(what, f"its positions are stretched ({rope['rope_type']})", "use --format compressed-tensors")
    if getattr(config, "use_sliding_window", False):
        raise Unsupported(what, "some of its layers have a sliding window", "use --format compressed-tensors")
    if config.hidden_act != "silu":
        raise Unsupported(what, f"its activation is {config.hidden_act}, not silu", "use --format compressed-tensors")
    shape = model.heads
    writer.add_type("model")
    writer.add_name(model.name)
    if licence := model.lineage.source.get("licence"):
        writer.add_license(str(licence))
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(shape.query)
    writer.add_head_count_kv(shape.kv)
    writer.add_key_length(shape.width)
    writer.add_value_length(shape.width)
    writer.add_rope_dimension_count(shape.width)
    writer.add_rope_freq_base(float(rope.get("rope_theta", 10000.0)))
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    _tokenizer(writer, model)


def _tokenizer(writer: GGUFWriter, model: Model) -> None:
    tokenizer = model.tokenizer
    backend = getattr(tokenizer, "backend_tokenizer", None)
    parts = json.loads(backend.to_str()) if backend is not None else {}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(splitting(model.name, parts))
    names = [f"[PAD{number}]" for number in range(model.config.vocab_size)]
    kinds = [UNUSED] * len(names)
    for token, number in tokenizer.get_vocab().items():
        names[number], kinds[number] = token, NORMAL
    for number, token in tokenizer.added_tokens_decoder.items():
        names[number], kinds[number] = token.content, CONTROL if token.special else USER_DEFINED
    writer.add_token_list(names)
    writer.add_token_types(kinds)
    merges = parts["model"]["merges"]
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in merges])
    for kind in ("bos", "eos", "unk", "pad"):
        if (number := getattr(tokenizer, f"{kind}_token_id")) is not None:
            getattr(writer, f"add_{kind}_token_id")(number)
    one = tokenizer("a")["input_ids"]
    writer.add_add_bos_token(tokenizer.bos_token_id is not None and one[0] == tokenizer.bos_token_id)
    writer.add_add_eos_token(tokenizer.eos_token_id is not None and one[-1] == tokenizer.eos_token_id)
    writer.add_add_space_prefix(False)
    if getattr(tokenizer, "chat_template", None):
        writer.add_chat_template(tokenizer.chat_template)


def splitting(name: str, parts: Mapping[str, Any]) -> str:
    """llama.cpp's name for the rules by which a tokenizer cuts text.

    Args:
        name: The model's name, for errors.
        parts: The content of the tokenizer's ``tokenizer.json``; empty when it has none.

    Raises:
        Unsupported: it is no byte-level BPE tokenizer, or cuts text by other rules.
    """
    what, fix = f"gguf for {name}", "load the model from its GGUF file, or use --format compressed-tensors"
    merging = parts.get("model") or {}
    before = parts.get("pre_tokenizer") or {}
    steps = before["pretokenizers"] if before.get("type") == "Sequence" else [before]
    kinds = [step.get("type") for step in steps]
    if merging.get("type") != "BPE" or kinds[-1] != "ByteLevel":
        raise Unsupported(what, "its tokenizer is no byte-level BPE", fix)
    last, found = steps[-1], ""
    if kinds == ["ByteLevel"] and last["use_regex"]:
        found = "gpt-2"
    elif kinds == ["Digits", "ByteLevel"] and steps[0]["individual_digits"] and last["use_regex"]:
        found = "smollm"
    elif kinds == ["Split", "ByteLevel"] and not last["use_regex"]:
        split = steps[0]
        if split["behavior"] == "Isolated" and not split["invert"]:
            found = SPLITS.get(split["pattern"].get("Regex", ""), "")
    # llama.cpp takes whole words before it merges for this one kind only
    whole_words = found == "llama-bpe"
    if not found or last["add_prefix_space"] or bool(merging.get("ignore_merges")) != whole_words:
        raise Unsupported(what, "its tokenizer cuts text by rules that llama.cpp has no name for", fix)
    normalizer = (parts.get("normalizer") or {}).get("type")
    if normalizer not in (None, "NFC"):
        raise Unsupported(what, f"its tokenizer changes text first ({normalizer})", fix)
    return found
