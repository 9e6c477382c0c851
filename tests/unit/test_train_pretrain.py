"""Training from nothing: what is written, what is refused, and that a stop changes nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM

from burnish.compress.rtn import RTN
from burnish.core.errors import BadInput, Unsupported
from burnish.core.run import Run
from burnish.data import read
from burnish.models import check_export, save, weight_hash
from burnish.models.model import Model
from burnish.models.sound import load
from burnish.nn.quest import QuantizedLinear
from burnish.train.pretrain import LOSSES, QUANTIZERS, Pretrain
from burnish.workflow import plan_method, run_method

SMALL: dict[str, Any] = {
    "width": 16,
    "layers": 1,
    "heads": 2,
    "vocabulary": 300,
    "length": 16,
    "held": 4,
    "steps": 8,
    "batch": 2,
    "precision": "float32",
    "on": "cpu",
}


@pytest.fixture(scope="module")
def text() -> Dataset:
    return read("builtin:validation").select(range(12))


def small(**settings: Any) -> Pretrain:
    return Pretrain.build({**SMALL, **settings})


def lines(run: Run) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run.folder / LOSSES).read_text().splitlines()]


def test_it_learns_and_writes_a_line_a_step_and_a_plain_folder(text: Dataset, tmp_path: Path) -> None:
    with Run(tmp_path / "r") as run:
        model = small(steps=120, rate=2e-2, width=32, batch=8)(text, run)
        rows, metrics = lines(run), run.metrics
    assert [row["step"] for row in rows] == list(range(1, 121))
    assert rows[0]["rate"] == pytest.approx(2e-2 / 12)
    assert max(row["rate"] for row in rows) == pytest.approx(2e-2)
    assert rows[-1]["rate"] == pytest.approx(0, abs=1e-12)
    held = [row["held"] for row in rows if "held" in row]
    assert len(held) == 10
    assert held[-1] < held[0] < rows[0]["loss"] - 1
    assert metrics["held_loss"] == held[-1]
    assert metrics["tokens"] == 120 * 8 * 16
    assert metrics["parameters"] == sum(weight.numel() for weight in model.net.parameters())
    assert not model.online
    save(model, tmp_path / "m")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "m")
    ids = torch.randint(0, 256, (2, 9))
    assert torch.equal(again(ids).logits, model.net(ids).logits)
    assert again.config.model_type == "llama"


def test_held_out_windows_are_not_trained_on(text: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr("burnish.train.pretrain.pretrain", lambda net, rows, plan, **_: seen.append((rows, plan)))
    held: list[Any] = []
    monkeypatch.setattr("burnish.train.pretrain.held_loss", lambda net, tokens, *_: held.append(tokens) or 1.0)
    with pytest.raises(AttributeError):  # what stands in for the training gives nothing
        small()(text)
    small_windows = small(draw=0)
    _, other = small_windows._windows(small_windows._learn(text), text)
    rows, plan = seen[0]
    assert torch.equal(rows.ids, other)
    kept, rest = small_windows._windows(small_windows._learn(text), text)
    assert not {tuple(row) for row in kept.tolist()} & {tuple(row) for row in rest.tolist()}
    assert plan.steps(len(rows.ids)) == 8


def test_more_steps_than_windows_read_the_text_again_and_end_in_time(text: Dataset, tmp_path: Path) -> None:
    few = text.select(range(1))
    method = small(held=2)
    _, trained = method._windows(method._learn(few), few)
    batch = len(trained) // 3 + 1  # three steps a pass
    with Run(tmp_path / "r") as run:
        small(steps=10, batch=batch, held=2)(few, run)
        assert len(lines(run)) == 10
        assert run.metrics["passes"] == pytest.approx(10 * batch / len(trained), abs=0.01)
        assert run.metrics["passes"] > 3


@pytest.mark.parametrize("kind", QUANTIZERS)
def test_every_quantizer_trains_and_comes_back_as_it_was(kind: str, text: Dataset, tmp_path: Path) -> None:
    model = small(quantizer=kind, bits=2, a_bits=2)(text)
    assert sum(isinstance(module, QuantizedLinear) for module in model.net.modules()) == 7
    assert model.online
    save(model, tmp_path / "m")
    again = load(str(tmp_path / "m"), device="cpu")
    ids = torch.randint(0, 256, (2, 9))
    assert torch.equal(again.net(ids).logits, model.net(ids).logits)
    assert again.online == model.online
    assert all(bool(flag) for name, flag in again.net.named_buffers() if name.endswith("begun"))
    with pytest.raises(Unsupported, match="burnish_llama"):
        RTN(bits=4)(again, None)
    save(again, tmp_path / "twice")
    assert weight_hash(load(str(tmp_path / "twice"), device="cpu")) == weight_hash(model)


def test_a_model_that_rounds_activations_is_refused_by_other_tools(text: Dataset, tmp_path: Path) -> None:
    save(small(quantizer="quest", bits=4, a_bits=4)(text), tmp_path / "m")
    code = f"import transformers as t; t.AutoModelForCausalLM.from_pretrained({str(tmp_path / 'm')!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "burnish_llama" in done.stderr
    for format in ("compressed-tensors", "gptq", "gguf"):
        with pytest.raises(Unsupported, match="rounds activations"):
            check_export(small(quantizer="quest", bits=4, a_bits=4), format)


def test_a_run_is_proven_in_a_fresh_process(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("\n".join(read("builtin:validation")["text"][:4]))
    method = small(quantizer="lsq-row", bits=4, a_bits=8, steps=3)
    done = run_method("pretrain", method, {"data": str(tmp_path / "t.txt")}, tmp_path / "r")
    assert done.metrics["reload_logit_difference"] <= 1e-5
    assert json.loads((tmp_path / "r/artifact/config.json").read_text())["model_type"] == "burnish_llama"


def test_rounded_weights_alone_make_a_plain_model(text: Dataset, tmp_path: Path) -> None:
    model = small(quantizer="quest", bits=2)(text)
    assert not model.online
    save(model, tmp_path / "m")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "m")
    ids = torch.randint(0, 256, (2, 9))
    assert torch.equal(again(ids).logits, model.net(ids).logits)


class Stopped(Exception):
    """An interruption."""


@pytest.mark.parametrize("settings", [{}, {"quantizer": "lsq", "bits": 2, "a_bits": 2}])
def test_a_stopped_run_ends_with_the_same_weights_and_lines(
    settings: dict[str, Any], text: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("burnish.train.pretrain.EVERY", 3)
    with Run(tmp_path / "whole") as run:
        whole = small(**settings)(text, run)
        expected = lines(run)
    with monkeypatch.context() as patch:

        def stop(self: Any, *args: Any, **kwargs: Any) -> None:
            self.done += 1
            if self.done == 5:
                raise Stopped

        patch.setattr("burnish.core.progress.Progress.advance", stop)
        with pytest.raises(Stopped), Run(tmp_path / "r") as run:
            small(**settings)(text, run)
    with (tmp_path / "r" / LOSSES).open("a") as out:
        out.write('{"step": 6, "lo')  # as a kill leaves it
    with Run(tmp_path / "r") as run:
        again = small(**settings)(text, run)
        assert lines(run) == expected
    assert weight_hash(again) == weight_hash(whole)


def test_each_setting_changes_the_model(text: Dataset) -> None:
    def made(**settings: Any) -> Model:
        return small(**{"steps": 5, **settings})(text)

    base = weight_hash(made())
    assert weight_hash(made()) == base
    for settings in (
        {"width": 20},
        {"layers": 2},
        {"heads": 1},
        {"mlp": 40},
        {"tied": False},
        {"embedding": 0.1},
        {"vocabulary": 310},
        {"length": 12},
        {"held": 5},
        {"steps": 6},
        {"batch": 3},
        {"rate": 1e-3},
        {"schedule": "constant"},
        {"schedule": "wsd", "decay": 0.5},
        {"warmup": 0.5},
        {"floor": 0.5},
        {"weight_decay": 0.5},
        {"precision": "bfloat16"},
        {"draw": 1},
        {"quantizer": "quest", "bits": 2},
        {"quantizer": "quest", "a_bits": 2},
        {"quantizer": "quest", "a_bits": 2, "outer": 1.5},
        {"quantizer": "quest", "bits": 2, "sparse": "2:4"},
    ):
        assert weight_hash(made(**settings)) != base, settings


def test_a_head_of_its_own_comes_with_a_larger_embedding(text: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def stop(net: Any, *_: Any, **__: Any) -> None:
        seen.append(net)
        raise Stopped

    monkeypatch.setattr("burnish.train.pretrain.pretrain", stop)
    for settings, std in (({}, 0.02), ({"tied": False}, 0.5), ({"tied": False, "embedding": 0.1}, 0.1)):
        with pytest.raises(Stopped):
            small(**settings)(text)
        net = seen[-1]
        assert float(net.model.embed_tokens.weight.std()) == pytest.approx(std, rel=0.1)
        assert float(net.lm_head.weight.std()) == pytest.approx(0.02, rel=0.1)
        assert (net.lm_head.weight is net.model.embed_tokens.weight) is net.config.tie_word_embeddings


def test_a_given_tokenizer_is_taken(text: Dataset) -> None:
    method = Pretrain.build({**{k: v for k, v in SMALL.items() if k != "vocabulary"}, "tokenizer": "tiny", "steps": 1})
    model = method(text)
    assert len(model.tokenizer) == len(load("tiny", device="cpu").tokenizer) == model.config.vocab_size
    with pytest.raises(BadInput, match="nowhere"):
        Pretrain(tokenizer="./nowhere")(text)


def test_what_does_not_go_together_is_refused_all_at_once(text: Dataset) -> None:
    for settings, words in (
        ({"heads": 3}, ["heads"]),
        ({"width": 12, "heads": 4}, ["even"]),
        ({"tokenizer": "tiny", "vocabulary": 400}, ["vocabulary"]),
        ({"decay": 0.3}, ["decay"]),
        ({"schedule": "constant", "floor": 0.1}, ["floor"]),
        ({"schedule": "wsd", "warmup": 0.6, "decay": 0.6}, ["together"]),
        ({"bits": 4, "a_bits": 4, "heads": 3}, ["choose a quantizer", "heads"]),
        ({"quantizer": "quest"}, ["nothing is rounded"]),
        ({"quantizer": "lsq", "bits": 4, "sparse": "2:4"}, ["sparse"]),
        ({"quantizer": "ste", "bits": 4, "outer": 1.2}, ["outer"]),
    ):
        with pytest.raises(BadInput) as caught:
            Pretrain.build(settings)
        assert all(word in caught.value.problem for word in words), caught.value.problem
    with pytest.raises(BadInput, match="are held out"):
        small(held=100000)(text)


def test_a_dry_run_says_what_it_takes() -> None:
    plan = plan_method("pretrain", Pretrain(), {"data": "builtin"})
    said = plan.steps[0]["estimate"]
    assert set(said) == {"parameters", "minutes", "memory"}
    sizes = [float(Pretrain(layers=n).estimate({})["parameters"].split()[1]) for n in (4, 40)]
    assert sizes[1] > 4 * sizes[0]


@pytest.mark.slow
def test_ctrl_c_ends_with_130_and_keeps_a_checkpoint(tmp_path: Path) -> None:
    import signal
    import time

    (tmp_path / "t.txt").write_text("\n".join(read("builtin:validation")["text"][:4]))
    words = [f"--{k.replace('_', '-')}={v}" for k, v in {**SMALL, "steps": 100_000}.items()]
    command = [sys.executable, "-m", "burnish", "train", "pretrain", "t.txt", *words, "--out", "r"]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True) as child:
        path = tmp_path / "r" / LOSSES
        while child.poll() is None and (not path.exists() or len(path.read_text().splitlines()) < 110):
            time.sleep(0.2)
        child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=120)
    assert child.returncode == 130, said
    assert json.loads((tmp_path / "r/run.json").read_text())["status"] == "stopped"
    assert (tmp_path / "r/checkpoint.safetensors").exists()
