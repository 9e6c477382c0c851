"""What is found wrong with a model folder before its weights are read."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import burnish
from burnish.core.errors import BadInput, Unsupported
from burnish.core.run import Run
from burnish.data import TINY
from burnish.models.checkpoint import require_sound


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(TINY, tmp_path / "model"))


def configure(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_a_folder_is_sound_until_its_configuration_asks_for_one_layer_more(folder: Path) -> None:
    layers = json.loads((folder / "config.json").read_text())["num_hidden_layers"]
    assert len(burnish.load(str(folder)).blocks()) == layers
    configure(folder, num_hidden_layers=layers + 1)
    with pytest.raises(BadInput, match=f"num_hidden_layers is {layers + 1}, and the weights hold {layers} layers"):
        require_sound(folder)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"hidden_size": 2**40}, "hidden_size is 1099511627776"),
        ({"num_hidden_layers": 10**6}, "num_hidden_layers is 1000000, and the weights hold"),
        ({"vocab_size": 2**40}, "vocab_size"),
        ({"text_config": {"intermediate_size": 2**40}}, "intermediate_size"),
    ],
)
def test_a_configuration_that_would_take_all_memory_is_refused_unread(folder: Path, changes, words: str) -> None:
    configure(folder, **changes)
    with pytest.raises(BadInput, match=words):
        require_sound(folder)


def test_all_contradictions_are_told_at_once(folder: Path) -> None:
    configure(folder, hidden_size=2**40, num_hidden_layers=10**6)
    with pytest.raises(BadInput, match=r"(?s)num_hidden_layers.*hidden_size"):
        burnish.load(str(folder))


def test_what_predicts_no_next_token_is_refused_by_name(folder: Path) -> None:
    configure(folder, architectures=["BertForMaskedLM"], model_type="bert")
    with pytest.raises(Unsupported, match="BertForMaskedLM, no causal language model"):
        burnish.load(str(folder))


@pytest.mark.parametrize("text", ["[]", "{", "[" * 5000])
def test_a_damaged_configuration_is_named(folder: Path, text: str) -> None:
    (folder / "config.json").write_text(text)
    with pytest.raises(BadInput, match=r"config\.json is damaged"):
        require_sound(folder)


def test_a_truncated_weight_file_is_named(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(BadInput, match=r"model\.safetensors is damaged"):
        require_sound(folder)


def test_embeddings_with_nan_are_blamed_and_not_the_text(folder: Path) -> None:
    from burnish.compress.gptq import GPTQ

    path = folder / "model.safetensors"
    weights = load_file(path)
    name = next(name for name in weights if "embed_tokens" in name)
    weights[name][:, 3] = torch.nan
    save_file(weights, path, {"format": "pt"})
    with pytest.raises(BadInput, match=r"weights that are not finite: model\.embed_tokens\.weight"):
        GPTQ(samples=2, length=64)(burnish.load(str(folder)), burnish.data.read("builtin"), Run.scratch())


def test_a_layer_of_zeros_is_remarked(folder: Path) -> None:
    from burnish.compress.rtn import RTN

    path = folder / "model.safetensors"
    weights = load_file(path)
    name = next(name for name in weights if name.endswith("layers.0.mlp.down_proj.weight"))
    weights[name].zero_()
    save_file(weights, path, {"format": "pt"})
    run = Run.scratch()
    RTN()(burnish.load(str(folder)), None, run)
    assert [event["note"] for event in run.events("layer-note")] == ["all its weights are zero"]
