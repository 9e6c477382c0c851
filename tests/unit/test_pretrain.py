"""Training from nothing: packing keeps documents apart, and an interrupted training is the uninterrupted one."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM

from burnish.core.errors import BadInput
from burnish.nn.pretrain import Plan, next_token_loss, pretrain, read_weights, window_loss
from burnish.nn.stream import PADDING, Stream, pack, windows

DOCUMENTS = st.lists(st.lists(st.integers(1, 30), min_size=2, max_size=12), min_size=1, max_size=12)


def net(seed: int = 0, width: int = 16) -> Any:
    torch.manual_seed(seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=32,
            hidden_size=width,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
            max_position_embeddings=64,
            tie_word_embeddings=True,
        )
    )


def stream(seed: int = 0, rows: int = 12) -> Stream:
    draw = torch.Generator().manual_seed(seed)
    return pack([torch.randint(1, 31, (7,), generator=draw).tolist() for _ in range(2 * rows)], 14)


def weights(model: Any) -> torch.Tensor:
    return torch.cat([weight.flatten() for weight in model.parameters()])


# -- packing ---------------------------------------------------------------------------------------------------------


@settings(max_examples=80, deadline=None)
@given(DOCUMENTS, st.integers(2, 16))
def test_packing_keeps_every_token_in_order_and_no_document_in_two_rows_unless_it_must(
    documents: list[list[int]], length: int
) -> None:
    packed = pack(documents, length)
    real = packed.documents != PADDING
    assert packed.ids[real].tolist() == [token for document in documents for token in document]
    assert packed.documents[real].tolist() == [n for n, document in enumerate(documents) for _ in document]
    assert packed.positions[real].tolist() == [at for document in documents for at in range(len(document))]
    assert packed.tokens == sum(map(len, documents))
    for number, document in enumerate(documents):
        rows = (packed.documents == number).any(dim=1).sum()
        assert rows == math.ceil(len(document) / length)
    assert not packed.weights[~real].any()
    pieces = sum(math.ceil(len(document) / length) for document in documents)
    assert packed.weights.sum() == packed.tokens - pieces


def test_a_document_sees_itself_alone() -> None:
    documents = [[3, 4, 5, 6], [7, 8, 9], [3, 4, 10, 11, 12]]
    model = net()
    whole = pack(documents, 8)
    both = model(
        input_ids=whole.ids, attention_mask=whole.mask(), position_ids=whole.positions, use_cache=False
    ).logits[whole.documents != PADDING]
    alone = torch.cat([model(input_ids=torch.tensor([document])).logits[0] for document in documents])
    torch.testing.assert_close(both, alone, atol=1e-5, rtol=1e-4)


def test_attention_that_adds_its_mask_sees_a_document_alone_too() -> None:
    rows = pack([[3, 4, 5, 6], [7, 8, 9], [3, 4, 10, 11, 12]], 8)
    model = net()
    expected = next_token_loss(model, rows).item()
    model.set_attn_implementation("eager")
    assert next_token_loss(model, rows).item() == pytest.approx(expected, rel=1e-5)


def test_a_window_is_one_text_to_the_model() -> None:
    model, tokens = net(), torch.randint(1, 31, (3, 10), generator=torch.Generator().manual_seed(0))
    rows = windows(tokens)
    expected = model(tokens, labels=tokens).loss.item()
    assert window_loss(model, rows).item() == pytest.approx(expected, rel=1e-5)
    assert next_token_loss(model, rows).item() == pytest.approx(expected, rel=1e-5)
    assert rows.tokens == 30


def test_the_loss_is_the_weighted_mean_over_predicted_tokens() -> None:
    documents, chosen = [[3, 4, 5], [6, 7, 8, 9]], [[9.0, 1.0, 0.0], [1.0, 0.0, 2.0, 1.0]]
    model = net()
    found = next_token_loss(model, pack(documents, 8, weights=chosen))
    total = mass = 0.0
    for document, own in zip(documents, chosen, strict=True):
        logs = model(input_ids=torch.tensor([document])).logits[0].log_softmax(-1)
        for at in range(1, len(document)):
            total -= own[at] * logs[at - 1, document[at]].item()
            mass += own[at]
    assert found.item() == pytest.approx(total / mass, rel=1e-5)


def test_nothing_to_predict_is_refused() -> None:
    with pytest.raises(BadInput, match="nothing to predict"):
        pack([[1], [2]], 8)
    with pytest.raises(BadInput, match="do not fit"):
        pack([[1, 2]], 8, weights=[[1.0]])


# -- the schedule ----------------------------------------------------------------------------------------------------


def test_the_rate_rises_stays_and_falls() -> None:
    plan = Plan(rate=2.0, schedule="wsd", warmup=0.1, decay=0.2, floor=0.0)
    rates = [plan.rate_at(step, 100) for step in range(100)]
    assert rates[:10] == pytest.approx([0.2 * (step + 1) for step in range(10)])
    assert rates[10:80] == [2.0] * 70
    assert rates[80:] == pytest.approx([2.0 * (1 - (step + 1) / 20) for step in range(20)])
    assert {Plan(rate=2.0, schedule="constant", warmup=0).rate_at(step, 9) for step in range(9)} == {2.0}
    cosine = Plan(rate=1.0, warmup=0.0, floor=0.1)
    assert cosine.rate_at(99, 100) == pytest.approx(0.1)
    assert cosine.rate_at(49, 100) == pytest.approx(0.55)


# -- training --------------------------------------------------------------------------------------------------------


def test_training_learns_and_repeats_itself_exactly() -> None:
    plan = Plan(rate=1e-2, passes=20, shuffle=True, precision="float32")
    first, again = net(), net()
    losses = pretrain(first, stream(), plan).losses
    assert losses == pretrain(again, stream(), plan).losses
    assert torch.equal(weights(first), weights(again))
    assert losses[-1] < losses[0] - 1
    assert not any(weight.requires_grad for weight in first.parameters())
    assert not first.training
    other = net()
    pretrain(other, stream(), Plan(rate=1e-2, passes=20, shuffle=True, precision="float32", seed=1))
    assert not torch.equal(weights(first), weights(other))


def test_rows_are_read_in_their_order_unless_shuffled() -> None:
    seen: list[int] = []

    class Look:
        def attach(self, model: Any) -> None:
            seen.append(-1)

        def before(self, batch: Stream, step: int) -> None:
            seen.extend(sorted({int(row[0]) for row in batch.documents}))

        def detach(self, model: Any) -> None:
            seen.append(-2)

    rows = stream(rows=6)
    pretrain(net(), rows, Plan(batch=2, rate=1e-3), model_transform=Look())
    assert seen == [-1, *rows.documents[:, 0].tolist(), -2]


class Stopped(Exception):
    """An interruption."""


def test_an_interrupted_training_goes_on_to_the_same_weights(tmp_path: Path) -> None:
    plan = Plan(batch=2, rate=1e-2, passes=3, schedule="wsd", precision="float32")
    whole = net()
    pretrain(whole, stream(), plan)

    def stop(step: int, steps: int, loss: float) -> None:
        if step == 11:
            raise Stopped

    with pytest.raises(Stopped):
        pretrain(net(), stream(), plan, checkpoint=tmp_path / "c.safetensors", every=5, progress=stop)
    rest = net(seed=9)
    done = pretrain(rest, stream(), plan, checkpoint=tmp_path / "c.safetensors", every=5)
    assert len(done.losses) == done.steps - 10
    assert torch.equal(weights(rest), weights(whole))
    assert rest.lm_head.weight is rest.model.embed_tokens.weight
    idle = net(seed=8)
    assert not pretrain(idle, stream(), plan, checkpoint=tmp_path / "c.safetensors").losses
    assert torch.equal(weights(idle), weights(whole))


def test_branches_of_a_checkpoint_begin_with_its_weights_and_moments(tmp_path: Path) -> None:
    base = tmp_path / "base.safetensors"
    first, plan = net(), Plan(batch=2, rate=1e-2, schedule="constant", precision="float32")
    pretrain(first, stream(), plan, checkpoint=base)
    twice = [net(seed=seed) for seed in (4, 5)]
    for branch in twice:
        pretrain(branch, stream(1), plan, start=base)
    assert torch.equal(weights(twice[0]), weights(twice[1]))
    straight = net()
    joined = Stream(*(torch.cat([getattr(stream(), n), getattr(stream(1), n)]) for n in Stream.__dataclass_fields__))
    pretrain(straight, joined, Plan(batch=2, rate=1e-2, schedule="constant", warmup=0.05 / 2, precision="float32"))
    twice_warm = net()
    pretrain(
        twice_warm, stream(1), Plan(batch=2, rate=1e-2, schedule="constant", warmup=0, precision="float32"), start=base
    )
    torch.testing.assert_close(weights(straight), weights(twice_warm))
    read = net(seed=7)
    read_weights(base, read)
    assert torch.equal(weights(read), weights(first))
    with pytest.raises(BadInput, match="another model"):
        read_weights(base, net(width=8))


def test_a_loss_that_is_no_number_stops_the_training() -> None:
    model = net()
    with torch.no_grad():
        model.model.embed_tokens.weight.fill_(float("nan"))
    with pytest.raises(BadInput, match="at step 1"):
        pretrain(model, stream(), Plan())


def test_a_gradient_that_is_no_number_stops_before_it_reaches_the_weights() -> None:
    model, rows = net(), stream(rows=4)
    before = weights(model).clone()

    def steep(net: Any, batch: Stream) -> torch.Tensor:
        loss = next_token_loss(net, batch)
        return loss + (loss - loss.detach()).abs().sqrt()  # 0 in value, infinite in slope

    with pytest.raises(BadInput, match=r"norm of the gradient is (inf|nan) at step 1"):
        pretrain(model, rows, Plan(precision="float32"), loss=steep)
    assert torch.equal(weights(model), before)


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    path = tmp_path / "c.safetensors"
    path.write_bytes(b"no checkpoint")
    with pytest.raises(BadInput, match="damaged checkpoint"):
        pretrain(net(), stream(), Plan(), checkpoint=path)


def test_matrices_decay_and_nothing_else_does() -> None:
    model = net()
    model.model.layers[0].extra = torch.nn.Parameter(torch.ones(()))
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    plan = Plan(rate=1e-2, warmup=0, schedule="constant", weight_decay=0.5, precision="float32")
    pretrain(model, stream(rows=4), plan, loss=lambda net, batch: sum(w.sum() * 0 for w in net.parameters()))
    for name, weight in model.named_parameters():
        expected = before[name] * (1 - 1e-2 * 0.5 if weight.ndim > 1 else 1)
        torch.testing.assert_close(weight, expected)


def test_gradients_are_clipped_to_one_norm_and_averaged_as_planned() -> None:
    seen: list[float] = []

    class Look(torch.optim.AdamW):
        def step(self, *args: Any, **options: Any) -> Any:
            assert {group["betas"] for group in self.param_groups} == {(0.9, 0.95)}
            own = [w.grad for group in self.param_groups for w in group["params"]]
            seen.append(float(torch.cat([g.flatten() for g in own]).norm()))
            return super().step(*args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.optim, "AdamW", Look)
        pretrain(
            net(), stream(rows=4), Plan(clip=0.01, precision="float32"), loss=lambda n, b: 50 * next_token_loss(n, b)
        )
    assert seen == pytest.approx([0.01] * len(seen), rel=1e-3)


def test_nothing_is_dropped_so_that_nothing_is_drawn() -> None:
    draws = torch.random.get_rng_state()
    model = net()
    for layer in model.model.layers:
        layer.self_attn.attention_dropout = 0.5
    draws = torch.random.get_rng_state()
    pretrain(model, stream(rows=4), Plan(precision="float32"))
    assert torch.equal(torch.random.get_rng_state(), draws)


def test_bfloat16_trains_too() -> None:
    model = net()
    done = pretrain(model, stream(rows=4), Plan(rate=1e-2, passes=4, precision="bfloat16"))
    assert done.precision == "bfloat16"
    assert done.losses[-1] < done.losses[0]
    assert next(model.parameters()).dtype == torch.float32
