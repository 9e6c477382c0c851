"""A package that `burnish new` starts works as it stands: its own test passes, and burnish lists, runs and reports it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def call(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs Python on a module, with the new package where an installation would put it."""

    def run(module: str, *words: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site"), "OMP_NUM_THREADS": "1", "COLUMNS": "160"}
        command = [sys.executable, "-m", module, *words]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240, check=False
        )

    return run


def install(package: Path, site: Path) -> None:
    """What pip does with it, without building: code and entry points."""
    project = tomllib.loads((package / "pyproject.toml").read_text())["project"]
    (module,) = (package / "src").iterdir()
    info = site / f"{module.name}-{project['version']}.dist-info"
    info.mkdir(parents=True)
    (site / module.name).symlink_to(module)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    lines = []
    for group, points in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {target}" for name, target in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("verb", "words"),
    [
        ("compress", ["tiny", "--digits", "4", "--no-reload"]),
        ("evaluate", ["t.jsonl", "--letters", "4"]),
        ("synthesize", ["t.jsonl", "--words", "2"]),
    ],
)
def test_a_new_package_is_admitted_listed_run_and_reported(verb: str, words: list[str], call, tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"text": "three long words"}\n{"text": "short"}\n')
    made = call("burnish", "new", verb, "my-method")
    assert made.returncode == 0, made.stderr
    install(tmp_path / "burnish-my-method", tmp_path / "site")
    listed = call("burnish", "list")
    assert "my-method" in listed.stdout, listed.stderr
    tested = call("pytest", "-q", "-p", "no:cacheprovider", "burnish-my-method")
    assert tested.returncode == 0, tested.stdout
    assert "1 passed" in tested.stdout
    done = call("burnish", verb, "my-method", *words, "--out", "r")
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "r/run.json").read_text())["status"] == "done"
    assert "<html" in (tmp_path / "r/report.html").read_text()
    assert call("burnish", "report", "r", "--out", "again.html").returncode == 0


def test_a_method_that_breaks_the_contract_is_told_so(call, tmp_path: Path) -> None:
    """The admission test can fail: a method that changes its input is caught."""
    call("burnish", "new", "compress", "my-method")
    install(tmp_path / "burnish-my-method", tmp_path / "site")
    path = tmp_path / "burnish-my-method/src/burnish_my_method/__init__.py"
    path.write_text(path.read_text().replace("model = model.fork()", "model = model"))
    tested = call("pytest", "-q", "-p", "no:cacheprovider", "burnish-my-method")
    assert tested.returncode == 1
    assert "fails" in tested.stdout
