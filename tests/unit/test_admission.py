"""Models that cannot be used are refused before their weights are read."""

from __future__ import annotations

import json
import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from burnish.compress.rtn import RTN
from burnish.core.errors import DoesNotFit, Unsupported
from burnish.core.method import Method
from burnish.data import TINY
from burnish.models.admission import admit
from burnish.workflow import run_method

Memory = namedtuple("Memory", "available")


def test_what_fits_is_asked_once_and_then_loaded(tmp_path: Path, monkeypatch) -> None:
    asked: list[tuple[str, type]] = []

    def watching(name: str, method: type, **options: object) -> None:
        asked.append((name, method))
        admit(name, method, **options)

    monkeypatch.setattr("burnish.models.admission.admit", watching)
    result = run_method("rtn", RTN(), {"model": "tiny"}, tmp_path / "r", reload=False)
    assert asked == [("tiny", RTN)]
    assert result.saved is not None
    assert (result.saved / "config.json").is_file()


def test_an_architecture_that_a_compressor_cannot_treat_is_refused_unread(tmp_path: Path, monkeypatch) -> None:
    folder = Path(shutil.copytree(TINY, tmp_path / "moe"))
    config = {**json.loads((folder / "config.json").read_text()), "num_local_experts": 4}
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "mixtral", "architectures": None}))
    monkeypatch.setattr("burnish.models.loading.open_folder", lambda *given: pytest.fail("its weights were read"))
    with pytest.raises(Unsupported, match="mixture of experts"):
        run_method("rtn", RTN(), {"model": str(folder)}, tmp_path / "r")
    admit(str(folder), Method)  # what only runs a model asks for no adapter


def test_more_weights_than_memory_are_refused_with_the_figures(monkeypatch) -> None:
    size = (TINY / "model.safetensors").stat().st_size
    wide = json.loads((TINY / "config.json").read_text()).get("dtype", "float32") == "float32"
    monkeypatch.setattr("psutil.virtual_memory", lambda: Memory(size * (0.6 if wide else 1.2)))
    with pytest.raises(DoesNotFit, match="free memory") as caught:
        admit("tiny", RTN)
    assert "bfloat16" in caught.value.fix
    admit("tiny", RTN, dtype="bfloat16")
