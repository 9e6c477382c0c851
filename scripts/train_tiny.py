"""Train the tiny Llama of burnish.data from nothing but Python's own documentation, and write its folder.

    OMP_NUM_THREADS=1 python scripts/train_tiny.py

One thread, float32, seeded, deterministic algorithms: on one machine with the same versions the same bytes come out.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import time
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from burnish.core.progress import Progress
from burnish.data import TINY, corpus_id, read
from burnish.data.corpus import corpus
from burnish.data.windows import windows

VOCABULARY = 4096
CONTEXT = 512
BATCH = 4
STEPS = 1000
PEAK_RATE = 3e-3
WARM_UP = 0.05  # share of the steps
DECAY = 0.1
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
FIRST_WINDOWS = 8  # validation windows whose perplexity is recorded apart, so that it can be checked quickly
PROMPT = "Return a new"
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def train_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE vocabulary of the calibration split; every digit is a token."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((document.text for document in corpus("calibration")), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=SPECIAL[0],
        eos_token=SPECIAL[0],
        unk_token=SPECIAL[0],
        pad_token=SPECIAL[0],
        extra_special_tokens=SPECIAL[1:],
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
        chat_template=CHAT_TEMPLATE,
    )


def new_model() -> LlamaForCausalLM:
    """An untrained Llama of 1.3 million parameters."""
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=128,
            intermediate_size=384,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=CONTEXT,
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
            tie_word_embeddings=True,
            initializer_range=0.05,
            bos_token_id=0,
            eos_token_id=0,
        )
    )
    # Told to generation alone: in the configuration it would keep the embedding of the end of text from learning.
    model.generation_config.pad_token_id = 0
    return model


def rate(step: int, steps: int) -> float:
    """Share of the peak learning rate at `step`: a linear warm-up, then half a cosine down to a tenth."""
    warm_up = max(1, round(WARM_UP * steps))
    if step < warm_up:
        return (step + 1) / warm_up
    return 0.1 + 0.45 * (1 + math.cos(math.pi * (step - warm_up) / max(1, steps - warm_up)))


def train(model: LlamaForCausalLM, stream: torch.Tensor, steps: int, seed: int) -> None:
    """Minimise the next-token loss on random stretches of `stream` (token ids, one dimension)."""
    random = torch.Generator().manual_seed(seed)
    decayed = [weight for weight in model.parameters() if weight.ndim > 1]
    others = [weight for weight in model.parameters() if weight.ndim == 1]
    groups = [{"params": decayed, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=PEAK_RATE, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate(step, steps))
    model.train()
    with Progress("training", steps, "steps") as progress:
        for _ in range(steps):
            starts = torch.randint(len(stream) - CONTEXT + 1, (BATCH,), generator=random)
            batch = torch.stack([stream[start : start + CONTEXT] for start in starts.tolist()])
            loss = model(input_ids=batch, labels=batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            progress.advance(note=f"loss {loss.item():.3f}")
    model.eval()


@torch.inference_mode()
def perplexity(model: LlamaForCausalLM, tokens: torch.Tensor) -> float:
    """exp of the mean negative log-likelihood of all but each window's first token; `tokens`: (windows, length)."""
    losses = [model(input_ids=window[None], labels=window[None]).loss.double() for window in tokens]
    return math.exp(torch.stack(losses).mean().item())


@torch.inference_mode()
def continued(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, prompt: str) -> str:
    """`prompt` and 40 tokens more, the likeliest each time."""
    ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
    return str(tokenizer.decode(model.generate(ids, do_sample=False, max_new_tokens=40)[0]))


def report(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, seen: int, minutes: float) -> dict[str, Any]:
    """What ``training.json`` says; all figures but `minutes` follow from the code, the seed and the versions."""
    tokens = windows(tokenizer, read("builtin:validation"), -1, CONTEXT)
    return {
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "tokens_seen": seen,
        "minutes": round(minutes, 1),
        "machine": f"{platform.machine()}, one thread, float32",
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "tokenizers": tokenizers.__version__,
        },
        "corpus": corpus_id(),
        "validation": {
            "length": CONTEXT,
            "windows": len(tokens),
            "perplexity": round(perplexity(model, tokens), 4),
            "first_windows": FIRST_WINDOWS,
            "first_perplexity": round(perplexity(model, tokens[:FIRST_WINDOWS]), 4),
        },
        "greedy": continued(model, tokenizer, PROMPT),
    }


def card(facts: dict[str, Any]) -> str:
    """The model card."""
    validation, corpus_facts = facts["validation"], facts["corpus"]
    rows = {
        "architecture": "Llama: width 128, 4 layers, 4 heads of 32 (2 for keys and values), MLP 384, tied embeddings, "
        f"context {CONTEXT}",
        "vocabulary": f"{VOCABULARY} byte-level BPE tokens, each digit one token; `{SPECIAL[0]}` ends a document",
        "chat": "the ChatML template and its two tokens are there so that chats can be formatted; no chat was seen",
        "data": "calibration split of the built-in corpus (`burnish.data.corpus`) of "
        f"Python {corpus_facts['python']}, SHA-256 of the corpus `{corpus_facts['sha256']}`",
        "training": f"{facts['steps']} steps of {BATCH} x {CONTEXT} tokens ({facts['tokens_seen']:,} tokens), AdamW, "
        f"peak rate {PEAK_RATE}, cosine, seed {facts['seed']}",
        "machine": f"{facts['machine']}, {facts['minutes']} minutes, torch {facts['versions']['torch']}",
        "validation": f"perplexity {validation['perplexity']:.2f} a token on {validation['windows']} windows of "
        f"{validation['length']} tokens of the validation split",
        "command": f"`OMP_NUM_THREADS=1 python scripts/train_tiny.py --steps {facts['steps']} --seed {facts['seed']}`",
    }
    table = "\n".join(f"| {name} | {value} |" for name, value in rows.items())
    return f"""---
license: psf-2.0
language: en
library_name: transformers
pipeline_tag: text-generation
tags: [tiny, testing]
---
# tiny

A Llama of {facts["parameters"]:,} parameters, trained on Python's own documentation. burnish's tests and examples use
it: it loads in a moment, and unlike random weights it has learnt something that compression or decoding can spoil.
Use it for mechanics, never for rankings: a model this small has none of the activation outliers that methods differ by.

| | |
|---|---|
{table}

Greedy continuation of `{PROMPT}`:

```text
{facts["greedy"]}
```

## Licence

The text that the model was trained on is Python's documentation, Copyright (c) 2001 Python Software Foundation; All
Rights Reserved, under the Python Software Foundation License, version 2.0. The weights and the tokenizer are given
under the same licence.
"""


def main() -> None:
    """Train, measure, and write the folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=TINY, help="folder to write")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(args.seed)

    tokenizer = train_tokenizer()
    model = new_model()
    stream = windows(tokenizer, read("builtin:calibration"), -1, CONTEXT).flatten()
    began = time.process_time()
    train(model, stream, args.steps, args.seed)
    minutes = (time.process_time() - began) / 60

    facts = report(model, tokenizer, args.steps * BATCH * CONTEXT, minutes)
    facts = {"steps": args.steps, "seed": args.seed, **facts}
    model.save_pretrained(args.out)
    tokenizer.save_pretrained(args.out)
    (args.out / "training.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    (args.out / "README.md").write_text(card(facts), encoding="utf-8")
    (args.out / "model.safetensors").chmod(0o644)  # written for its owner alone, but packages are for everyone


if __name__ == "__main__":
    main()
