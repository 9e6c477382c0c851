"""Token windows: documents joined into one stream of tokens and cut into pieces of equal length, without padding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal

from burnish.core.errors import BadInput
from burnish.core.extras import require

if TYPE_CHECKING:
    import numpy as np
    import torch
    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase

Join = Literal["eos", "lines"]

PIECE = 4_000_000
"""Characters that are tokenized at once; a longer document is cut between two words."""


def windows(
    tokenizer: PreTrainedTokenizerBase,
    dataset: Dataset,
    samples: int,
    length: int,
    seed: int | None = None,
    bos: bool | Literal["auto"] = "auto",
    join: Join = "eos",
) -> torch.LongTensor:
    """Cut the documents of `dataset` into windows of token ids that do not overlap.

    Args:
        tokenizer: A Hugging Face tokenizer; special tokens are added as described here, not by it.
        dataset: Documents in the column ``text``.
        samples: How many windows; -1 for all full ones.
        length: Tokens of one window, a beginning-of-sequence token included.
        seed: None takes the first windows in order, as evaluation does. A number takes a random choice of them, as
            calibration does; fewer `samples` with the same seed are the first of more.
        bos: Whether each window begins with the beginning-of-sequence token; "auto": if the tokenizer adds it by
            default.
        join: "eos" puts one end-of-sequence token (or, lacking one, the beginning-of-sequence token) between
            documents. "lines" takes every line as a row and puts a blank line between rows, as the published
            perplexities of WikiText-2 do since GPTQ (Frantar et al. 2023).

    Returns:
        Token ids, shape (samples, length).

    Raises:
        BadInput: samples, length or join out of range; no text; too few tokens (names numbers that fit); a special
            token that the tokenizer lacks.
    """
    require("cutting token windows", "models")
    import torch

    faults = [
        *([f"samples is {samples}: at least 1, or -1 for all"] if samples < 1 and samples != -1 else []),
        *([f"length is {length}: at least 2, one token to see and one to predict"] if length < 2 else []),
        *([f"join is {join!r}: 'eos' or 'lines'"] if join not in ("eos", "lines") else []),
    ]
    if faults:
        raise BadInput.of("these windows cannot be cut:", faults)
    first = leading_tokens(tokenizer, bos)
    body = length - len(first)
    # The first windows need only the beginning of the text; a random choice needs to know how many there are.
    ids = _stream(tokenizer, dataset["text"][:], join, samples * body if seed is None and samples > 0 else None)
    full = len(ids) // body
    if len(ids) < 2:
        raise BadInput(f"the text gives {len(ids)} token{'' if len(ids) else 's'}", "give a text of some length")
    if full < max(samples, 1):
        raise _too_few(len(ids), samples, body, len(first))
    cut = torch.from_numpy(ids[: full * body]).view(full, body)
    if seed is not None:
        cut = cut[torch.randperm(full, generator=torch.Generator().manual_seed(seed))]
    if samples != -1:
        cut = cut[:samples]
    return torch.cat([torch.tensor(first, dtype=torch.long).expand(len(cut), -1), cut.long()], dim=1)  # type: ignore[return-value]


def leading_tokens(tokenizer: PreTrainedTokenizerBase, bos: bool | Literal["auto"] = "auto") -> list[int]:
    """What every window begins with: the beginning-of-sequence token, or nothing."""
    token = tokenizer.bos_token_id
    if bos is True and token is None:
        raise BadInput("the tokenizer has no beginning-of-sequence token", "leave bos at 'auto'")
    if bos == "auto":
        bos = token is not None and tokenizer("a")["input_ids"][:1] == [token]
    return [token] if bos else []


def _stream(
    tokenizer: PreTrainedTokenizerBase, texts: Iterable[str], join: Join, enough: int | None = None
) -> np.ndarray[Any, np.dtype[np.int32]]:
    """All documents as one array of token ids, or, of a long text, at least the first `enough` of them."""
    import numpy as np

    if join == "lines":
        rows = [line if line.strip() else "" for text in texts for line in _lines(text)]
        texts = ["\n\n".join(rows)]
    texts = [text for text in texts if text]
    if not texts:
        raise BadInput("the dataset holds no text", "give at least one document that is not empty")
    between = tokenizer.eos_token_id if tokenizer.eos_token_id is not None else tokenizer.bos_token_id
    if between is None and len(texts) > 1:
        raise BadInput("the tokenizer has no token to put between documents", "join by 'lines'")
    parts: list[np.ndarray[Any, np.dtype[np.int32]]] = []
    have = 0
    for batch in _batches(texts):
        # verbose=False: a document longer than the model's context is no mistake here, it is cut.
        encoded = tokenizer([piece for piece, _ in batch], add_special_tokens=False, verbose=False)["input_ids"]
        for ids, (_, begins) in zip(encoded, batch, strict=True):
            parts.append(np.array([between, *ids] if begins and parts else ids, dtype=np.int32))
            have += len(parts[-1])
        if enough is not None and have >= enough:
            break
    return np.concatenate(parts)


def _batches(texts: Iterable[str]) -> Iterator[list[tuple[str, bool]]]:
    """Pieces of documents, and whether each begins one, in batches of about PIECE characters."""
    batch: list[tuple[str, bool]] = []
    size = 0
    for text in texts:
        for number, piece in enumerate(_pieces(text)):
            if batch and size + len(piece) > PIECE:
                yield batch
                batch, size = [], 0
            batch.append((piece, number == 0))
            size += len(piece)
    yield batch


def _pieces(text: str) -> Iterator[str]:
    """A document in pieces of at most PIECE characters, cut between words where there are any.

    Space goes with the word that follows it, as most tokenizers have it, so a cut there changes no token.
    """
    begin = 0
    while len(text) - begin > PIECE:
        end = begin + PIECE
        cut = max(text.rfind(" ", begin, end), text.rfind("\n", begin, end))
        while cut > begin and text[cut - 1].isspace():
            cut -= 1
        cut = cut if cut > begin else end
        yield text[begin:cut]
        begin = cut
    yield text[begin:]


def _lines(text: str) -> list[str]:
    """The lines of `text` with their ends; only ``\\n`` ends a line."""
    *whole, rest = text.split("\n")
    return [line + "\n" for line in whole] + ([rest] if rest else [])


def _too_few(tokens: int, samples: int, body: int, first: int) -> BadInput:
    """What is missing, with the most windows of this size and the longest windows of this number that would fit."""
    count = max(samples, 1)
    each = f"{body} tokens and a beginning-of-sequence token" if first else f"{body} tokens"
    longest = tokens // count + first
    fits = [
        *([f"samples={tokens // body}"] if tokens >= body else []),
        *([f"length={longest}"] if longest >= 2 else []),
    ]
    return BadInput(
        f"the text gives {tokens} tokens; {count} window{'s' * (count > 1)} of {each} need {count * body}",
        f"take {' or '.join([*fits, 'more text'])}",
    )
