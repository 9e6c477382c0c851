"""The engine: batched generation, scoring and sentence embeddings."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, pre_tokenizers, trainers
from tokenizers.models import BPE, WordPiece
from tokenizers.processors import TemplateProcessing
from transformers import (
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedTokenizerFast,
)

from burnish.core.errors import BadInput, Unsupported
from burnish.engine import Sampling
from burnish.engine import generate as engine
from burnish.engine.embed import Embedder
from burnish.engine.generate import StopWatch, choose, cut, decode, end_tokens, generate, generate_as_finished, score
from burnish.models import Lineage, Model

torch.set_num_threads(1)

TEXT = "the cat sat on the mat, the dog sat on the log; größer, schöner, 漢字かな, 🙂🙃 and so on and on\n"
SHAPE = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 96,
    "bos_token_id": 0,
    "eos_token_id": None,
    "pad_token_id": None,
    # Spread the logits, so that greedy choices are clear and sampled ones are not uniform.
    "initializer_range": 0.3,
}


@pytest.fixture(scope="module")
def tokenizer():
    """A byte-level BPE with a few merges: most characters beyond ASCII are several tokens."""
    inner = Tokenizer(BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=280, initial_alphabet=alphabet, special_tokens=["<s>", "</s>"])
    inner.train_from_iterator([TEXT], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<s>", eos_token="</s>")


@pytest.fixture(scope="module")
def model(tokenizer):
    torch.manual_seed(0)
    net = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **SHAPE)).eval()
    return Model(net, tokenizer, Lineage("tiny"))


@pytest.fixture(scope="module")
def sliding(tokenizer):
    torch.manual_seed(1)
    net = MistralForCausalLM(MistralConfig(vocab_size=len(tokenizer), sliding_window=5, **SHAPE)).eval()
    return Model(net, tokenizer, Lineage("sliding"))


@pytest.fixture(scope="module")
def absolute(tokenizer):
    """With learned position embeddings: a wrong position shows, where rotary ones forgive a common shift."""
    torch.manual_seed(2)
    names = {name: SHAPE[name] for name in ("bos_token_id", "eos_token_id", "initializer_range")}
    config = GPT2Config(vocab_size=len(tokenizer), n_embd=32, n_layer=2, n_head=4, n_positions=96, **names)
    return Model(GPT2LMHeadModel(config).eval(), tokenizer, Lineage("absolute"))


@pytest.fixture(scope="module")
def prompts():
    rng = np.random.default_rng(0)
    return [rng.integers(2, 280, size=n).tolist() for n in (7, 1, 12, 3, 12, 20, 5)]


def test_greedy_equals_transformers(model, prompts):
    found = generate(model, prompts, Sampling(max_tokens=15), batch_size=3)
    for prompt, ours in zip(prompts, found, strict=True):
        theirs = model.net.generate(
            torch.tensor([prompt]), max_new_tokens=15, do_sample=False, eos_token_id=-1, pad_token_id=0
        )[0, len(prompt) :].tolist()
        # The tokenizer's own end token ends ours.
        assert ours.ids == theirs[: len(ours.ids)]
        assert (ours.finish == "length") == (len(ours.ids) == 15)


@pytest.mark.parametrize("name", ["model", "sliding", "absolute"])
@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_batch_does_not_matter(name, temperature, prompts, request):
    model = request.getfixturevalue(name)
    sampling = [
        Sampling(temperature=temperature, top_p=p, top_k=k, max_tokens=m)
        for p, k, m in [(1, 0, 20), (0.7, 0, 9), (0.9, 5, 20), (1, 3, 13), (1, 0, 1), (0.8, 40, 20), (1, 1, 6)]
    ]
    seeds = list(range(7))
    alone = [generate(model, [p], s, [seed])[0] for p, s, seed in zip(prompts, sampling, seeds, strict=True)]
    together = generate(model, prompts, sampling, seeds)
    backwards = generate(model, prompts[::-1], sampling[::-1], seeds[::-1], batch_size=3)[::-1]
    for one, all_of_it, other in zip(alone, together, backwards, strict=True):
        assert one.ids == all_of_it.ids == other.ids
        assert (one.text, one.finish) == (all_of_it.text, all_of_it.finish)
        np.testing.assert_allclose(one.logprobs, all_of_it.logprobs, atol=1e-4)
        np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-4)


@pytest.fixture(scope="module")
def alike():
    """Prompts that begin alike to different lengths: one is another's beginning, two are the same, one is all alone."""
    rng = np.random.default_rng(4)
    head, middle, *ends = (rng.integers(2, 280, size=n).tolist() for n in (24, 9, 3, 8, 5, 1))
    whole = [head + middle + end for end in ends] + [head, head + ends[0], head + middle]
    return [*whole, list(whole[1]), rng.integers(2, 280, size=17).tolist()]


class Fed:
    """Counts the tokens that a network is given."""

    def __init__(self, net) -> None:
        self.tokens = 0
        self.hook = net.get_input_embeddings().register_forward_hook(self._count)

    def _count(self, module, inputs, out) -> None:
        self.tokens += inputs[0].numel()


@pytest.mark.parametrize("name", ["model", "sliding", "absolute"])
@pytest.mark.parametrize("size", [2, 4, 16])
def test_a_shared_beginning_changes_no_answer(name, size, alike, request, monkeypatch):
    model = request.getfixturevalue(name)
    sampling = [Sampling(temperature=0.8 * (n % 2), max_tokens=3 + n % 4) for n in range(len(alike))]
    seeds = list(range(len(alike)))
    fed = Fed(model.net)
    try:
        shared = generate(model, alike, sampling, seeds, batch_size=size)
        with_sharing, fed.tokens = fed.tokens, 0
        monkeypatch.setattr(engine.prefix, "allowed", lambda net: False)
        plain = generate(model, alike, sampling, seeds, batch_size=size)
    finally:
        fed.hook.remove()
    for one, other in zip(shared, plain, strict=True):
        assert (one.ids, one.text, one.finish) == (other.ids, other.text, other.finish)
        np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-4)
    if name == "sliding":
        assert with_sharing == fed.tokens, "a window's cache has forgotten what it would be cut back to"
    else:
        written = sum(len(one.ids) - 1 for one in shared)
        read = sum(len(prompt) for prompt in alike)
        assert with_sharing - written < 0.55 * read <= fed.tokens


@pytest.mark.parametrize("name", ["model", "absolute"])
def test_a_shared_beginning_changes_no_score(name, alike, request, monkeypatch):
    model = request.getfixturevalue(name)
    pairs = [(prompt, [5, 7, 9][: 1 + n % 3]) for n, prompt in enumerate(alike) for _ in range(2)]
    fed = Fed(model.net)
    try:
        shared = score(model, pairs)
        with_sharing, fed.tokens = fed.tokens, 0
        monkeypatch.setattr(engine.prefix, "allowed", lambda net: False)
        plain = score(model, pairs)
    finally:
        fed.hook.remove()
    for one, other in zip(shared, plain, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)
    assert with_sharing < fed.tokens / 3


def test_prompts_that_share_little_are_read_side_by_side(model, sliding, prompts, alike):
    prefix = engine.prefix
    assert prefix.worthwhile(model.net, alike)
    assert not prefix.worthwhile(sliding.net, alike)
    assert not prefix.worthwhile(model.net, prompts)
    assert not prefix.worthwhile(model.net, [])
    assert not prefix.worthwhile(model.net, [prompts[0]])
    moving = LlamaForCausalLM(
        LlamaConfig(vocab_size=280, **SHAPE, rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4})
    )
    assert not prefix.allowed(moving)


def test_long_prompts_go_in_smaller_batches(model, monkeypatch):
    monkeypatch.setattr(engine, "TOKENS_AT_ONCE", 40)
    prompts = [[2 + n] * length for n, length in enumerate((50, 10, 10, 9, 8, 8, 30))]
    batches = list(engine._batches(prompts, 16))
    assert batches == [[0], [6], [1, 2, 3, 4], [5]]
    assert len(generate(model, prompts, Sampling(max_tokens=2))) == 7


def test_seed_decides_the_draw(model, prompts):
    hot = Sampling(temperature=2.0, max_tokens=12)
    first, again, other = generate(model, [prompts[0]] * 3, hot, [5, 5, 6])
    assert first.ids == again.ids != other.ids
    by_sampling = generate(model, [prompts[0]], Sampling(temperature=2.0, max_tokens=12, seed=6))[0]
    assert by_sampling.ids == other.ids


def test_short_ones_come_first(model, prompts):
    lengths = [6, 2, 4]
    sampling = [Sampling(max_tokens=n) for n in lengths]
    order = [number for number, _ in generate_as_finished(model, [[40], [41], [42]], sampling)]
    assert order == [1, 2, 0]


def test_logprobs_are_the_models_own(model, prompts):
    sampling = Sampling(temperature=0.7, top_k=3, max_tokens=10)
    found = generate(model, prompts, sampling)
    scored = score(model, [(prompt, one.ids) for prompt, one in zip(prompts, found, strict=True)])
    for one, expected in zip(found, scored, strict=True):
        np.testing.assert_allclose(one.logprobs, expected, atol=1e-4)


# -- choosing a token ------------------------------------------------------------------------------------------------


def allowed(logits, sampling):
    """The distribution that a request samples from, written out in plain numpy."""
    p = np.exp((logits - logits.max()) / sampling.temperature)
    p /= p.sum()
    ranked = sorted(range(len(p)), key=lambda i: -p[i])[: sampling.top_k or len(p)]
    kept, mass, whole = [], 0.0, sum(p[i] for i in ranked)
    for i in ranked:
        kept.append(i)
        mass += p[i] / whole
        if mass >= sampling.top_p:
            break
    out = np.zeros_like(p)
    out[kept] = p[kept] / p[kept].sum()
    return out


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=1.0),
        Sampling(temperature=0.5, top_k=3),
        Sampling(temperature=2.0, top_p=0.6),
        Sampling(temperature=1.0, top_k=4, top_p=0.7),
    ],
)
def test_shares_follow_the_distribution(sampling):
    logits = np.array([0.3, 2.0, -1.0, 1.1, 0.0, 1.6])
    grid = (np.arange(4000) + 0.5) / 4000
    rows = torch.tensor(logits, dtype=torch.float32).expand(4000, -1)
    tokens = choose(rows, [sampling] * 4000, grid.tolist())
    shares = np.bincount(tokens.numpy(), minlength=6) / 4000
    np.testing.assert_allclose(shares, allowed(logits, sampling), atol=1e-3)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-40, 40), min_size=2, max_size=12, unique=True), st.data())
def test_a_token_is_never_chosen_outside(quarters, data):
    logits = np.array(quarters) / 4
    sampling = Sampling(
        temperature=data.draw(st.sampled_from([0.3, 1.0, 3.0])),
        top_k=data.draw(st.integers(0, 12)),
        top_p=data.draw(st.sampled_from([0.05, 0.5, 0.93, 1.0])),
    )
    uniform = data.draw(st.floats(0, 1, exclude_max=True))
    token = choose(torch.tensor(logits, dtype=torch.float32)[None], [sampling], [uniform]).item()
    assert allowed(logits, sampling)[token] > 0


@pytest.mark.parametrize(
    "sampling",
    [Sampling(temperature=1e-9), Sampling(temperature=1, top_k=1), Sampling(temperature=1, top_p=1e-9), Sampling()],
)
def test_the_narrowest_settings_are_greedy(sampling):
    logits = torch.tensor([[1.0, 3.0, 2.0, -5.0]]).expand(3, -1)
    assert choose(logits, [sampling] * 3, [0.0, 0.5, 1 - 2**-53]).tolist() == [1, 1, 1]


def test_the_last_uniform_stays_in_the_vocabulary():
    logits = torch.tensor([[0.0, 0.0, 0.0, -float("inf")]])
    assert choose(logits, [Sampling(temperature=1.0)], [1 - 2**-53]).item() == 2
    assert choose(logits, [Sampling(temperature=1.0)], [0.0]).item() == 0


# -- where a text ends -----------------------------------------------------------------------------------------------


def test_stop_string_over_token_boundaries(model, prompts):
    free = generate(model, prompts, Sampling(max_tokens=30))
    for prompt, one in zip(prompts, free, strict=True):
        stop = one.text[6:9]
        if "\N{REPLACEMENT CHARACTER}" in stop:
            continue
        sampling = Sampling(max_tokens=30, stop=("never there", stop))
        stopped = generate(model, [prompt], sampling)[0]
        assert stopped.finish == "stop"
        assert stopped.text == one.text[: one.text.find(stop)]
        assert stopped.ids == one.ids[: len(stopped.ids)]
        assert len(stopped.ids) < len(one.ids)


def test_end_token_ends(model, prompts):
    free = generate(model, [prompts[0]], Sampling(max_tokens=8))[0]
    end = free.ids[4]
    model.net.generation_config.eos_token_id = [end, 279]
    try:
        assert end_tokens(model) == {end, 279, model.tokenizer.eos_token_id}
        ended = generate(model, [prompts[0]], Sampling(max_tokens=8))[0]
    finally:
        model.net.generation_config.eos_token_id = None
    assert ended.finish == "stop"
    assert ended.ids == free.ids[: free.ids.index(end) + 1]
    assert len(ended.logprobs) == len(ended.ids)


@settings(max_examples=80, deadline=None)
@given(st.text("aät 漢🙂\n", min_size=1, max_size=20), st.text("aät 漢🙂\n", min_size=1, max_size=3))
def test_stop_watch_never_splits_a_character(tokenizer, text, stop):
    watch = StopWatch(tokenizer, [stop])
    for number, token in enumerate(tokenizer(text)["input_ids"]):
        found = watch.push(token)
        assert text.startswith(watch.text)
        assert found == (stop in watch.text)
        if found:
            assert stop not in decode(tokenizer, tokenizer(text)["input_ids"][:number])
            return
    assert watch.text == text
    assert stop not in text


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(0, 279), max_size=30))
def test_stop_watch_agrees_with_decoding_all(tokenizer, ids):
    watch = StopWatch(tokenizer, ["\0never"])
    for token in ids:
        watch.push(token)
    whole = decode(tokenizer, ids)
    assert whole.startswith(watch.text)
    if not whole.endswith("\N{REPLACEMENT CHARACTER}"):
        assert watch.text == whole


def test_first_of_several_stop_strings():
    assert cut("one, two. three", [". ", ", ", "!"]) == "one"
    assert cut("one", ["x"]) == "one"


def test_stop_string_in_the_token_of_an_unfinished_character():
    """One token is a space and the first byte of a character; the generation ends before the rest comes."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(BPE({letter: i for i, letter in enumerate([*letters, "Ġæ"])}, [("Ġ", "æ")]))
    inner.decoder = decoders.ByteLevel()
    net = LlamaForCausalLM(LlamaConfig(vocab_size=257, **SHAPE)).eval()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.zero_()
        net.model.embed_tokens.weight.fill_(1)
        net.model.norm.weight.fill_(1)
        net.lm_head.weight[256] = 1  # so that it says nothing else
    model = Model(net, PreTrainedTokenizerFast(tokenizer_object=inner), Lineage("one token"))
    free, stopped = generate(model, [[1], [1]], [Sampling(max_tokens=1), Sampling(max_tokens=1, stop=(" ",))])
    assert (free.ids, free.text, free.finish) == ([256], " \N{REPLACEMENT CHARACTER}", "length")
    assert (stopped.ids, stopped.text, stopped.finish) == ([256], "", "stop")


# -- scoring ---------------------------------------------------------------------------------------------------------


def plain(net, prompt, continuation):
    logits = net(torch.tensor([[*prompt, *continuation]])).logits[0].log_softmax(-1)
    return [logits[len(prompt) - 1 + i, token].item() for i, token in enumerate(continuation)]


@pytest.mark.parametrize("name", ["model", "sliding", "absolute"])
@pytest.mark.parametrize("limit", [engine.LOGITS_AT_ONCE, 280 * 3 * 2, 1])
def test_score_is_the_log_softmax(name, limit, prompts, request, monkeypatch):
    model = request.getfixturevalue(name)
    monkeypatch.setattr(engine, "LOGITS_AT_ONCE", limit)
    most = []
    hook = model.net.lm_head.register_forward_hook(lambda module, inputs, out: most.append(out.numel()))
    rng = np.random.default_rng(3)
    pairs = [
        (prompt, rng.integers(0, 280, size=n).tolist()) for prompt, n in zip(prompts, range(0, 35, 5), strict=True)
    ]
    try:
        scores = score(model, pairs, batch_size=3)
    finally:
        hook.remove()
    assert max(most) <= max(limit, 3 * 280)
    assert scores[0] == []
    with torch.no_grad():
        for found, (prompt, continuation) in zip(scores, pairs, strict=True):
            np.testing.assert_allclose(found, plain(model.net, prompt, continuation), atol=2e-5)


def test_nothing_to_do(model):
    assert generate(model, [], Sampling()) == []
    assert score(model, []) == []


def test_all_bad_prompts_are_named(model):
    with pytest.raises(BadInput) as caught:
        generate(model, [[5], [], [5] * 90], Sampling(max_tokens=10))
    assert "prompt 1 is empty" in caught.value.problem
    assert "prompt 2: 90 tokens and 10 more exceed the context of 96" in caught.value.problem
    with pytest.raises(BadInput, match="prompt 0 is empty"):
        score(model, [([], [3])])
    with pytest.raises(BadInput, match="1 prompts, 2 samplings"):
        generate(model, [[5]], [Sampling(), Sampling()])


# -- embeddings ------------------------------------------------------------------------------------------------------

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "cat", "dog", "sat", "on", "mat", "##s", "log"]
POOLING = {"word_embedding_dimension": 16, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}
TEXTS = ["the cat sat", "dogs", "", "the dog sat on the mat on the log on the mat", "unknown words", "the cat sat"]


@pytest.fixture
def encoder(tmp_path):
    inner = Tokenizer(WordPiece({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    names = {"unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]"}
    PreTrainedTokenizerFast(tokenizer_object=inner, **names).save_pretrained(tmp_path)
    torch.manual_seed(0)
    shape = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = BertConfig(vocab_size=len(WORDS), max_position_embeddings=32, initializer_range=0.5, **shape)
    BertModel(config).save_pretrained(tmp_path)
    kinds = ["Transformer", "Pooling", "Normalize"]
    steps = [
        {
            "idx": i,
            "name": str(i),
            "path": "" if i == 0 else f"{i}_{kind}",
            "type": f"sentence_transformers.models.{kind}",
        }
        for i, kind in enumerate(kinds)
    ]
    (tmp_path / "modules.json").write_text(json.dumps(steps))
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(POOLING))
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 8}')
    return tmp_path


def pooled_by_hand(net, ids):
    with torch.no_grad():
        states = net(input_ids=torch.tensor([ids])).last_hidden_state[0].double()
    total = states.mean(0)
    return (total / total.norm()).numpy()


def test_embedding_is_the_mean_of_token_states(encoder):
    embedder = Embedder(encoder, batch_size=4)
    vectors = embedder.embed(TEXTS)
    assert vectors.shape == (6, 16)
    assert vectors.dtype == np.float32
    for text, vector in zip(TEXTS, vectors, strict=True):
        inside = [WORDS.index(w) for w in {"dogs": "dog ##s", "unknown words": "[UNK] [UNK]"}.get(text, text).split()]
        expected = pooled_by_hand(embedder.net, [2, *inside[:6], 3])  # 8 tokens at most
        np.testing.assert_allclose(vector, expected, atol=1e-5)


@pytest.mark.parametrize("size", [1, 2, 6])
def test_embedding_in_any_batch(encoder, size):
    np.testing.assert_allclose(
        Embedder(encoder, batch_size=size).embed(TEXTS), Embedder(encoder, batch_size=4).embed(TEXTS), atol=1e-5
    )


def test_case_is_dropped_where_the_folder_says_so(encoder):
    upper = Embedder(encoder).embed(["THE CAT"])
    assert not np.allclose(upper, Embedder(encoder).embed(["the cat"]), atol=0.01)
    (encoder / "sentence_bert_config.json").write_text('{"max_seq_length": 8, "do_lower_case": true}')
    np.testing.assert_array_equal(Embedder(encoder).embed(["THE CAT"]), Embedder(encoder).embed(["the cat"]))


def test_no_texts_no_vectors(encoder):
    assert Embedder(encoder).embed([]).shape == (0, 16)


def test_pooling_named_in_the_newer_way(encoder):
    expected = Embedder(encoder).embed(TEXTS)
    (encoder / "1_Pooling" / "config.json").write_text('{"embedding_dimension": 16, "pooling_mode": "mean"}')
    np.testing.assert_array_equal(Embedder(encoder).embed(TEXTS), expected)


@pytest.mark.parametrize(
    ("file", "content", "error", "said"),
    [
        ("1_Pooling/config.json", '{"pooling_mode_cls_token": true}', Unsupported, "cls_token"),
        ("1_Pooling/config.json", '{"pooling_mode": "max"}', Unsupported, "max"),
        ("1_Pooling/config.json", "{", BadInput, "damaged"),
        ("1_Pooling/config.json", None, BadInput, "has no 1_Pooling"),
        ("modules.json", None, BadInput, "has no modules.json"),
        ("model.safetensors", None, BadInput, "cannot be loaded"),
        ("modules.json", "{}", BadInput, "lists no steps"),
        (
            "modules.json",
            '[{"type": "a.Transformer"}, {"type": "a.Pooling"}, {"type": "a.Dense"}]',
            Unsupported,
            "Dense",
        ),
        ("modules.json", '[{"type": "a.Transformer"}, {"type": "a.Pooling", "path": "../.."}]', BadInput, "outside"),
    ],
)
def test_other_encoders_are_refused(encoder, file, content, error, said):
    if content is None:
        (encoder / file).unlink()
    else:
        (encoder / file).write_text(content)
    with pytest.raises(error, match=said):
        Embedder(encoder)


@pytest.mark.weights
def test_minilm():
    folder = Path(os.environ.get("BURNISH_CACHE", "")) / "models" / "minilm"
    if not os.environ.get("BURNISH_CACHE") or not folder.is_dir():
        pytest.skip("BURNISH_CACHE holds no minilm")
    embedder = Embedder(folder)
    texts = ["A cat sits on the mat.", "There is a cat on a mat.", "Interest rates rose again in March."]
    vectors = embedder.embed(texts)
    for text, vector in zip(texts, vectors, strict=True):
        np.testing.assert_allclose(
            vector, pooled_by_hand(embedder.net, embedder.tokenizer(text)["input_ids"]), atol=1e-5
        )
    likeness = vectors @ vectors.T
    assert likeness[0, 1] > 0.8
    assert likeness[0, 2] < 0.3
