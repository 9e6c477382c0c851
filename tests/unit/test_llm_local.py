"""A language model in this process: prompts, samples, the journal and the budget."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from burnish.core.errors import BadInput, BurnishError
from burnish.core.run import Run
from burnish.engine.generate import generate
from burnish.llm import Budget, BudgetReached, Sampling, connect
from burnish.llm.local import Local
from burnish.models import Lineage, Model

torch.set_num_threads(1)

TEMPLATE = (
    "{% for m in messages %}{% if m['role'] == 'system' %}{{ raise_exception('no system turn') }}{% endif %}"
    "<{{ m['role'] }}>{{ m['content'] }}\n{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)


def user(text):
    return [{"role": "user", "content": text}]


@pytest.fixture
def run(tmp_path):
    with Run(tmp_path / "run", {"use": "test"}) as run:
        yield run


@pytest.fixture(scope="module")
def model():
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(BPE({letter: i for i, letter in enumerate([*letters, "</s>"])}, []))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="</s>")
    tokenizer.chat_template = TEMPLATE
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=257,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        initializer_range=0.3,
        bos_token_id=None,
        eos_token_id=256,
    )
    return Model(LlamaForCausalLM(config).eval(), tokenizer, Lineage("tiny"))


def test_local_answers(model, run):
    llm = Local(model, batch_size=2)
    chats = [user("hello"), user("a"), [*user("b"), {"role": "assistant", "content": "c"}, *user("d")]]
    replies = llm.generate(chats, Sampling(max_tokens=9), run)
    prompts = ["<user>hello\n<assistant>", "<user>a\n<assistant>", "<user>b\n<assistant>c\n<user>d\n<assistant>"]
    ids = [model.tokenizer(prompt)["input_ids"] for prompt in prompts]
    assert [llm.encode(chat) for chat in chats] == ids
    expected = generate(model, ids, Sampling(max_tokens=9))
    assert [reply.text for reply in replies] == [one.text for one in expected]
    assert [reply.usage.prompt_tokens for reply in replies] == [len(one) for one in ids]
    assert [reply.usage.completion_tokens for reply in replies] == [len(one.ids) for one in expected]
    for reply, one in zip(replies, expected, strict=True):
        np.testing.assert_allclose(reply.logprobs, one.logprobs, atol=1e-4)
        assert reply.model.startswith("tiny@")


def test_local_samples_differ_and_come_back(model, run, tmp_path, monkeypatch):
    hot = Sampling(temperature=2.0, max_tokens=8)
    replies = Local(model).generate([user("a")] * 4, hot, run)
    assert len({reply.text for reply in replies}) == 4
    with Run(tmp_path / "again", {}) as again:
        alone = Local(model, batch_size=1)
        assert [r.text for r in alone.generate([user("a")] * 4, hot, again)] == [r.text for r in replies]
    with Run(tmp_path / "seeded", {}, seed=1) as seeded:
        assert Local(model).generate([user("a")], hot, seeded)[0].text != replies[0].text
    monkeypatch.setattr(LlamaForCausalLM, "forward", None)  # the journal answers, not the model
    assert Local(model).generate([user("a")] * 4, hot, run) == replies


def test_local_is_kept_reply_by_reply(model, run):
    """Stopped by Ctrl-C in the second batch: the first one is not done again."""
    llm = Local(model, batch_size=1)
    chats = [user("longest first"), user("middle one"), user("short")]
    calls = []
    forward = model.net.forward

    def interrupted(*args, **kwargs):
        calls.append(kwargs["input_ids"].shape[1])
        if len(calls) == 5:
            raise KeyboardInterrupt
        return forward(*args, **kwargs)

    model.net.forward = interrupted
    try:
        with pytest.raises(KeyboardInterrupt):
            llm.generate(chats, Sampling(max_tokens=3), run)
        assert len((run.folder / "llm.jsonl").read_text().splitlines()) == 1
        assert len(llm.generate(chats, Sampling(max_tokens=3), run)) == 3
    finally:
        del model.net.forward
    prefills = [length for length in calls if length > 1]
    assert prefills == [len(llm.encode(chat)) for chat in (chats[0], chats[1], chats[1], chats[2])]


def test_other_weights_are_another_model(model):
    other = model.fork()
    other.net.model.norm.weight = torch.nn.Parameter(other.net.model.norm.weight * 1.001)
    online = model.then("activations on a grid", online=("8 bits",))
    assert len({Local(one).name for one in (model, other, online)}) == 3
    assert Local(model).name == Local(model.fork()).name


def test_base_model_continues_plain_text(model, run):
    model.tokenizer.chat_template = None
    try:
        ids = Local(model).encode([{"role": "system", "content": "Once upon"}, *user("a time")])
    finally:
        model.tokenizer.chat_template = TEMPLATE
    assert model.tokenizer.decode(ids) == "Once upon\n\na time"


def test_template_that_refuses(model, run):
    with pytest.raises(BadInput, match="no system turn"):
        Local(model).generate([[{"role": "system", "content": "x"}, *user("a")]], Sampling(), run)


def test_local_logprobs(model):
    llm = Local(model)
    chats, answers = [user("a"), user("longer question")], ["yes", "no way"]
    found = llm.logprobs(chats, answers)
    for chat, answer, row in zip(chats, answers, found, strict=True):
        prompt, tokens = llm.encode(chat), model.tokenizer(answer)["input_ids"]
        with torch.no_grad():
            logits = model.net(torch.tensor([prompt + tokens])).logits[0].log_softmax(-1)
        expected = [logits[len(prompt) - 1 + i, token].item() for i, token in enumerate(tokens)]
        np.testing.assert_allclose(row, expected, atol=2e-5)
    with pytest.raises(BadInput, match="2 chats and 1 answers"):
        llm.logprobs(chats, ["yes"])


def test_local_budget_counts_real_tokens(model, run):
    prompt = len(Local(model).encode(user("a")))
    Budget(tokens=2 * (prompt + 4)).set(run)
    with pytest.raises(BudgetReached, match="2 calls to go"):
        Local(model).generate([user(word) for word in "abcd"], Sampling(max_tokens=4), run)


def test_connect_loads_a_folder(model, run, tmp_path):
    model.net.save_pretrained(tmp_path / "model")
    model.tokenizer.save_pretrained(tmp_path / "model")
    llm = connect(str(tmp_path / "model"))
    expected = Local(model).generate([user("a")], Sampling(max_tokens=5), run)[0].text
    assert llm.generate([user("a")], Sampling(max_tokens=5), run)[0].text == expected
    with pytest.raises(BurnishError):
        connect(str(tmp_path / "nothing" / "there"))
