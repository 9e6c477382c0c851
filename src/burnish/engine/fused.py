"""One compiled call a token instead of a thousand small operators: decoding of packed models under plain `generate()`.

A step of a small model is bound by Python: transformers dispatches about 30 operators a block. Here a forward of a few tokens is one
call into `burnish-kernels`, which goes through all blocks on its own threads and writes keys and values straight into the cache.
Anything else (long prompts, masks with holes, hidden states or attentions that are asked for) takes transformers' own forward, on
the same packed layers and the same cache.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from burnish.core.errors import Mismatch
from burnish.engine.store import StoredLayer, filled, stored
from burnish.models.model import Lineage, Model
from burnish.models.packed_folder import open_packed
from burnish.nn import kernels
from burnish.nn.packed import PackedEmbedding, PackedLinear

FUSED = "_burnish_fused"
"""Attribute of a net: its step."""
ROWS = 16
"""Most tokens of a step, over all sequences; more take the ordinary forward, whose products of many rows are blocked."""
ACTIVATIONS = {"silu": 0, "gelu_pytorch_tanh": 1}
PLAIN_ROPE = ("default", "linear", "llama3", "yarn")
"""RoPE whose angles depend on the position alone."""
ALIGNED = 16
"""Widths of heads must be a multiple of a vector."""


TOLERANCE = 1e-3
"""Of the largest logit: what a step may differ by from the ordinary forward."""


def why_not(model: Model) -> str:
    """Why a model cannot be decoded in one call; empty if it can."""
    config = model.config
    if missing := kernels.why_not():
        return missing
    if model.device.type != "cpu":
        return f"its weights are on {model.device}, and the kernels are for CPUs"
    if not model.adapter.rope or "gate" not in model.adapter.sites:
        return f"it has no fused step for {config.model_type}"
    kind = str(getattr(config, "hidden_act", None) or config.hidden_activation)
    if kind not in ACTIVATIONS:
        return f"its activation is {kind!r}"
    if any(str(rope.get("rope_type", "default")) not in PLAIN_ROPE for rope in _ropes(config)):
        return "its RoPE depends on the length of the text"
    if any(getattr(config, name, None) for name in ("attn_logit_softcapping", "final_logit_softcapping")):
        return "it caps its logits"
    if model.heads.width % ALIGNED:
        return f"its heads are {model.heads.width} wide, no multiple of {ALIGNED}"
    layers = [model.at(f"{block}.{path}") for block in _blocks(model) for path in model.adapter.sites.values()]
    if not all(isinstance(layer, PackedLinear) for layer in layers):
        return "its layers are not packed"
    if any(parameter.dtype != torch.float32 for parameter in model.net.parameters()):
        return "its norms or its head are not in float32"
    return ""


def fuse(model: Model) -> Model:
    """Let `model.net` decode through compiled steps wherever it can; returns `model`.

    A few tokens are fed both ways first. Copies of the net make a step of their own, and after weights were replaced or moved
    it is made again. Hooks on parts of the net see the ordinary forward only.

    Raises:
        ValueError: it cannot: see `why_not`.
        Mismatch: the step computes something else than the model.
    """
    if reason := why_not(model):
        raise ValueError(reason)
    net = model.net
    if not hasattr(type(net), FUSED):
        net.__class__ = _fused(type(net))
    vars(net)[FUSED] = _Runner(model)
    _require_equal(model)
    return model


def _fused(kind: type) -> type:
    """The class with a forward that takes fused steps; it goes by the class's own name."""
    ordinary: Any = kind.forward  # type: ignore[attr-defined]

    @functools.wraps(ordinary)  # transformers looks at the names of its arguments
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        names = ("input_ids", "attention_mask", "position_ids")
        given = dict(zip(names, args, strict=False)) | kwargs
        found = None if len(args) > len(names) else _step_of(self, given)
        return found if found is not None else ordinary(self, *args, **kwargs)

    return type(kind.__name__, (kind,), {"forward": forward, FUSED: None, "__module__": kind.__module__})


def _step_of(net: Any, given: dict[str, Any]) -> Any:
    """The output of a fused step, or None where there is none."""
    if net.training or FUSED not in vars(net):
        return None
    runner = vars(net)[FUSED]
    if runner is None or runner.stale(net):
        # A copy of a fused net, or one that was changed: what the old step points to is not this net's.
        handle = Model(net, None, Lineage("fused"))
        if why_not(handle):
            return None
        runner = vars(net)[FUSED] = _Runner(handle)
    return runner(given)


@torch.no_grad()
def _require_equal(model: Model) -> None:
    """Refuse a step that does not compute what the model does: on a machine that nobody has tried, say."""
    ids = (torch.arange(12) * 37 + 11)[None] % model.config.vocab_size
    wanted = model.net(ids, use_cache=False).logits
    cache = DynamicCache(config=model.config)
    parts = [model.net(part, cache=cache, use_cache=True).logits for part in ids.split((7, 4, 1), 1)]
    off = (torch.cat(parts, 1) - wanted).abs().max()
    if not off <= TOLERANCE * wanted.abs().max():
        raise Mismatch(
            f"compiled steps of {model.name} give other logits: up to {float(off):.3g} apart",
            "set BURNISH_KERNELS=0, and report it with the output of `burnish env`",
        )


def open_fused(name: str | Path, head_bits: int = 8, notify: Callable[[str], None] = lambda line: None) -> Model:
    """Open a compressed-tensors folder on its codes, decoding in one call where that is possible; else the reason is told.

    Args:
        name: As for `burnish.models.packed_folder.open_packed`, as are the errors.
        head_bits: 8 or 16, of embedding and head.
        notify: Is told what is fetched, and why there are no compiled steps.
    """
    model = open_packed(name, head_bits, notify)
    if reason := why_not(model):
        notify(f"no compiled steps: {reason}")
        return model
    return fuse(model)


@dataclass(eq=False)
class _Runner:
    """A model's fused step: the library's view of its weights, and of the cache that it saw last."""

    model: Model
    kept: list[Any] = field(default_factory=list)
    """What the library points to."""
    addresses: tuple[int, int] = (0, 0)
    """Store and moves for which the layers' addresses hold."""

    parts: list[tuple[dict[str, Any], str, Any, Tensor, Tensor]] = field(default_factory=list)
    """Each packed layer: where it hangs, under which name, itself, and its words and scales when the step was made."""
    lock: Any = field(default_factory=threading.Lock)
    """The library's views are one set: two threads take turns."""

    def __deepcopy__(self, memo: dict[int, Any]) -> None:
        return None  # a copy points to the copy's weights, and so makes its own

    def stale(self, net: Any) -> bool:
        """Whether this is another net, or one whose layers were replaced or moved."""
        if net is not self.model.net:
            return True
        return not all(
            at[name] is part and part._buffers["words"] is words and part._buffers["scale"] is scale
            for at, name, part, words, scale in self.parts
        )

    def _part(self, path: str) -> Any:
        """A packed layer's view; it is remembered, and so are its buffers."""
        above, _, name = path.rpartition(".")
        layer = self.model.at(path)
        self.parts.append((self.model.at(above)._modules, name, layer, layer.words, layer.scale))
        self.kept.append(_held(layer))
        return layer.view()

    def __post_init__(self) -> None:
        model, config = self.model, self.model.config
        adapter, heads, net = model.adapter, model.heads, model.net
        self.head = net.get_output_embeddings()
        self.embedding = model.at(adapter.embeddings[0])
        self.rope = model.at(adapter.embeddings[0].rpartition(".")[0]).rotary_emb
        names = [config.layer_types[i] for i in range(config.num_hidden_layers)] if self._by_type else []
        self.kinds: list[Any] = sorted(set(names)) or [None]
        self.tables: dict[Any, tuple[Tensor, Tensor]] = {}
        self.layers = (kernels.Layer * config.num_hidden_layers)()
        for i, (layer, block) in enumerate(zip(self.layers, _blocks(model), strict=True)):
            for role, path in adapter.sites.items():
                setattr(layer, role, self._part(f"{block}.{path}"))
            attention_norm, mlp_norm = adapter.feeds
            layer.attention_norm = self._norm(f"{block}.{attention_norm}")
            layer.mlp_norm = self._norm(f"{block}.{mlp_norm}")
            if adapter.head_norms is not None:
                layer.query_norm, layer.key_norm = (self._norm(f"{block}.{path}") for path in adapter.head_norms)
            if adapter.branch_norms:
                layer.attention_out = self._norm(f"{block}.post_attention_layernorm")
                layer.mlp_out = self._norm(f"{block}.post_feedforward_layernorm")
            layer.window = _window(config, i)
            layer.rope = self.kinds.index(names[i]) if names else 0
        self.packed_head = isinstance(self.head, PackedLinear)
        self.packed_embedding = isinstance(self.embedding, PackedEmbedding)
        first = model.at(f"{_blocks(model)[0]}.{adapter.attention}")
        kind = str(getattr(config, "hidden_act", None) or config.hidden_activation)
        self.decoder = kernels.Decoder(
            layers=self.layers,
            embedding=self._view(self.embedding.table) if self.packed_embedding else None,
            head=self._view(self.head) if self.packed_head else None,
            final_norm=self._norm(adapter.final_norm),
            eps=config.rms_norm_eps,
            scaling=first.scaling,
            embedding_scale=self.embedding.factor if self.packed_embedding else 1.0,
            count=config.num_hidden_layers,
            hidden=config.hidden_size,
            inner=config.intermediate_size,
            query_heads=heads.query,
            key_heads=heads.kv,
            width=heads.width,
            activation=ACTIVATIONS[kind],
        )

    @property
    def _by_type(self) -> bool:
        return "full_attention" in (self.model.config.rope_parameters or {})

    def _norm(self, path: str) -> int:
        weight = (self.model.at(path).weight.detach().float() + self.model.adapter.norm_offset).contiguous()
        self.kept.append(weight)
        return int(weight.data_ptr())

    def _view(self, layer: PackedLinear) -> Any:
        view = layer.view()
        self.kept += [view, _held(layer)]
        return ctypes.pointer(view)

    def __call__(self, given: dict[str, Any]) -> Any:
        """The output of a forward, or None where it is not one for a fused step."""
        from transformers.modeling_outputs import CausalLMOutputWithPast

        ids, mask, positions = (given.get(name) for name in ("input_ids", "attention_mask", "position_ids"))
        cache = given.get("cache", given.get("past_key_values"))
        if ids is None or cache is None or ids.device.type != "cpu" or not isinstance(mask, Tensor | None):
            return None
        if not stored(cache, len(self.layers)) or not 0 < ids.numel() <= ROWS or torch.is_grad_enabled():
            return None
        if given.get("labels") is not None or given.get("inputs_embeds") is not None:
            return None
        for name, plain in (("output_hidden_states", False), ("output_attentions", False), ("return_dict", True)):
            wanted = given.get(name)
            if (getattr(self.model.config, name, plain) if wanted is None else wanted) != plain:
                return None
        batch, width = ids.shape
        before = cache.get_seq_length()
        first = _padding(mask, batch, before + width)
        if first is None or not isinstance(given.get("logits_to_keep", 0), int):
            return None
        if positions is None:
            positions = torch.arange(before, before + width).expand(batch, width)
        filled(cache, ids, self.decoder.key_heads, self.decoder.width)
        held = cache.layers[0].buffers[0]
        if held.dtype != torch.float32 or held.shape[:2] != (batch, self.decoder.key_heads):
            return None  # transformers says what does not fit
        vocabulary = self.model.config.vocab_size
        if not 0 <= int(ids.min()) <= int(ids.max()) < vocabulary:
            raise IndexError(f"a token outside 0 to {vocabulary - 1}")
        with self.lock:
            logits = self._step(cache, ids, positions.expand(batch, width), first, before)
        keep = given.get("logits_to_keep", 0)
        return CausalLMOutputWithPast(logits=logits[:, -keep:] if keep else logits, cache=cache)

    def _step(self, cache: Any, ids: Tensor, positions: Tensor, first: Tensor, before: int) -> Tensor:
        batch, width = ids.shape
        rows = batch * width
        for layer in cache.layers:
            layer.reserve(width)
        self._point(cache)
        slots = torch.arange(batch, dtype=torch.int32).repeat_interleave(width)
        places = torch.arange(before, before + width, dtype=torch.int32).repeat(batch)
        begins = first.to(torch.int32).repeat_interleave(width)
        angles = [[table[positions.reshape(-1)] for table in self._table(kind, positions)] for kind in self.kinds]
        cosines, sines = ((ctypes.c_void_p * len(angles))(*(pair[i].data_ptr() for pair in angles)) for i in (0, 1))
        tokens = ids.reshape(-1).contiguous()
        entering = None if self.packed_embedding else self.embedding(tokens).float().contiguous()
        leaving = (
            torch.empty(rows, self.decoder.hidden, dtype=torch.float32, device="cpu") if not self.packed_head else None
        )
        logits = (
            torch.empty(rows, self.head.out_features, dtype=torch.float32, device="cpu") if self.packed_head else None
        )
        step = kernels.Step(
            tokens=tokens.data_ptr(),
            input=None if entering is None else entering.data_ptr(),
            slots=slots.data_ptr(),
            places=places.data_ptr(),
            first=begins.data_ptr(),
            cosines=ctypes.addressof(cosines),
            sines=ctypes.addressof(sines),
            logits=None if logits is None else logits.data_ptr(),
            hidden=None if leaving is None else leaving.data_ptr(),
            rows=rows,
            threads=torch.get_num_threads(),
        )
        found = kernels.native()
        assert found is not None  # why_not has seen to it
        found.functions.burnish_step(ctypes.byref(self.decoder), ctypes.byref(step))
        for layer in cache.layers:
            layer.length += width
        if logits is None:
            logits = self.head(leaving)
        return logits.view(batch, width, -1)

    def _point(self, cache: Any) -> None:
        """Have the library's layers point into this cache."""
        layers: list[StoredLayer] = cache.layers
        now = (id(layers[0].store), layers[0].store.moves)
        if now != self.addresses:
            for layer, held in zip(self.layers, layers, strict=True):
                layer.keys, layer.values = (buffer.data_ptr() for buffer in held.buffers)
            self.decoder.capacity = layers[0].capacity
            self.addresses = now
            self.store = layers[0].store  # held, so that its id is not given to another

    def _table(self, kind: Any, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines of every position so far, (positions, width)."""
        need = int(positions.max()) + 1
        if kind not in self.tables or len(self.tables[kind][0]) < need:
            places = torch.arange(2 * need + 256)[None]
            told = (places,) if kind is None else (places, kind)
            cosines, sines = self.rope(torch.zeros(1), *told)
            self.tables[kind] = cosines[0].contiguous(), sines[0].contiguous()
        return self.tables[kind]


def _held(layer: PackedLinear) -> list[Tensor]:
    """The memory of a layer's buffers: it stays, whatever becomes of the layer."""
    return [buffer.detach() for buffer in layer.buffers()]


def _blocks(model: Model) -> list[str]:
    return [f"{model.adapter.blocks}.{i}" for i in range(model.config.num_hidden_layers)]


def _ropes(config: Any) -> list[dict[str, Any]]:
    found = config.rope_parameters or {}
    inner = [value for value in found.values() if isinstance(value, dict)]
    return inner or [found]


def _window(config: Any, layer: int) -> int:
    """Positions that a layer sees; 0 for all."""
    kinds = getattr(config, "layer_types", None)
    slides = kinds[layer] == "sliding_attention" if kinds else getattr(config, "use_sliding_window", True)
    return int(getattr(config, "sliding_window", None) or 0) if slides else 0


def _padding(mask: Tensor | None, batch: int, length: int) -> Tensor | None:
    """Columns before each row's first token; None for a mask with holes, or of another shape."""
    if mask is None:
        return torch.zeros(batch, dtype=torch.int64)
    if mask.shape != (batch, length):
        return None
    held = mask.sum(1)
    first = length - held
    return first if bool((mask.long().argmax(1) == first).all()) else None
