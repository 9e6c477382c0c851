"""Token windows, and the tiny trained model."""

from __future__ import annotations

import json
import logging
import math
import re

import datasets
import pytest
import tokenizers
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from burnish.core.errors import BadInput
from burnish.data import TINY, corpus_id, read
from burnish.data.corpus import corpus
from burnish.data.wikitext import articles
from burnish.data.windows import windows

WIKITEXT = " \n = One = \n \n Text of one . \n \n = = Part = = \n \n More . \n \n = Two = \n \n Text of two . \n"


# -- windows --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return AutoTokenizer.from_pretrained(TINY)


@pytest.fixture(scope="module")
def with_bos() -> PreTrainedTokenizerFast:
    """The tiny tokenizer, made to begin every text with a token of its own, as Gemma's does."""
    inner = tokenizers.Tokenizer.from_file(str(TINY / "tokenizer.json"))
    inner.post_processor = tokenizers.processors.TemplateProcessing(
        single="<|im_start|> $A", special_tokens=[("<|im_start|>", 1)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<|im_start|>", eos_token="<|im_end|>")


@pytest.fixture(scope="module")
def text() -> datasets.Dataset:
    return read("builtin:test").select(range(12))


def plain(tokenizer: PreTrainedTokenizerFast, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]


def test_windows_in_order_are_the_text(tokenizer: PreTrainedTokenizerFast, text: datasets.Dataset) -> None:
    stream: list[int] = []
    for document in text["text"]:
        stream += [*plain(tokenizer, document), tokenizer.eos_token_id]
    every = windows(tokenizer, text, -1, 64)
    assert (every.dtype, every.shape) == (torch.int64, ((len(stream) - 1) // 64, 64))
    assert every.flatten().tolist() == stream[: every.numel()]
    assert torch.equal(windows(tokenizer, text, 5, 64), every[:5])


def test_seeded_windows_are_a_choice_without_overlap(
    tokenizer: PreTrainedTokenizerFast, text: datasets.Dataset
) -> None:
    every = {tuple(row) for row in windows(tokenizer, text, -1, 64).tolist()}
    some = windows(tokenizer, text, 20, 64, seed=3)
    assert len({tuple(row) for row in some.tolist()} & every) == 20
    assert torch.equal(some, windows(tokenizer, text, 20, 64, seed=3))
    assert torch.equal(some[:8], windows(tokenizer, text, 8, 64, seed=3))
    assert not torch.equal(some, windows(tokenizer, text, 20, 64, seed=4))
    assert not torch.equal(some, windows(tokenizer, text, 20, 64))
    assert {tuple(row) for row in windows(tokenizer, text, -1, 64, seed=0).tolist()} == every


def test_global_randomness_is_left_alone(tokenizer: PreTrainedTokenizerFast, text: datasets.Dataset) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    windows(tokenizer, text, 4, 32, seed=5)
    assert torch.equal(torch.get_rng_state(), before)


def test_every_window_begins_with_bos_where_the_tokenizer_adds_it(
    tokenizer: PreTrainedTokenizerFast, with_bos: PreTrainedTokenizerFast, text: datasets.Dataset
) -> None:
    led = windows(with_bos, text, -1, 33)
    assert led[:, 0].tolist() == [1] * len(led)
    assert not (led[:, 1:] == 1).any()
    assert torch.equal(led[:4, 1:], windows(with_bos, text, 4, 32, bos=False))
    assert windows(tokenizer, text, 1, 32)[0, 0] != tokenizer.bos_token_id
    assert windows(tokenizer, text, 2, 32, bos=True)[:, 0].tolist() == [0, 0]


def test_documents_are_separated_by_eos_then_bos_then_refused(with_bos: PreTrainedTokenizerFast) -> None:
    two = datasets.Dataset.from_dict({"text": ["One two three.", "Four five six."]})
    ends = plain(with_bos, "One two three.")
    assert windows(with_bos, two, 1, len(ends) + 1, bos=False)[0].tolist() == [*ends, 2]
    inner = with_bos.backend_tokenizer
    only_bos = PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<|im_start|>")
    assert windows(only_bos, two, 1, len(ends) + 1, bos=False)[0].tolist() == [*ends, 1]
    neither = PreTrainedTokenizerFast(tokenizer_object=inner)
    with pytest.raises(BadInput, match="no token to put between"):
        windows(neither, two, 1, 4)
    with pytest.raises(BadInput, match="no beginning-of-sequence"):
        windows(neither, two, 1, 4, bos=True)


def test_joining_by_lines_is_the_published_protocol(tokenizer: PreTrainedTokenizerFast) -> None:
    """Rows are lines with their ends, blank ones emptied, joined by a blank line; articles make no difference."""
    rows = [line + "\n" if line.strip() else "" for line in WIKITEXT.split("\n")[:-1]]
    expected = plain(tokenizer, "\n\n".join(rows))
    for texts in ([WIKITEXT], articles(WIKITEXT)):
        found = windows(tokenizer, datasets.Dataset.from_dict({"text": texts}), 1, len(expected), join="lines")
        assert found[0].tolist() == expected


def test_a_long_text_is_tokenized_in_pieces_and_only_as_far_as_needed(
    tokenizer: PreTrainedTokenizerFast, text: datasets.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = windows(tokenizer, text, -1, 64)
    # Cut between words, a text has the tokens that it has uncut.
    monkeypatch.setattr("burnish.data.windows.PIECE", 5000)
    assert torch.equal(windows(tokenizer, text, -1, 64), whole)
    assert torch.equal(windows(tokenizer, text, 5, 64), whole[:5])
    assert torch.equal(windows(tokenizer, text, 5, 64, seed=3), windows(tokenizer, text, -1, 64, seed=3)[:5])
    asked = 0

    def counting(pieces: list[str], **options: object) -> object:
        nonlocal asked
        asked += sum(map(len, pieces))
        assert max(map(len, pieces)) <= 5000
        return tokenizer(pieces, **options)

    counting.bos_token_id, counting.eos_token_id = None, tokenizer.eos_token_id  # type: ignore[attr-defined]
    one = datasets.Dataset.from_dict({"text": ["a" * 200_000]})  # one word, which can only be cut anywhere
    assert windows(counting, one, 2, 64, bos=False).shape == (2, 64)  # type: ignore[arg-type]
    assert asked == 5000


def test_too_little_text_says_what_would_fit(
    tokenizer: PreTrainedTokenizerFast, with_bos: PreTrainedTokenizerFast
) -> None:
    dataset = datasets.Dataset.from_dict({"text": ["one two three four five six seven eight nine ten " * 8]})
    tokens = len(plain(tokenizer, dataset["text"][0]))
    for kind, first in ((tokenizer, 0), (with_bos, 1)):
        with pytest.raises(BadInput) as caught:
            windows(kind, dataset, 1000, 10)
        assert f"{tokens} tokens" in caught.value.problem
        assert f"need {1000 * (10 - first)}" in caught.value.problem
        fits = re.fullmatch(r"take samples=(\d+) or more text", caught.value.fix)
        assert fits
        assert len(windows(kind, dataset, int(fits[1]), 10)) == int(fits[1])
        with pytest.raises(BadInput):
            windows(kind, dataset, int(fits[1]) + 1, 10)
        with pytest.raises(BadInput) as caught:
            windows(kind, dataset, 3, 1000)
        fits = re.fullmatch(r"take length=(\d+) or more text", caught.value.fix)
        assert fits
        assert windows(kind, dataset, 3, int(fits[1])).shape == (3, int(fits[1]))
        with pytest.raises(BadInput):
            windows(kind, dataset, 3, int(fits[1]) + 1)
    with pytest.raises(BadInput, match="1 window of"):
        windows(tokenizer, dataset, -1, 100_000)


def test_texts_of_no_token_and_of_one_are_refused(tokenizer: PreTrainedTokenizerFast) -> None:
    for texts, problem in (([""], "no text"), (["a"], "gives 1 token\n")):
        with pytest.raises(BadInput, match=problem):
            windows(tokenizer, datasets.Dataset.from_dict({"text": texts}), 1, 2)


def test_all_faults_of_a_request_are_told_at_once(tokenizer: PreTrainedTokenizerFast, text: datasets.Dataset) -> None:
    with pytest.raises(BadInput) as caught:
        windows(tokenizer, text, 0, 1, join="\n\n")  # type: ignore[arg-type]
    for part in ("samples is 0", "length is 1", "join is"):
        assert part in caught.value.problem


# -- the tiny model -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny() -> torch.nn.Module:
    return AutoModelForCausalLM.from_pretrained(TINY).eval()


def recorded() -> dict:
    return json.loads((TINY / "training.json").read_text(encoding="utf-8"))


def test_tiny_is_small_and_whole() -> None:
    files = {path.name for path in TINY.iterdir()}
    assert {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "README.md"} <= files
    assert sum(path.stat().st_size for path in TINY.iterdir() if path.is_file()) < 8_000_000
    card = (TINY / "README.md").read_text(encoding="utf-8")
    assert "license: psf-2.0" in card
    assert f"{recorded()['parameters']:,} parameters" in card
    assert f"perplexity {recorded()['validation']['perplexity']:.2f}" in card


def test_tiny_loads_without_a_word(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    with caplog.at_level(logging.WARNING):
        model, info = AutoModelForCausalLM.from_pretrained(TINY, output_loading_info=True)
        tokenizer = AutoTokenizer.from_pretrained(TINY)
    assert caplog.records == []
    assert not any(info.values())
    assert sum(weight.numel() for weight in model.parameters()) == recorded()["parameters"]
    assert (model.dtype, model.config.vocab_size) == (torch.float32, len(tokenizer))


def test_tiny_has_learnt_its_language(tiny: torch.nn.Module, tokenizer: PreTrainedTokenizerFast) -> None:
    """On text that it never saw: the recorded perplexity, and far from guessing, in every version of Python."""
    facts = recorded()["validation"]
    tokens = windows(tokenizer, read("builtin:validation"), facts["first_windows"], facts["length"])
    with torch.inference_mode():
        losses = [tiny(input_ids=window[None], labels=window[None]).loss.item() for window in tokens]
    perplexity = math.exp(sum(losses) / len(losses))
    assert perplexity < len(tokenizer) / 10
    if corpus_id() == recorded()["corpus"]:
        assert perplexity == pytest.approx(facts["first_perplexity"], rel=0.02)


def test_tiny_writes_words_of_the_documentation(tiny: torch.nn.Module, tokenizer: PreTrainedTokenizerFast) -> None:
    known = set(re.findall(r"\w+", " ".join(document.text for document in corpus("calibration")).lower()))
    written = ""
    for prompt in ("Return a new", "The object is", "If the argument"):
        ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
        written += tokenizer.decode(tiny.generate(ids, do_sample=False, max_new_tokens=24)[0]) + " "
    words = re.findall(r"[a-z]+", written.lower())
    assert len(set(words)) > 15
    assert sum(word in known for word in words) / len(words) > 0.9


def test_the_tokenizer_is_lossless_and_splits_digits(tokenizer: PreTrainedTokenizerFast) -> None:
    sample = "def f(x):\n\treturn 3.14159 * x  # Ünïcode, 2026 ✓"
    assert tokenizer.decode(plain(tokenizer, sample)) == sample
    assert [tokenizer.decode([token]) for token in plain(tokenizer, "2026")] == list("2026")
    assert tokenizer.eos_token_id == tokenizer.pad_token_id == tokenizer.bos_token_id == 0


def test_chats_are_formatted_as_chatml(tokenizer: PreTrainedTokenizerFast) -> None:
    chat = [{"role": "user", "content": "Hi"}]
    formatted = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert formatted == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert plain(tokenizer, formatted)[0] == tokenizer.convert_tokens_to_ids("<|im_start|>")
