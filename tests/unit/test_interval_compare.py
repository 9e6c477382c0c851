"""`evaluate interval` and `evaluate compare`: figures from logs and counts, alignment, and what is caught."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_logs import csv, inspect_json, line, lm_eval, sample
from made_up import Burnish, burnish

from burnish.core.errors import BadInput, UnknownName
from burnish.core.run import Run
from burnish.core.shapes import Analysis
from burnish.data import every_eval_ever
from burnish.data.logs import read_log
from burnish.data.logs.items import Items, align, select
from burnish.data.logs.several import Logs
from burnish.data.scores import Table, read_table
from burnish.evaluate.compare import Compare
from burnish.evaluate.interval import Interval
from burnish.stats.reported import doubt, sample_error, share_error

__all__ = ["burnish"]  # a fixture

DATA = os.environ.get("BURNISH_DATA")
real = pytest.mark.skipif(not DATA, reason="BURNISH_DATA is not set: the published logs are not here")


def logs(name: str) -> Path:
    assert DATA is not None
    return Path(DATA) / name


def only(table) -> dict:
    (row,) = table.rows()
    return row


# -- interval ---------------------------------------------------------------------------------------------------


def test_nothing_right_in_5000_is_not_zero_plus_minus_zero() -> None:
    row = only(Interval(successes=0, n=5000)())
    assert row["low"] == pytest.approx(0.000005, abs=1e-6)
    assert row["high"] == pytest.approx(0.000737, abs=1e-6)
    assert only(Interval(successes=0, n=5000, method="wilson")())["high"] == pytest.approx(0.000768, abs=1e-6)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"successes": 3}, "successes and n are given together"),
        ({"successes": 4, "n": 3}, "4 of only 3 items"),
        ({"confusion": (1, 2, 3)}, "3 numbers, and TP,FP,FN,TN are four"),
        ({"confusion": (1, -2, 3, 4)}, "greater than or equal to 0"),
        ({"confusion": (1, 2, 3, 4), "successes": 1, "n": 2}, "ask one of them"),
        ({"successes": 1, "n": 2, "method": "miller"}, "needs clusters"),
        ({"columns": ("score",)}, "not of the form ours=theirs"),
        ({"level": 1.0}, "less than 1"),
    ],
)
def test_counts_that_do_not_fit_are_refused(settings, why) -> None:
    with pytest.raises(BadInput, match=why):
        Interval.build(settings)


def test_a_file_or_counts_and_never_both(tmp_path) -> None:
    path = inspect_json(tmp_path / "a.json", [sample(1, "C")])
    with pytest.raises(BadInput, match="neither a log nor counts"):
        Interval()()
    with pytest.raises(BadInput, match="both a log and counts"):
        Interval(successes=1, n=2)(path)


def test_stated_error_of_exactly_zero_is_flagged_with_the_one_it_should_have_had(tmp_path) -> None:
    rows = [sample(number, "CCI"[number % 3]) for number in range(30)]
    metrics = {"accuracy": {"value": 2 / 3}, "stderr": {"value": 0.0}}
    stated = {"scores": [{"name": "match", "metrics": metrics}], "completed_samples": 30}
    row = only(Interval()(inspect_json(tmp_path / "a.json", rows, **stated)))
    due = (2 / 3 * 1 / 3 / 29) ** 0.5
    assert row["stderr"] == pytest.approx(due)
    assert f"exactly 0 beside a score of 0.6667, which is impossible: it should be {due:.3g}" in row["warnings"]


def test_zero_beside_all_wrong_is_called_no_precision() -> None:
    assert "no precision" in doubt(0.0, 0.0, None)
    assert "impossible" in doubt(0.0004, 0.0, share_error(0.0004, 5000))
    assert doubt(0.4, 0.1, 0.1) == doubt(0.4, None, 0.1) == ""
    assert "the items give 0.2" in doubt(0.4, 0.1, 0.2)


def test_error_of_clusters_of_one_is_that_of_items() -> None:
    values = [0.0, 1.0, 1.0, 0.5]
    assert sample_error(values, ["a", "b", "c", "d"]) == pytest.approx(sample_error(values))
    assert sample_error([1.0]) is None
    assert sample_error(values, ["a"] * 4) is None
    with pytest.raises(BadInput, match="2 clusters for 4 items"):
        sample_error(values, ["a", "b"])


def test_runs_are_not_items(tmp_path) -> None:
    rows = [sample(item, "CI"[item % 2], epoch) for item in range(10) for epoch in range(1, 11)]
    row = only(Interval()(inspect_json(tmp_path / "a.json", rows)))
    alone = only(Interval(successes=50, n=100)())
    assert (row["n"], row["runs"], row["n_clusters"], row["method"]) == (10, 100, 10, "bayes")
    assert row["high"] - row["low"] > 2 * (alone["high"] - alone["low"])
    with pytest.raises(BadInput, match="for independent items, and there are items with up to 10 runs"):
        Interval(method="wilson")(tmp_path / "a.json")


def test_pass_at_k_and_pass_to_the_k(tmp_path) -> None:
    rows = [sample(item, "CI"[(item + epoch) % 2], epoch) for item in range(20) for epoch in range(1, 5)]
    path = inspect_json(tmp_path / "a.json", rows)
    # Of two right runs in four, 1 - C(2, 2) / C(4, 2) = 5/6 of the pairs hold a right one, and 1/6 two.
    assert only(Interval(reduce="pass@k", k=2)(path))["estimate"] == pytest.approx(5 / 6)
    assert only(Interval(reduce="pass^k", k=2)(path))["estimate"] == pytest.approx(1 / 6)


def test_clusters_widen_the_interval(tmp_path) -> None:
    lines = [line(doc, float(doc % 3 == 0)) for doc in range(60)]
    path = lm_eval(tmp_path / "samples_a_2026.jsonl", lines)
    alone, grouped = only(Interval()(path)), only(Interval(cluster="topic")(path))
    assert (grouped["n_clusters"], grouped["method"]) == (3, "bayes")
    assert grouped["high"] - grouped["low"] > alone["high"] - alone["low"]
    with pytest.raises(BadInput, match="is for clusters or runs"):
        Interval(method="miller")(path)


def test_filters_do_not_double_n(tmp_path) -> None:
    lines = [line(doc, 1.0, name) for doc in range(20) for name in ("strict", "flexible")]
    rows = Interval()(lm_eval(tmp_path / "samples_a_2026.jsonl", lines)).rows()
    assert {(row["measure"], row["n"]) for row in rows} == {("exact_match,strict", 20), ("exact_match,flexible", 20)}


def test_bounds_stay_on_the_scale(tmp_path) -> None:
    rows = [sample(number, 0.9 + 0.1 * (number % 2)) for number in range(6)]
    for method in ("auto", "student-t", "bootstrap"):
        row = only(Interval(method=method)(inspect_json(tmp_path / "a.json", rows)))
        assert 0 <= row["low"] <= row["high"] <= 1


def test_one_real_score_says_next_to_nothing(tmp_path) -> None:
    row = only(Interval()(inspect_json(tmp_path / "a.json", [sample(1, 0.65)])))
    assert row["low"] < 0.2 < 0.9 < row["high"] < 1
    assert "only 1 item" in row["warnings"]


def test_unknown_measure_and_model_offer_near_ones(tmp_path) -> None:
    path = inspect_json(tmp_path / "a.json", [sample(1, "C"), sample(2, "I")])
    with pytest.raises(UnknownName, match="did you mean match"):
        Interval(measure="matches")(path)
    with pytest.raises(UnknownName, match="did you mean maker/one"):
        Interval(model="maker/on")(path)


@pytest.mark.parametrize("metric", ["f1", "precision", "recall", "jaccard", "mcc", "balanced-accuracy", "macro-f1"])
def test_confusion_tables(metric) -> None:
    row = only(Interval(confusion=(20, 5, 3, 40), metric=metric)())
    assert row["low"] < row["estimate"] < row["high"]
    assert row["n"] == 68


# -- alignment --------------------------------------------------------------------------------------------------


def items(model: str, ids, scores, contents=None, **more) -> Items:
    return Items(model, "m", tuple(ids), tuple((float(s),) for s in scores), contents, **more)


def test_items_are_matched_by_content_and_not_by_name() -> None:
    a = items("a", ["0", "1", "2"], [1, 0, 1], ("x", "y", "z"))
    b = items("b", ["0", "1", "2"], [0, 0, 1], ("z", "x", "y"))
    one, other, warnings = align(a, b)
    assert one.contents == other.contents
    assert other.runs == ((0.0,), (1.0,), (0.0,))
    assert warnings == []


def test_documents_that_differ_under_one_name_are_refused() -> None:
    a = items("a", ["0", "1", "2", "3"], [1, 0, 1, 1], ("x", "y", "z", "w"))
    b = items("b", ["0", "1", "2", "3"], [0, 0, 1, 1], ("x", "y", "z", "changed"))
    with pytest.raises(BadInput, match="1 items have one name and different documents in the logs of a and b: 3"):
        align(a, b)


def test_three_percent_missing_are_intersected_with_a_warning(tmp_path) -> None:
    lines = [line(doc, float(doc % 2)) for doc in range(100)]
    a = lm_eval(tmp_path / "samples_a_2026.jsonl", lines)
    b = lm_eval(tmp_path / "samples_b_2026.jsonl", lines[3:])
    row = only(Compare()(a, b))
    assert row["n"] == 97
    assert "only the 97 items that both hold are compared: 3 of" in row["warnings"]


def test_logs_of_other_things_are_refused(tmp_path) -> None:
    a = items("a", "012345", [1] * 6, tuple("abcdef"))
    b = items("b", ["6", "7", "8", "9", "10", "11"], [1] * 6, tuple("ghijka"))
    with pytest.raises(BadInput, match="share 1 items, of 6 and 6"):
        align(a, b)


def test_row_numbers_match_nothing(tmp_path) -> None:
    paths = [csv(tmp_path / f"{name}.csv", "score,other", "1,x", "0,y", "1,z") for name in "ab"]
    with pytest.raises(BadInput, match="cannot be matched: rows have no names"):
        Compare()(*paths)


def test_other_prompts_are_said(tmp_path) -> None:
    a = lm_eval(tmp_path / "samples_a_2026.jsonl", [line(doc, 1.0) for doc in range(10)])
    b = lm_eval(tmp_path / "samples_b_2026.jsonl", [line(doc, 0.0, prompt_hash="five shots") for doc in range(10)])
    assert "10 of 10 items were asked with other prompts" in only(Compare()(a, b))["warnings"]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), min_size=4, max_size=30), st.randoms())
def test_equal_documents_pair_off_one_to_one(found, randomly) -> None:
    contents, scores = [c for c, _ in found], [s for _, s in found]
    a = items("a", map(str, range(len(found))), scores, tuple(contents))
    places = list(range(len(found)))
    randomly.shuffle(places)
    b = a.take(places)
    one, other, _ = align(a, b)
    assert len(one) == len(found)
    assert one.contents == other.contents


def test_shuffled_logs_give_the_same_bytes(tmp_path, burnish: Burnish, monkeypatch) -> None:
    said = []
    for turn in range(3):
        folder = tmp_path / str(turn)
        folder.mkdir()
        monkeypatch.chdir(folder)
        for name, step in (("a", 2), ("b", 3)):
            lines = [line(doc, float(doc % step == 0), name) for doc in range(80) for name in ("strict", "loose")]
            random.Random(turn).shuffle(lines)
            lm_eval(folder / f"samples_{name}_2026.jsonl", lines)
        command = "evaluate compare samples_a_2026.jsonl samples_b_2026.jsonl --measure exact_match,strict --json"
        code, out, _ = burnish(*command.split())
        assert code == 0
        said.append(out)
    assert said[0] == said[1] == said[2]
    assert json.loads(said[0])["rows"][0]["n"] == 80


# -- compare ----------------------------------------------------------------------------------------------------


def test_swapping_two_logs_gives_the_exact_mirror(tmp_path) -> None:
    a = lm_eval(tmp_path / "samples_a_2026.jsonl", [line(doc, float(doc % 2 == 0)) for doc in range(50)])
    b = lm_eval(tmp_path / "samples_b_2026.jsonl", [line(doc, float(doc % 5 == 0)) for doc in range(50)])
    one, other = only(Compare()(a, b)), only(Compare()(b, a))
    assert (one["estimate"], one["low"], one["high"]) == (-other["estimate"], -other["high"], -other["low"])
    assert one["p_better"] == 1 - other["p_better"]
    assert one["p_value"] == other["p_value"]
    assert (one["only_a"], one["only_b"]) == (other["only_b"], other["only_a"])


def test_all_pairs_of_one_table_hold_together(tmp_path) -> None:
    path = csv(tmp_path / "a.csv", "question,a,b,c", *(f"q{n},1,{int(n % 2)},{int(n % 3 == 0)}" for n in range(30)))
    baseline = Compare()(path)
    assert [(row["a"], row["b"]) for row in baseline.rows()] == [("b", "a"), ("c", "a")]
    assert baseline.rows()[0]["level"] == pytest.approx(0.975)
    pairs = Compare(pairs="all")(path).rows()
    assert len(pairs) == 3
    assert all(row["p_holm"] >= row["p_value"] for row in pairs)
    assert {row["b"] for row in Compare(baseline="c")(path).rows()} == {"c"}
    with pytest.raises(UnknownName, match="no model"):
        Compare(baseline="z")(path)


def test_real_scores_and_runs_are_compared_by_their_differences(tmp_path) -> None:
    a = inspect_json(tmp_path / "a.json", [sample(n, 0.5 + 0.01 * n) for n in range(20)])
    b = inspect_json(tmp_path / "b.json", [sample(n, 0.4 + 0.012 * n) for n in range(20)], model="maker/two")
    row = only(Compare()(a, b))
    assert row["estimate"] == pytest.approx(0.1 - 0.002 * 9.5)
    assert row["low"] < row["estimate"] < row["high"]
    with pytest.raises(BadInput, match="probit is for one 0/1 score of every item"):
        Compare(method="probit")(a, b)


def test_two_logs_of_one_model_are_told_apart(tmp_path) -> None:
    from burnish.data.scores import read_scores

    paths = [inspect_json(tmp_path / f"{name}.json", [sample(n, "CI"[n % step]) for n in range(10)]) for name, step in
             (("before", 1), ("after", 2))]  # fmt: skip
    with Run(tmp_path / "run") as run:
        row = only(Compare()(*paths, run=run))
    assert row["label"] == "maker/one (before.json) − maker/one (after.json)"
    assert len(read_scores(tmp_path / "run")) == 20


def test_runs_that_never_differ_are_no_certainty(tmp_path) -> None:
    """Two models that are always right, ten items with three runs: a t interval has no width at all."""
    paths = [
        inspect_json(
            tmp_path / f"{name}.json", [sample(n, "C", epoch=e) for n in range(10) for e in (1, 2, 3)], model=name
        )
        for name in ("one", "two")
    ]
    row = only(Compare()(*paths))
    assert row["method"] == "tango"
    assert row["low"] < -0.2
    assert row["high"] > 0.2
    with pytest.raises(BadInput, match="auto, tango, student-t or bootstrap"):
        Compare(method="probit")(*paths)


def test_a_share_outside_its_bounds_is_said_in_comparisons_too() -> None:
    row = only(Compare(table=(0, 20, 0, 0))())
    assert row["high"] < row["estimate"] == 1
    assert "outside the bounds" in row["warnings"]


def test_several_logs_are_rows_of_one_table(tmp_path) -> None:
    for name, right in (("b", 4), ("a", 7)):
        inspect_json(tmp_path / f"{name}.json", [sample(n, "CI"[n >= right]) for n in range(10)], model=f"maker/{name}")
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "c.json").mkdir()
    with Run(tmp_path / "run") as run:
        table = Interval()(Logs.of(str(tmp_path / "*.json")), run=run)
    assert [(row["label"], row["file"], row["estimate"]) for row in table.rows()] == [
        ("maker/a", "a.json", 0.7), ("maker/b", "b.json", 0.4)
    ]  # fmt: skip
    told = table.notes["warnings"]
    assert len(told) == 2
    assert all(text.startswith("left out: ") for text in told)
    assert any("broken.json" in text for text in told)
    items = Table.of(read_table(tmp_path / "run" / "items.parquet").rows())
    assert {(row["file"], row["model"]) for row in items.rows()} == {("a.json", "maker/a"), ("b.json", "maker/b")}
    one = Interval()(Logs.of(tmp_path / "a.json"))
    assert (only(one)["low"], one.notes["format"]) == (table.rows()[0]["low"], "Inspect log")
    with pytest.raises(BadInput, match="only results of one log"):
        Interval(export=str(tmp_path / "x.json"))(Logs.of([tmp_path / "a.json", tmp_path / "b.json"]))
    with pytest.raises(BadInput, match=r"no log could be used(?s:.*)broken.json(?s:.*)c.json"):
        Interval()(Logs.of([tmp_path / "broken.json", tmp_path / "c.json"]))


def test_order_of_several_logs_does_not_matter_and_equal_names_are_told_apart(tmp_path) -> None:
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
        inspect_json(tmp_path / folder / "a.json", [sample(n, "CI"[n % 2]) for n in range(8)])
    paths = [tmp_path / "x" / "a.json", tmp_path / "y" / "a.json"]
    one, other = Interval()(Logs.of(paths)).rows(), Interval()(Logs.of(paths[::-1])).rows()
    assert one == other
    assert [row["label"] for row in one] == [str(path) for path in paths]


def test_logs_that_are_not_there_are_all_named(tmp_path) -> None:
    with pytest.raises(BadInput) as caught:
        Logs.of(f"{tmp_path}/none.json\n{tmp_path}/*.eval")
    assert "there is nothing at" in caught.value.problem
    assert "no file fits the pattern" in caught.value.problem
    odd = tmp_path / "arc[0].csv"
    odd.write_text("id,score\n1,1\n2,0\n")
    assert Logs.of([odd, odd]) == (odd,)


def test_command_line_takes_many_logs(tmp_path, burnish: Burnish, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in "abc":
        csv(tmp_path / f"{name}.csv", "id,score", *(f"{n},{int(n < 5)}" for n in range(9)))
    code, said, _ = burnish("evaluate", "interval", "a.csv", "b.csv", "c.csv", "--method", "wilson", "--out", "run")
    assert code == 0
    assert all(f"{name} " in said for name in "abc")
    code, _, said = burnish("evaluate", "interval", "a.csv", "no.csv")
    assert (code, "there is nothing at no.csv" in said) == (2, True)


def test_counts_without_logs() -> None:
    row = only(Compare(table=(7, 1, 11, 1))())
    assert row["p_better"] == pytest.approx(0.0004, abs=1e-3)
    assert (row["low"], row["high"]) == pytest.approx((-0.6767, -0.2022), abs=1e-3)
    apart = only(Compare(counts=(18, 20, 9, 20))())
    assert apart["verdict"] == "A is better"
    tango = only(Compare(table=(7, 1, 11, 1), method="mcnemar")())
    assert tango["method"] == "tango"
    # Exact binomial tail of 12 differing items with 1 for A: 2 (1 + 12) / 2^12, less half of P(1) on each side.
    assert tango["p_value"] == pytest.approx(2 * 13 / 4096 - 12 / 4096)


def test_clustered_pairs_take_clusters_into_account(tmp_path) -> None:
    def log(name, step):
        lines = [line(n, float(n // 6 % step == 0)) | {"doc": {"passage": f"p{n // 6}"}} for n in range(60)]
        return lm_eval(tmp_path / f"samples_{name}_2026.jsonl", lines)

    a, b = log("a", 2), log("b", 3)
    alone, grouped = only(Compare(measure="exact_match")(a, b)), only(Compare(cluster="passage")(a, b))
    assert (grouped["method"], grouped["n_clusters"]) == ("tango", 10)
    assert grouped["high"] - grouped["low"] > 1.5 * (alone["high"] - alone["low"])


def test_goods_that_must_be_given_are_arguments() -> None:
    from burnish.cli.commands import arguments

    class Both(Analysis):
        """Two files."""

        def __call__(self, one: Path, text: Dataset, two: Path, maybe: Path | None = None) -> Table:  # noqa: F821
            """Nothing."""

    assert [good.name for good in arguments(Both)] == ["one", "two"]
    assert [good.name for good in arguments(Compare)] == ["a", "b"]
    assert [good.name for good in arguments(Interval)] == ["file"]


def test_a_setting_may_have_any_name_that_no_good_has(monkeypatch) -> None:
    from burnish import catalogue
    from burnish.cli.commands import command

    class Long(Analysis):
        """Long texts."""

        words: int = 3
        """Least words."""

        def __call__(self, text: Path, run: Run | None = None) -> Table:
            """Nothing."""

    monkeypatch.setattr(catalogue, "load", lambda name: Long)
    assert callable(command(catalogue.Entry("long", "a:Long", "evaluate", "tool")))


def test_a_run_folder_is_a_log(tmp_path) -> None:
    path = csv(tmp_path / "a.csv", "question,a,b", *(f"q{n},1,{n % 2}" for n in range(10)))
    with Run(tmp_path / "run") as run:
        Compare()(path, run=run)
    rows = Interval()(tmp_path / "run").rows()
    assert [(row["model"], row["measure"], row["estimate"]) for row in rows] == [
        ("a", "score", 1.0),
        ("b", "score", 0.5),
    ]


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"table": (1, 2, 3)}, "S,T,U,V are four"),
        ({"counts": (1, 2)}, "KA,NA,KB,NB are four"),
        ({"table": (1, 2, 3, 4), "counts": (1, 2, 3, 4)}, "ask one of them"),
        ({"counts": (1, 2, 3, 4), "method": "probit"}, "none for two separate tests"),
    ],
)
def test_tables_that_do_not_fit_are_refused(settings, why) -> None:
    with pytest.raises(BadInput, match=why):
        Compare.build(settings)


def test_compare_needs_two_models_and_one_measure(tmp_path) -> None:
    path = inspect_json(tmp_path / "a.json", [sample(1, "C"), sample(2, "I")])
    with pytest.raises(BadInput, match="holds one model"):
        Compare()(path)
    with pytest.raises(BadInput, match="neither logs nor counts"):
        Compare()()
    two = [sample(1, "C", scores={"x": {"value": "C"}, "y": {"value": 1}})]
    other = inspect_json(tmp_path / "b.json", two)
    with pytest.raises(BadInput, match=r"holds 2 shared measures.*\n.*--measure: x, y"):
        Compare()(other, other)
    with pytest.raises(BadInput, match="share no measure: match and x, y"):
        Compare()(path, other)


# -- command line, report, export -------------------------------------------------------------------------------


def test_command_line_takes_two_files_and_shows_a_table(tmp_path, burnish: Burnish, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    inspect_json(tmp_path / "a.json", [sample(n, "C") for n in range(20)], model="[b]maker/one")
    inspect_json(tmp_path / "b.json", [sample(n, "CI"[n % 2]) for n in range(20)], model="<i>maker/two")
    code, said, _ = burnish("evaluate", "compare", "a.json", "b.json")
    assert code == 0
    assert "[b]maker/one − <i>maker/two" in said
    assert "probit: right or wrong answers to the same 20 items" in said
    page = next((tmp_path / "runs").glob("compare-*/report.html")).read_text(encoding="utf-8")
    assert "[b]maker/one is better than &lt;i&gt;maker/two" in page
    assert "<i>maker" not in page
    assert "no difference" in page


def test_command_line_names_every_fault_at_once(burnish: Burnish) -> None:
    code, _, said = burnish(
        "evaluate", "compare", "absent.json", "gone.json", "more.json", "--tabel", "1", "--level", "2"
    )
    assert code == 2
    for fault in ("a: there is nothing at absent.json", "b: there is nothing at gone.json", "'more.json'"):
        assert fault in said
    assert "did you mean --table" in said
    assert "--level" in said


def test_two_ways_of_asking_have_two_folders(tmp_path, burnish: Burnish, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for method in ("beta", "wilson"):
        assert burnish(*f"evaluate interval --successes 5 --n 5 --method {method}".split())[0] == 0
    assert len(list((tmp_path / "runs").iterdir())) == 2
    assert burnish(*["evaluate", "interval", "--successes", "5", "--n", "5", "--method", "wilson"])[0] == 0
    assert len(list((tmp_path / "runs").iterdir())) == 2


def test_a_changed_file_is_read_anew(tmp_path, burnish: Burnish, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for value in ("C", "I"):
        inspect_json(tmp_path / "a.json", [sample(n, value) for n in range(4)])
        code, out, _ = burnish("evaluate", "interval", "a.json", "--json")
        assert code == 0
        assert json.loads(out)["rows"][0]["estimate"] == float(value == "C")


def test_items_of_every_model_are_kept(tmp_path) -> None:
    from burnish.data.scores import read_scores

    path = csv(tmp_path / "a.csv", "question,a,b", *(f"q{n},1,{n % 2}" for n in range(10)))
    with Run(tmp_path / "run") as run:
        Compare()(path, run=run)
    assert len(read_scores(tmp_path / "run")) == 20


def test_export_is_of_one_model_and_never_states_an_error_of_zero(tmp_path) -> None:
    path = inspect_json(tmp_path / "a.json", [sample(n, "C") for n in range(5)])
    Interval(export=str(tmp_path / "out.json"))(path)
    found = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert found["schema_version"] == every_eval_ever.SCHEMA
    assert found["model_info"]["id"] == "maker/one"
    assert found["eval_library"]["name"] == "inspect_ai"
    (result,) = found["evaluation_results"]
    uncertainty = result["score_details"]["uncertainty"]
    assert uncertainty["num_samples"] == 5
    assert 0.5 < uncertainty["confidence_interval"]["lower"] < uncertainty["confidence_interval"]["upper"] < 1
    assert "standard_error" not in uncertainty
    wide = csv(tmp_path / "a.csv", "question,a,b", "1,1,0", "2,0,1")
    with pytest.raises(BadInput, match="holds one model, and these are 2"):
        Interval(export=str(tmp_path / "out.json"))(wide)
    with pytest.raises(BadInput, match="counts tell neither model nor task"):
        Interval(successes=1, n=2, export=str(tmp_path / "out.json"))()


# -- the published files ----------------------------------------------------------------------------------------


@real
@pytest.mark.parametrize(
    ("file", "beta", "wilson"),
    [
        ("inspect/data_arc_sonnet.json", (0.5407, 0.9958), (0.5655, 1.0)),
        ("inspect/data_arc_qwen.json", None, (0.0615, 0.7923)),
    ],
)
def test_published_inspect_logs(file, beta, wilson) -> None:
    path = logs(f"eval_logs/{file}")
    for method, wanted in (("auto", beta), ("wilson", wilson)):
        row = only(Interval(method=method)(path))
        assert wanted is None or (row["low"], row["high"]) == pytest.approx(wanted, abs=1e-4)


@real
def test_published_epochs_are_two_items() -> None:
    items = select(
        read_log(logs("eval_logs/inspect/log_streaming.eval")), "match", "azureai/Meta-Llama-3-1-405B-Instruct-jqf"
    )
    assert items.means.tolist() == [0.5, 1.0]
    assert sample_error(items.means) == pytest.approx(0.25)


@real
def test_published_lm_eval_results() -> None:
    path = next(logs("eval_logs/lm_eval").glob("results_*.json"))
    rows = {row["measure"]: row for row in Interval()(path).rows()}
    never, twice = rows["math_perturbed_full exact_match"], rows["math_rephrased_full exact_match"]
    assert (never["low"], never["high"]) == pytest.approx((0.000005, 0.000737), abs=1e-6)
    assert "0 ± 0 is no precision" in never["warnings"]
    assert twice["stderr"] == pytest.approx(twice["reported_stderr"], rel=1e-3)
    wilson = {row["measure"]: row for row in Interval(method="wilson")(path).rows()}["math_rephrased_full exact_match"]
    assert (wilson["low"], wilson["high"]) == pytest.approx((0.000110, 0.001457), abs=1e-6)


@real
def test_published_aime_posteriors() -> None:
    wanted = json.loads(logs("small_sample_stats/reference_values.json").read_text(encoding="utf-8"))
    assert wanted["aime"]
    rows = {row["model"]: row for row in Interval()(logs("small_sample_stats/matharena_aime_II.csv")).rows()}
    assert len(rows) == 19
    for name, expected in wanted["aime"].items():
        row = rows[name]
        assert (row["n"], row["runs"], row["method"]) == (15, 60, "bayes")
        assert (row["low"], row["high"]) == pytest.approx(
            (expected["clustered"]["lo"], expected["clustered"]["hi"]), abs=2e-3
        ), name
        assert row["stderr"] == pytest.approx(expected["cluster_se_inspect"], abs=1e-5)


@real
def test_published_runs_are_compared_by_items() -> None:
    path = logs("small_sample_stats/matharena_aime_II.csv")
    row = only(Compare(model_a="o3-mini (high)", model_b="DeepSeek-R1")(path))
    assert (row["n"], row["method"]) == (15, "tango")
    assert "15 items with 4 runs each count for" in row["warnings"]
    other = only(Compare(model_a="DeepSeek-R1", model_b="o3-mini (high)")(path))
    assert (row["low"], row["high"], row["estimate"]) == (-other["high"], -other["low"], -other["estimate"])
    # As wide as the differences of items are uneven, and never as narrow as 60 items would be.
    items = only(Compare(model_a="o3-mini (high)", model_b="DeepSeek-R1", method="student-t")(path))
    assert 0.8 < (row["high"] - row["low"]) / (items["high"] - items["low"]) < 1.5


@real
def test_published_langchain_pairs() -> None:
    path = logs("small_sample_stats/langchain_data_tool_use_FULL.csv")
    names = [row["model"] for row in Interval()(path).rows()]
    row = only(Compare(model_a="claude-2.1", model_b=next(n for n in names if n.startswith("gpt-4-1106")))(path))
    assert (row["both"], row["only_a"], row["only_b"], row["neither"]) == (18, 2, 0, 0)
    assert row["p_better"] == pytest.approx(0.9116, abs=1e-3)
    assert (row["low"], row["high"]) == pytest.approx((-0.0503, 0.2782), abs=1e-3)
    assert len(Compare(pairs="all")(path)) == 36


@real
def test_published_leaderboard_keeps_its_own_errors() -> None:
    row = only(Interval(model="NullModel", measure="win_rate")(logs("arena_hard/alpaca_eval2_leaderboard.csv")))
    assert row["method"] == "stated-stderr"
    assert row["high"] - row["estimate"] == pytest.approx(1.95996 * 0.0090901, rel=1e-4)


def test_light(tmp_path) -> None:
    """Neither torch nor datasets is imported."""
    import subprocess
    import sys

    inspect_json(tmp_path / "a.json", [sample(n, "C") for n in range(5)])
    code = (
        "import sys; sys.modules['torch'] = sys.modules['datasets'] = sys.modules['transformers'] = None\n"
        "from burnish.cli.main import run; sys.exit(run(['evaluate', 'interval', 'a.json', '--json']))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows"][0]["n"] == 5
