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


def test_a_torn_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    torn = tmp_path / "torn"
    torn.mkdir()
    for path in folder.iterdir():
        (torn / path.name).write_bytes(path.read_bytes())
    tensors = load_file(torn / "model.safetensors")
    save_file({k: v for k, v in tensors.items() if "layers.1.mlp.up_proj" not in k}, torn / "model.safetensors")
    with pytest.raises(BadInput, match=r"lacks model.layers.1.mlp.up_proj.weight"):
        open_packed(torn)
    config = json.loads((torn / "config.json").read_text())
    config["quantization_config"]["config_groups"]["group_0"]["targets"] = ["model.layers.0.mlp.up_proj"]
    (torn / "config.json").write_text(json.dumps(config))
    with pytest.raises(BadInput, match="does not say how"):
        open_packed(torn)


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
    dispatch([*given, "--out", "w4"])
    metrics = json.loads((tmp_path / "w4" / "run.json").read_text())["metrics"]
    assert metrics["reload_loader"] == "packed"
    open_packed(tmp_path / "w4")
