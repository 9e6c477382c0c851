"""Estimates of cost grow with what they should grow with, and are given before anything is loaded."""

from __future__ import annotations

import pytest
from architectures import CONFIGS

from burnish import workflow
from burnish.compress.boa import BoA
from burnish.compress.gptq import GPTQ
from burnish.compress.rtn import RTN
from burnish.models import estimate as module
from burnish.models.estimate import Shape, estimate, memory, operations


@pytest.mark.parametrize("name", list(CONFIGS))
def test_the_shape_of_every_architecture_has_its_weights(name: str) -> None:
    from architectures import build

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
