"""Opening a compressed-tensors folder on its codes, and answering from there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from architectures import tokens

from burnish.core.errors import BadInput, Unsupported
from burnish.engine.fused import fuse, open_fused, why_not
from burnish.models import export, load
from burnish.models.packed import packed
from burnish.models.packed_folder import open_packed
from burnish.models.reload import compare
from burnish.nn import kernels
from burnish.nn.activation import InputStage, TokenGrid
from burnish.nn.grid import GridSpec
from burnish.nn.packed import PackedLinear

compiled = pytest.mark.skipif(kernels.native() is None, reason="burnish-kernels is not installed")


def rounded(spec: GridSpec):
    model = load("tiny", device="cpu").fork()
    for site in model.sites():
        site.round(spec)
    return model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(rounded(GridSpec(4, group=32)), tmp_path_factory.mktemp("packed") / "w4", "compressed-tensors")


@pytest.mark.parametrize("spec", [GridSpec(3), GridSpec(2, sym=True, group=64), GridSpec(8, group=32)], ids=str)
def test_a_folder_opens_as_the_model_that_was_exported(spec: GridSpec, tmp_path: Path) -> None:
    model = rounded(spec)
    export(model, tmp_path / "out", "compressed-tensors")
    opened = open_packed(tmp_path / "out", head_bits=16)
    expected = {site.name: site.weight for site in model.sites()}
    layers = {name: m for name, m in opened.net.named_modules() if isinstance(m, PackedLinear)}
    assert layers.keys() == expected.keys()
    assert all(torch.equal(layers[name].dequantized(), weight) for name, weight in expected.items())
    ids = tokens(2, 12)
    with torch.no_grad():
        assert (opened.net(ids).logits - model.net(ids).logits).abs().max() < 1e-3
        both = (open_packed(tmp_path / "out"), packed(model))
        assert (both[0].net(ids).logits - both[1].net(ids).logits).abs().max() < 1e-3


def test_another_process_finds_the_model_on_its_codes(folder: Path) -> None:
    found = compare(folder, "packed")
    found.require(folder)
    assert found.weights == ()
    assert "packed loads it in a fresh process, every weight equal" in found.said()


def test_what_is_not_packed_is_refused_by_reason(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="its format is none"):
        open_packed(export(rounded(GridSpec(4, group=32)), tmp_path / "hf"))
    model = rounded(GridSpec(8, sym=True))
    for site in model.sites():
        site.stage(InputStage(TokenGrid(8)))
    staged = model.then("grids", ("inputs of linear layers are rounded to 8 bits",))
    with pytest.raises(Unsupported, match="its format is int-quantized"):
        open_packed(export(staged, tmp_path / "int", "compressed-tensors"))
    with pytest.raises(BadInput):
        open_packed(tmp_path / "absent")


def bent(folder: Path, to: Path, change, config=None) -> Path:
    """A copy of a folder with other tensors."""
    from safetensors.torch import load_file, save_file

    to.mkdir()
    for path in folder.iterdir():
        (to / path.name).write_bytes(path.read_bytes())
    tensors = load_file(to / "model.safetensors")
    change(tensors)
    save_file(tensors, to / "model.safetensors")
    if config is not None:
        said = json.loads((to / "config.json").read_text())
        config(said["quantization_config"]["config_groups"]["group_0"])
        (to / "config.json").write_text(json.dumps(said))
    return to


UP = "model.layers.1.mlp.up_proj."


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda t: [t.pop(k) for k in list(t) if k.startswith(UP)], r"lacks model.layers.1.mlp.up_proj.weight"),
        (lambda t: t.pop(UP + "weight_scale"), r"up_proj lacks weight_scale"),
        (lambda t: t.update({UP + "weight_shape": torch.tensor([64, 64])}), r"is packed as \(64, 64\)"),
        (
            lambda t: t.update({UP + "weight_scale": t[UP + "weight_scale"][:, :1].clone()}),
            r"weight_scale has the shape",
        ),
        (lambda t: t.update({"model.nothing.weight_packed": torch.zeros(1)}), r"has no such layer"),
        (lambda t: t.update({"model.norm.weight": torch.ones(3)}), r"size mismatch"),
    ],
)
def test_a_folder_whose_tensors_lie_is_refused(folder: Path, tmp_path: Path, change, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        open_packed(bent(folder, tmp_path / "bent", change))


def test_packings_that_are_not_known_are_refused(folder: Path, tmp_path: Path) -> None:
    order = {UP + "weight_g_idx": torch.zeros(4)}
    with pytest.raises(Unsupported, match="it has weight_g_idx"):
        open_packed(bent(folder, tmp_path / "order", lambda t: t.update(order)))
    with pytest.raises(Unsupported, match="told by patterns"):
        open_packed(bent(folder, tmp_path / "re", lambda t: None, lambda g: g.update(targets=["re:.*up_proj"])))
    with pytest.raises(BadInput, match="does not say how"):
        open_packed(
            bent(folder, tmp_path / "some", lambda t: None, lambda g: g.update(targets=["model.layers.0.mlp.up_proj"]))
        )


def test_layers_may_lie_in_several_files_and_the_makers_end_tokens_are_kept(folder: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    whole = open_packed(folder)
    to = bent(folder, tmp_path / "shards", lambda t: None)
    tensors = load_file(to / "model.safetensors")
    (to / "model.safetensors").unlink()
    for number in range(2):  # a layer's own tensors are split too
        save_file(dict(list(tensors.items())[number::2]), to / f"model-0000{number}.safetensors")
    (to / "generation_config.json").write_text(json.dumps({"eos_token_id": [3, 5]}))
    opened = open_packed(to)
    with torch.no_grad():
        assert torch.equal(opened.net(tokens()).logits, whole.net(tokens()).logits)
    assert opened.net.generation_config.eos_token_id == [3, 5]


@compiled
def test_an_opened_folder_decodes_in_one_call(folder: Path) -> None:
    lines: list[str] = []
    model = open_fused(folder, notify=lines.append)
    assert lines == []
    slow = open_packed(folder)
    assert why_not(slow) == ""
    ids = torch.tensor([slow.tokenizer("def mean(values):")["input_ids"]])
    settings = {"attention_mask": torch.ones_like(ids), "max_new_tokens": 40, "do_sample": False, "pad_token_id": 0}
    assert torch.equal(model.net.generate(ids, **settings), slow.net.generate(ids, **settings))
    assert fuse(slow) is slow


def test_without_kernels_the_reason_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_load", lambda: "burnish-kernels is not installed")
    lines: list[str] = []
    open_fused(folder, notify=lines.append)
    assert len(lines) == 1
    assert "burnish-kernels is not installed" in lines[0]


def test_a_compression_that_is_to_run_packed_ends_by_running_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from burnish.cli.main import dispatch

    monkeypatch.chdir(tmp_path)
    given = ["compress", "rtn", "tiny", "--bits", "4", "--group", "32", "--runtime", "packed"]
    with pytest.raises(BadInput, match="runtime: packed runs --format compressed-tensors, not gguf"):
        dispatch([*given, "--format", "gguf"])
    with pytest.raises(BadInput, match="runtime: packed runs --format compressed-tensors, not hf"):
        dispatch([*given, "--format", "hf"])
    with pytest.raises(BadInput, match="groups hold a multiple of 32"):
        dispatch([*given[:5], "--group", "16", "--runtime", "packed"])
    with pytest.raises(BadInput, match="whole activations"):
        dispatch(["compress", "smoothquant", "tiny", "--runtime", "packed"])
    dispatch([*given, "--out", "w4"])
    metrics = json.loads((tmp_path / "w4" / "run.json").read_text())["metrics"]
    assert metrics["reload_loader"] == "packed"
    open_packed(tmp_path / "w4")
