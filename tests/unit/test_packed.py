"""Packed weights: the layout, the layers, the compiled kernels against plain torch, and decoding in one call."""

from __future__ import annotations

import itertools

import pytest
import torch
from architectures import build, tokens
from transformers import DynamicCache

from burnish.core.errors import Mismatch, Unsupported
from burnish.engine.fused import _Runner, fuse, why_not
from burnish.engine.store import Store, StoredLayer
from burnish.models.packed import packed
from burnish.nn import kernels
from burnish.nn.grid import GridSpec, Quantized, find_grid
from burnish.nn.packed import PackedLinear, eight_bits, pack, planes, unpack

compiled = pytest.mark.skipif(kernels.native() is None, reason="burnish-kernels is not installed")
GATED = ["llama", "mistral", "qwen2", "qwen3", "gemma3_text"]
SPECS = [
    GridSpec(bits, sym, group, zero)
    for bits, (sym, zero), group in itertools.product(
        range(2, 9), ((True, "integer"), (False, "integer"), (False, "float")), (-1, 32, 64)
    )
]


def rounded(rows: int, columns: int, spec: GridSpec, seed: int = 0) -> Quantized:
    weight = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))
    grid = find_grid(weight, spec)
    return Quantized(grid.encode(weight), grid)


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_load", lambda: "burnish-kernels is not installed")


@pytest.mark.parametrize("bits", range(1, 9))
def test_codes_come_back_from_their_words(bits: int) -> None:
    assert sum(width for width, _ in planes(bits)) == bits
    codes = torch.randint(0, 2**bits, (21, 70), generator=torch.Generator().manual_seed(bits)).to(torch.uint8)
    words = pack(codes, bits)
    assert words.shape == (2, 3, bits, 16)
    assert torch.equal(unpack(words, 21, 70), codes)


def test_a_word_holds_the_inputs_of_one_output_the_first_lowest() -> None:
    codes = torch.zeros(16, 32, dtype=torch.uint8)
    codes[3, :8] = torch.arange(1, 9)
    assert pack(codes, 4)[0, 0, 0, 3].item() == int("87654321", 16) - 2**32
    assert pack(codes, 4).count_nonzero() == 1


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_a_packed_layer_holds_the_weights_of_its_grid_to_the_bit(spec: GridSpec, plain: None) -> None:
    quantized = rounded(40, 96, spec)
    layer = PackedLinear.of(quantized)
    assert torch.equal(layer.dequantized(), quantized.weight())
    assert torch.equal(
        layer.rows(torch.tensor([[39, 0], [17, 17]])), quantized.weight()[[39, 0, 17, 17]].view(2, 2, 96)
    )
    assert layer.words.numel() * 32 == 48 * 96 * spec.bits


def test_a_packed_layer_without_kernels_is_a_linear_layer(plain: None) -> None:
    quantized = rounded(40, 100, GridSpec(3))
    bias, x = torch.randn(40), torch.randn(2, 5, 100)
    layer = PackedLinear.of(quantized, bias)
    expected = torch.nn.functional.linear(x, quantized.weight(), bias)
    assert torch.equal(layer(x), expected)
    assert layer(x.bfloat16()).dtype == torch.bfloat16


@compiled
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_kernels_give_the_numbers_of_plain_torch(spec: GridSpec) -> None:
    for rows, columns in ((40, 192), (17, 64), (64, 65)):
        if spec.group == 64 and columns == 65:
            continue
        quantized = rounded(rows, columns, spec)
        bias = torch.randn(rows, generator=torch.Generator().manual_seed(1))
        layer = PackedLinear.of(quantized, bias)
        assert torch.equal(layer.rows(torch.arange(rows)), quantized.weight())
        for count in (1, 2, 3, 4, 5, 13, 200):
            x = torch.randn(count, columns, generator=torch.Generator().manual_seed(count))
            expected = x.double() @ quantized.weight().double().T + bias.double()
            found = layer(x)
            assert (found - expected).abs().max() <= 1e-5 * expected.abs().max(), (rows, columns, count)


@compiled
def test_the_operator_passes_torchs_own_checks() -> None:
    layer = PackedLinear.of(rounded(40, 64, GridSpec(4, group=32)))
    arguments = (torch.randn(3, 64), layer.words, layer.scale, layer.zero, layer.bias, 4, 32, 1)
    torch.library.opcheck(torch.ops.burnish.packed_linear.default, arguments)


def test_eight_bits_find_q8_0_again_to_the_bit() -> None:
    generator = torch.Generator().manual_seed(0)
    codes = torch.randint(-127, 128, (6, 96), generator=generator).float()
    codes.view(6, 3, 32)[:, :, 0] = 127  # a group of Q8_0 reaches its end somewhere
    scale = (torch.rand(6, 3, generator=generator) * 0.1).half().float()
    weight = codes * scale.repeat_interleave(32, 1)
    assert torch.equal(eight_bits(weight).weight(), weight)
    other = torch.randn(6, 90, generator=generator)
    steps = eight_bits(other).grid.spread(90)[0]
    assert ((eight_bits(other).weight() - other).abs() <= steps * 0.501).all()


def small(name: str, group: int = 32):
    model = build(name, widths=16)
    for site in model.sites():
        site.round(GridSpec(4, group=group))
    return model


@pytest.mark.parametrize("name", GATED)
def test_a_packed_model_computes_what_was_measured(name: str, plain: None) -> None:
    model = small(name)
    with torch.no_grad():
        assert (packed(model, 16).net(tokens()).logits - model.net(tokens()).logits).abs().max() < 1e-4
        near = packed(model).net(tokens()).logits
    assert not hasattr(packed(model).net.get_output_embeddings(), "weight")
    assert torch.nn.functional.cosine_similarity(near.flatten(), model.net(tokens()).logits.flatten(), 0) > 0.999


def test_what_cannot_be_packed_is_refused(plain: None) -> None:
    model = build("llama")
    with pytest.raises(Unsupported, match="lies on no grid"):
        packed(model)
    with pytest.raises(Unsupported, match="multiple of 32"):
        packed(small("llama", 16))
    model = small("llama")
    with pytest.raises(Unsupported, match="packed layers do not do"):
        packed(model.then("grids", ("inputs are rounded",)))
    site = next(model.sites())
    site.linear.weight = torch.nn.Parameter(site.weight * 2, requires_grad=False)
    with pytest.raises(Mismatch, match="changed after it was rounded"):
        packed(model)


def ordinary(model, ids, mask=None):
    with torch.no_grad():
        return model.net(ids, attention_mask=mask).logits


@compiled
@pytest.mark.parametrize("name", GATED)
@pytest.mark.parametrize("head_bits", [8, 16])
def test_a_fused_step_is_the_models_own(name: str, head_bits: int) -> None:
    base = small(name)
    ids = tokens(2, 20)
    whole = ordinary(packed(base, head_bits), ids)
    model = fuse(packed(base, head_bits))
    with torch.no_grad():
        for parts in ((9, *[1] * 11), (4, 4, 4, 4, 4)):
            cache = DynamicCache(config=model.config)
            found = [model.net(part, cache=cache, use_cache=True).logits for part in ids.split(parts, 1)]
            assert (torch.cat(found, 1) - whole).abs().max() <= 2e-5 * whole.abs().max()
            assert isinstance(cache.layers[0], StoredLayer)


@compiled
@pytest.mark.parametrize("name", GATED)
def test_generate_finds_the_same_tokens_padded_or_not_greedy_or_by_beams(name: str) -> None:
    base = small(name)
    plain_model, model = packed(base), fuse(packed(base))
    ids = tokens(3, 9)
    mask = torch.ones_like(ids)
    mask[1, :4] = 0
    ids[1, :4] = 0
    for options in ({}, {"num_beams": 3}, {"num_return_sequences": 2, "num_beams": 2}):
        settings = {"max_new_tokens": 24, "do_sample": False, "pad_token_id": 0, "eos_token_id": None, **options}
        expected = plain_model.net.generate(ids, attention_mask=mask, **settings)
        assert torch.equal(model.net.generate(ids, attention_mask=mask, **settings), expected)


@compiled
def test_steps_outgrow_their_buffers_and_go_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("burnish.engine.store.STEP", 4)
    base = small("llama")
    ids = tokens(1, 30)
    whole = ordinary(packed(base), ids)
    model = fuse(packed(base))
    cache = DynamicCache(config=model.config)
    with torch.no_grad():
        for i in range(20):
            model.net(ids[:, i : i + 1], cache=cache, use_cache=True)
        cache.crop(-8)
        assert cache.get_seq_length() == 12
        found = [model.net(ids[:, i : i + 1], cache=cache, use_cache=True).logits for i in range(12, 30)]
    assert (torch.cat(found, 1) - whole[:, 12:]).abs().max() <= 2e-5 * whole.abs().max()


@compiled
def test_a_fused_model_takes_its_own_forward_where_a_step_would_not_do(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fuse(packed(small("llama")))
    steps: list[int] = []
    real = _Runner._step
    monkeypatch.setattr(_Runner, "_step", lambda *given: steps.append(1) or real(*given))
    ids = tokens(1, 6)
    holes = torch.tensor([[1, 1, 0, 1, 1, 1]])
    with torch.no_grad():
        for given in (
            {"output_hidden_states": True},
            {"attention_mask": holes},
            {"labels": ids},
            {"output_attentions": True},
        ):
            model.net(ids, cache=DynamicCache(config=model.config), use_cache=True, **given)
        model.net(ids)
        model.net(tokens(4, 6), cache=DynamicCache(config=model.config), use_cache=True)
        assert steps == []
        model.net(ids, cache=DynamicCache(config=model.config), use_cache=True)
    assert len(steps) == 1


def test_why_a_model_cannot_be_fused_is_said(plain: None) -> None:
    assert "burnish-kernels is not installed" in why_not(small("llama"))
    with pytest.raises(ValueError, match="not installed"):
        fuse(packed(small("llama")))


@compiled
def test_what_has_no_fused_step_is_named() -> None:
    assert "no fused step for opt" in why_not(build("opt"))
    assert "not packed" in why_not(build("llama", widths=16))
    assert "8 wide" in why_not(build("llama"))


@compiled
@pytest.mark.parametrize("padding", [1, 3, 6])
def test_a_padded_prompt_that_is_short_enough_for_a_step_is_read_right(padding: int) -> None:
    base = small("llama")
    plain_model, model = packed(base), fuse(packed(base))
    ids, mask = tokens(2, 8), torch.ones(2, 8, dtype=torch.long)
    mask[0, :padding] = 0
    settings = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    expected = plain_model.net.generate(ids, attention_mask=mask, **settings)
    assert torch.equal(model.net.generate(ids, attention_mask=mask, **settings), expected)


@compiled
def test_what_does_not_fit_is_refused_before_memory_is_touched() -> None:
    layer = PackedLinear.of(rounded(40, 64, GridSpec(4, group=32)))
    assert layer(torch.empty(0, 64)).shape == (0, 40)
    with pytest.raises(RuntimeError, match="64 inputs"):
        layer(torch.ones(1, 8))
    for row in (-1, 40):
        with pytest.raises(IndexError):
            layer.rows(torch.tensor([row]))
    model = fuse(packed(small("llama")))
    cache = DynamicCache(config=model.config)
    with torch.no_grad():
        model.net(tokens(1, 4), cache=cache, use_cache=True)
        with pytest.raises(RuntimeError):
            model.net(tokens(8, 1), cache=cache, use_cache=True)
        with pytest.raises(IndexError):
            model.net(torch.tensor([[128]]), cache=DynamicCache(config=model.config), use_cache=True)


def test_cropping_most_of_a_cache_keeps_keys_and_values() -> None:
    layer = StoredLayer(Store())
    keys, values = torch.randn(1, 2, 20, 4), torch.randn(1, 2, 20, 4)
    layer.update(keys, values)
    layer.crop(-15)
    assert torch.equal(layer.keys, keys[:, :, :5])
    assert torch.equal(layer.values, values[:, :, :5])


@compiled
def test_copies_and_changed_models_decode_with_their_own_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []
    real = _Runner._step
    monkeypatch.setattr(_Runner, "_step", lambda *given: steps.append(1) or real(*given))
    model = fuse(packed(small("qwen2")))
    ids = tokens(1, 6)

    def fused(net) -> torch.Tensor:
        before = len(steps)
        with torch.no_grad():
            found = net(ids, cache=DynamicCache(config=net.config), use_cache=True).logits
        assert len(steps) == before + 1
        return found

    first = fused(model.net)
    copied = model.fork().net
    assert torch.equal(fused(copied), first)
    copied.model.layers[0].mlp.down_proj.scale = copied.model.layers[0].mlp.down_proj.scale * 0
    assert not torch.equal(fused(copied), first)
    assert torch.equal(fused(model.net), first)
    for change in ("replaced", "moved"):
        net = model.fork().net
        if change == "replaced":
            other = packed(small("qwen2")).net.model.layers[1].mlp.down_proj
            net.model.layers[0].mlp.down_proj = other
        else:
            net.float()
            net.model.layers[0].mlp.down_proj.words = net.model.layers[1].mlp.down_proj.words.clone()
        found = fused(net)
        with torch.no_grad():
            assert (found - net(ids).logits).abs().max() <= 2e-5 * found.abs().max()
        assert not torch.equal(found, first)


@compiled
def test_casting_a_packed_layer_changes_no_number() -> None:
    layer = PackedLinear.of(rounded(40, 64, GridSpec(4, group=32)), torch.randn(40))
    x = torch.randn(3, 64)
    expected = layer(x)
    for cast in (layer.float, layer.half, layer.bfloat16, layer.double):
        assert torch.equal(cast()(x), expected)


@compiled
def test_generation_sees_that_only_the_last_logits_are_wanted_and_threads_take_turns() -> None:
    from concurrent.futures import ThreadPoolExecutor

    model = fuse(packed(small("llama")))
    assert model.net._supports_logits_to_keep()
    settings = {"max_new_tokens": 20, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    prompts = [tokens(1, 5, seed=seed) for seed in range(6)]
    alone = [model.net.generate(ids, attention_mask=torch.ones_like(ids), **settings) for ids in prompts]
    with ThreadPoolExecutor(3) as pool:
        together = list(
            pool.map(lambda ids: model.net.generate(ids, attention_mask=torch.ones_like(ids), **settings), prompts)
        )
    assert all(torch.equal(a, b) for a, b in zip(alone, together, strict=True))


@compiled
def test_two_caches_in_turn_are_kept_apart() -> None:
    model = fuse(packed(small("llama")))
    ids = tokens(2, 12)
    caches = [DynamicCache(config=model.config) for _ in range(2)]
    with torch.no_grad():
        whole = model.net(ids, use_cache=False).logits
        for i in range(12):
            for row, cache in enumerate(caches):
                found = model.net(ids[row : row + 1, i : i + 1], cache=cache, use_cache=True).logits
                assert (found[0, 0] - whole[row, i]).abs().max() <= 2e-5 * whole.abs().max()


@compiled
def test_a_step_that_computes_something_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    real = _Runner._step
    monkeypatch.setattr(_Runner, "_step", lambda *given: real(*given) * 1.1)
    with pytest.raises(Mismatch, match="give other logits"):
        fuse(packed(small("llama")))


@compiled
def test_the_baseline_build_gives_the_same_numbers() -> None:
    import os
    import subprocess
    import sys

    script = (
        "import torch; from burnish.nn import kernels; from burnish.nn.grid import *; from burnish.nn.packed import PackedLinear\n"
        "assert kernels.path_taken() == 'compiled kernels (baseline)', kernels.path_taken()\n"
        "w = torch.randn(40, 96); g = find_grid(w, GridSpec(3, group=32)); q = Quantized(g.encode(w), g)\n"
        "l = PackedLinear.of(q)\n"
        "for n in (1, 3, 20):\n"
        "    x = torch.randn(n, 96); e = x @ q.weight().T\n"
        "    assert (l(x) - e).abs().max() < 1e-4\n"
        "x, k = torch.randn(5, 48), torch.randn(2, 3, 3, 8)\n"
        "e = torch.einsum('abcd,nacd->nabd', k, x.view(5, 2, 3, 8)).reshape(5, -1)\n"
        "assert (kernels.kronecker_sparse(x, k) - e).abs().max() < 1e-4\n"
    )
    environment = {**os.environ, "BURNISH_KERNELS": "baseline"}
    subprocess.run([sys.executable, "-c", script], check=True, env=environment, timeout=120)
