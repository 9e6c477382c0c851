"""Random models of every supported architecture, too small to cost anything."""

from __future__ import annotations

import torch
import transformers as tf

from burnish.models import Lineage, Model

SHARED = {
    "vocab_size": 128,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
WINDOW = {"sliding_window": 8}
CONFIGS = {
    "llama": lambda: tf.LlamaConfig(**SHARED, tie_word_embeddings=True, attention_bias=True, mlp_bias=True),
    "mistral": lambda: tf.MistralConfig(**SHARED, **WINDOW, head_dim=8),
    "qwen2": lambda: tf.Qwen2Config(**SHARED),
    "qwen3": lambda: tf.Qwen3Config(**SHARED, head_dim=16),
    "gemma3_text": lambda: tf.Gemma3TextConfig(
        **SHARED, **WINDOW, head_dim=16, layer_types=["sliding_attention", "full_attention"], query_pre_attn_scalar=16
    ),
    "opt": lambda: tf.OPTConfig(
        vocab_size=128,
        hidden_size=32,
        ffn_dim=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=64,
        word_embed_proj_dim=32,
        pad_token_id=0,
    ),
}
ROTATABLE = ["llama", "mistral", "qwen2", "qwen3"]


def tokens(samples: int = 6, length: int = 16, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 128, (samples, length), generator=torch.Generator().manual_seed(seed))


def build(name: str, attention: str = "sdpa", widths: int | None = None) -> Model:
    torch.manual_seed(0)
    config = CONFIGS[name]()
    if widths is not None:
        config.head_dim = widths
    net = tf.AutoModelForCausalLM.from_config(config, attn_implementation=attention).eval()
    net.requires_grad_(False)
    generator = torch.Generator().manual_seed(1)
    for parameter in net.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return Model(net, None, Lineage(name))
