"""Exports are reloaded, in processes of their own, by the tools that they are for; a wrong one ends with an error."""

from __future__ import annotations

import json
import os
from importlib.util import find_spec
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file, save_file

from burnish.cli.main import run
from burnish.compress.rtn import RTN
from burnish.data.windows import windows
from burnish.models import export, load
from burnish.models.loaders import llama_cpp
from burnish.models.loaders.llama_cpp import llama_cpp_nll

torch.set_num_threads(1)

GPTQMODEL = "BURNISH_GPTQMODEL_PYTHON"

needs_llama_cpp = pytest.mark.skipif(llama_cpp.library() is None, reason=f"{llama_cpp.INSTALL}")
needs_gptqmodel = pytest.mark.skipif(
    GPTQMODEL not in os.environ, reason=f"{GPTQMODEL} does not name the interpreter of an environment with gptqmodel"
)


def reload(folder: Path, out: Path, *more: str) -> int:
    return run(["evaluate", "reload", str(folder), "--out", str(out), "--threads", "1", *more])


def measures(out: Path) -> dict[str, float]:
    return {row["item_id"]: row["value"] for row in pq.read_table(out / "table.parquet").to_pylist()}


def compressed(out: Path, format: str, *settings: str) -> Path:
    command = ["compress", "rtn", "tiny", "--out", str(out), "--format", format, "--threads", "1", *settings]
    assert run([*command, "--no-reload"]) == 0
    return out


def test_compressed_tensors_are_equal_and_a_changed_scale_is_found(tmp_path, capsys):
    run_folder = compressed(tmp_path / "a", "compressed-tensors", "--bits", "3", "--group", "64")
    assert reload(run_folder, tmp_path / "same") == 0
    found = measures(tmp_path / "same")
    assert found["weights that differ"] == found["text cut into other tokens"] == 0
    assert found["largest logit difference"] <= 1e-5
    path = run_folder / "artifact" / "model.safetensors"
    tensors = load_file(path)
    tensors["model.layers.1.mlp.up_proj.weight_scale"][5] *= 1.001
    save_file(tensors, path, metadata={"format": "pt"})
    capsys.readouterr()
    assert reload(run_folder, tmp_path / "other") == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "transformers finds another model" in said
    assert "weights: model.layers.1.mlp.up_proj.weight" in said
    assert "Traceback" not in said


def test_a_compression_ends_with_the_proof(tmp_path, capsys):
    assert run(["compress", "rtn", "tiny", "--out", str(tmp_path / "a"), "--threads", "1"]) == 0
    assert "transformers loads it in a fresh process, every weight equal" in capsys.readouterr().err
    metrics = json.loads((tmp_path / "a" / "run.json").read_text())["metrics"]
    assert (metrics["reload_loader"], metrics["reload_logit_difference"]) == ("transformers", 0.0)


def test_a_result_that_loads_as_another_model_is_an_error(tmp_path, capsys, monkeypatch):
    import burnish.models.reload as module

    inner = module._python

    def other(*args):
        logits, *rest = inner(*args)
        return (logits + 0.01, *rest)

    monkeypatch.setattr(module, "_python", other)
    assert run(["compress", "rtn", "tiny", "--out", str(tmp_path / "a"), "--threads", "1"]) == 2
    assert "largest logit difference: 0.01" in capsys.readouterr().err
    assert json.loads((tmp_path / "a" / "run.json").read_text())["status"] == "failed"


def test_a_second_look_at_a_folder_is_a_second_look(tmp_path):
    run_folder = compressed(tmp_path / "a", "compressed-tensors", "--bits", "4", "--sym")
    assert reload(run_folder, tmp_path / "look") == 0
    path = run_folder / "artifact" / "model.safetensors"
    tensors = load_file(path)
    tensors["model.layers.0.mlp.up_proj.weight_scale"] *= 1.01
    save_file(tensors, path, metadata={"format": "pt"})
    assert reload(run_folder, tmp_path / "look") == 2


def test_gguf_is_equal_in_transformers(tmp_path):
    run_folder = compressed(tmp_path / "a", "gguf", "--bits", "4", "--group", "32", "--zero", "float")
    assert reload(run_folder, tmp_path / "same", "--loader", "transformers") == 0
    assert measures(tmp_path / "same")["weights that differ"] == 0


def test_a_format_that_cannot_hold_the_result_is_refused_before_the_model_is_loaded(tmp_path, capsys):
    assert (
        run(["compress", "rtn", "no-such-model", "--bits", "3", "--format", "gguf", "--out", str(tmp_path / "a")]) == 2
    )
    said = " ".join(capsys.readouterr().err.split())
    assert "3 bits" in said
    assert "--bits 4 --group 32 --sym" in said
    assert not (tmp_path / "a").exists()


@pytest.mark.skipif(find_spec("gptqmodel") is not None, reason="gptqmodel is installed here")
def test_a_loader_that_is_not_installed_says_what_to_install(tmp_path, capsys):
    run_folder = compressed(tmp_path / "a", "gptq", "--bits", "4", "--group", "32")
    capsys.readouterr()
    assert reload(run_folder, tmp_path / "other") == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "pip install gptqmodel" in said
    assert "--python DIR/bin/python" in said


@needs_llama_cpp
@pytest.mark.parametrize(
    "settings", [("--bits", "4", "--sym"), ("--bits", "4", "--zero", "float"), ("--bits", "8", "--sym")]
)
def test_gguf_runs_in_llama_cpp(tmp_path, settings):
    run_folder = compressed(tmp_path / "a", "gguf", "--group", "32", *settings)
    assert reload(run_folder, tmp_path / "same", "--loader", "llama.cpp") == 0
    found = measures(tmp_path / "same")
    assert found["text cut into other tokens"] == 0
    assert found["mean KL"] < 1e-2


@needs_llama_cpp
def test_perplexity_in_llama_cpp_is_ours_within_half_a_percent(tmp_path):
    from burnish.data import read

    model = RTN(bits=4, group=32, sym=True)(load("tiny", device="cpu"))
    tokens = windows(model.tokenizer, read("builtin:test"), 4, 128)
    folder = export(model, tmp_path / "out", "gguf")
    with torch.no_grad():
        logits = model.net(tokens).logits[:, :-1].flatten(0, 1)
    ours = torch.nn.functional.cross_entropy(logits, tokens[:, 1:].flatten())
    theirs = llama_cpp_nll(folder / "model.gguf", tokens)
    assert theirs.shape == (4, 127)
    assert abs(float(theirs.mean() - ours)) < 0.005


@needs_gptqmodel
@pytest.mark.parametrize(
    "settings",
    [
        ("--bits", "4", "--group", "32", "--sym"),
        ("--bits", "4", "--group", "256"),
        ("--bits", "8", "--group", "-1", "--layers", "q,down"),
    ],
)
def test_gptq_is_equal_in_gptqmodel(tmp_path, settings):
    run_folder = compressed(tmp_path / "a", "gptq", *settings)
    assert reload(run_folder, tmp_path / "same", "--python", os.environ[GPTQMODEL]) == 0
    assert measures(tmp_path / "same")["weights that differ"] == 0
    assert json.loads((tmp_path / "same" / "run.json").read_text())["metrics"]["kl"] < 1e-3
