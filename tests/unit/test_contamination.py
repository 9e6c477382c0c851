"""Contamination: what is found is there, what is put in is where the manifest says."""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import itertools
import json
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from burnish.core.errors import BadInput, MissingExtra
from burnish.core.run import Run
from burnish.data.lines import read_lines, read_side
from burnish.data.overlap import NgramIndex, overlap, words
from burnish.data.scores import Scores
from burnish.evaluate.contamination.inject import ContaminationInject
from burnish.evaluate.contamination.probe import ContaminationProbe
from burnish.evaluate.contamination.scan import ContaminationScan
from burnish.stats.membership import auroc, auroc_shares, exchangeability, min_k, min_k_plus_plus

DATA = Path(os.environ.get("BURNISH_DATA", "")) / "monoattn"
needs_data = pytest.mark.skipif(
    not os.environ.get("BURNISH_DATA") or not DATA.is_dir(), reason="BURNISH_DATA does not hold monoattn"
)
needs_rensa = pytest.mark.skipif(importlib.util.find_spec("rensa") is None, reason="rensa is not installed")


def text(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


# -- overlap ---------------------------------------------------------------------------------------------------------

SENTENCES = st.lists(st.lists(st.sampled_from("abcd"), max_size=7).map(" ".join), min_size=1, max_size=6)


@settings(max_examples=150, deadline=None)
@given(SENTENCES, SENTENCES, st.integers(1, 4), st.integers(1, 4))
def test_overlap_is_its_definition(test: list[str], train: list[str], n: int, most: int) -> None:
    def grams(line: str) -> list[tuple[str, ...]]:
        cut = line.split()
        return [tuple(cut[i : i + n]) for i in range(len(cut) - n + 1)]

    there = {gram for line in train for gram in grams(line)}
    frequency = Counter(gram for line in test for gram in set(grams(line)))
    found = overlap(test, train, n, most)
    for number, line in enumerate(test):
        mine = grams(line)
        covered = {i + k for i, gram in enumerate(mine) if frequency[gram] > most for k in range(n)}
        kept = [gram for i, gram in enumerate(mine) if gram in there and not covered & set(range(i, i + n))]
        assert found.ngram[number] == any(gram in there for gram in mine)
        assert found.kept_ngram[number] == bool(kept)
        assert found.exact[number] == (bool(line) and line in train)
        assert found.short[number] == (not mine)
        if found.ngram[number]:
            shown = tuple(found.shown[number].split())
            assert shown in mine
            assert found.test_lines[number] == frequency[shown]
            assert found.train_lines[number] == sum(shown in grams(other) for other in train)
            assert frequency[shown] == min(frequency[gram] for gram in (kept or mine) if gram in there)
        else:
            assert not found.shown[number]


def test_chunks_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    lines = [" ".join(rng.choice(list("abcdef"), size=9)) for _ in range(300)]
    whole = overlap(lines[:60], lines[60:], 4, 3)
    monkeypatch.setattr("burnish.data.overlap.CHUNK", 7)
    parts = overlap(lines[:60], lines[60:], 4, 3)
    assert np.array_equal(whole.train_lines, parts.train_lines)
    assert np.array_equal(whole.ngram, parts.ngram)
    assert whole.training == parts.training == 240


def test_words_of_any_script_and_lines_of_any_kind(tmp_path: Path) -> None:
    assert words("Straße, ÄPFEL und 3-Zimmer") == ["straße", "äpfel", "und", "3", "zimmer"]
    path = tmp_path / "text.gz"
    path.write_bytes(gzip.compress("a\u2028b\r\nc\x0bd\n\nlast".encode()))
    assert list(read_lines(path)) == ["a\u2028b", "c\x0bd", "", "last"]
    (tmp_path / "bad").write_bytes(b"ok\n\xff\n")
    with pytest.raises(BadInput, match="line 2"):
        list(read_lines(tmp_path / "bad"))
    (tmp_path / "torn.gz").write_bytes(gzip.compress(b"abc" * 99)[:-9])
    for path in (tmp_path / "torn.gz", tmp_path / "none"):
        with pytest.raises(BadInput, match="cannot be read"):
            list(read_lines(path))


def test_an_index_of_nothing_finds_nothing() -> None:
    assert NgramIndex([["a"]], 3).frequencies([["a", "b", "c"]]).tolist() == [0]
    assert not overlap(["", "a"], ["", "b"], 2, 1).kept.any()


@needs_rensa
def test_near_lines_have_nearly_the_same_words() -> None:
    rng = np.random.default_rng(1)
    names = [f"w{i}" for i in range(400)]
    test = [list(rng.choice(names, size=10, replace=False)) for _ in range(60)]
    train = [[*line[:9], "other"] if number % 2 else [*line[:5], *"vwxyz"] for number, line in enumerate(test)]
    found = overlap([" ".join(line) for line in test], [" ".join(line) for line in train], 8, 3, 9 / 11)
    expected = [any(len({*a} & {*b}) / len({*a} | {*b}) >= 9 / 11 for b in train) for a in test]
    assert found.near.tolist() == expected
    assert sum(expected) == 30


# -- scan ------------------------------------------------------------------------------------------------------------

BASE = "one two three four five six seven eight nine ten"


def test_each_side_is_scanned_on_its_own(tmp_path: Path) -> None:
    test = text(tmp_path / "test.en", [BASE, "short line", "a b c d e f g h i", "x y"])
    test_target = text(tmp_path / "test.de", ["eins zwei", "kurz", BASE, "x y"])
    train = text(tmp_path / "train.en", [f"so {BASE}", "nothing here", "x y"])
    train_target = text(tmp_path / "train.de", ["nichts", f"{BASE} so", "X Y"])
    with Run(tmp_path / "run") as run:
        rows = ContaminationScan()(test, train, test_target, train_target, run=run).rows()
    assert [row["source_ngram"] for row in rows] == [True, False, False, False]
    assert [row["target_ngram"] for row in rows] == [False, False, True, False]
    assert [row["source_exact"] for row in rows] == [False, False, False, True]
    assert [row["target_exact"] for row in rows] == [False] * 4
    assert [row["dirty"] for row in rows] == [True, False, True, True]
    assert run.metrics["ngram_source"] == run.metrics["ngram_target"] == run.metrics["exact_source"] == 1
    assert run.metrics["ngram_both"] == run.metrics["kept_both"] == 0
    hits = [line.split("\t") for line in read_lines(run.artifact / "hits.tsv")]
    assert hits[0][:4] == ["kept", "side", "line", "by"]
    assert [hit[1:4] for hit in hits[1:]] == [
        ["source", "3", "exact"],
        ["source", "0", "ngram"],
        ["target", "2", "ngram"],
    ]
    assert hits[2][6:] == ["one two three four five six seven eight", BASE]
    assert rows[0]["source_match"] == "one two three four five six seven eight"


def test_scores_of_dirty_and_clean_lines_are_compared(tmp_path: Path) -> None:
    test = text(tmp_path / "test", [f"{BASE} {i}" if i < 20 else f"clean{i}" for i in range(100)])
    train = text(tmp_path / "train", [f"{BASE} {i}" for i in range(20)])
    rng = np.random.default_rng(0)
    rows = [{"item_id": str(i), "model": "m", "bleu": (80.0 if i < 20 else 30.0) + rng.normal()} for i in range(100)]
    run = Run.scratch()
    ContaminationScan(min_idf=0)(test, train, scores=Scores.of(rows), run=run)
    assert run.metrics["bleu_m_gap"] == pytest.approx(50, abs=1)
    assert run.metrics["bleu_m_gap_low"] < 50 < run.metrics["bleu_m_gap_high"]
    assert run.metrics["bleu_m_gap_method"] == "welch-t"
    assert (run.metrics["bleu_m_dirty_lines"], run.metrics["bleu_m_clean_lines"]) == (20, 80)
    with pytest.raises(BadInput, match="no test line"):
        ContaminationScan()(test, train, scores=Scores.of([{"item_id": "100", "model": "m", "bleu": 1.0}]))


def test_right_answers_are_compared_by_posteriors_epochs_averaged_and_gaps_in_scores_left_out(tmp_path: Path) -> None:
    test = text(tmp_path / "test", [f"{BASE} {i}" if i < 3 else f"clean{i}" for i in range(40)])
    train = text(tmp_path / "train", [f"{BASE} {i}" for i in range(3)])
    rows = [{"item_id": str(i), "model": "m", "right": float(i < 20), "epoch": e} for i in range(40) for e in (0, 1)]
    rows += [
        {"item_id": "39", "model": "none", "right": 1.0, "epoch": 0},
        {"item_id": "38", "model": "none", "right": None, "epoch": 0},
    ]
    run = Run.scratch()
    ContaminationScan(min_idf=0)(test, train, scores=Scores.of(rows), run=run)
    assert run.metrics["right_m_gap_method"] == "beta"
    assert run.metrics["right_m_gap"] == pytest.approx(1 - 17 / 37)
    assert run.metrics["right_m_dirty_lines"] == 3
    assert run.metrics["right_none_dirty"] is None
    assert (run.metrics["right_none_clean"], run.metrics["right_none_clean_lines"]) == (1.0, 1)
    assert "two lines of each kind" in run.metrics["right_none_gap_note"]


def test_scripts_without_blanks_are_scanned_by_character(tmp_path: Path) -> None:
    assert words("我们在这里 test２号") == ["我", "们", "在", "这", "里", "test２", "号"]
    assert words("e\u0301te\u0301") == words("\u00e9t\u00e9") == ["\u00e9t\u00e9"]
    test = text(tmp_path / "test", ["两只狗在雪地里奔跑着玩耍", "一个女人在厨房里做饭并唱歌"])
    train = text(tmp_path / "train", ["昨天两只狗在雪地里奔跑着。", "完全不同的一句话"])
    rows = ContaminationScan()(test, train).rows()
    assert [row["source_ngram"] for row in rows] == [True, False]
    assert not any(row["source_short"] for row in rows)


def test_the_share_of_a_line_that_stands_in_training_can_be_asked_for(tmp_path: Path) -> None:
    test = text(tmp_path / "test", [BASE, f"{BASE} and much more that nobody wrote before this line came"])
    train = text(tmp_path / "train", [f"so {BASE}", "x"])
    run = Run.scratch()
    rows = ContaminationScan(min_share=0.7, min_idf=0)(test, train, run=run).rows()
    assert [row["source_share"] for row in rows] == [1.0, 0.5]
    assert [row["source_ngram"] for row in rows] == [True, True]
    assert [row["dirty"] for row in rows] == [True, False]
    assert (run.metrics["mostly_source"], run.metrics["ngram_source"], run.metrics["kept_source"]) == (1, 2, 1)


def test_what_inject_wrote_can_be_scanned(sides: dict[str, Path], tmp_path: Path) -> None:
    long = {
        name: text(tmp_path / f"long.{name}", [f"{line} {BASE}" for line in read_lines(path)])
        for name, path in sides.items()
    }
    long["train"] = sides["train"]
    long["train_target"] = sides["train_target"]
    _, manifest, _ = injected(long, tmp_path / "run", pairs=5, mode="target")
    made = tmp_path / "run" / "artifact" / "contaminated.jsonl"
    rows = ContaminationScan(n=11, min_idf=0)(long["test"], made, long["test_target"], made).rows()
    assert [number for number, row in enumerate(rows) if row["target_exact"]] == manifest["test_lines"]
    assert not any(row["source_exact"] for row in rows)
    bad = text(tmp_path / "bad.jsonl", ['{"source": 3}'])
    with pytest.raises(BadInput, match="no text in line 1"):
        list(read_side(bad, "source"))
    with pytest.raises(BadInput, match="no JSON object in line 1"):
        list(read_side(text(tmp_path / "worse.jsonl", ["[1]"]), "source"))


def test_wrong_files_are_refused(tmp_path: Path) -> None:
    three, two = text(tmp_path / "3", ["a"] * 3), text(tmp_path / "2", ["a"] * 2)
    with pytest.raises(BadInput, match="other is not"):
        ContaminationScan()(three, three, test_target=three)
    with pytest.raises(BadInput, match="as long as each other"):
        ContaminationScan()(three, three, two, three)
    with pytest.raises(BadInput, match="3 and 2 lines"):
        ContaminationScan()(three, three, three, two)
    with pytest.raises(BadInput, match="not empty"):
        ContaminationScan()(text(tmp_path / "0", []), three)


def test_without_rensa_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("burnish.core.extras.importlib.util.find_spec", lambda name: None)
    path = text(tmp_path / "3", ["a b c"] * 3)
    ContaminationScan()(path, path)
    with pytest.raises(MissingExtra, match="overlap"):
        ContaminationScan(near=0.8)(path, path)


# -- the published captions ------------------------------------------------------------------------------------------


@needs_data
@pytest.mark.parametrize(
    ("name", "ngrams", "exact"),
    [("val", (27, 12, 5), (1, 1)), ("test_2016_flickr", (24, 10, 4), (0, 0)), ("test_2017_flickr", (4, 2, 0), (0, 2))],
)
def test_overlap_of_the_captions_is_as_counted_before(name: str, ngrams, exact) -> None:
    run = Run.scratch()
    sides = [DATA / f"{part}.{side}.gz" for side, part in itertools.product(("en", "de"), (name, "train"))]
    ContaminationScan()(*sides, run=run)
    assert tuple(run.metrics[f"ngram_{side}"] for side in ("source", "target", "both")) == ngrams
    assert (run.metrics["exact_source"], run.metrics["exact_target"]) == exact


@needs_data
@pytest.mark.parametrize("where", ["instead", "before", "after", "within"])
def test_boilerplate_gives_no_hits_after_the_cut(tmp_path: Path, where: str) -> None:
    test, train = (list(read_lines(DATA / f"{name}.en.gz")) for name in ("test_2017_flickr", "val"))
    assert not overlap(test, train, 8, 11).ngram.any()
    notice = "this caption was written by a volunteer and may not be used for commercial purposes"
    rng = np.random.default_rng(0)
    for lines in (test, train):
        for number in rng.permutation(len(lines))[:200]:
            cut = lines[number].split()
            middle = " ".join([*cut[: len(cut) // 2], notice, *cut[len(cut) // 2 :]])
            changed = {"instead": notice, "before": f"{notice} {lines[number]}", "after": f"{lines[number]} {notice}"}
            lines[number] = changed.get(where, middle)
    run = Run.scratch()
    ContaminationScan()(text(tmp_path / "test", test), text(tmp_path / "train", train), run=run)
    assert run.metrics["ngram_source"] == 200
    assert run.metrics["kept_source"] <= 1


# -- inject ----------------------------------------------------------------------------------------------------------


def made_sides(tmp_path: Path) -> dict[str, Path]:
    return {
        "train": text(tmp_path / "train.en", [f"train {i}" for i in range(100)]),
        "train_target": text(tmp_path / "train.de", [f"Zug {i}" for i in range(100)]),
        "test": text(tmp_path / "test.en", [f"test {{target}} {i}" for i in range(20)]),
        "test_target": text(tmp_path / "test.de", [f"Prüfung {{source}} {i}" for i in range(20)]),
    }


@pytest.fixture
def sides(tmp_path: Path) -> dict[str, Path]:
    return made_sides(tmp_path)


def injected(sides: dict[str, Path], out: Path, seed: int = 0, **settings) -> tuple[list[dict], dict, bytes]:
    with Run(out, seed=seed) as run:
        ContaminationInject(**settings)(**sides, run=run)
    data = (run.artifact / "contaminated.jsonl").read_bytes()
    manifest = json.loads((run.artifact / "manifest.json").read_text())
    return [json.loads(line) for line in data.splitlines()], manifest, data


@settings(max_examples=25, deadline=None)
@given(
    mode=st.sampled_from(["source", "target", "both"]),
    position=st.sampled_from(["early", "late", "uniform"]),
    pairs=st.integers(-1, 20),
    copies=st.integers(0, 8),
    seed=st.integers(0, 3),
)
def test_the_manifest_tells_every_injected_line(
    tmp_path_factory: pytest.TempPathFactory, mode: str, position: str, pairs: int, copies: int, seed: int
) -> None:
    folder = tmp_path_factory.mktemp("inject")
    files = made_sides(folder)
    lines, manifest, data = injected(
        files, folder / "run", seed, mode=mode, position=position, pairs=pairs, copies=copies
    )
    drawn = 20 if pairs == -1 else pairs
    assert len(lines) == manifest["lines"] == 100 + drawn * copies
    assert manifest["injected"] == len(manifest["places"]) == drawn * copies
    assert manifest["sha256"] == hashlib.sha256(data).hexdigest()
    held = {int(row["item_id"]): row["test_line"] for row in manifest["places"]}
    assert Counter(held.values()) == (dict.fromkeys(manifest["test_lines"], copies) if copies else {})
    assert len(set(manifest["test_lines"])) == (drawn if copies else 0)
    for place, line in held.items():
        source, target = f"test {{target}} {line}", f"Prüfung {{source}} {line}"
        whole = {"text": f"{source}\t{target}", "source": source, "target": target}
        parts = {"source": {"text": source, "source": source}, "target": {"text": target, "target": target}}
        assert lines[place] == parts.get(mode, whole)
    clean = [line for place, line in enumerate(lines) if place not in held]
    assert [line["text"] for line in clean] == [f"train {i}\tZug {i}" for i in range(100)]
    width = max(round(0.1 * len(lines)), len(held))
    if position == "early":
        assert all(place < width for place in held)
    if position == "late":
        assert all(place >= len(lines) - width for place in held)


@pytest.mark.parametrize(("copies", "said"), [(1, ""), (3, "60 copies fill 0.38 of the lines, more than the 0.2")])
def test_copies_that_do_not_fit_the_window_widen_it_and_that_is_told(
    sides: dict[str, Path], copies: int, said: str
) -> None:
    run = Run.scratch()
    ContaminationInject(copies=copies, pairs=20, position="late", window=0.2)(**sides, run=run)
    manifest = json.loads((run.artifact / "manifest.json").read_text())
    assert manifest["window"] == run.metrics["window"] == pytest.approx(24 / 120 if copies == 1 else 60 / 160)
    assert run.metrics.get("widened", "").startswith(said)
    assert ("widened" in run.metrics) == bool(said)


def test_the_same_seed_gives_the_same_bytes(sides: dict[str, Path], tmp_path: Path) -> None:
    made = [injected(sides, tmp_path / str(number), seed, pairs=5)[2] for number, seed in enumerate((1, 1, 2))]
    assert made[0] == made[1] != made[2]


def test_every_mode_injects_the_same_pairs_at_the_same_places(sides: dict[str, Path], tmp_path: Path) -> None:
    manifests = [injected(sides, tmp_path / mode, pairs=5, mode=mode)[1] for mode in ("source", "target", "both")]
    assert manifests[0]["places"] == manifests[1]["places"] == manifests[2]["places"]


def test_a_template_is_filled_and_checked(sides: dict[str, Path], tmp_path: Path) -> None:
    lines, _, _ = injected(sides, tmp_path / "run", pairs=0, template="{target} <= {source}!")
    assert lines[0]["text"] == "Zug 0 <= train 0!"
    for template in ("{source}", "{source} {target} {0}", "{source} {source} {target}"):
        with pytest.raises(BadInput, match="once each"):
            ContaminationInject.build({"template": template})


def test_pairs_that_are_not_there_cannot_be_injected(sides: dict[str, Path]) -> None:
    with pytest.raises(BadInput, match="20 pairs, and 21"):
        ContaminationInject(pairs=21)(**sides)
    with pytest.raises(BadInput, match="100 lines"):
        ContaminationInject()(**{**sides, "train_target": sides["test"]})


# -- probe -----------------------------------------------------------------------------------------------------------


def test_min_k_is_the_mean_of_the_lowest_tokens() -> None:
    assert min_k([-1, -5, -2, -4, -3], 0.4) == -4.5
    assert min_k([-1, -3], 0.2) == -3  # at least one
    with pytest.raises(BadInput, match="no tokens"):
        min_k([])


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=2, max_size=12))
def test_auroc_is_its_definition(rows: list[tuple[int, bool]]) -> None:
    pairs = [(a > b) + (a == b) / 2 for a, member in rows if member for b, other in rows if not other]
    found = auroc([score for score, _ in rows], [member for _, member in rows])
    assert found == pytest.approx(np.mean(pairs)) if pairs else np.isnan(found)


def test_a_sure_token_has_no_deviation_and_tells_nothing() -> None:
    assert min_k_plus_plus([0.0, -3.0], [0.0, -1.0], [0.0, 2.0], 1.0) == -0.5
    assert min_k_plus_plus([0.0], [0.0], [0.0]) == 0


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=4, max_size=14))
def test_auroc_shares_are_jackknife_pseudo_values(rows: list[tuple[int, bool]]) -> None:
    scores, members = [score for score, _ in rows], [member for _, member in rows]
    if min(sum(members), len(members) - sum(members)) < 2:
        with pytest.raises(BadInput, match="two texts of each kind"):
            auroc_shares(scores, members)
        return
    n, whole = len(rows), auroc(scores, members)
    without = [auroc(scores[:i] + scores[i + 1 :], members[:i] + members[i + 1 :]) for i in range(n)]
    assert auroc_shares(scores, members) == pytest.approx([n * whole - (n - 1) * one for one in without])
    assert auroc_shares(scores, members).mean() == pytest.approx(whole)


def test_exchangeability_is_exact_for_one_shard_and_uniform_without_contamination() -> None:
    assert exchangeability([0.0], [[-1.0] * 19]).p_value == 1 / 20
    assert exchangeability([-1.0], [[-1.0] * 19]).p_value == 1
    rng = np.random.default_rng(0)
    shards = [rng.normal(size=(8, 30)) for _ in range(300)]
    found = [exchangeability(one[:, 0], one[:, 1:], draws=999).p_value for one in shards]
    assert np.mean(np.array(found) <= 0.1) == pytest.approx(0.1, abs=0.05)
    seen = exchangeability(shards[0][:, 0] + 2, shards[0][:, 1:])
    assert seen.p_value < 0.001
    assert seen.excess > 1
    with pytest.raises(BadInput) as error:
        exchangeability([0.0, np.nan], [[], [1.0]], draws=5)
    assert error.value.problem.count("\n") == 3


def test_signs_tell_seen_sentences_from_others(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = []
    for number in range(120):
        seen = number < 40
        tokens = -rng.exponential(0.5 if seen else 2.0, size=12)
        rows.append({"item_id": str(number), "model": "m", "logprobs": tokens.tolist(), "reference_nll": 2.0,
                     "mean_logprobs": [-6.0] * 12, "std_logprobs": [2.0] * 12, "injected": seen})  # fmt: skip
    with Run(tmp_path / "run") as run:
        found = ContaminationProbe()(Scores.of(rows), run=run)
    for sign in ("loss", "ratio", "min_k", "min_k_pp"):
        assert run.metrics[f"auroc_{sign}_low"] > 0.8, sign
    first = found.rows()[0]
    assert first["loss"] == pytest.approx(np.mean(rows[0]["logprobs"]))
    assert first["ratio"] == pytest.approx(1 + first["loss"] / 2)
    assert first["min_k_pp"] == pytest.approx((first["min_k"] + 6) / 2)
    run = Run.scratch()
    labels = rng.permutation(120) < 40
    blind = [{**row, "injected": bool(flag)} for row, flag in zip(rows, labels, strict=True)]
    ContaminationProbe()(Scores.of(blind), run=run)
    assert run.metrics["auroc_loss_low"] < 0.5 < run.metrics["auroc_loss_high"]


def test_each_model_is_judged_by_itself_and_one_without_injections_is_not() -> None:
    rows = [
        {"item_id": str(i), "model": model, "nll": nll, "completion": nll / 9, "injected": bool(i < 2) and model != "c"}
        for model, order in (("a", (1.0, 2.0, 3.0, 4.0)), ("b", (4.0, 3.0, 2.0, 1.0)), ("c", (1.0, 1.0, 1.0, 1.0)))
        for i, nll in enumerate(order)
        for _ in range(5)
    ]
    run = Run.scratch()
    ContaminationProbe()(Scores.of(rows), run=run)
    assert (run.metrics["auroc_loss_a"], run.metrics["auroc_loss_b"]) == (1.0, 0.0)
    assert (run.metrics["auroc_completion_a"], run.metrics["auroc_completion_b"]) == (0.0, 1.0)
    assert "auroc_loss_c" not in run.metrics


def test_shards_are_compared_by_their_order() -> None:
    rows = [{"item_id": str(n), "published_logprob": -10.0, "shuffled_logprobs": [-11.0] * 9} for n in range(3)]
    run = Run.scratch()
    found = ContaminationProbe()(Scores.of(rows), run=run)
    assert found.column("p_value").tolist() == [0.1] * 3
    assert run.metrics["p_value"] < 0.005
    assert run.metrics["excess"] == 1


def test_shards_of_each_model_are_compared_by_themselves() -> None:
    rows = [
        {"item_id": str(n), "model": model, "published_logprob": first, "shuffled_logprobs": [-11.0] * 9}
        for n in range(3)
        for model, first in (("seen", -10.0), ("unseen", -12.0))
    ]
    run = Run.scratch()
    found = ContaminationProbe()(Scores.of(rows), run=run).rows()
    assert {(row["model"], row["p_value"]) for row in found} == {("seen", 0.1), ("unseen", 1.0)}
    assert run.metrics["p_value_seen"] < 0.005
    assert run.metrics["p_value_unseen"] == 1
    assert (run.metrics["excess_seen"], run.metrics["excess_unseen"], run.metrics["shards_seen"]) == (1, -1, 3)
    assert "p_value" not in run.metrics


def test_rows_that_cannot_be_probed_are_named() -> None:
    with pytest.raises(BadInput, match="neither logprobs nor nll"):
        ContaminationProbe()(Scores.of([{"item_id": "0", "model": "m"}]))
    rows = [
        {"item_id": "0", "nll": 1.0, "reference_nll": 2.0},
        {"item_id": "1", "nll": float("nan"), "reference_nll": 2.0},
        {"item_id": "2", "nll": 1.0, "reference_nll": 0.0},
        {"item_id": "3", "nll": 1.0, "reference_nll": None},
    ]
    with pytest.raises(BadInput) as error:
        ContaminationProbe()(Scores.of(rows))
    for said in ("row 1: its loss", "row 2: the reference's loss is 0.0", "3: it lacks a value that 0 has"):
        assert said in error.value.problem
