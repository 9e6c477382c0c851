"""The program in processes of its own: light help, exit codes, stopping and going on, plug-ins from other packages."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

HEAVY = ("torch", "transformers", "datasets")

PLUGIN = '''
"""Count lines, slowly if asked.

## How it works

One line after another.
"""

from __future__ import annotations

import time
from pathlib import Path

from burnish.core.run import Run
from burnish.core.shapes import Analysis
from burnish.data.scores import Scores


class Lines(Analysis):
    """Count the letters of every line."""

    wait: float = 0.0
    """Seconds that a line takes."""
    times: int = 1
    """How often a letter counts."""
    crash: bool = False
    """Whether to fail."""

    def __call__(self, file: Path, run: Run) -> Scores:
        """Count."""
        if self.crash:
            raise ZeroDivisionError("a bug")

        def work(line: str) -> int:
            with (file.parent / "worked").open("a") as seen:
                seen.write(line + "\\n")
            time.sleep(self.wait)
            return len(line) * self.times

        counts = list(run.map(work, file.read_text().splitlines(), step="count"))
        run.metric(letters=sum(counts))
        return Scores.of([{"item_id": str(n), "model": "", "letters": count} for n, count in enumerate(counts)])
'''

POINTS = """
[burnish.evaluate]
lines = burnish_lines:Lines
broken = burnish_lines_gone:Lines

[burnish.compress]
rtn = burnish_lines:Lines
"""

Burnish = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment in which a package with a plug-in is installed."""
    site = tmp_path / "site"
    info = site / "burnish_lines-0.1.dist-info"
    info.mkdir(parents=True)
    (site / "burnish_lines.py").write_text(PLUGIN)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: burnish-lines\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text(POINTS)
    return {**os.environ, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1", "COLUMNS": "160"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the program is started; it holds a text of five lines."""
    path = tmp_path / "work"
    path.mkdir()
    (path / "t.txt").write_text("a\nbb\nccc\ndddd\neeeee\n")
    return path


@pytest.fixture
def burnish(folder: Path, environment: dict[str, str]) -> Burnish:
    """Runs ``python -m burnish`` to its end."""

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "burnish", *words]
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)

    return call


@pytest.mark.parametrize(
    "words",
    ["--help", "compress --help", "evaluate --help", "run --help", "claim --help", "list", "runs", "recipe list"],
)
def test_looking_imports_nothing_heavy(words: str, folder: Path, environment: dict[str, str]) -> None:
    code = (
        "import sys; from burnish.cli import main; code = main.run(sys.argv[1:]);"
        f"print(code, [m for m in {HEAVY} if m in sys.modules])"
    )
    command = [sys.executable, "-c", code, *words.split()]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines()[-1] == "0 []", done.stderr


def test_top_help_names_every_verb_and_command(burnish: Burnish) -> None:
    done = burnish("--help")
    assert done.returncode == 0
    words = {line.split()[1] for line in done.stdout.splitlines() if line.startswith("│")}
    assert words >= {
        *("compress", "serve", "train", "synthesize", "search", "evaluate", "modalities"),
        *("run", "recipe", "claim", "claims", "list", "show", "runs", "report", "models", "generate", "demo", "new"),
        *("env", "server"),
    }


def test_a_plug_in_runs_like_a_method_of_burnishs_own(burnish: Burnish, folder: Path) -> None:
    done = burnish("evaluate", "lines", "t.txt", "--times", "2")
    assert done.returncode == 0, done.stderr
    assert "run folder: runs/lines-t.txt" in done.stderr
    run = folder / "runs" / "lines-t.txt"
    state = json.loads((run / "run.json").read_text())
    assert (state["status"], state["metrics"]) == ("done", {"letters": 30})
    assert "<html" in (run / "report.html").read_text()
    again = burnish("evaluate", "lines", "t.txt", "--times", "2")
    assert "finished before" in again.stdout
    assert len((folder / "worked").read_text().splitlines()) == 5
    report = burnish("report", "runs/lines-t.txt", "--out", "r.html")
    assert report.stdout == "r.html\n"
    assert json.loads(burnish("runs", "--json").stdout)[0]["use"] == "lines"


def test_broken_and_clashing_plug_ins_are_listed_with_their_faults(burnish: Burnish) -> None:
    done = burnish("list")
    assert done.returncode == 0
    assert "the module burnish_lines_gone is not there" in done.stdout
    assert "the name is taken by burnish.compress.rtn:RTN" in done.stdout
    asked = burnish("evaluate", "broken", "t.txt")
    assert asked.returncode == 2
    assert "'broken' of the package burnish-lines cannot be used" in asked.stderr


def test_two_bad_fields_and_an_unknown_flag_are_said_at_once(burnish: Burnish, folder: Path) -> None:
    done = burnish("evaluate", "lines", "t.txt", "--wait", "x", "--times", "y", "--tims", "3")
    assert done.returncode == 2
    assert done.stdout == ""
    for text in ("3 faults", "--wait: ", "--times: ", "--tims: there is no such flag; did you mean --times?"):
        assert text in done.stderr
    assert not (folder / "runs").exists()


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        ("--version", 0, ""),
        ("evaluate lines t.txt --crash", 1, "ZeroDivisionError: a bug"),
        ("evaluate lins t.txt", 2, "did you mean lines"),
        ("show lins", 2, "did you mean lines"),
        ("comprss", 2, "did you mean compress?"),
        ("serve m", 2, "is not supported"),
        ("server m", 2, "serving methods"),
    ],
)
def test_exit_codes(words: str, code: int, text: str, burnish: Burnish) -> None:
    done = burnish(*words.split())
    assert done.returncode == code, done.stderr
    assert text in done.stderr
    assert ("Traceback" in done.stderr) == (code == 1)


@pytest.mark.skipif(os.name == "nt", reason="signals are sent otherwise there")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_goes_on_where_it_stopped(
    number: signal.Signals, folder: Path, environment: dict[str, str], burnish: Burnish
) -> None:
    command = [sys.executable, "-m", "burnish", "evaluate", "lines", "t.txt", "--wait", "0.5"]
    with subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True) as process:
        journal = folder / "runs" / "lines-t.txt" / "count.jsonl"
        while not (journal.exists() and journal.read_text().count("\n") >= 2):
            assert process.poll() is None, process.stderr
            time.sleep(0.02)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.endswith("stopped; the same command goes on where it stopped\n")
    state = json.loads((journal.parent / "run.json").read_text())
    assert state["status"] == "stopped"
    done = burnish("evaluate", "lines", "t.txt", "--wait", "0.5")
    assert done.returncode == 0, done.stderr
    worked = (folder / "worked").read_text().splitlines()
    assert worked[:2] == ["a", "bb"]
    assert worked.count("a") == worked.count("bb") == 1
    assert json.loads((journal.parent / "run.json").read_text())["metrics"] == {"letters": 15}


def test_a_reader_that_goes_away_is_no_error(folder: Path, environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "burnish", "list"]
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait(timeout=60) == 0


def test_a_new_package_is_found_once_it_is_installed(
    burnish: Burnish, folder: Path, environment: dict[str, str]
) -> None:
    assert burnish("new", "synthesize", "long-texts").returncode == 0
    made = folder / "burnish-long-texts"
    info = made / "src" / "burnish_long_texts-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: burnish-long-texts\nVersion: 0.1.0\n")
    points = (made / "pyproject.toml").read_text().partition("[project.entry-points.")[2]
    (info / "entry_points.txt").write_text("[" + points.replace('"', ""))
    environment["PYTHONPATH"] = str(made / "src")
    rows = {row["name"]: row for row in json.loads(burnish("list", "--json").stdout)}
    assert rows["long-texts"]["fault"] == ""
    assert rows["long-texts"]["summary"] == "Keep the texts that are long enough."
    done = burnish("synthesize", "long-texts", "--help")
    assert "--words int" in done.stdout
