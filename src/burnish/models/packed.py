"""A quantized model that runs on its codes: linear layers, embedding and head decode their weights while they compute."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from burnish.core.errors import Mismatch, Unsupported
from burnish.core.method import Method
from burnish.models import adapters
from burnish.models.export.intent import Intent
from burnish.models.model import Model
from burnish.nn.packed import UNIT, PackedEmbedding, PackedLinear


def packed(model: Model, head_bits: int = 8) -> Model:
    """Keep a model's rounded layers as codes only.

    What computes afterwards is what was measured before: the codes decode to the very weights. Only the embedding and the head
    change, unless they came from GGUF's Q8_0 or `head_bits` is 16.

    Args:
        model: Its blocks were rounded, weights only; it is not changed.
        head_bits: 8 puts embedding and head on the grid of Q8_0; 16 leaves them alone.

    Returns:
        A model whose `net` has `PackedLinear` layers; `generate()` and scoring work as before.

    Raises:
        Unsupported: a layer that was not rounded, groups that cannot be packed, activations that are rounded too, or no CPU.
        Mismatch: a weight that is no longer what its codes stand for.
    """
    if model.online:
        raise Unsupported(
            f"packing {model.name}",
            f"{'; '.join(model.online)}, which packed layers do not do",
            "round the weights only (--a-bits 16), or measure it as it is",
        )
    sites = list(model.sites())
    for site in sites:
        if site.quantized is None:
            raise Unsupported(f"packing {site.name}", "its weight lies on no grid", "round all layers first")
        if not torch.equal(site.weight, site.quantized.weight().to(site.weight)):
            raise Mismatch(f"the weight of {site.name} was changed after it was rounded", "round it last")
    fork = model.fork()
    for site in sites:
        put(fork.net, site.name, PackedLinear.of(site.quantized, site.linear.bias))  # type: ignore[arg-type]
    if head_bits == 8:
        pack_ends(fork)
    return fork.then(f"packed: runs on its codes{', embedding and head in 8 bits' if head_bits == 8 else ''}")


def pack_ends(model: Model) -> None:
    """Put embedding and head on an 8-bit grid, one table where they share their weight."""
    net, path = model.net, model.adapter.embeddings[0]
    embedding, head = model.at(path), net.get_output_embeddings()
    table = PackedLinear.eight_bits(embedding.weight.detach())
    if isinstance(head, PackedLinear):  # it came so
        end = head
    else:
        tied = head.weight.data_ptr() == embedding.weight.data_ptr()
        end = table if tied else PackedLinear.eight_bits(head.weight.detach(), head.bias)
    put(net, path, PackedEmbedding(table, float(getattr(embedding, "scalar_embed_scale", 1.0))))
    name = next(name for name, module in net.named_modules() if module is head)
    put(net, name, end)
    net.config.tie_word_embeddings = False  # nothing is left to tie: the table is one module already


def check(method: Method) -> None:
    """Refuse, before anything is computed, a method whose result cannot run packed, as far as its settings say so.

    Raises:
        Unsupported: naming the setting, and what would do.
    """
    intent = Intent.of(method)
    intent.refuse_online("the packed runtime", activations=True)
    if intent.a_bits < 16:
        intent.refuse(
            "the packed runtime", ["it computes with whole activations"], "use --a-bits 16, or --runtime plain"
        )
    if intent.spec is not None and intent.spec.group != -1 and intent.spec.group % UNIT:
        intent.refuse(
            "the packed runtime", [f"its groups hold a multiple of {UNIT} weights"], "use --group 32, 64, 128 or -1"
        )


def put(net: Any, path: str, module: nn.Module) -> None:
    """Replace the submodule at a dotted path."""
    parent, _, name = path.rpartition(".")
    setattr(adapters.at(net, parent) if parent else net, name, module)
