"""New models: a tokenizer trained on the text at hand, and an untrained Llama of a given shape."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from burnish.core.errors import BadInput
from burnish.models.model import Lineage, Model
from burnish.models.resolve import resolve

START, END = "<s>", "</s>"
"""What begins and ends a document."""


@dataclass(frozen=True)
class Shape:
    """The shape of a Llama."""

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


def read_tokenizer(name: str) -> Any:
    """The tokenizer of a model, by what `burnish.load` takes.

    Raises:
        BadInput: nothing of that name, no tokenizer there, or one without an end of text.
    """
    from transformers import AutoTokenizer

    folder = resolve(name, lambda line: None).folder
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # whatever a file that lies brings a reader to
        raise BadInput(f"{folder} holds no tokenizer: {' '.join(str(error).split())[:200]}") from None
    if tokenizer.eos_token_id is None:
        raise BadInput(f"the tokenizer of {name} has no token that ends a text", "give another, or leave it out")
    return tokenizer


def new_llama(
    name: str, shape: Shape, tokenizer: Any, context: int, seed: int, tied: bool = True, embedding: float | None = None
) -> Model:
    """An untrained Llama; the same seed gives the same weights.

    Args:
        name: What it is called.
        shape: Its shape.
        tokenizer: Its tokenizer, which sets the size of its vocabulary.
        context: Tokens that it can look back on.
        seed: Of the first weights.
        tied: Whether the head has the weights of the embedding.
        embedding: Standard deviation of the first embedding; by default .02, as of all other matrices.
    """
    from transformers import LlamaForCausalLM

    config = llama_config(shape, len(tokenizer), context, tied)
    config.bos_token_id, config.eos_token_id = tokenizer.bos_token_id, tokenizer.eos_token_id
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed % 2**63)
        net = LlamaForCausalLM(config)
    if embedding is not None:
        with torch.no_grad():
            net.model.embed_tokens.weight.mul_(embedding / config.initializer_range)
    # Told to generation alone: in the configuration it would keep the embedding of the end of text from learning.
    net.generation_config.pad_token_id = tokenizer.eos_token_id
    net.requires_grad_(False)
    return Model(net.eval(), tokenizer, Lineage(name, {"note": "trained from nothing"}))


def llama_config(shape: Shape, vocabulary: int, context: int, tied: bool = True) -> Any:
    """The configuration of a Llama of that shape.

    Args:
        shape: Its shape.
        vocabulary: Tokens.
        context: Tokens that it can look back on.
        tied: Whether the head has the weights of the embedding.
    """
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=shape.width,
        intermediate_size=shape.mlp,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads,
        max_position_embeddings=context,
        tie_word_embeddings=tied,
    )
