"""Estimates of cost grow with what they should grow with, and are given before anything is loaded."""

from __future__ import annotations

import pytest
import torch
from architectures import CONFIGS, build, tokens

from burnish import workflow
from burnish.compress.awq import AWQ
from burnish.compress.boa import BoA
from burnish.compress.flatquant import FlatQuant
from burnish.compress.gptaq import GPTAQ
from burnish.compress.gptq import GPTQ
from burnish.compress.quest import QuEST
from burnish.compress.rtn import RTN
from burnish.models import estimate as module
from burnish.models.estimate import Shape, estimate, memory, operations


@pytest.mark.parametrize("name", list(CONFIGS))
def test_the_shape_of_every_architecture_has_its_weights(name: str) -> None:
    model = build(name)
    block = model.blocks()[0]
    assert Shape.of(model.config).weights == sum(site.weight.numel() for site in block.sites())


def test_more_work_takes_longer_and_more_tokens_more_memory() -> None:
    shape = Shape.of(CONFIGS["llama"]())
    few, many = (operations(GPTQ(samples=n, length=64), shape, 64 * n) for n in (8, 80))
    assert many > 5 * few
    same = {"samples": 8, "length": 64, "qparam": "minmax"}
    assert operations(BoA(**same), shape, 512) > operations(GPTQ(**same), shape, 512) > operations(RTN(), shape, 0)
    assert operations(BoA(**{**same, "qparam": "hessian"}), shape, 512) > operations(BoA(**same), shape, 512)
    assert memory(shape, 10**6) > memory(shape, 10**3)


def test_methods_that_search_or_train_cost_what_they_search_and_train() -> None:
    shape, text = Shape.of(CONFIGS["llama"]()), {"samples": 8, "length": 64}

    def work(method) -> float:
        return operations(method, shape, 8 * 64)

    def held(method, read: int = 10**6) -> float:
        return memory(shape, read, method)

    assert work(GPTAQ(**text)) > work(GPTAQ(**text, sequential=False)) > 1.5 * work(GPTQ(**text))
    assert work(AWQ(**text)) > 3 * work(AWQ(**text, grid=1))
    assert work(FlatQuant(**text)) > 7 * work(FlatQuant(**text, epochs=0))
    assert work(FlatQuant(**text, weights="gptq")) > work(FlatQuant(**text))
    assert work(QuEST(**text, steps=400)) > 1.9 * work(QuEST(**text, steps=200))
    more = operations(QuEST(samples=80, length=64, steps=400), shape, 80 * 64)
    assert more < 1.5 * work(QuEST(**text, steps=400))  # the same steps, whatever the text
    for method, copies in ((GPTQ(), 1), (FlatQuant(), 2), (GPTAQ(), 2), (AWQ(), 3)):
        assert held(method) - held(method, 0) == copies * 4 * 10**6 * shape.hidden
    weights = 4 * (shape.blocks * shape.weights + shape.embedding)
    assert held(QuEST(batch=1, length=2)) - module.LIBRARIES > 5 * weights
    assert held(QuEST(batch=8)) > held(QuEST(batch=4))


@pytest.mark.parametrize(
    "method",
    [
        GPTQ(bits=3),
        GPTAQ(bits=3),
        GPTAQ(bits=3, sequential=False),
        AWQ(bits=3, group=16),
        FlatQuant(epochs=0),
        FlatQuant(epochs=3, batch=2, weights="gptq"),
        QuEST(samples=16, steps=8),
    ],
    ids=lambda method: type(method).__name__,
)
def test_the_passes_that_are_counted_are_those_that_are_made(method, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("burnish.data.windows.windows", lambda *args, **kwargs: tokens(16))
    monkeypatch.setattr("burnish.compress.awq.PART", 16)
    model = build("llama")
    shapes = {tuple(site.weight.shape) for site in model.sites()}
    whole, made = sum(site.weight.numel() for site in model.sites()) * tokens(16).numel(), 0.0
    linear = torch.nn.functional.linear

    def counting(x, weight, bias=None):
        nonlocal made
        if tuple(weight.shape) in shapes:
            made += x.numel() // x.shape[-1] * weight.numel() * (3 if torch.is_grad_enabled() else 1)
        return linear(x, weight, bias)

    monkeypatch.setattr(torch.nn.functional, "linear", counting)
    method(model, "text")
    counted = getattr(method, "passes", module.PASSES)
    assert 0.6 * counted < made / whole < 1.2 * counted, made / whole


def test_a_dry_run_says_what_it_will_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "speed", lambda: 1e9)
    goods = {"model": "tiny", "calib": "builtin:calibration"}
    (step,) = workflow.plan_method("gptq", GPTQ(samples=4, length=64), goods).steps
    assert step["estimate"]["minutes"].startswith("about")
    assert step["estimate"]["memory"].endswith("GB")


def test_a_model_that_is_not_here_is_not_fetched_for_an_estimate(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BURNISH_CACHE", str(tmp_path))
    for name in ("gemma3-270m", "somebody/some-model"):
        assert estimate(RTN(), {"model": name}) == {"estimate": "none: the model is not on this machine yet"}
