"""Made-up methods that need no torch, in a catalogue and with goods of their own: for tests of the command line."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from pydantic import Field

from burnish import catalogue
from burnish.cli import main
from burnish.core.errors import BadInput, Unsupported
from burnish.core.run import Run
from burnish.core.shapes import Analysis, Compressor
from burnish.data.scores import Scores

CALLS: list[str] = []
"""What the made-up methods did, in order."""


class Count(Analysis):
    """Count the words of a file.

    A second paragraph with [markup].
    """

    bits: Literal[2, 3] = 3
    """Bits."""
    least: int = Field(default=1, ge=0)
    """Letters that a word must have."""
    sym: bool = False
    """A switch."""
    rate: float | None = None
    """May be none."""
    sites: tuple[Literal["q", "k"], ...] = ()
    """Several."""
    crash: Literal["", "bug", "user", "stop"] = ""
    """How it ends."""

    def __call__(self, file: Path, other: Path | None = None, run: Run | None = None) -> Scores:
        """Count."""
        CALLS.append(f"count {file.name}")
        if self.crash == "bug":
            raise ZeroDivisionError("the [bug]")
        if self.crash == "user":
            raise BadInput("the file is [odd]", "mend it")
        if self.crash == "stop":
            raise KeyboardInterrupt
        words = [word for word in file.read_text().split() if len(word) >= self.least]
        assert run is not None
        run.metric(words=len(words))
        rows = [{"item_id": str(n), "model": "", "letters": len(word)} for n, word in enumerate(words)]
        return Scores.of(rows, mean=sum(map(len, words)) / len(words), said="[a note]")


class Longest(Analysis):
    """Find the longest word."""

    ask: int = 1
    """Times."""

    def __call__(self, scores: Scores, run: Run | None = None) -> Scores:
        """Find it."""
        CALLS.append("longest")
        if self.ask > 5:
            raise KeyboardInterrupt
        assert run is not None
        run.metric(letters=max(row["letters"] for row in scores.rows()), words=1)
        return scores


class Halve(Compressor):
    """Halve a text, which stands for a model."""

    needs: ClassVar[tuple[str, ...]] = ()

    def __call__(self, model: Model, run: Run | None = None) -> Model:  # noqa: F821
        """Halve it."""
        CALLS.append("halve")
        return model[: len(model) // 2]

    def estimate(self, goods: dict[str, str]) -> dict[str, Any]:
        """What it costs."""
        return {"minutes": 2, "reads": goods["model"]}


@pytest.fixture(autouse=True)
def methods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three made-up methods, in a catalogue of their own, with light goods and a light report; an empty folder."""
    CALLS.clear()
    module = types.ModuleType("burnish.evaluate.made_up", "Made up.\n\n## How it works\n\nIt counts.")
    for cls in (Count, Longest, Halve):
        setattr(module, cls.__name__, cls)
        monkeypatch.setattr(cls, "__module__", module.__name__)
        monkeypatch.setitem(catalogue.METHODS, cls.__name__.lower(), f"{module.__name__}:{cls.__name__}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    light = types.ModuleType("light_parts")
    vars(light).update(
        read=lambda source, **options: Path(source).read_text(), write=_write, check=_check, export=_export
    )
    vars(light).update(render=_render, compare=_compare)
    monkeypatch.setitem(sys.modules, light.__name__, light)
    monkeypatch.setitem(
        catalogue.GOODS, "Model", catalogue.GoodKind("light_parts:read", "light_parts:write", "artifact")
    )
    stand_ins = {
        "burnish.report:render": "light_parts:render",
        "burnish.models:check_export": "light_parts:check",
        "burnish.models:export": "light_parts:export",
        "burnish.models.reload:compare": "light_parts:compare",
    }
    real = catalogue.reference
    monkeypatch.setattr(catalogue, "reference", lambda target: real(stand_ins.get(target, target)))
    monkeypatch.chdir(tmp_path)
    Path("t.txt").write_text("one three seventeen")


def _write(text: str, path: Path) -> None:
    if "unsaveable" in text:
        raise Unsupported("this text", "it says so")
    path.write_text(text)


def _check(method: Any, format: str) -> None:
    if format == "gptq":
        raise Unsupported("gptq", "this is no model")


def _export(text: str, path: Path, format: str) -> None:
    path.write_text(f"{format}: {text}")


def _render(folders: list[Path], out: Path) -> Path:
    out.write_text("<html>")
    return out


@pytest.fixture
def burnish(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs a command line in this process: exit code, standard output, standard error."""

    def call(*words: str) -> tuple[int, str, str]:
        code = main.run(words)
        return code, *capsys.readouterr()

    return call


Burnish = Callable[..., tuple[int, str, str]]


def _compare(folder: Path, loader: str = "auto") -> types.SimpleNamespace:
    """Every made-up export is found again."""
    return types.SimpleNamespace(
        loader="made-up", logits=0.0, kl=0.0, require=lambda folder: None, said=lambda: f"{folder.name} is found again"
    )
