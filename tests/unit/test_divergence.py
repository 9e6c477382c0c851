"""Divergence against its definition, and its independence of batching."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import transformers as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from burnish.compress.rtn import RTN
from burnish.core.errors import BadInput
from burnish.core.run import Run
from burnish.data import read
from burnish.data.windows import windows
from burnish.evaluate.divergence import Divergence
from burnish.models import Lineage, Model, load


@pytest.fixture(scope="module")
def tiny() -> Model:
    return load("tiny", device="cpu")


@pytest.fixture(scope="module")
def text():
    return read("builtin:test")


@pytest.fixture(scope="module")
def rounded(tiny: Model) -> Model:
    return RTN(bits=3)(tiny)


def test_figures_are_their_definitions(tiny: Model, rounded: Model, text) -> None:
    scores = Divergence(samples=3, length=64)(rounded, text, tiny)
    ids = windows(tiny.tokenizer, text, 3, 64)
    ours = rounded.net(ids).logits[:, :-1].double().log_softmax(-1)
    base = tiny.net(ids).logits[:, :-1].double().log_softmax(-1)
    nll = -ours.gather(2, ids[:, 1:, None])[..., 0].mean(1)
    kl = (base.exp() * (base - ours)).sum(-1).mean(1)
    top = (ours.argmax(-1) == base.argmax(-1)).double().mean(1)
    assert np.allclose(scores.column("nll"), nll, atol=1e-5)
    assert np.allclose(scores.column("kl"), kl, atol=1e-5)
    assert np.allclose(scores.column("top1"), top)
    assert (scores.column("tokens") == 63).all()


@settings(max_examples=6, deadline=None)
@given(batch=st.integers(1, 7), chunk=st.sampled_from([1, 5000, 10**9]))
def test_figures_do_not_depend_on_batches(tiny: Model, rounded: Model, text, batch: int, chunk: int) -> None:
    import burnish.evaluate.divergence as module

    before = module.CHUNK_LOGITS
    module.CHUNK_LOGITS = chunk
    try:
        found = Divergence(samples=5, length=48, batch=batch)(rounded, text, tiny)
    finally:
        module.CHUNK_LOGITS = before
    whole = Divergence(samples=5, length=48, batch=5)(rounded, text, tiny)
    for measure in ("nll", "base_nll", "kl", "top1"):
        assert np.allclose(found.column(measure), whole.column(measure), atol=1e-5), measure


def test_a_model_does_not_diverge_from_itself(tiny: Model, text) -> None:
    scores = Divergence(samples=2, length=32)(tiny, text, tiny)
    assert np.allclose(scores.column("kl"), 0, atol=1e-6)
    assert (scores.column("top1") == 1).all()


def test_a_stride_scores_each_token_once_with_more_context(tiny: Model, text) -> None:
    strided = Divergence(samples=4, length=64, stride=16)(tiny, text)
    assert list(strided.column("tokens")) == [63, 16, 16, 16]
    ids = windows(tiny.tokenizer, text, -1, 16, bos=False).flatten()
    window = ids[16 : 16 + 64]
    expected = -tiny.net(window[None]).logits[0, 47:63].double().log_softmax(-1)
    second = expected.gather(1, window[48:, None]).mean()
    assert math.isclose(strided.column("nll")[1], float(second), abs_tol=1e-5)


def test_the_headline_stands_in_the_run(tiny: Model, rounded: Model, text, tmp_path) -> None:
    with Run(tmp_path / "run") as run:
        scores = Divergence(samples=6, length=32)(rounded, text, tiny, run=run)
    metrics = run.metrics
    assert math.isclose(metrics["ppl"], math.exp(scores.column("nll").mean()))
    assert metrics["kl_low"] < metrics["kl"] < metrics["kl_high"]
    assert (run.folder / "items.parquet").exists()


def test_two_vocabularies_are_refused(tiny: Model, text) -> None:
    config = tf.LlamaConfig(
        vocab_size=99, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2
    )
    other = Model(tf.LlamaForCausalLM(config).eval(), tiny.tokenizer, Lineage("other"))
    with pytest.raises(BadInput, match="one vocabulary"):
        Divergence(samples=2, length=16)(tiny, text, other)


def test_softcapped_heads_are_respected(text, tiny: Model) -> None:
    config = tf.Gemma3TextConfig(
        vocab_size=tiny.config.vocab_size, hidden_size=16, intermediate_size=16, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, head_dim=8, final_logit_softcapping=0.5,
    )  # fmt: skip
    torch.manual_seed(0)
    capped = Model(tf.Gemma3ForCausalLM(config).eval(), tiny.tokenizer, Lineage("capped"))
    with torch.no_grad():
        capped.net.lm_head.weight.mul_(50)
    ids = windows(tiny.tokenizer, text, 2, 16)
    with torch.no_grad():
        logits = capped.net(ids).logits[:, :-1].double()
    nll = -logits.log_softmax(-1).gather(2, ids[:, 1:, None])[..., 0].mean(1)
    assert np.allclose(Divergence(samples=2, length=16)(capped, text).column("nll"), nll, atol=1e-5)


def test_with_a_stride_the_headline_is_the_mean_over_tokens(tiny: Model, rounded: Model, text, tmp_path) -> None:
    with Run(tmp_path / "run") as run:
        scores = Divergence(samples=6, length=64, stride=8)(rounded, text, tiny, run=run)
    tokens, nll, base = (scores.column(name) for name in ("tokens", "nll", "base_nll"))
    assert len(set(tokens)) == 2
    assert math.isclose(run.metrics["nll"], np.average(nll, weights=tokens))
    assert math.isclose(run.metrics["excess_nll"], np.average(nll - base, weights=tokens))
    assert not math.isclose(run.metrics["nll"], nll.mean(), rel_tol=1e-3)


def test_with_a_stride_every_window_begins_as_the_tokenizer_begins_a_text(
    tiny: Model, text, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "burnish.data.windows.leading_tokens", lambda tokenizer, bos="auto": [7] if bos == "auto" else []
    )
    tokens, fresh = Divergence(samples=3, length=32, stride=8)._windows(tiny, text)
    assert tokens.shape == (3, 32)
    assert (tokens[:, 0] == 7).all()
    assert torch.equal(tokens[0, 9:], tokens[1, 1:-8])
    assert fresh.tolist() == [31, 8, 8]


def test_lines_are_joined_as_published_perplexities_join_them(tiny: Model, text) -> None:
    method = Divergence(samples=2, length=64, join="lines")
    ids = windows(tiny.tokenizer, text, 2, 64, join="lines")
    assert not torch.equal(ids, windows(tiny.tokenizer, text, 2, 64))
    nll = -tiny.net(ids).logits[:, :-1].double().log_softmax(-1).gather(2, ids[:, 1:, None])[..., 0].mean(1)
    assert np.allclose(method(tiny, text).column("nll"), nll, atol=1e-5)
    assert "blank lines" in method.protocol()
