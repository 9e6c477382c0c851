"""Bad input ends with exit code 2, one message that names the problem, and no traceback."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers as tf
from safetensors.torch import load_file, save_file

from burnish.cli.main import run
from burnish.data import TINY

QUICK = ["--samples", "4", "--length", "64"]


def refused(capsys: pytest.CaptureFixture[str], *tokens: str, code: int = 2) -> str:
    """The message of a command that is refused."""
    assert run(list(tokens)) == code
    said = capsys.readouterr().err
    assert "Traceback" not in said, said
    assert said.count("error:") == 1, said
    return " ".join(said.split())


def compress(method: str, model: str | Path, out: Path, *more: str) -> list[str]:
    return ["compress", method, str(model), "--out", str(out), *more]


def test_unknown_method(capsys, tmp_path) -> None:
    assert "did you mean" in refused(capsys, "compress", "gptqq", "tiny")
    assert "boa" in refused(capsys, "show", "boaa")


def test_unknown_field_and_two_bad_fields_at_once(capsys, tmp_path) -> None:
    assert "bits" in refused(capsys, *compress("rtn", "tiny", tmp_path / "r"), "--bitz", "3")
    said = refused(capsys, *compress("gptq", "tiny", tmp_path / "r"), "--bits", "5", "--damping", "-1")
    assert "bits" in said
    assert "damping" in said
    assert not (tmp_path / "r").exists()


def test_five_bits(capsys, tmp_path) -> None:
    said = refused(capsys, *compress("rtn", "tiny", tmp_path / "r"), "--bits", "5")
    assert "2, 3, 4 or 8" in said


@pytest.mark.parametrize(("text", "said"), [("", "is empty"), ("word", "token")])
def test_calibration_text_that_is_too_short(capsys, tmp_path, text: str, said: str) -> None:
    (tmp_path / "calib.txt").write_text(text)
    message = refused(capsys, *compress("gptq", "tiny", tmp_path / "r", "--calib", str(tmp_path / "calib.txt")), *QUICK)
    assert said in message


def test_calibration_file_that_is_not_there(capsys, tmp_path) -> None:
    assert "none.txt" in refused(capsys, *compress("gptq", "tiny", tmp_path / "r", "--calib", "none.txt"), *QUICK)


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    folder = tmp_path / "broken"
    shutil.copytree(TINY, folder)
    return folder


def test_a_weight_that_is_nan_is_named(capsys, tmp_path, broken: Path) -> None:
    weights = load_file(broken / "model.safetensors")
    name = "model.layers.1.mlp.up_proj.weight"
    weights[name][3, 4] = float("nan")
    save_file(weights, broken / "model.safetensors", {"format": "pt"})
    for method, more in (("rtn", []), ("gptq", QUICK)):
        said = refused(capsys, *compress(method, broken, tmp_path / method), *more)
        assert "nan" in said.lower()
        assert "layers.1" in said or "not finite" in said


def test_a_mixture_of_experts_is_refused_by_name(capsys, tmp_path) -> None:
    config = tf.MixtralConfig(
        vocab_size=2048, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, num_local_experts=2,
    )  # fmt: skip
    torch.manual_seed(0)
    tf.MixtralForCausalLM(config).save_pretrained(tmp_path / "moe")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TINY / name, tmp_path / "moe")
    said = refused(capsys, *compress("rtn", tmp_path / "moe", tmp_path / "r"))
    assert "mixtral" in said
    assert "mixture of experts" in said


def test_a_folder_that_is_no_model(capsys, tmp_path) -> None:
    (tmp_path / "empty").mkdir()
    assert "config.json" in refused(capsys, *compress("rtn", tmp_path / "empty", tmp_path / "r"))


def test_a_gguf_that_is_cut_off(capsys, tmp_path) -> None:
    import gguf
    import numpy as np

    path = tmp_path / "cut.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tensor("token_embd.weight", np.zeros((64, 64), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    path.write_bytes(path.read_bytes()[:-1000])
    assert "cut.gguf" in refused(capsys, *compress("rtn", path, tmp_path / "r"))
    path.write_bytes(b"something else")
    assert "GGUF" in refused(capsys, *compress("rtn", path, tmp_path / "r"))


def test_a_folder_that_holds_another_run(capsys, tmp_path) -> None:
    assert run(compress("rtn", "tiny", tmp_path / "r", "--bits", "3", "--no-reload")) == 0
    capsys.readouterr()
    said = refused(capsys, *compress("rtn", "tiny", tmp_path / "r", "--bits", "2"))
    assert "other settings" in said
    assert "3 there, 2 now" in said
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes").write_text("keep")
    assert "holds no run" in refused(capsys, *compress("rtn", "tiny", tmp_path / "mine"))
    assert (tmp_path / "mine/notes").read_text() == "keep"


def test_a_model_that_is_nowhere_names_each_place(capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    said = refused(capsys, *compress("rtn", "smollm2-135n", tmp_path / "r"))
    assert "smollm2-135m" in said


def test_a_full_disk_is_said_and_leaves_nothing_half_written(capsys, tmp_path, monkeypatch) -> None:
    from burnish.core import run as module

    def full(*args: object, **kwargs: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(tmp_path))

    monkeypatch.setattr(module, "save_blob", full)
    assert "No space left" in refused(capsys, *compress("gptq", "tiny", tmp_path / "r"), *QUICK)
    assert not (tmp_path / "r/artifact").exists()
    assert json.loads((tmp_path / "r/run.json").read_text())["status"] == "failed"


@pytest.mark.skipif(os.geteuid() != 0 or sys.platform != "linux", reason="mounting a small file system needs root")
def test_a_really_full_disk(tmp_path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", small], check=False).returncode:
        pytest.skip("this machine does not let root mount a file system")
    try:
        done = subprocess.run(
            [sys.executable, "-m", "burnish", *compress("rtn", "tiny", small / "r")],
            check=False, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 2, done.stderr
        assert "Traceback" not in done.stderr
        assert not (small / "r/artifact").exists()
    finally:
        subprocess.run(["umount", small], check=True)


@pytest.mark.parametrize("fault", ["missing", "other shape"])
def test_a_checkpoint_that_lacks_weights(fault: str, tmp_path, capsys) -> None:
    """transformers would put random numbers in their place, and go on."""
    broken = tmp_path / "broken"
    shutil.copytree(TINY, broken)
    tensors = load_file(broken / "model.safetensors")
    name = "model.layers.1.self_attn.q_proj.weight"
    if fault == "missing":
        del tensors[name]
    else:
        tensors[name] = tensors[name][:-8].clone()
    save_file(tensors, broken / "model.safetensors", metadata={"format": "pt"})
    for command in (
        compress("rtn", broken, tmp_path / "r"),
        ["claim", "boa", "--model", str(broken), "--scale", "smoke"],
    ):
        said = refused(capsys, *command, *(["--out", str(tmp_path / "c")] if command[0] == "claim" else []))
        assert name in said


@pytest.mark.parametrize("fault", ["layers left over", "cut weights", "code of its own", "a head too many"])
def test_a_folder_whose_files_lie(fault: str, tmp_path, capsys) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(TINY, broken)
    config = json.loads((broken / "config.json").read_text())
    if fault == "layers left over":
        config["num_hidden_layers"] = 2
    elif fault == "code of its own":
        config |= {"model_type": "mine", "auto_map": {"AutoConfig": "mine.Mine", "AutoModelForCausalLM": "mine.Mine"}}
        (broken / "mine.py").write_text("raise SystemExit('this code was run')")
    elif fault == "a head too many":
        config["num_attention_heads"] = 7
    else:
        whole = (broken / "model.safetensors").read_bytes()
        (broken / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    (broken / "config.json").write_text(json.dumps(config))
    said = refused(capsys, *compress("rtn", broken, tmp_path / "r"))
    assert "this code was run" not in said


def test_an_imported_model_is_listed(tmp_path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BURNISH_CACHE", str(tmp_path))
    assert run(["models", "import", "mine", str(TINY)]) == 0
    capsys.readouterr()
    assert run(["models", "list", "--json"]) == 0
    (mine,) = [row for row in json.loads(capsys.readouterr().out) if row["name"] == "mine"]
    assert (mine["origin"], mine["present"]) == (str(TINY), True)


@pytest.mark.parametrize("fault", ["nan", "zero"])
def test_weights_that_are_no_numbers_or_all_zero(fault: str, capsys, tmp_path, broken: Path) -> None:
    """The calibration text is not to blame."""
    weights = load_file(broken / "model.safetensors")
    name = "model.embed_tokens.weight" if fault == "nan" else "model.layers.1.mlp.up_proj.weight"
    if fault == "nan":
        weights[name][3, 4] = float("nan")
    else:
        weights[name].zero_()
    save_file(weights, broken / "model.safetensors", {"format": "pt"})
    command = compress("gptq", broken, tmp_path / "r", *QUICK, "--no-reload")
    if fault == "nan":
        assert f"weights that are not finite: {name}" in refused(capsys, *command)
    else:
        run(command)
        assert f"weights that are zero everywhere: {name}" in " ".join(capsys.readouterr().err.split())


def test_what_is_seen_from_outside_is_said_before_anything_is_computed(capsys, tmp_path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "x.gguf").write_bytes(b"no")
    (tmp_path / "r.toml").write_text(
        f"""
title = "x"
model = "{tmp_path}/empty"
calib = "builtin:tset"
text = "nowhere.txt"
[[steps]]
use = "gptq"
[[steps]]
use = "divergence"
against = "{tmp_path}/x.gguf"
[[steps]]
use = "divergence"
model = "smollm2-135n"
text = "{tmp_path}/x.gguf"
"""
    )
    said = refused(capsys, "recipe", "check", str(tmp_path / "r.toml"))
    for part in (
        "has 6 faults",
        "step 1 (gptq): model: ",
        "no config.json",
        "step 1 (gptq): calib: there is no split of builtin called 'tset'",
        "step 2 (divergence): text: there is no file nowhere.txt",
        "x.gguf is no GGUF file",
        "did you mean smollm2-135m",
        "unknown suffix '.gguf'",
    ):
        assert part in said, (part, said)
