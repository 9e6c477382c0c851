"""Runs: every unit once ever, whatever kills the process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from burnish.core.errors import BadInput
from burnish.core.journal import Journal
from burnish.core.run import Run, slug


def test_map_does_each_unit_once_ever(tmp_path) -> None:
    done: list[int] = []

    def work(n: int) -> int:
        done.append(n)
        if n == 3 and len(done) == 3:
            raise KeyboardInterrupt
        return n * n

    with pytest.raises(KeyboardInterrupt), Run(tmp_path / "r") as run:
        list(run.map(work, [1, 2, 3, 4], step="squares"))
    assert json.loads((tmp_path / "r/run.json").read_text())["status"] == "stopped"
    with Run(tmp_path / "r") as run:
        assert list(run.map(work, [1, 2, 3, 4], step="squares")) == [1, 4, 9, 16]
    assert done == [1, 2, 3, 3, 4]
    assert json.loads((tmp_path / "r/run.json").read_text())["status"] == "done"


def test_map_over_processes_keeps_the_order(tmp_path) -> None:
    with Run(tmp_path / "r") as run:
        assert list(run.map(abs, [-3, 1, -2, -3], step="abs", jobs=2)) == [3, 1, 2, 3]


def test_a_torn_last_line_is_dropped_and_its_unit_done_again(tmp_path) -> None:
    path = tmp_path / "units.jsonl"
    path.write_text('{"key": "a", "value": 1}\n{"key": "b", "val')
    journal = Journal(path)
    assert "a" in journal
    assert "b" not in journal
    journal.add("b", 2)
    assert Journal(path)["b"] == 2
    assert len(path.read_text().splitlines()) == 2


def test_a_damaged_line_in_the_middle_is_named(tmp_path) -> None:
    path = tmp_path / "units.jsonl"
    path.write_text('{"key": "a", "value": 1}\nnonsense\n{"key": "b", "value": 2}\n')
    with pytest.raises(BadInput, match="line 2 is damaged"):
        Journal(path)


class Link:
    """A unit of sequential work: adds its number to a running total."""

    def __init__(self, number: int, total: list[float]) -> None:
        self.number, self.total = number, total

    @property
    def key(self) -> str:
        return f"link {self.number}"

    def state(self) -> dict[str, torch.Tensor]:
        return {"total": torch.tensor(self.total[0])}

    def restore(self, state) -> None:
        self.total[0] = float(state["total"])


def test_chain_restores_what_is_done_and_goes_on(tmp_path) -> None:
    def walk(run: Run, stop: int | None) -> tuple[float, list[int]]:
        total, worked = [0.0], []
        for link in run.chain((Link(n, total) for n in range(5)), step="sum"):
            if link.number == stop:
                raise KeyboardInterrupt
            total[0] += link.number
            worked.append(link.number)
        return total[0], worked

    with pytest.raises(KeyboardInterrupt), Run(tmp_path / "r") as run:
        walk(run, stop=3)
    with Run(tmp_path / "r") as run:
        assert walk(run, stop=None) == (10.0, [3, 4])


def test_a_torn_blob_is_made_again(tmp_path) -> None:
    def walk(run: Run) -> tuple[float, list[int]]:
        total, worked = [0.0], []
        for link in run.chain((Link(n, total) for n in range(4)), step="sum"):
            total[0] += link.number
            worked.append(link.number)
        return total[0], worked

    with Run(tmp_path / "r") as run:
        walk(run)
    torn = sorted((tmp_path / "r" / "blobs" / "sum").iterdir())[1]
    torn.write_bytes(torn.read_bytes()[:-2])
    with Run(tmp_path / "r") as run:
        assert walk(run) == (6.0, [1])
        assert [event["file"] for event in run.events("damaged")] == [torn.name]


def test_a_kill_in_the_middle_loses_at_most_one_unit(tmp_path) -> None:
    script = textwrap.dedent("""
        import os, signal, sys
        from burnish.core.run import Run
        def work(n):
            if n == 5 and not os.path.exists(sys.argv[1] + "/killed"):
                open(sys.argv[1] + "/killed", "w").close()
                os.kill(os.getpid(), signal.SIGKILL)
            with open(sys.argv[1] + "/worked", "a") as out:
                out.write(f"{n} ")
            return n
        with Run(sys.argv[1] + "/run") as run:
            print(sum(run.map(work, range(8), step="units")))
    """)
    command = [sys.executable, "-c", script, str(tmp_path)]
    assert subprocess.run(command, check=False, env=os.environ).returncode == -signal.SIGKILL
    again = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ)
    assert again.stdout.strip() == "28"
    assert (tmp_path / "worked").read_text().split() == [str(n) for n in range(8)]


def test_other_settings_are_refused_with_each_difference(tmp_path) -> None:
    with Run(tmp_path / "r", {"bits": 3, "model": "a"}) as run:
        run.once("figure", lambda: 1)
    with pytest.raises(BadInput, match="holds a run with other settings") as caught:
        Run(tmp_path / "r", {"bits": 2, "model": "a"}, seed=1)
    assert "bits: 3 there, 2 now" in str(caught.value)
    assert "seed: 0 there, 1 now" in str(caught.value)
    assert "model" not in caught.value.problem.split("settings")[1]


def failing(folder: Path, work: Callable[[Run], object]) -> None:
    with Run(folder, {"bits": 5}) as run:
        work(run)
        raise BadInput("wrong")


def test_a_first_try_that_finished_nothing_gives_way_to_the_corrected_one(tmp_path) -> None:
    with pytest.raises(BadInput, match="wrong"):
        failing(tmp_path / "r", lambda run: run.event("began"))
    with Run(tmp_path / "r", {"bits": 4}, seed=2) as run:
        assert run.events() == []
    assert json.loads((tmp_path / "r" / "run.json").read_text())["request"] == {"bits": 4}
    assert tomllib.loads((tmp_path / "r" / "request.toml").read_text()) == {"bits": 4}
    with pytest.raises(BadInput, match="other settings"):  # done, though it kept nothing
        Run(tmp_path / "r", {"bits": 3}, seed=2)


def test_a_first_try_with_one_unit_done_does_not_give_way(tmp_path) -> None:
    with pytest.raises(BadInput, match="wrong"):
        failing(tmp_path / "r", lambda run: run.once("figure", lambda: 1))
    with pytest.raises(BadInput, match="other settings"):
        Run(tmp_path / "r", {"bits": 4})


def test_a_folder_of_something_else_is_left_alone(tmp_path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(BadInput, match="holds no run"):
        Run(tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    with pytest.raises(BadInput, match="is a file"):
        Run(tmp_path / "notes.txt")


def test_one_process_at_a_time(tmp_path) -> None:
    first = Run(tmp_path / "r")
    with pytest.raises(BadInput, match="another process"):
        Run(tmp_path / "r")
    first.close()
    Run(tmp_path / "r").close()


def test_failure_is_recorded_and_raised(tmp_path) -> None:
    with pytest.raises(ValueError, match="no"), Run(tmp_path / "r"):
        raise ValueError("no")
    state = json.loads((tmp_path / "r/run.json").read_text())
    assert (state["status"], state["error"]) == ("failed", "ValueError: no")


def test_random_numbers_follow_the_seed_and_the_name(tmp_path) -> None:
    one, same, other = Run(tmp_path / "a", seed=1), Run(tmp_path / "b", seed=1), Run(tmp_path / "c", seed=2)
    draws = [run.rng("x").random() for run in (one, same, other)]
    assert draws[0] == draws[1] != draws[2]
    assert one.rng("x").random() != one.rng("y").random()
    for run in (one, same, other):
        run.close()


def test_names_become_harmless_files() -> None:
    assert slug("../../etc/passwd") == "etc-passwd"
    assert slug("...") == "x"
    assert len(slug("a" * 500)) <= 80
    assert slug("a" * 500) != slug("a" * 501)


def test_metrics_items_and_events_are_on_disk(tmp_path) -> None:
    import pyarrow.parquet as pq

    with Run(tmp_path / "r") as run:
        run.metric(ppl=3.5)
        run.items([{"item_id": "0", "nll": 1.0}])
        run.event("note", text="ü")
    state = json.loads((tmp_path / "r/run.json").read_text())
    assert state["metrics"] == {"ppl": 3.5}
    assert state["environment"]["python"]
    assert pq.read_table(tmp_path / "r/items.parquet").num_rows == 1
    assert run.events("note")[0]["text"] == "ü"
