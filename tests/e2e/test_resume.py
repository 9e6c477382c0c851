"""A compression that is killed goes on where it was: no finished block is done again, and the weights are the same."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from burnish.models import load, weight_hash


def command(out: Path) -> list[str]:
    settings = ["--bits", "3", "--group", "-1", "--samples", "16", "--length", "256", "--threads", "1"]
    return [sys.executable, "-m", "burnish", "compress", "boa", "tiny", "--out", str(out), *settings]


def links(out: Path) -> list[str]:
    path = out / "events.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")] if path.exists() else []
    return [row["key"] for row in rows if row["kind"] == "link"]


def test_a_killed_compression_goes_on(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    subprocess.run(command(whole), check=True, capture_output=True)
    process = subprocess.Popen(command(killed), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not links(killed):
        assert process.poll() is None, "it ended before it could be killed"
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (killed / "artifact").exists()
    before = links(killed)
    subprocess.run(command(killed), check=True, capture_output=True)
    after = links(killed)
    assert after[: len(before)] == before
    assert len(after) == len(set(after)) == 4
    assert weight_hash(load(whole / "artifact", device="cpu")) == weight_hash(load(killed / "artifact", device="cpu"))
    assert json.loads((killed / "run.json").read_text())["status"] == "done"


def test_ctrl_c_says_how_to_go_on(tmp_path: Path) -> None:
    process = subprocess.Popen(command(tmp_path / "r"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while not links(tmp_path / "r"):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert "same command" in said
    assert json.loads((tmp_path / "r/run.json").read_text())["status"] == "stopped"


def test_the_settings_of_the_paper_work_as_they_stand(tmp_path: Path) -> None:
    """The built-in text is shorter than 128 windows of 2048 tokens: what fits is taken, and said."""
    out = tmp_path / "r"
    subprocess.run(
        [sys.executable, "-m", "burnish", "compress", "gptq", "tiny", "--out", str(out), "--no-reload"], check=True
    )
    metrics = json.loads((out / "run.json").read_text())["metrics"]
    assert 1 < metrics["calibration_windows"] < 128
    assert metrics["calibration_tokens"] == 2048 * metrics["calibration_windows"]
