"""Forks, adapters, the calibration walk and attention statistics, on every supported architecture."""

from __future__ import annotations

import pytest
import torch
import transformers as tf
from architectures import CONFIGS, build, tokens

from burnish.core.errors import Unsupported
from burnish.core.run import Run
from burnish.models import Lineage, Model, Walk, second_moments, weight_hash
from burnish.models.attention_statistics import collect, pull_back
from burnish.nn.attention import causal_weights
from burnish.nn.grid import GridSpec

NAMES = list(CONFIGS)


@pytest.mark.parametrize("name", NAMES)
def test_the_walk_gives_each_block_its_real_inputs(name: str) -> None:
    model, ids = build(name), tokens()
    expected: dict[str, torch.Tensor] = {}
    hooks = [
        block.module.register_forward_pre_hook(
            lambda _, args, kwargs, name=block.name: expected.update(
                {name: args[0] if args else kwargs["hidden_states"]}
            ),
            with_kwargs=True,
        )
        for block in model.blocks()
    ]
    model.net.base_model(input_ids=ids, use_cache=False)
    for hook in hooks:
        hook.remove()
    for block in Walk(model.fork(), ids):
        assert torch.allclose(torch.cat(block.inputs), expected[block.name], atol=1e-5), block.name


@pytest.mark.parametrize("name", NAMES)
def test_a_fork_shares_until_it_is_rewritten(name: str) -> None:
    model = build(name)
    before = weight_hash(model)
    fork = model.fork()
    assert weight_hash(fork) == before
    for site in fork.sites():
        site.round(GridSpec(3))
    assert weight_hash(model) == before
    assert weight_hash(fork) != before
    shared = {p.data_ptr() for p in model.net.parameters()} & {p.data_ptr() for p in fork.net.parameters()}
    assert shared, "nothing is shared"


@pytest.mark.parametrize("name", NAMES)
def test_statistics_do_not_depend_on_how_the_model_attends(name: str) -> None:
    found = []
    for attention in ("sdpa", "eager"):
        model = build(name, attention)
        blocks = iter(Walk(model.fork(), tokens()))
        seen = collect(next(blocks), ("q", "k", "v", "o"), values=True)
        found.append([seen.rows("q"), seen.rows("k"), seen.values(), seen.columns("o")])
        blocks.close()  # type: ignore[attr-defined]
        assert model.config._attn_implementation == attention
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.parametrize("window", [None, 3])
def test_attention_weights_are_causal(window: int | None) -> None:
    generator = torch.Generator().manual_seed(0)
    query, key = torch.randn(2, 4, 10, 8, generator=generator), torch.randn(2, 2, 10, 8, generator=generator)
    weights = causal_weights(query, key, 0.3, window)
    ahead = torch.ones(10, 10, dtype=torch.bool).triu(1)
    assert (weights[..., ahead] == 0).all()
    assert torch.allclose(weights.sum(-1), torch.ones(()))
    if window is not None:
        assert (weights[..., torch.ones(10, 10, dtype=torch.bool).tril(-window)] == 0).all()


@pytest.mark.parametrize("name", NAMES)
def test_value_statistics_are_those_of_attention(name: str) -> None:
    """A v whose rows are unit vectors makes attention return A X itself; its Gram is the statistic."""
    model, ids = build(name), tokens(2)
    blocks = iter(Walk(model.fork(), ids))
    block = next(blocks)
    seen = collect(block, ("v", "o"), values=True)
    shape, attention = model.heads, block.at(model.adapter.attention)
    kept: dict[str, torch.Tensor] = {}

    def tap(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, ...]:
        kept.update(query=query, key=key)
        return query, key, value

    entering: list[torch.Tensor] = []
    hook = block.sites(("v",))[0].linear.register_forward_pre_hook(lambda _, args: entering.append(args[0]))
    attention.tap = tap
    block.forward(block.inputs[0])
    hook.remove()
    hidden = entering[0].double()
    scaling = 1.0 if name == "opt" else attention.scaling
    window = 8 if name in ("mistral", "gemma3_text") else None
    weights = causal_weights(kept["query"], kept["key"], scaling, window).double()
    mixed = weights @ hidden[:, None, None]
    expected = torch.einsum("bgrti,bgrtj->gij", mixed, mixed) / shape.group / hidden.shape[0] / hidden.shape[1]
    assert torch.allclose(seen.values(), expected, rtol=1e-4, atol=1e-5)
    blocks.close()  # type: ignore[attr-defined]


def test_pull_back_is_the_mean_over_positions() -> None:
    width, length = 8, 11
    generator = torch.Generator().manual_seed(0)
    moments = torch.randn(3, width, width, generator=generator, dtype=torch.float64)
    moments = moments @ moments.transpose(1, 2)
    angle = torch.outer(torch.arange(length).double(), 10000.0 ** -(torch.arange(width // 2).double() / 4))
    cos, sin = (f(torch.cat([angle, angle], 1)) for f in (torch.cos, torch.sin))

    def rotate(x: torch.Tensor, t: int) -> torch.Tensor:
        half = width // 2
        return x * cos[t] + torch.cat([-x[half:], x[:half]]) * sin[t]

    matrices = [torch.stack([rotate(e, t) for e in torch.eye(width).double()], 1) for t in range(length)]
    expected = torch.stack([m.T @ moments @ m for m in matrices]).mean(0)
    assert torch.allclose(pull_back(moments, cos, sin), expected)


def test_row_metrics_without_rotation_are_plain_covariances() -> None:
    """OPT does not rotate by position: q's metric is the keys' second moment, k's the queries'."""
    walk = iter(Walk(build("opt").fork(), tokens(3)))
    seen = collect(next(walk), ("q",), values=False)
    assert seen.keys.abs().sum() > 0
    assert torch.allclose(seen.rows("q"), seen.keys / seen.count)
    assert torch.allclose(seen.rows("k"), seen.queries / seen.count)


def test_statistics_outside_a_walk_are_refused() -> None:
    walk = iter(Walk(build("llama").fork(), tokens(3)))
    block = next(walk)
    walk.close()  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match="outside its walk"):
        collect(block, ("q",), values=False)


def test_second_moments_are_shared_between_layers_with_one_input() -> None:
    model = build("llama")
    walk = iter(Walk(model.fork(), tokens()))
    block = next(walk)
    seen = second_moments(block, ("q", "k", "v", "gate", "up", "down"))
    assert seen["q"] is seen["k"] is seen["v"]
    assert seen["gate"] is seen["up"]
    assert seen["q"] is not seen["gate"]
    assert seen["down"].tokens == 6 * 16


def test_blocks_restore_what_they_stored(tmp_path) -> None:
    model = build("qwen2")
    with Run(tmp_path / "a") as run:
        first = model.fork()
        for block in run.chain(first.blocks(), step="round"):
            for site in block.sites():
                site.round(GridSpec(3, group=16))
        second = model.fork()
        for _ in run.chain(second.blocks(), step="round"):
            pytest.fail("a finished block was yielded again")
    assert weight_hash(first) == weight_hash(second)
    for one, other in zip(first.sites(), second.sites(), strict=True):
        assert torch.equal(one.quantized.codes, other.quantized.codes)
        assert one.quantized.grid.spec == other.quantized.grid.spec


def test_what_cannot_be_treated_is_refused_by_name() -> None:
    fused = tf.GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=32, n_positions=16)
    experts = tf.MixtralConfig(
        vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, num_local_experts=2,
    )  # fmt: skip
    unknown = tf.GPTJConfig(n_layer=1, n_head=2, n_embd=16, vocab_size=32, n_positions=16, rotary_dim=4)
    for config, reason in ((fused, "fused"), (experts, "mixture of experts"), (unknown, "no adapter")):
        net = tf.AutoModelForCausalLM.from_config(config)
        with pytest.raises(Unsupported, match=reason) as caught:
            Model(net, None, Lineage("x")).blocks()
        assert config.model_type in str(caught.value)


def test_attention_that_is_not_causal_is_refused() -> None:
    config = CONFIGS["gemma3_text"]()
    config.use_bidirectional_attention = True
    with pytest.raises(Unsupported, match="not causal"):
        Model(tf.AutoModelForCausalLM.from_config(config), None, Lineage("x")).blocks()
