"""Readers of the logs of other tools: what they find, and what they refuse."""

from __future__ import annotations

import gzip
import json
import os
import pickle
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_logs import DEFLATE, ZSTANDARD, csv, header, inspect_eval, inspect_json, line, lm_eval, sample, write_zip

from burnish.core.errors import BadInput
from burnish.data.logs import archive, read_log
from burnish.data.logs.log import natural, score
from burnish.data.logs.stream import JsonFile

DATA = os.environ.get("BURNISH_DATA")
real = pytest.mark.skipif(not DATA, reason="BURNISH_DATA is not set: the published logs are not here")


def logs(name: str) -> Path:
    assert DATA is not None
    return Path(DATA) / name


def said(scores) -> str:
    return " | ".join(scores.notes["warnings"])


# -- Inspect ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [DEFLATE, ZSTANDARD])
@pytest.mark.parametrize("frames", [1, 3])
def test_eval_zip_is_read_whatever_it_is_packed_with(tmp_path, method, frames) -> None:
    rows = [sample(number, "CI"[number % 2]) for number in range(40)]
    scores = read_log(inspect_eval(tmp_path / "a.eval", rows, method, frames))
    assert scores.column("match").tolist() == [1.0, 0.0] * 20
    assert scores.notes["format"] == "Inspect log"


def test_json_and_eval_of_one_run_give_the_same_scores(tmp_path) -> None:
    rows = [sample(3, "C"), sample(1, "P"), sample(2, "N"), sample(1, True, epoch=2), sample(10, 0.25)]
    one, other = read_log(inspect_json(tmp_path / "a.json", rows)), read_log(inspect_eval(tmp_path / "a.eval", rows))
    assert one.rows() == other.rows()
    assert [(row["item_id"], row["epoch"], row["match"]) for row in one.rows()] == [
        ("1", 1, 0.5),
        ("1", 2, 1.0),
        ("2", 1, 0.0),
        ("3", 1, 1.0),
        ("10", 1, 0.25),
    ]


def test_what_is_no_score_is_unscored_and_never_zero(tmp_path) -> None:
    rows = [sample(1, "C"), sample(2, None), sample(3, float("nan")), sample(4, "maybe"), sample(5, float("inf"))]
    scores = read_log(inspect_json(tmp_path / "a.json", rows))
    assert [row["match"] for row in scores.rows()] == [1.0, None, None, None, None]
    assert "2 values are no scores and count as unscored: 'maybe', inf" in said(scores)


def test_scores_that_are_tables_become_one_measure_a_key(tmp_path) -> None:
    scores = read_log(inspect_json(tmp_path / "a.json", [sample(1, {"right": "C", "style": 0.5, "both": [1, 0]})]))
    assert {"match.right", "match.style", "match.both.0", "match.both.1"} <= set(scores.table.column_names)


def test_cut_off_run_is_read_from_its_journal_and_its_samples(tmp_path) -> None:
    entries = {
        "_journal/start.json": {"version": 2, "eval": header([])["eval"]},
        "_journal/summaries/1.json": [sample(1, "C"), sample(2, "I")],
        "samples/2_epoch_1.json": sample(2, "I"),
        "samples/3_epoch_1.json": sample(3, "C"),
        "samples/4_epoch_1/sample.json": sample(4, "C"),
    }
    path = write_zip(tmp_path / "a.eval", {name: json.dumps(one).encode() for name, one in entries.items()}, ZSTANDARD)
    scores = read_log(path)
    assert scores.column("match").tolist() == [1.0, 0.0, 1.0, 1.0]
    assert "the run was cut off" in said(scores)


def test_claimed_samples_that_are_not_there_are_not_counted(tmp_path) -> None:
    scores = read_log(inspect_json(tmp_path / "a.json", [sample(1, "I")], total_samples=79))
    assert len(scores) == 1
    assert "the header claims 79 samples and the file holds 1" in said(scores)
    with pytest.raises(BadInput, match="holds no scored items \\(its header claims 79"):
        read_log(inspect_json(tmp_path / "b.json", [], total_samples=79))


def test_identical_repeats_are_called_copies(tmp_path) -> None:
    same = {"scores": {"match": {"value": "C", "answer": "same"}}}
    cached = read_log(inspect_json(tmp_path / "a.json", [sample(1, "C", epoch, **same) for epoch in (1, 2, 3)]))
    fresh = read_log(inspect_json(tmp_path / "b.json", [sample(1, "C", epoch) for epoch in (1, 2, 3)]))
    assert "copies out of a cache" in said(cached)
    assert "cache" not in said(fresh)


def test_cluster_is_a_key_of_the_metadata(tmp_path) -> None:
    rows = [sample(number, "C", metadata={"topic": number % 2, "long": {"no": 1}}) for number in range(4)]
    path = inspect_json(tmp_path / "a.json", rows)
    assert [row["cluster"] for row in read_log(path, cluster="topic").rows()] == ["0", "1", "0", "1"]
    with pytest.raises(BadInput, match="no metadata 'subject'"):
        read_log(path, cluster="subject")


def test_zip_bombs_are_refused_and_nothing_is_written(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(archive, "LARGEST_ENTRY", 1 << 20)
    for method in (DEFLATE, ZSTANDARD):
        path = write_zip(tmp_path / "bomb.eval", {"header.json": b" " * (2 << 20)}, method)
        assert path.stat().st_size < 10_000
        with pytest.raises(BadInput, match="unpacks to more than is read"):
            read_log(path)
    assert [one.name for one in tmp_path.iterdir()] == ["bomb.eval"]


def test_lying_sizes_and_broken_zips_are_refused(tmp_path) -> None:
    whole = inspect_eval(tmp_path / "a.eval", [sample(1, "C")]).read_bytes()
    (tmp_path / "cut.eval").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BadInput, match="not a whole zip file"):
        read_log(tmp_path / "cut.eval")
    place = whole.index(b"header.json") + len("header.json") + 20
    (tmp_path / "bent.eval").write_bytes(whole[:place] + b"\xff\xff\xff" + whole[place + 3 :])
    with pytest.raises(BadInput, match=r"damaged|not JSON"):
        read_log(tmp_path / "bent.eval")
    with pytest.raises(BadInput, match=r"holds no header\.json"):
        read_log(write_zip(tmp_path / "other.zip", {"../evil.txt": b"x"}))
    assert not (tmp_path.parent / "evil.txt").exists()


# -- lm-eval ----------------------------------------------------------------------------------------------------


def test_filters_are_measures_and_a_document_counts_once(tmp_path) -> None:
    lines = [line(doc, doc % 2 * right, name) for doc in range(6) for name, right in (("strict", 0), ("flexible", 1))]
    scores = read_log(lm_eval(tmp_path / "samples_gsm8k_2026-01-01.jsonl", lines))
    assert len(scores) == 6
    assert scores.column("exact_match,strict").sum() == 0
    assert scores.column("exact_match,flexible").sum() == 3
    assert "12 lines are 6 documents through 2 filters" in said(scores)
    assert scores.notes["task"] == "gsm8k"


def test_repeated_lines_count_once_and_contradictions_are_refused(tmp_path) -> None:
    scores = read_log(lm_eval(tmp_path / "samples_a_2026.jsonl", [line(0, 1.0), line(0, 1.0), line(1, 0.0)]))
    assert len(scores) == 2
    assert "1 lines repeat" in said(scores)
    with pytest.raises(BadInput, match="line 2: document 0 occurs twice, with different exact_match"):
        read_log(lm_eval(tmp_path / "samples_a_2026.jsonl", [line(0, 1.0), line(0, 0.0)]))


def test_pieces_of_a_corpus_figure_are_no_scores(tmp_path) -> None:
    bleu = {"metrics": ["exact_match", "bleu"], "bleu": ["a reference", "an answer"]}
    scores = read_log(lm_eval(tmp_path / "samples_a_2026.jsonl", [line(0, 1.0, **bleu)]))
    assert scores.table.column_names[-1] == "exact_match"
    assert "bleu: pieces of a figure over the whole corpus" in said(scores)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"doc_id": 0, "metrics": ["a"], "a": 1}\n{"doc_id": 1, "met', "line 2: is not JSON"),
        ('{"doc_id": 0, "metrics": ["a"], "a": 1}\n[1]\n', "line 2: is not a JSON object"),
        ('{"doc_id": 0, "metrics": ["a"], "a": 1}\n{"doc_id": 1}\n', "line 2 has no metrics"),
    ],
)
def test_broken_lines_are_named(tmp_path, text, why) -> None:
    path = tmp_path / "samples_a_2026.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BadInput, match=why) as caught:
        read_log(path)
    assert str(path) in caught.value.problem
    assert "\n" not in caught.value.problem


def _results(path: Path, results: dict, counts: dict, **more) -> Path:
    found = {"results": results, "configs": {}, "n-samples": counts, "model_name": "maker/one"} | more
    path.write_text(json.dumps(found), encoding="utf-8")
    return path


def test_results_give_counts_where_figures_are_shares(tmp_path) -> None:
    results = {"t": {"alias": "t", "acc,none": 0.0004, "acc_stderr,none": 0.0, "ppl,none": 7.1}}
    scores = read_log(_results(tmp_path / "results_1.json", results, {"t": {"original": 5000, "effective": 5000}}))
    from burnish.data.logs import Reported

    reported = [Reported(**one) for one in scores.notes["reported"]]
    assert [(one.measure, one.successes, one.stderr) for one in reported] == [("acc", 2, 0.0), ("ppl", None, None)]


def test_group_is_counted_again_from_its_tasks(tmp_path) -> None:
    results = {"g": {"acc,none": 0.6}, "a": {"acc,none": 0.5}, "b": {"acc,none": 0.7}}
    counts = {name: {"original": n, "effective": n} for name, n in (("a", 10), ("b", 90))}
    scores = read_log(_results(tmp_path / "results_1.json", results, counts, group_subtasks={"g": ["a", "b"]}))
    group = next(one for one in scores.notes["reported"] if one["task"] == "g")
    assert group["estimate"] == pytest.approx(0.68)
    assert group["n"] == 100
    assert "the reported 0.6 is the unweighted mean of its tasks; over its 100 items it is 0.68" in said(scores)


# -- other tools ------------------------------------------------------------------------------------------------


def test_helm_leaves_out_what_is_perturbed_or_not_counted(tmp_path) -> None:
    def instance(name, mean, **more):
        stats = [
            {"name": {"name": "exact_match"}, "sum": mean, "count": 1},
            {"name": {"name": "f1"}, "sum": 0, "count": 0},
        ]
        stats.append({"name": {"name": "num_prompt_tokens"}, "sum": 9, "count": 1})
        return {"instance_id": name, "train_trial_index": 0, "stats": stats} | more

    rows = [instance("id1", 1), instance("id2", 0), instance("id1", 0, perturbation={"name": "typos"})]
    (tmp_path / "per_instance_stats.json").write_text(json.dumps(rows), encoding="utf-8")
    scores = read_log(tmp_path)
    assert scores.column("exact_match").tolist() == [1.0, 0.0]
    assert "num_prompt_tokens" not in scores.table.column_names
    assert all(row["f1"] is None for row in scores.rows())
    assert "1 rows are of perturbed instances" in said(scores)


def test_promptfoo_repeats_are_runs_of_one_item(tmp_path) -> None:
    def result(test, city, success, **more):
        found = {"testIdx": test, "promptIdx": 0, "vars": {"city": city}, "success": success, "score": float(success)}
        found |= {"provider": {"id": "maker:one"}, "gradingResult": {"pass": success, "score": float(success)}}
        return found | {"response": {"output": f"{city} {test}"}} | more

    rows = [result(0, "Rome", True), result(1, "Paris", False), result(2, "Rome", False), result(3, "Oslo", True)]
    rows[3] |= {"error": "no answer", "failureReason": 2, "success": False}
    path = tmp_path / "out.json"
    path.write_text(json.dumps({"evalId": "e", "results": {"version": 3, "results": rows}}), encoding="utf-8")
    found = [(row["item_id"], row["epoch"], row["success"], row.get("status")) for row in read_log(path).rows()]
    assert found == [
        ("test 0", 1, 1.0, None),
        ("test 0", 2, 0.0, None),
        ("test 1", 1, 0.0, None),
        ("test 3", 1, None, "error"),
    ]
    rows = [result(number, "Rome", True, response={"output": "x", "cached": True}) for number in range(3)]
    path.write_text(json.dumps({"results": {"version": 3, "results": rows}}), encoding="utf-8")
    assert "3 answers came out of the cache" in said(read_log(path))


def test_deepeval_errors_are_unscored(tmp_path) -> None:
    def case(text, score, error=None):
        metric = {"name": "Relevancy", "score": score, "success": bool(score), "threshold": 0.5, "error": error}
        return {"name": text, "input": text, "actualOutput": "x", "metricsData": [metric]}

    cases = [case("a", 0.9), case("b", 0.0, "invalid JSON")]
    path = tmp_path / ".latest_test_run.json"
    path.write_text(json.dumps({"testRunData": {"testCases": cases}, "testRunLink": ""}), encoding="utf-8")
    scores = read_log(path)
    assert [row["Relevancy"] for row in scores.rows()] == [0.9, None]
    assert [row["Relevancy passed"] for row in scores.rows()] == [1.0, None]
    assert "1 values are of metrics that ended with an error" in said(scores)


@pytest.mark.parametrize(
    "shape",
    [
        lambda score: {"user_prompt": "p", "judgment": "text", "score": score},
        lambda score: {"score": score, "judgment": {"answer": "text"}, "prompt": [{"role": "user", "content": "p"}]},
    ],
)
@pytest.mark.parametrize("key", ["uid", "question_id"])
def test_arena_games_are_two_runs_of_one_prompt(tmp_path, shape, key) -> None:
    records = [
        {
            key: "a",
            "model": "m",
            "judge": "j",
            "baseline": "b",
            "category": "hard",
            "games": [shape("B>>A"), shape("A>B")],
        },
        {
            key: "b",
            "model": "m",
            "judge": "j",
            "baseline": "b",
            "category": "hard",
            "games": [shape("A=B"), shape(None)],
        },
    ]
    scores = read_log(lm_eval(tmp_path / "m.jsonl", records))
    assert [(row["item_id"], row["epoch"], row["win"], row["weight"]) for row in scores.rows()] == [
        ("a", 1, 1.0, 3.0),
        ("a", 2, 1.0, 1.0),
        ("b", 1, 0.5, 1.0),
        ("b", 2, None, None),
    ]
    assert "1 games have no verdict" in said(scores)
    records[0]["games"][0] = shape("A!B")
    with pytest.raises(BadInput, match="line 1 has the verdict 'A!B'"):
        read_log(lm_eval(tmp_path / "m.jsonl", records))


def test_alpaca_preferences(tmp_path) -> None:
    rows = [{"instruction": f"do {n}", "generator_2": "m", "preference": p} for n, p in enumerate((1, 2, 1.5, None, 3))]
    path = tmp_path / "annotations.json"
    path.write_text(json.dumps(rows), encoding="utf-8")
    assert [row["win"] for row in read_log(path).rows()] == [0.0, 1.0, 0.5, None, None]


# -- plain tables -----------------------------------------------------------------------------------------------


def test_long_and_wide_tables(tmp_path) -> None:
    long = read_log(csv(tmp_path / "a.csv", "item_id,model,score", "1,a,1", "1,b,pass", "2,a,false", "2,b,"))
    assert [(row["item_id"], row["model"], row["score"]) for row in long.rows()] == [
        ("1", "a", 1.0),
        ("2", "a", 0.0),
        ("1", "b", 1.0),
        ("2", "b", None),
    ]
    wide = read_log(csv(tmp_path / "b.csv", "question,a,b,note", "q1,1,0,x", "q2,1,1,y"))
    assert {row["model"] for row in wide.rows()} == {"a", "b"}
    assert "columns that are no scores are left out: note" in said(wide)


def test_columns_can_be_named_and_wrong_names_are_all_listed(tmp_path) -> None:
    path = csv(tmp_path / "a.csv", "who;what;how good;topic", "m;q1;3.5;x", "m;q2;4;y")
    scores = read_log(path, columns={"model": "who", "item_id": "what", "score": "how good"}, cluster="topic")
    assert scores.column("score").tolist() == [3.5, 4.0]
    assert [row["cluster"] for row in scores.rows()] == ["x", "y"]
    with pytest.raises(BadInput) as caught:
        read_log(path, columns={"model": "whom", "points": "how good"}, cluster="subject")
    assert all(word in caught.value.problem for word in ("'whom'", "points: no such column", "'subject'"))


def test_words_that_are_no_scores_are_refused(tmp_path) -> None:
    with pytest.raises(BadInput, match="column 'score' holds 'good', 'bad', which are no scores"):
        read_log(csv(tmp_path / "a.csv", "item_id,score", "1,good", "2,bad"))


def test_numbered_runs_need_every_number(tmp_path) -> None:
    runs = read_log(csv(tmp_path / "a.csv", "Problem,m,n", "1,1,0", "1.1,0,0", "2,1,1", "2.1,1,0"))
    assert [(row["item_id"], row["epoch"]) for row in runs.rows()][:4] == [("1", 1), ("1", 2), ("2", 1), ("2", 2)]
    sections = read_log(csv(tmp_path / "b.csv", "index,m,n", "1,1,0", "1.2,0,0", "2,1,1"))
    assert "epoch" not in sections.table.column_names


def test_leaderboards_and_other_files_are_refused_in_one_line(tmp_path) -> None:
    files = {
        "board.csv": (b"model,score\na,81.2\nb,79.0\n", "a leaderboard of figures without items"),
        "empty.csv": (b"", "is empty"),
        "header.csv": (b"a,b\n", "no log and no table"),
        "ragged.csv": (b"a,b\n1,2\n1,2\n1\n", "line 4 has 1"),
        "twice.csv": (b"a,a\n1,2\n", "several columns have the same name: a"),
        "prose.txt": (b"Dear all,\nthis is no log.\n", "no log and no table"),
        "other.json": (b'{"weights": [1, 2]}', "JSON of no log that is known"),
        "broken.json": (b'{"version": 2, "eval": {', "is not JSON"),
        "image.png": (b"\x89PNG\r\n\x1a\n\x00\x00\x00", "neither text nor a log"),
        "scores.pkl": (pickle.dumps([1]), "is a pickle"),
        "fake.parquet": (b"PAR1 and then nothing", "not a whole Parquet file"),
        "torn.jsonl.gz": (gzip.compress(b'{"doc_id": 1}\n' * 500)[:40], "cannot be read|is not JSON|is empty"),
    }
    for name, (content, why) in files.items():
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(BadInput, match=why) as caught:
            read_log(path)
        assert str(path) in caught.value.problem, name
        assert "\n" not in caught.value.problem, name
    with pytest.raises(BadInput, match="there is no such file"):
        read_log(tmp_path / "absent.json")
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match="a folder without a log"):
        read_log(tmp_path / "empty")


def test_gzip_and_byte_order_marks_are_read_through(tmp_path) -> None:
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress("\ufeffitem_id,score\r\n1,1\r\n2,0\r\n".encode()))
    assert read_log(path).column("score").tolist() == [1.0, 0.0]


def test_shuffled_rows_give_the_same_scores(tmp_path) -> None:
    import random

    lines = [line(doc, float(doc % 3 == 0)) for doc in range(100)]
    sorted_scores = read_log(lm_eval(tmp_path / "samples_a_2026.jsonl", lines))
    random.Random(1).shuffle(lines)
    assert read_log(lm_eval(tmp_path / "samples_a_2026.jsonl", lines)).table.equals(sorted_scores.table)


@given(
    st.recursive(st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(), lambda c: st.lists(c, max_size=4))
)
def test_streamed_json_is_what_json_reads(tmp_path_factory, value) -> None:
    path = tmp_path_factory.mktemp("json") / "a.json"
    found: list = []
    path.write_text(json.dumps({"before": value, "many": [value, value, 1], "after": [value]}), encoding="utf-8")
    assert JsonFile(path, "many", found.append).read() == {"before": value, "after": [value]}
    assert found == [value, value, 1]


@given(st.lists(st.integers(0, 10**6), min_size=1))
def test_natural_order_is_that_of_numbers(numbers) -> None:
    names = [f"item {number}" for number in numbers]
    assert sorted(names, key=natural) == [f"item {number}" for number in sorted(numbers)]


@given(st.one_of(st.text(), st.floats(), st.booleans(), st.none(), st.lists(st.integers())))
def test_a_score_is_a_finite_number_or_none(value) -> None:
    found = score(value)
    assert found is None or (isinstance(found, float) and abs(found) < float("inf"))


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


def _places(value, before=()):
    yield before
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield from _places(one, (*before, key))


def _bent(value, place, junk):
    if not place:
        return junk
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[place[0]] = _bent(value[place[0]], place[1:], junk)
    return copy


def _fault(path):
    try:
        read_log(path)
    except BadInput as error:
        return error.problem
    return None


STAT = {"name": {"name": "acc"}, "sum": 1, "count": 1}
GAME = {"judgment": "x", "score": "A>B"}
WHOLE = {
    "a.json": header([1])
    | {"samples": [sample(1, "C", metadata={"t": 1}), sample(2, {"a": 1}, error={"message": "x"})]},
    "results_1.json": {
        "results": {"t": {"acc,none": 0.5, "acc_stderr,none": 0.1}, "g": {"acc,none": 0.5}},
        "group_subtasks": {"g": ["t"]},
        "n-samples": {"t": {"original": 4, "effective": 4}},
        "configs": {},
    },
    "per_instance_stats.json": [{"instance_id": "a", "train_trial_index": 0, "stats": [STAT]}],
    "out.json": {
        "evalId": "e",
        "results": {"version": 3, "results": [{"testIdx": 0, "vars": {"a": 1}, "success": True}]},
    },
    "run.json": {
        "testCases": [{"name": "a", "input": "x", "metricsData": [{"name": "m", "score": 1, "success": True}]}]
    },
    "annotations.json": [{"instruction": "x", "preference": 1.5, "generator_2": "m"}],
    "samples_a_1.jsonl": line(0, 1.0),
    "m.jsonl": {"uid": "a", "model": "m", "judge": "j", "games": [GAME, GAME]},
    "list.json": [{"item_id": "a", "model": "m", "score": 1}],
}


@pytest.mark.parametrize("name", WHOLE)
@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_a_bent_log_is_read_or_refused(tmp_path, name, data) -> None:
    """Whatever stands in whatever place of a log: scores, or one line that names the file."""
    whole = WHOLE[name]
    place = data.draw(st.sampled_from(list(_places(whole))))
    path = tmp_path / name
    path.write_text(json.dumps(_bent(whole, place, data.draw(JUNK))), encoding="utf-8")
    assert _fault(path) is None or (str(path) in _fault(path) and "\n" not in _fault(path))


@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_a_torn_zip_is_read_or_refused(tmp_path, data) -> None:
    whole = bytearray(inspect_eval(tmp_path / "whole.eval", [sample(n, "C") for n in range(3)]).read_bytes())
    for place in data.draw(st.lists(st.integers(0, len(whole) - 1), max_size=3)):
        whole[place] ^= data.draw(st.integers(1, 255))
    path = tmp_path / "torn.eval"
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole)))])
    assert _fault(path) is None or str(path) in _fault(path)


# -- the published files ----------------------------------------------------------------------------------------

REFUSED = {
    "data_with_llm_scoring.json": "its header claims 1000",
    "log_invalid.txt": "is not JSON",
    "log_version_3.txt": "no scored items",
    "log_with_nan.txt": "no scored items",
}


@real
def test_every_published_log_parses_or_names_file_and_reason() -> None:
    files = [one for folder in ("inspect", "lm_eval", "helm") for one in sorted(logs(f"eval_logs/{folder}").iterdir())]
    assert len(files) == 22
    for path in files:
        if path.name in REFUSED:
            with pytest.raises(BadInput, match=REFUSED[path.name]) as caught:
                read_log(path)
            assert str(path) in caught.value.problem
            assert "\n" not in caught.value.problem
        else:
            scores = read_log(path)
            assert len(scores) or scores.notes["reported"], path.name


@real
@pytest.mark.parametrize(
    ("name", "claimed"),
    [
        ("data_intercode_ctf_local_path", 79),
        ("data_cvebench_empty_choices", 80),
        ("data_cyse2_vuln_exploit_challenges", 2340),
    ],
)
def test_published_headers_that_lie_are_called_out(name, claimed) -> None:
    scores = read_log(logs(f"eval_logs/inspect/{name}.json"))
    assert len(scores) == 1
    assert f"the header claims {claimed} samples and the file holds 1" in said(scores)


@real
def test_published_mqm_means() -> None:
    """The README of the data: Facebook-AI 1.06, Online-W 1.12, Nemo 2.14; DIDI-NLP 1.65, reference A 5.52."""
    import numpy as np

    wanted = {"ende": {"Facebook-AI": 1.06, "Online-W": 1.12, "Nemo": 2.14}, "zhen": {"DIDI-NLP": 1.65, "ref": 5.52}}
    for pair, systems in wanted.items():
        rows = read_log(logs(f"specialist_mqm/mqm_ted_{pair}.tsv.gz")).rows()
        for system, mean in systems.items():
            assert -np.mean([row["mqm"] for row in rows if row["model"] == system]) == pytest.approx(mean, abs=0.01)


@real
def test_published_side_by_side_ratings_drop_planted_checks() -> None:
    path = logs("specialist_mqm/sxs_mqm_generalMT2023_ende.3ratingsPerSegment.nometa.tsv.gz")
    scores = read_log(path)
    assert len(scores) == 104 * 10 * 3
    assert "245 lines are planted checks" in said(scores)


def test_a_figure_over_no_items_stands_for_no_count() -> None:
    from burnish.data.logs.log import Reported

    assert Reported(model="m", task="t", measure="acc", estimate=0.0, n=0).successes is None
