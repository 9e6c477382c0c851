"""DevAI's verdicts: what is counted, against the paper's figures and hand-made cases; what is wrong with files is listed."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from burnish.core.errors import BadInput, UnknownName
from burnish.core.run import Run
from burnish.data.devai import circles, closure, dependent, read_judgments, read_tasks
from burnish.data.devai_check import inconsistencies
from burnish.evaluate.devai.report import Report, kappa, matthews

ARCHIVE = Path(os.environ.get("BURNISH_DATA", "/nowhere")) / "devai" / "devai_instances_and_judgments.tar.gz"
needs_archive = pytest.mark.skipif(not ARCHIVE.exists(), reason="needs devai/ in the folder BURNISH_DATA")


# -- the published verdicts -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    with Run(tmp_path_factory.mktemp("devai") / "run") as run:
        table = Report()(ARCHIVE, run=run)
    return table, run


def _value(table, agent: str, measure: str) -> float:
    return next(row["estimate"] for row in table.rows() if (row["agent"], row["measure"]) == (agent, measure))


@needs_archive
@pytest.mark.parametrize(
    ("agent", "human_d", "judge_i", "judge_d"),
    [("MetaGPT", 6.55, 23.50, 6.01), ("GPT-Pilot", 28.96, 46.45, 30.60), ("OpenHands", 28.68, 43.44, 28.14)],
)
def test_the_papers_figures_follow_from_the_rows(published, agent, human_d, judge_i, judge_d) -> None:
    table, _ = published
    assert _value(table, agent, "n") == 366
    assert _value(table, agent, "tasks") == 55
    assert 100 * _value(table, agent, "reference_D_direct") == pytest.approx(human_d, abs=0.011)
    assert 100 * _value(table, agent, "judge_I") == pytest.approx(judge_i, abs=0.011)
    assert 100 * _value(table, agent, "judge_D_direct") == pytest.approx(judge_d, abs=0.011)
    assert _value(table, agent, "reference_D_transitive") < _value(table, agent, "reference_D_direct")
    counts = [_value(table, agent, name) for name in ("tp", "fp", "fn", "tn")]
    assert sum(counts) == 366
    assert _value(table, agent, "alignment") == pytest.approx((counts[0] + counts[3]) / 366)


@needs_archive
def test_what_the_files_do_not_give_is_marked(published) -> None:
    table, run = published
    marked = {(row["agent"], row["measure"]) for row in table.rows() if row["differs"]}
    assert marked == {("GPT-Pilot", "reference_I")}
    assert run.metrics["alignment"]["OpenHands"]["estimate"] == pytest.approx(0.9016, abs=1e-4)
    assert len(run.metrics["inconsistencies"]) == len(table.notes["inconsistencies"])


@needs_archive
def test_disagreements_of_the_files_are_listed() -> None:
    found = {(one.task[:2], one.field, one.requirement) for one in inconsistencies(read_judgments(ARCHIVE))}
    assert ("31", "satisfied_all_requirements", None) in found
    assert ("52", "requirement", 4) in found
    assert ("45", "prerequisites", None) in found
    assert ("13", "criteria", 2) in found


@needs_archive
def test_the_instances_are_read_as_tasks() -> None:
    tasks = read_tasks(ARCHIVE)
    assert len(tasks) == 55
    assert sum(len(task.requirements) for task in tasks) == 365
    assert sum(len(task.preferences) for task in tasks) == 125


@needs_archive
@pytest.mark.parametrize("method", ["bayes", "miller", "inspect-t", "cluster-bootstrap"])
def test_intervals_of_other_kinds_hold_the_estimate(method) -> None:
    rows = Report(interval=method)(ARCHIVE).rows()
    for row in rows:
        if row["low"] is not None:
            assert row["low"] <= row["estimate"] <= row["high"]


# -- hand-made ones ---------------------------------------------------------------------------------------------------


def task(name: str, verdicts: list[bool | None], prerequisites: list[list[int]] | None = None, **more) -> dict:
    prerequisites = prerequisites or [[] for _ in verdicts]
    return {
        "name": name,
        "query": "q",
        "requirements": [
            {
                "requirement_id": n,
                "prerequisites": prerequisites[n],
                "criteria": f"c{n}",
                "category": "x",
                "satisfied": v,
            }
            for n, v in enumerate(verdicts)
        ],
        "preferences": [],
        **more,
    }


def write(
    folder: Path, human: dict[str, dict], judge: dict[str, dict], instances: dict[str, dict] | None = None
) -> Path:
    for place, files in (
        ("judgment/A/human_as_a_judge", human),
        ("judgment/A/agent_as_a_judge/gray_box", judge),
        ("devai/instances", instances or {}),
    ):
        (folder / place).mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / place / f"{name}.json").write_text(json.dumps(content))
    return folder


def test_unscored_verdicts_are_counted_and_not_guessed(tmp_path) -> None:
    place = write(
        tmp_path,
        {"t1": task("t1", [True, False, True]), "t2": task("t2", [True])},
        {"t1": task("t1", [True, None, False]), "t2": task("t2", [True])},
    )
    found = {row["measure"]: row["estimate"] for row in Report()(place).rows()}
    assert (found["n"], found["unscored"]) == (4, 1)
    assert found["alignment"] == pytest.approx(2 / 4), "as `devai judge` counts: leaving out is not agreeing"
    assert [found[name] for name in ("tp", "fp", "fn", "tn")] == [2, 0, 1, 0]
    assert found["judge_solved"] == 1


def test_flags_that_rows_belie_are_listed(tmp_path) -> None:
    human = {"t1": task("t1", [True, False], satisfied_all_requirements=True), "t2": task("t2", [True])}
    place = write(tmp_path, human, {"t2": task("t2", [True])}, {"t1": task("t1", [None, None, None])})
    found = {(one.task, one.field) for one in inconsistencies(read_judgments(place))}
    assert {("t1", "satisfied_all_requirements"), ("t1", "requirement"), ("t1", "file"), ("t2", "file")} <= found


@pytest.mark.parametrize(
    "content",
    ["{", "[]", '{"requirements": []}', '{"requirements": [{"requirement_id": "x", "criteria": "c"}]}',
     '{"requirements": [{"requirement_id": 0, "criteria": "c", "satisfied": "yes"}]}',
     '{"requirements": [{"requirement_id": 0, "criteria": "c"}, {"requirement_id": 0, "criteria": "c"}]}'],
)  # fmt: skip
def test_broken_files_are_refused_all_at_once(tmp_path, content) -> None:
    place = write(tmp_path, {"t1": task("t1", [True])}, {})
    for name in ("u1", "u2"):
        (place / "judgment/A/human_as_a_judge" / f"{name}.json").write_text(content)
    with pytest.raises(BadInput) as error:
        Report()(place)
    assert "u1" in str(error.value)
    assert "u2" in str(error.value)


def test_a_reference_that_is_not_there_is_refused_with_the_names(tmp_path) -> None:
    place = write(tmp_path, {"t1": task("t1", [True])}, {"t1": task("t1", [True])})
    with pytest.raises(UnknownName, match="human_as_a_judge"):
        Report(reference="human_as_judge")(place)
    with pytest.raises(BadInput, match="no verdicts"):
        Report()(tmp_path / "judgment" / "A" / "human_as_a_judge")


def test_tasks_with_absent_prerequisites_are_refused_and_links_out_are_not_read(tmp_path) -> None:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "a.json").write_text(json.dumps(task("a", [None, None], [[], [7]])))
    with pytest.raises(BadInput, match="builds on 7"):
        read_tasks(tmp_path / "tasks")
    outside = tmp_path / "b.json"
    outside.write_text(json.dumps(task("b", [None])))
    (tmp_path / "tasks" / "a.json").write_text(json.dumps(task("a", [None, None], [[], [0]])))
    (tmp_path / "tasks" / "b.json").symlink_to(outside)
    assert [one.name for one in read_tasks(tmp_path / "tasks")] == ["a"]


def test_archives_are_read_without_unpacking(tmp_path) -> None:
    write(tmp_path / "x", {"t1": task("t1", [True])}, {"t1": task("t1", [False])})
    with tarfile.open(tmp_path / "x.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "x" / "judgment", "judgment")
        evil = tarfile.TarInfo("../../judgment/B/human_as_a_judge/t9.json")
        raw = json.dumps(task("t9", [True])).encode()
        evil.size = len(raw)
        archive.addfile(evil, io.BytesIO(raw))
    found = read_judgments(tmp_path / "x.tar.gz")
    assert ("A", "human_as_a_judge") in found.verdicts
    assert not (tmp_path.parent / "judgment").exists()


def test_the_command_prints_figures_and_faults_and_the_page_lists_them(tmp_path) -> None:
    human = {"t1": task("t1", [True, False], satisfied_all_requirements=True), "t2": task("t2", [False, True])}
    place = write(tmp_path / "x", human, {"t1": task("t1", [True, True]), "t2": task("t2", [False, True])})
    command = [sys.executable, "-m", "burnish", "evaluate", "devai", "report"]
    done = subprocess.run(
        [*command, str(place), "--out", str(tmp_path / "run")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "alignment.A" in done.stdout
    assert "0.75 [" in done.stdout
    assert "satisfied_all_requirements is 'True', not 'False'" in " ".join(done.stdout.split())
    assert "satisfied_all_requirements" in (tmp_path / "run" / "report.html").read_text()
    refused = subprocess.run(
        [*command, str(tmp_path / "nothing"), "--level", "2"], capture_output=True, text=True, check=False
    )
    assert refused.returncode == 2
    assert "--level" in refused.stderr
    assert "nothing" in refused.stderr


def test_a_single_task_has_no_interval_over_tasks_to_speak_of(tmp_path) -> None:
    place = write(tmp_path, {"t": task("t", [True, False])}, {"t": task("t", [True, False])})
    found = {row["measure"]: row for row in Report()(place).rows()}
    assert found["alignment"]["method"] == "bayes"
    assert "one cluster" in found["alignment"]["note"]
    assert found["kappa"]["estimate"] is None


# -- the graph --------------------------------------------------------------------------------------------------------


def test_dependent_scores_by_hand() -> None:
    needs = {0: (), 1: (0,), 2: (1,), 3: (2, 0)}
    assert dependent({0: False, 1: True, 2: True, 3: True}, needs) == {0: False, 1: False, 2: True, 3: False}
    assert dependent({0: False, 1: True, 2: True, 3: True}, needs, transitive=True)[2] is False
    assert dependent({0: None, 1: True, 2: False, 3: True}, needs) == {0: None, 1: None, 2: False, 3: False}
    assert dependent({0: True}, {0: (9,)}) == {0: None}


def test_circles_are_found_and_do_not_hang() -> None:
    needs = {0: (1,), 1: (0,), 2: (0,)}
    assert circles(needs) == [0, 1]
    assert closure(2, needs) == {0, 1, 2}
    assert dependent({0: True, 1: False, 2: True}, needs, transitive=True) == {0: False, 1: False, 2: False}


graphs = st.integers(1, 7).flatmap(
    lambda n: st.tuples(
        st.lists(st.sampled_from([True, False, None]), min_size=n, max_size=n),
        st.lists(st.lists(st.integers(0, n - 1), max_size=3), min_size=n, max_size=n),
    )
)


@given(graphs)
def test_dependent_scores_are_ordered(graph) -> None:
    verdicts, needs = dict(enumerate(graph[0])), dict(enumerate(map(tuple, graph[1])))
    direct, whole = dependent(verdicts, needs), dependent(verdicts, needs, transitive=True)
    for number in verdicts:
        if whole[number] is True:
            assert direct[number] is True
        if direct[number] is True:
            assert verdicts[number] is True
        if direct[number] is False:
            assert whole[number] is False
        expected = all(verdicts[one] is True for one in closure(number, needs))
        assert (whole[number] is True) == expected


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=4, max_size=40))
def test_kappa_and_matthews_against_their_definitions(pairs) -> None:
    human, judge = np.array(pairs, dtype=float).T
    if len({*human}) < 2 or len({*judge}) < 2:
        return
    means = np.array([(human * judge).mean(), human.mean(), judge.mean()])
    assert matthews(means) == pytest.approx(stats.pearsonr(human, judge).statistic, abs=1e-9)
    observed = (human == judge).mean()
    chance = human.mean() * judge.mean() + (1 - human.mean()) * (1 - judge.mean())
    assert kappa(means) == pytest.approx((observed - chance) / (1 - chance))
