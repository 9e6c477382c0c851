"""Admission tests that every method passes, in this package or in another.

    from burnish.testing import check_method

    def test_my_method():
        check_method(MyMethod, settings={"bits": 3})

`check_method` runs every check that fits the method's shape and raises one AssertionError that lists all that failed.
"""

from __future__ import annotations

import sys
import tempfile
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from burnish.core.errors import BadInput, BurnishError, Unsupported
from burnish.core.method import Method
from burnish.core.run import Run
from burnish.core.shapes import Compressor

if TYPE_CHECKING:
    from burnish.models import Model

Check = Callable[[type[Method], Mapping[str, Any]], None]


def check_method(cls: type[Method], settings: Mapping[str, Any] | None = None) -> list[str]:
    """Run every check that fits the shape of `cls`.

    Args:
        cls: A method class.
        settings: Settings to construct and run it with; its defaults where absent.

    Returns:
        The names of the checks that ran.

    Raises:
        AssertionError: listing each check that failed and why.
    """
    settings = dict(settings or {})
    failed = []
    names = []
    for check in checks_for(cls):
        names.append(check.__name__)
        try:
            check(cls, settings)
        except (AssertionError, BurnishError, ValidationError) as error:
            failed.append(f"{check.__name__}: {error}")
    if failed:
        raise AssertionError(f"{cls.__name__} fails {len(failed)} of {len(names)} checks\n" + "\n".join(failed))
    return names


def checks_for(cls: type[Method]) -> list[Check]:
    """The checks that fit the shape of a method: those of every method, and those of its verb."""
    checks: list[Check] = [documented, constructs, round_trips, refuses_unknown_settings, frozen, goods_are_known]
    if issubclass(cls, Compressor):
        checks += [repeatable, input_unchanged, interrupted_equals_uninterrupted, refuses_unsupported, reloads]
    return checks


# -- every method -----------------------------------------------------------------------------------------------------


def documented(cls: type[Method], settings: Mapping[str, Any]) -> None:
    """The class has a one-line summary, the module says how it works, and every field says what it is."""
    summary = (cls.__doc__ or "").strip().splitlines()
    assert summary, "the class has no docstring"
    assert len(summary[0]) <= 120, "the summary is longer than a line"
    assert summary[0].endswith("."), "the summary is no sentence"
    assert (sys.modules[cls.__module__].__doc__ or "").strip(), "the module has no docstring"
    bare = [name for name, field in cls.model_fields.items() if not (field.description or "").strip()]
    assert not bare, f"fields without a docstring: {', '.join(bare)}"


def constructs(cls: type[Method], settings: Mapping[str, Any]) -> None:
    """The defaults, with the given settings, make a method."""
    cls.build(settings)


def round_trips(cls: type[Method], settings: Mapping[str, Any]) -> None:
    """Settings survive a TOML file."""
    import tomli_w

    method = cls.build(settings)
    again = cls.build(tomllib.loads(tomli_w.dumps(method.settings())))
    assert again == method, f"{method!r} came back from TOML as {again!r}"


def refuses_unknown_settings(cls: type[Method], settings: Mapping[str, Any]) -> None:
    """Two settings that do not exist are both named in one error."""
    try:
        cls.build({**settings, "no_such_setting": 1, "nor_this_one": 2})
    except BadInput as error:
        assert "no_such_setting" in error.problem, error.problem
        assert "nor_this_one" in error.problem, error.problem
        return
    raise AssertionError("settings that do not exist are accepted")


def frozen(cls: type[Method], settings: Mapping[str, Any]) -> None:
    """A method cannot be changed once it is made."""
    method = cls.build(settings)
    for name in cls.model_fields:
        try:
            setattr(method, name, getattr(method, name))
        except ValidationError:
            continue
        raise AssertionError(f"{name} can be changed")


def goods_are_known(cls: type[Method], settings: Mapping[str, Any]) -> None:
    """What `__call__` takes and gives are kinds that the command line can load and save."""
    from burnish.catalogue import GOODS

    kinds = {good.kind for good in cls.goods()} | ({cls.gives()} if cls.gives() else set())
    assert cls.goods(), "__call__ takes nothing"
    assert kinds <= set(GOODS), f"unknown kinds of goods: {sorted(kinds - set(GOODS))}"


# -- compressors ------------------------------------------------------------------------------------------------------

CALIBRATION = {"samples": 4, "length": 64}
"""Settings that keep a calibrated method quick on the tiny model."""


def _small(cls: type[Method], settings: Mapping[str, Any]) -> Method:
    quick = {name: value for name, value in CALIBRATION.items() if name in cls.model_fields}
    return cls.build({**quick, **settings})


def _goods(cls: type[Method]) -> dict[str, Any]:
    from burnish import data
    from burnish.models import load

    made: dict[str, Callable[[], Any]] = {
        "Model": lambda: load("tiny", device="cpu"),
        "Dataset": lambda: data.read("builtin:calibration"),
    }
    return {good.name: made[good.kind]() for good in cls.goods() if good.kind in made}


def _apply(cls: type[Method], settings: Mapping[str, Any], goods: Mapping[str, Any], run: Run | None = None) -> Model:
    return _small(cls, settings)(**goods, run=run)  # type: ignore[operator]


def repeatable(cls: type[Method], settings: Mapping[str, Any]) -> None:
    """The same settings give the same weights."""
    from burnish.models import weight_hash

    goods = _goods(cls)
    first, second = (weight_hash(_apply(cls, settings, goods)) for _ in range(2))
    assert first == second, "two runs with the same settings gave different weights"


def input_unchanged(cls: type[Method], settings: Mapping[str, Any]) -> None:
    """The model that was given is the same afterwards, bit for bit, and still attends as it did."""
    from burnish.models import weight_hash

    goods = _goods(cls)
    model = goods["model"]
    before = weight_hash(model), model.config._attn_implementation, model.config.to_dict()
    changed = _apply(cls, settings, goods)
    after = weight_hash(model), model.config._attn_implementation, model.config.to_dict()
    assert before == after, "the input model was changed"
    assert weight_hash(changed) != before[0], "nothing was changed at all"


def interrupted_equals_uninterrupted(cls: type[Method], settings: Mapping[str, Any]) -> None:
    """A run that is stopped after its first block and started again ends with the same weights, and redoes no block."""
    from burnish.models import weight_hash

    goods = _goods(cls)
    whole = weight_hash(_apply(cls, settings, goods))
    with tempfile.TemporaryDirectory() as folder:
        stopped = _StoppedRun(Path(folder) / "run")
        try:
            _apply(cls, settings, goods, stopped)
        except KeyboardInterrupt:
            stopped.close()
        else:
            return  # a method without blocks has nothing to resume
        run = Run(Path(folder) / "run")
        resumed = weight_hash(_apply(cls, settings, goods, run))
        links = [event["key"] for event in run.events("link")]
        run.close()
    assert resumed == whole, "the resumed run gave other weights"
    assert len(links) == len(set(links)), f"a block was done twice: {links}"


class _StoppedRun(Run):
    """Stops, as by Ctrl-C, when the first link of a chain is finished."""

    def event(self, kind: str, **fields: Any) -> None:
        super().event(kind, **fields)
        if kind == "link":
            raise KeyboardInterrupt


def refuses_unsupported(cls: type[Method], settings: Mapping[str, Any]) -> None:
    """A model whose layers it cannot treat right is refused by name."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    from burnish.models import Lineage, Model

    goods = _goods(cls)
    config = GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=goods["model"].config.vocab_size, n_positions=128)
    torch.manual_seed(0)
    other = Model(GPT2LMHeadModel(config).eval(), goods["model"].tokenizer, Lineage("a fused model"))
    try:
        _apply(cls, settings, {**goods, "model": other})
    except Unsupported as error:
        assert "gpt2" in error.problem, f"the refusal does not name the architecture: {error.problem}"
        return
    raise AssertionError("a model with fused projections is accepted")


def reloads(cls: type[Method], settings: Mapping[str, Any]) -> None:
    """The result, saved as an ordinary folder, loads with the same weights; or saving it is refused with a reason."""
    from burnish.models import load, save, weight_hash

    changed = _apply(cls, settings, _goods(cls))
    with tempfile.TemporaryDirectory() as folder:
        try:
            save(changed, Path(folder) / "model")
        except Unsupported:
            assert changed.online, "saving was refused, though nothing happens online"
            return
        assert weight_hash(load(Path(folder) / "model", device="cpu")) == weight_hash(changed), (
            "other weights came back"
        )
