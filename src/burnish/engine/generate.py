"""Plain batched generation and scoring with any causal language model of transformers.

A request's tokens depend on its prompt, its sampling and its seed, never on what shares its batch. Each request draws
one uniform number a step from a generator of its own, and the number picks the token through the inverse of the
cumulative distribution in the vocabulary's order; what remains is the rounding of matrix products, which differs a
little with the batch's shape and can decide only where two tokens are equally likely to that precision.

A prompt is padded on the left, so that the last column is every row's newest token; positions are counted from each
row's first real token. A finished row leaves the batch and its key-value cache. Prompts that begin alike are read once
as far as they do (see `burnish.engine.prefix`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import DynamicCache

from burnish.core.errors import BadInput
from burnish.engine import Finish, Generated, Sampling, prefix

if TYPE_CHECKING:
    from burnish.models import Model

BATCH = 16
"""Sequences that are worked on together unless told otherwise."""
TOKENS_AT_ONCE = 2**15
"""Most tokens of a batch's prompts, padding included, unless one alone has more: long ones go in smaller batches."""
LOGITS_AT_ONCE = 2**26
"""Most logits that `score` holds at a time: 256 MiB in float32."""
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def generate(
    model: Model,
    prompts: Sequence[Sequence[int]],
    sampling: Sampling | Sequence[Sampling],
    seeds: Sequence[int] | None = None,
    *,
    batch_size: int = BATCH,
) -> list[Generated]:
    """Continue each prompt.

    Args:
        model: Its `net` and `tokenizer` are used; nothing of them is changed.
        prompts: Token ids, at least one each.
        sampling: For all prompts, or one for each.
        seeds: One for each prompt; None takes each sampling's own.
        batch_size: Prompts that are worked on together.

    Returns:
        The continuations, in the order of `prompts`.

    Raises:
        BadInput: prompts that are empty or leave too little room in the model's context, all of them listed.
    """
    found = dict(generate_as_finished(model, prompts, sampling, seeds, batch_size=batch_size))
    return [found[number] for number in range(len(prompts))]


def generate_as_finished(
    model: Model,
    prompts: Sequence[Sequence[int]],
    sampling: Sampling | Sequence[Sampling],
    seeds: Sequence[int] | None = None,
    *,
    batch_size: int = BATCH,
) -> Iterator[tuple[int, Generated]]:
    """As `generate`, but give each continuation with its prompt's number as soon as it is finished."""
    each = [sampling] * len(prompts) if isinstance(sampling, Sampling) else list(sampling)
    seeds = [one.seed for one in each] if seeds is None else seeds
    if not len(prompts) == len(each) == len(seeds):
        raise BadInput(
            f"{len(prompts)} prompts, {len(each)} samplings and {len(seeds)} seeds do not belong together",
            "give one of each for every prompt",
        )
    check_room(model, [(prompt, one.max_tokens) for prompt, one in zip(prompts, each, strict=True)])
    ends = end_tokens(model)
    rows = [
        _Row(number, prompt, one, seed, ends, model.tokenizer)
        for number, (prompt, one, seed) in enumerate(zip(prompts, each, seeds, strict=True))
    ]
    sharing = prefix.worthwhile(model.net, prompts)
    reader = prefix.Reader(model.net) if sharing else None
    for batch in _batches(prompts, batch_size, by_content=sharing):
        yield from _continue(model.net, [rows[number] for number in batch], reader)


@torch.no_grad()  # not inference_mode: a rope that rescales itself would keep tensors that later training cannot use
def _continue(net: Any, rows: list[_Row], reader: prefix.Reader | None) -> Iterator[tuple[int, Generated]]:
    prompts = [row.prompt for row in rows]
    cache, logits, mask = reader.read_all(prompts) if reader else _read(net, prompts)
    positions = mask.long().sum(-1, keepdim=True) - 1
    while True:
        logits = logits.float()
        tokens = choose(logits, [row.sampling for row in rows], [row.draw() for row in rows])
        for row, token, logprob in zip(rows, tokens.tolist(), _logprobs(logits, tokens).tolist(), strict=True):
            row.add(token, logprob)
        kept = [place for place, row in enumerate(rows) if row.finish is None]
        yield from ((row.number, row.result()) for row in rows if row.finish is not None)
        if not kept:
            return
        if len(kept) < len(rows):
            rows = [rows[place] for place in kept]
            index = torch.tensor(kept, device=net.device)
            cache.batch_select_indices(index)
            mask, positions, tokens = mask[index], positions[index], tokens[index]
        ids, positions = tokens[:, None], positions + 1
        mask = torch.cat([mask, torch.ones_like(ids, dtype=torch.bool)], dim=1)
        out = net(
            input_ids=ids, attention_mask=mask, position_ids=positions, cache=cache, use_cache=True, logits_to_keep=1
        )
        logits = out.logits[:, -1]


def _read(
    net: Any, prompts: Sequence[Sequence[int]]
) -> tuple[DynamicCache, Float[Tensor, "rows vocab"], Bool[Tensor, "rows width"]]:
    """Read prompts side by side: their cache, the logits after each, and which columns are tokens."""
    ids, mask = _pad_left(prompts, net.device)
    positions = (mask.long().cumsum(-1) - 1).clamp(min=0)
    cache = DynamicCache(config=net.config)
    out = net(input_ids=ids, attention_mask=mask, position_ids=positions, cache=cache, use_cache=True, logits_to_keep=1)
    return cache, out.logits[:, -1], mask


@torch.no_grad()
def score(
    model: Model,
    sequences: Sequence[tuple[Sequence[int], Sequence[int]]],
    *,
    batch_size: int = BATCH,
) -> list[list[float]]:
    """Log-probability of each token of each continuation, given its prompt and what precedes it.

    Long continuations are fed piece by piece through a key-value cache, so that no more than `LOGITS_AT_ONCE` logits
    exist at a time, whatever the model does to them after its last linear (soft caps, scales).

    Args:
        model: Its `net` is used.
        sequences: Pairs of token ids (prompt, continuation); a prompt has at least one token.
        batch_size: Sequences that are worked on together.

    Returns:
        For each pair a list as long as its continuation, in nats.

    Raises:
        BadInput: prompts that are empty or sequences longer than the model's context, all of them listed.
    """
    check_room(model, [(prompt, len(continuation)) for prompt, continuation in sequences])
    scores: list[list[float]] = [[] for _ in sequences]
    numbers = [number for number, (_, continuation) in enumerate(sequences) if continuation]
    # The last token is never fed: nothing is asked about what follows it.
    fed = [[*sequences[number][0], *sequences[number][1]][:-1] for number in numbers]
    piece = LOGITS_AT_ONCE // model.net.config.get_text_config().vocab_size
    short = all(len(sequences[number][1]) <= piece for number in numbers)
    if short and prefix.worthwhile(model.net, fed):
        reader = prefix.Reader(model.net)
        for place in sorted(range(len(fed)), key=fed.__getitem__):
            continuation = sequences[numbers[place]][1]
            logits = reader.read(fed[place], len(continuation)).float()
            scores[numbers[place]] = _logprobs(logits, torch.tensor(continuation, device=logits.device)).tolist()
        return scores
    for batch in _batches(fed, batch_size):
        found = _score(model.net, [sequences[numbers[place]] for place in batch])
        for place, row in zip(batch, found, strict=True):
            scores[numbers[place]] = row
    return scores


def _score(net: Any, batch: list[tuple[Sequence[int], Sequence[int]]]) -> list[list[float]]:
    ids, mask = _pad_left([[*prompt, *continuation][:-1] for prompt, continuation in batch], net.device)
    targets, _ = _pad_left([continuation for _, continuation in batch], net.device)
    positions = (mask.long().cumsum(-1) - 1).clamp(min=0)
    width, asked = ids.shape[1], targets.shape[1]
    piece = max(1, LOGITS_AT_ONCE // (len(batch) * net.config.get_text_config().vocab_size))
    cache = DynamicCache(config=net.config)
    found, begin = [], 0
    for first in range(0, asked, piece):
        wanted = targets[:, first : first + piece]
        end = width - asked + first + wanted.shape[1]
        out = net(
            input_ids=ids[:, begin:end],
            attention_mask=mask[:, :end],
            position_ids=positions[:, begin:end],
            cache=cache,
            use_cache=True,
            logits_to_keep=wanted.shape[1],
        )
        found.append(_logprobs(out.logits.float(), wanted))
        begin = end
    logprobs = torch.cat(found, dim=1).tolist()
    return [row[-len(continuation) :] for row, (_, continuation) in zip(logprobs, batch, strict=True)]


def choose(
    logits: Float[Tensor, "rows vocab"], sampling: Sequence[Sampling], uniforms: Sequence[float]
) -> Int[Tensor, " rows"]:
    """The next token of each row.

    Temperature, then top_k, then top_p, each on what the one before left (the usual order). Then the first token whose
    cumulative probability, in the vocabulary's order, exceeds the row's number from [0, 1): an order by probability
    would swap with the rounding of near-equal ones, and with it the draw.
    """
    best = logits.argmax(-1)
    drawn = [place for place, one in enumerate(sampling) if one.temperature > 0]
    if not drawn:
        return best
    index = torch.tensor(drawn, device=logits.device)
    chosen = [sampling[place] for place in drawn]
    wide = logits[index].double()
    # With 0 as the largest, a tiny temperature cannot overflow.
    wide = (wide - wide.amax(-1, keepdim=True)) / _column([one.temperature for one in chosen], wide)
    mass = wide.softmax(-1)
    if any(one.top_k or one.top_p < 1 for one in chosen):
        mass = _truncate(mass, chosen)
    cumulative = mass.cumsum(-1)
    total = cumulative[:, -1:]
    point = _column([uniforms[place] for place in drawn], mass) * total
    # The product may round up to the total itself, which no token exceeds.
    point = torch.minimum(point, torch.nextafter(total, torch.zeros_like(total)))
    return best.index_copy(0, index, torch.searchsorted(cumulative, point, right=True)[:, 0])


def _truncate(mass: Float[Tensor, "rows vocab"], sampling: Sequence[Sampling]) -> Float[Tensor, "rows vocab"]:
    vocab = mass.shape[-1]
    ranked, order = mass.sort(dim=-1, descending=True, stable=True)
    rank = torch.arange(vocab, device=mass.device)
    ranked = ranked.masked_fill(rank >= _column([one.top_k or vocab for one in sampling], mass), 0)
    ranked = ranked / ranked.sum(-1, keepdim=True)
    top_p = _column([one.top_p for one in sampling], mass)
    # The comparison with 1 spares a row that keeps all: its sums may round to 1 before its tail.
    ranked = ranked.masked_fill((ranked.cumsum(-1) - ranked >= top_p) & (top_p < 1), 0)
    return torch.zeros_like(mass).scatter(-1, order, ranked)


def _column(values: Sequence[float], like: Tensor) -> Float[Tensor, "rows 1"]:
    return torch.tensor(values, device=like.device, dtype=like.dtype)[:, None]


def _logprobs(logits: Float[Tensor, "*batch vocab"], tokens: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    return logits.gather(-1, tokens[..., None])[..., 0] - logits.logsumexp(-1)


def end_tokens(model: Model) -> frozenset[int]:
    """Ids that end a text: those of the model's generation settings and the tokenizer's own."""
    settings = getattr(model.net, "generation_config", None)
    named = getattr(settings, "eos_token_id", None)
    found = [*named] if isinstance(named, list | tuple) else [named]
    return frozenset(int(one) for one in (*found, model.tokenizer.eos_token_id) if one is not None)


def check_room(model: Model, asked: Sequence[tuple[Sequence[int], int]]) -> None:
    """Refuse, listing all, prompts that are empty and those that leave too little room for so many more tokens."""
    room = getattr(model.net.config.get_text_config(), "max_position_embeddings", None)
    faults = []
    for number, (prompt, more) in enumerate(asked):
        if not prompt:
            faults.append(f"prompt {number} is empty")
        elif room is not None and len(prompt) + more > room:
            faults.append(f"prompt {number}: {len(prompt)} tokens and {more} more exceed the context of {room}")
    if faults:
        raise BadInput.of("some prompts cannot be used", faults, "shorten them, or ask for fewer tokens")


def _batches(prompts: Sequence[Sequence[int]], size: int, *, by_content: bool = False) -> Iterator[list[int]]:
    """Numbers of the prompts that are worked on together, neighbours by content or of about one length."""
    # Longest first: what does not fit in memory fails at once.
    keys = [list(prompt) if by_content else [-len(prompt)] for prompt in prompts]
    order = sorted(range(len(prompts)), key=keys.__getitem__)
    batch: list[int] = []
    longest = 0
    for number in order:
        longest = max(longest, len(prompts[number]))
        if batch and (len(batch) == size or (len(batch) + 1) * longest > TOKENS_AT_ONCE):
            yield batch
            batch, longest = [], len(prompts[number])
        batch.append(number)
    if batch:
        yield batch


def _pad_left(
    rows: Sequence[Sequence[int]], device: torch.device
) -> tuple[Int[Tensor, "rows width"], Bool[Tensor, "rows width"]]:
    width = max(map(len, rows))
    ids = torch.tensor([[0] * (width - len(row)) + list(row) for row in rows], device=device)
    first = torch.tensor([[width - len(row)] for row in rows], device=device)
    return ids, torch.arange(width, device=device) >= first


class _Row:
    """One request while it is in a batch."""

    def __init__(
        self, number: int, prompt: Sequence[int], sampling: Sampling, seed: int, ends: frozenset[int], tokenizer: Any
    ) -> None:
        self.number, self.prompt, self.sampling = number, prompt, sampling
        self.finish: Finish | None = None
        self._ends, self._tokenizer = ends, tokenizer
        self._random = torch.Generator().manual_seed(seed % 2**63)
        self._watch = StopWatch(tokenizer, sampling.stop) if sampling.stop else None
        self._ids: list[int] = []
        self._logprobs: list[float] = []

    def draw(self) -> float:
        """The next of this request's own uniform numbers from [0, 1)."""
        return torch.rand((), generator=self._random, dtype=torch.float64).item()

    def add(self, token: int, logprob: float) -> None:
        self._ids.append(token)
        self._logprobs.append(logprob)
        if token in self._ends or (self._watch is not None and self._watch.push(token)):
            self.finish = "stop"
        elif len(self._ids) == self.sampling.max_tokens:
            self.finish = "length"

    def result(self) -> Generated:
        assert self.finish is not None
        whole = decode(self._tokenizer, self._ids)
        text = cut(whole, self.sampling.stop)
        # A stop string may have waited for the rest of a character that never came.
        finish: Finish = "stop" if len(text) < len(whole) else self.finish
        return Generated(self._ids, self._logprobs, finish, text)


def decode(tokenizer: Any, ids: Sequence[int]) -> str:
    """Token ids as text, without special tokens and without tidying spaces."""
    return str(tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))


def cut(text: str, stops: Sequence[str]) -> str:
    """`text` up to the first stop string in it."""
    return text[: min((place for stop in stops if (place := text.find(stop)) >= 0), default=len(text))]


class StopWatch:
    """Text that grows token by token, in whole characters, watched for stop strings."""

    def __init__(self, tokenizer: Any, stops: Sequence[str]) -> None:
        self.text = ""
        self._tokenizer, self._stops = tokenizer, stops
        self._longest = max(map(len, stops))
        self._ids: list[int] = []
        # Tokens before `_begin` are never decoded again; those up to `_read` are in `text` already and are decoded only
        # because some tokenizers write a token differently where a text begins.
        self._begin = self._read = 0

    def push(self, token: int) -> bool:
        """Add a token; true when the text now holds a stop string."""
        self._ids.append(token)
        window = decode(self._tokenizer, self._ids[self._begin :])
        known = decode(self._tokenizer, self._ids[self._begin : self._read])
        if window.endswith(REPLACEMENT) or len(window) <= len(known):
            return False  # perhaps the first bytes of a character, or a special token: wait for what follows
        begin = max(0, len(self.text) - self._longest + 1)
        self.text += window[len(known) :]
        self._begin, self._read = self._read, len(self._ids)
        return any(self.text.find(stop, begin) >= 0 for stop in self._stops)
