"""New models: a tokenizer trained on the text at hand, and an untrained Llama of a given shape."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from burnish.models.model import Lineage, Model

START, END = "<s>", "</s>"
"""What begins and ends a document."""


@dataclass(frozen=True)
class Shape:
    """The shape of a Llama with tied embeddings."""

    width: int
    layers: int
    heads: int
    mlp: int
    """Width inside the MLP."""
    rate: float
    """A learning rate that suits it: about 1e-3 at width 384, and inversely with width."""


SHAPES = {
    "30k": Shape(width=32, layers=1, heads=2, mlp=96, rate=8e-3),
    "100k": Shape(width=64, layers=2, heads=2, mlp=128, rate=4e-3),
    "1.5m": Shape(width=128, layers=4, heads=4, mlp=512, rate=3e-3),
    "12m": Shape(width=384, layers=4, heads=6, mlp=1664, rate=1e-3),
}
"""Names after their parameters with a vocabulary of 4096 (the two smallest: of 512)."""


def train_tokenizer(texts: Iterable[str], size: int) -> Any:
    """A byte-level byte-pair vocabulary: any text can be written, nothing is unknown.

    Args:
        texts: What its merges are learnt from.
        size: Tokens at most, with 256 bytes and 2 special tokens; a small text gives fewer.

    Returns:
        A PreTrainedTokenizerFast that adds no special tokens by itself.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=START,
        eos_token=END,
        pad_token=END,
        unk_token=END,
        clean_up_tokenization_spaces=False,
    )


def new_llama(name: str, shape: Shape, tokenizer: Any, context: int, seed: int) -> Model:
    """An untrained Llama; the same seed gives the same weights.

    Args:
        name: What it is called.
        shape: Its shape.
        tokenizer: Its tokenizer, which sets the size of its vocabulary.
        context: Tokens that it can look back on.
        seed: Of the first weights.
    """
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=shape.width,
        intermediate_size=shape.mlp,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads,
        max_position_embeddings=context,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed % 2**63)
        net = LlamaForCausalLM(config)
    # Told to generation alone: in the configuration it would keep the embedding of the end of text from learning.
    net.generation_config.pad_token_id = tokenizer.eos_token_id
    net.requires_grad_(False)
    return Model(net.eval(), tokenizer, Lineage(name, {"note": "trained from nothing"}))
