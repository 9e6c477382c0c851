"""The method ks on every supported architecture: what it replaces, what it records, and that a stop loses nothing."""

from __future__ import annotations

import json

import pytest
import torch
from architectures import CONFIGS, build, tokens

from burnish.compress.ks import KS
from burnish.core.errors import BadInput, Unsupported
from burnish.core.run import Run
from burnish.models import save, weight_hash
from burnish.models.export import FORMATS, check_export
from burnish.nn.kronecker_sparse import KSLinear, chains, install, product_of, put

NAMES = list(CONFIGS)


@pytest.fixture(autouse=True)
def calibration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("burnish.data.windows.windows", lambda *args, **kwargs: tokens())


def quick(**settings) -> KS:
    return KS(**{"density": 0.6, **settings})


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("fit", ["weight", "output"])
def test_every_layer_becomes_a_product_and_its_errors_are_recorded(name: str, fit: str, tmp_path) -> None:
    model = build(name)
    before = weight_hash(model)
    with Run(tmp_path / "r") as run:
        found = quick(fit=fit)(model, None, run) if fit == "weight" else quick(fit=fit)(model, object(), run)
        assert run.metrics["ks_layers"] == len(list(model.sites()))
        assert 0.3 < run.metrics["ks_density"] <= 0.6
    assert weight_hash(model) == before
    assert found.online
    rows = {row["site"]: row for row in json.loads((tmp_path / "r" / "layers.json").read_text())}
    for site in model.sites():
        layer = found.at(site.name)
        assert isinstance(layer, KSLinear)
        assert not any(parameter.requires_grad for parameter in layer.parameters())
        assert (layer.bias is None) == (site.linear.bias is None)
        row = rows[site.name]
        assert row["patterns"] == chains(found.net)[site.name]
        assert row["density"] == pytest.approx(layer.density)
        change = (layer.dense() - site.weight).square().sum() / site.weight.square().sum()
        assert row["weight_error"] == pytest.approx(float(change), rel=1e-3)
        assert 0 < row["weight_error"] < 1
        assert 0 < row["low_rank_weight_error"] < 1
        assert ("error" in row) == (fit == "output")
    dense = model.fork()
    for site in dense.sites():
        linear = torch.nn.Linear(site.linear.in_features, site.linear.out_features, site.linear.bias is not None)
        linear.weight.data, linear.bias = found.at(site.name).dense(), site.linear.bias
        put(dense.net, site.name, linear)
    logits = found.net(tokens(2)).logits
    assert torch.allclose(logits, dense.net(tokens(2)).logits, atol=1e-4 * float(logits.abs().max()))


def test_more_numbers_and_a_fit_to_outputs_lose_less(tmp_path) -> None:
    model = build("llama")

    def lost(**settings) -> float:
        with Run(tmp_path / str(settings)) as run:
            quick(**settings)(model, object(), run)
        rows = json.loads((run.folder / "layers.json").read_text())
        return sum(row["error"] for row in rows)

    assert lost(density=0.8) < lost(density=0.4)
    assert lost(fit="output") < 0.9 * lost(fit="weight")


def test_only_the_layers_that_were_chosen_are_replaced() -> None:
    model = build("llama")
    found = quick(fit="weight", layers=("up", "down"))(model)
    assert {path.rpartition(".")[2] for path in chains(found.net)} == {"up_proj", "down_proj"}
    one = quick(fit="weight", layers=("up",), patterns="4,8,8,1 1,12,8,4")(model)
    assert set(chains(one.net).values()) == {"4,8,8,1 1,12,8,4"}


def test_a_matrix_that_is_such_a_product_is_kept() -> None:
    model = build("llama")
    factors = [torch.randn(4, 8, 8, 1), torch.randn(1, 12, 8, 4)]
    for site in model.sites():
        if site.role == "up":
            site.replace(product_of(factors))
    found = quick(fit="weight", layers=("up",), patterns="4,8,8,1 1,12,8,4")(model)
    expected = model.net(tokens(2)).logits
    assert torch.allclose(found.net(tokens(2)).logits, expected, atol=1e-4 * float(expected.abs().max()))


@pytest.mark.parametrize("fit", ["weight", "output"])
def test_a_stopped_run_goes_on_with_the_same_weights(fit: str, tmp_path, monkeypatch) -> None:
    model = build("llama")
    whole = quick(fit=fit)(model, object())
    event = Run.event

    def stopping(self, kind: str, **fields) -> None:
        event(self, kind, **fields)
        if kind == "link":
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Run, "event", stopping)
        with pytest.raises(KeyboardInterrupt), Run(tmp_path / "r") as run:
            quick(fit=fit)(model, object(), run)
    with Run(tmp_path / "r") as run:
        again = quick(fit=fit)(model, object(), run)
        assert len(json.loads((tmp_path / "r" / "layers.json").read_text())) == len(list(model.sites()))
    assert weight_hash(again) == weight_hash(whole)


def test_its_state_goes_into_the_model_that_it_came_from(tmp_path) -> None:
    model = build("qwen2")
    found = quick(fit="weight")(model)
    torch.save({"patterns": chains(found.net), "state": found.net.state_dict()}, tmp_path / "ks.pt")
    kept = torch.load(tmp_path / "ks.pt", weights_only=True)
    again = model.fork()
    install(again.net, kept["patterns"])
    again.net.load_state_dict(kept["state"])
    assert torch.equal(again.net(tokens(2)).logits, found.net(tokens(2)).logits)
    assert weight_hash(again) == weight_hash(found)


def test_it_can_be_trained_on() -> None:
    found = quick(fit="weight")(build("llama"))
    found.net.requires_grad_(False)
    factors = [factor for path in chains(found.net) for factor in found.at(path).factors]
    for factor in factors:
        factor.requires_grad_(True)
    optimizer = torch.optim.Adam(factors, lr=1e-2)
    text, losses = tokens(4), []
    for _ in range(8):
        loss = found.net(text, labels=text).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert all(factor.grad is not None for factor in factors)
    assert losses[-1] < losses[0]


def test_no_format_takes_it_and_further_rounding_is_refused(tmp_path) -> None:
    for format in FORMATS:
        with pytest.raises(Unsupported, match="products of sparse factors"):
            check_export(quick(), format)
    found = quick(fit="weight")(build("llama"))
    with pytest.raises(Unsupported, match="Kronecker-sparse factors"):
        save(found, tmp_path / "m")
    with pytest.raises(Unsupported, match="KSLinear, not a plain linear layer"):
        list(found.sites())


def test_what_cannot_be_is_refused_by_name() -> None:
    model = build("llama")
    with pytest.raises(BadInput, match=r"patterns: .*is no Kronecker-sparse pattern"):
        KS.build({"patterns": "1,2,3"})
    with pytest.raises(BadInput, match="do not fit together"):
        KS.build({"patterns": "1,2,3,4 1,2,3,4"})
    for density in (0, 1, 1.5):
        with pytest.raises(BadInput, match="density"):
            KS.build({"density": density})
    with pytest.raises(BadInput, match="needs calibration text"):
        quick()(model)
    with pytest.raises(BadInput, match=r"make a matrix \(48, 32\)\n  down is \(32, 48\)\n  k is \(16, 32\)"):
        quick(fit="weight", patterns="4,8,8,1 1,12,8,4", layers=("gate", "down", "k"))(model)
    with pytest.raises(BadInput, match="no two factors of a 32 x 32 matrix"):
        quick(fit="weight", density=0.05)(model)
    with pytest.raises(BadInput, match="has no layers fc1"):
        quick(fit="weight", layers=("fc1",))(model)
    site = next(build("llama").sites())
    site.linear.weight.data[0, 0] = float("nan")
    broken = build("llama")
    next(broken.sites()).replace(site.linear.weight)
    with pytest.raises(BadInput, match="NaN"):
        quick(fit="weight")(broken)
