"""MQM ratings: spans and tags, weights, and three formats that give the file back to the byte."""

from __future__ import annotations

import gzip
import json
import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.core.errors import BadInput
from burnish.data.mqm import Marked, Sheet, read_tsv, sheet, tsv, write_tsv
from burnish.data.mqm_formats import from_json, read_ratings, to_esa, to_json, write_ratings
from burnish.data.mqm_scores import read_segment_scores
from burnish.data.mqm_weights import Weights, segment_scores, system_scores

DATA = Path(os.environ.get("BURNISH_DATA", "")) / "specialist_mqm"
needs_data = pytest.mark.skipif(
    not os.environ.get("BURNISH_DATA") or not DATA.is_dir(), reason="BURNISH_DATA does not hold specialist_mqm"
)
SETS = {
    "mqm_ted_ende.tsv.gz": 8435,
    "mqm_ted_zhen.tsv.gz": 9915,
    "sxs_mqm_generalMT2023_ende.3ratingsPerSegment.nometa.tsv.gz": 10970,
}

HEAD = "system\tdoc\tdoc_id\tseg_id\trater\tsource\ttarget\tcategory\tseverity\tcomment"
ROWS = [
    "A\td\t1\t1\tr1\tThe cat sat.\tDie <v>Kat</v>ze saß.\tFluency/Spelling\tMinor\ttags inside a word",
    "A\td\t1\t1\tr1\tThe cat sat.\tDie Katze <v>saß.\tAccuracy/Mistranslation\tMajor\tno end",
    "B\td\t1\t1\tr1\tThe cat sat.\tDie Katze saß. \tNo-error\tNo-error\t",
    "A\td\t1\t1\tr2\tThe <v>cat</v> sat.\tDie Katze saß.\tAccuracy/Omission\tMajor\tin the source",
    "B\td\t1\t1\tr1\tThe cat sat.\t<v> </v>Die Katze saß.\tFluency/Punctuation\tMinor\ta blank",
    "A\td\t2\t2\tr1\t你好，世界\t<v>こんにちは</v>、<v>세계</v>\tStyle/Awkward\tMinor\tthree scripts",
    "B\td\t2\t2\tr1\t你好，世界\tHallo, Welt\tOther\tMinor\tno tags",
    "B\td\t2\t2\tr1\t你好，世界\tHallo</v>, Welt\tOther\tCritical\tno beginning",
    "A\td\t2\t2\tr2\t你好，世界\tこんにちは、세계\tFound\tHOTW-test\t",
    "A\td\t2\t2\tr2\t你好，世界\tこ<v></v>んにちは、세계\tSource issue\tMinor\tempty",
]
TEXT = "\n".join([HEAD, *ROWS, ""])


def made(text: str = TEXT) -> Sheet:
    return sheet(text)


# -- tags ------------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.sampled_from(["<v>", "</v>", "<", "v>", "a", " ", "é", "好", "\U0001f600", "</v", "<v"]), max_size=12)
)
def test_any_text_survives_its_tags(parts: list[str]) -> None:
    tagged = "".join(parts)
    marked = Marked.parse(tagged)
    assert marked.render() == tagged
    for start, end in marked.spans():
        assert 0 <= start <= end <= len(marked.text)


@given(st.text("abé好", max_size=9), st.data())
def test_nested_and_touching_spans_are_read_back(text: str, data: st.DataObject) -> None:
    places = st.integers(0, len(text))
    spans: list[tuple[int, int]] = []
    for start, end in data.draw(st.lists(st.tuples(places, places).map(sorted), max_size=4)):
        if all(e <= start or end <= s or (s <= start and end <= e) or (start <= s and e <= end) for s, e in spans):
            spans.append((start, end))
    # An empty span on the edge of another may come back on its other side, which is the same place.
    assert Marked.parse(Marked.of(text, spans).render()).spans() == sorted(spans)


def test_offsets_count_without_tags() -> None:
    ratings = {rating.item_id: rating for rating in made().ratings()}
    first = ratings["1/A/r1"]
    assert first.hypothesis == "Die Katze saß."
    assert [(e.start, e.end, e.text) for e in first.errors] == [(4, 7, "Kat"), (10, 14, "saß.")]
    assert [(e.side, e.text, e.omission) for e in ratings["1/A/r2"].errors] == [("source", "cat", True)]
    assert [e.text for e in ratings["2/A/r1"].errors] == ["こんにちは", "세계"]
    assert [(e.start, e.end, e.severity) for e in ratings["2/B/r1"].errors] == [(0, 0, "Minor"), (0, 5, "Critical")]
    # The row with a blank in front says the same text; its offsets are those of the rating's first row.
    assert [(e.start, e.end) for e in ratings["1/B/r1"].errors] == [(0, 0)]
    assert len(ratings["2/A/r2"].errors) == 1  # the planted check is dropped


def test_planted_checks_can_be_kept() -> None:
    assert [e.severity for r in made().ratings(drop=()) if r.item_id == "2/A/r2" for e in r.errors] == [
        "HOTW-test",
        "Minor",
    ]


def test_segment_numbers_that_begin_again_in_each_document_are_told_apart() -> None:
    lines = [HEAD, *(f"A\td{doc}\t1\t1\tr\tx{doc}\ty{doc}\tNo-error\tNo-error\t" for doc in (1, 2))]
    assert [rating.segment for rating in sheet("\n".join(lines)).ratings()] == ["d1:1", "d2:1"]


# -- weights ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("severity", "category", "weight"),
    [
        ("Major", "Accuracy/Mistranslation", 5),
        ("major", "", 5),
        ("Minor", "Fluency/Punctuation", 0.1),
        ("Minor", "Fluency/Punctuation/Comma", 0.1),
        ("Minor", "Fluency", 1),
        ("Major", "Fluency/Punctuation", 5),
        ("Major", "Non-translation!", 25),
        ("Major", "Non-translation", 25),
        ("Minor", "Non-translation!", 1),
        ("Neutral", "Style", 0),
        ("No-error", "No-error", 0),
        ("Critical", "Accuracy", None),
    ],
)
def test_the_most_specific_rule_wins(severity: str, category: str, weight: float | None) -> None:
    assert Weights.parse().of(severity, category) == weight


def test_unknown_severities_are_stated_and_never_guessed() -> None:
    assert Weights.parse().unknown(made()) == {"Critical": 1, "HOTW-test": 1}
    assert Weights.parse().unknown(made(), ["hotw-test"]) == {"Critical": 1}
    assert not Weights.parse("Major:5 Minor:1 Critical:10 HOTW-test:0").unknown(made())


def test_scores_are_sums_over_errors_and_means_over_raters() -> None:
    segments = segment_scores(made().ratings(), Weights.parse())
    assert segments == {("A", "1"): -5.5, ("B", "1"): -0.1, ("A", "2"): -1.5, ("B", "2"): -1.0}
    assert system_scores(segments) == {"A": -3.5, "B": -0.55}


@pytest.mark.parametrize("rules", ["", "Major", "Major:x", "Major:-1 Minor:inf :3"])
def test_bad_weights_are_all_named(rules: str) -> None:
    with pytest.raises(BadInput) as error:
        Weights.parse(rules)
    assert error.value.problem.count("not severity") == len(rules.split())


# -- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_a_file_is_written_as_it_was(tmp_path: Path, ends: str) -> None:
    # Characters that Python takes for line ends are part of the text.
    text = TEXT.replace("no end", "no \u2028 end \x0b").replace("\n", ends)
    path = tmp_path / "ratings.tsv.gz"
    path.write_bytes(gzip.compress(text.encode()))
    write_tsv(read_tsv(path), tmp_path / "again.tsv")
    assert (tmp_path / "again.tsv").read_bytes().decode() == text.replace("\r", "")


def test_all_faults_of_a_file_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as error:
        sheet("system\trater\tsource\ttarget\tcategory\nA\tr\n", "file.tsv")
    for said in ("'severity' is missing", "globalSegId or seg_id", "line 2 has 2 cells, not 5"):
        assert said in error.value.problem
    with pytest.raises(BadInput, match="empty"):
        sheet("")
    with pytest.raises(BadInput, match="no rows"):
        sheet(HEAD)
    with pytest.raises(BadInput, match="cannot be read"):
        read_tsv(tmp_path / "none.tsv")
    (tmp_path / "latin.tsv").write_bytes("é".encode("latin-1"))
    with pytest.raises(BadInput, match="UTF-8 at byte 0"):
        read_tsv(tmp_path / "latin.tsv")
    (tmp_path / "torn.tsv.gz").write_bytes(gzip.compress(b"abc")[:-9])
    with pytest.raises(BadInput, match="cannot be read"):
        read_tsv(tmp_path / "torn.tsv.gz")


def test_rows_that_contradict_each_other_are_named() -> None:
    other = ROWS[0].replace("Die <v>Kat</v>ze saß.", "Ein Hund")
    with pytest.raises(BadInput, match="line 12: its target is not that of the first row of 1/A/r1"):
        made(TEXT + other + "\n").ratings()


def test_a_tab_cannot_be_written_unquoted() -> None:
    record = {"source": "a", "hypothesis": "b\tc", "errors": [], "segment_id": 0, "system_id": "A", "rater_id": "r"}
    with pytest.raises(BadInput, match="row 1: target holds a tab"):
        tsv(from_json(json.dumps(record)))


# -- formats ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("convert", [to_json, to_esa])
def test_there_and_back_is_the_same_file(convert) -> None:
    assert tsv(from_json(convert(made()))) == TEXT


def test_through_both_formats_is_the_same_file(tmp_path: Path) -> None:
    write_ratings(made(), tmp_path / "a.jsonl", "esa")
    write_ratings(read_ratings(tmp_path / "a.jsonl"), tmp_path / "b.json", "json")
    write_ratings(read_ratings(tmp_path / "b.json"), tmp_path / "c.tsv", "mqm")
    assert (tmp_path / "c.tsv").read_text() == TEXT


def test_ratings_have_the_keys_of_mt_metrics_eval() -> None:
    record = json.loads(to_json(made()).splitlines()[0])
    assert {k: v for k, v in record.items() if k not in ("mqm", "errors")} == {
        "source": "The cat sat.", "hypothesis": "Die Katze saß.", "document_id": "d", "segment_id": 0,
        "system_id": "A", "rater_id": "r1",
    }  # fmt: skip
    assert record["errors"][0] == {
        "start": 4, "end": 7, "category": "Fluency/Spelling", "severity": "Minor", "score": None,
        "is_source_error": False, "row": 0,
    }  # fmt: skip


def test_an_omission_is_missing_in_esa() -> None:
    record = next(json.loads(line) for line in to_esa(made()).splitlines() if '"r2"' in line)
    assert record["esa_spans"] == [
        {"start_i": "missing", "end_i": "missing", "severity": "major", "error_type": "Accuracy/Omission", "row": 0}
    ]


def test_what_others_wrote_is_read_and_kept() -> None:
    esa = {
        "langs": "en-de", "line_id": 3, "src": "A b.", "tgt": "C d.", "doc_id": "x", "system": "S", "annotator": "q",
        "esa_spans": [
            {"start_i": 0, "end_i": 1, "severity": "major", "error_type": None},
            {"start_i": "missing", "end_i": "missing", "severity": "minor", "error_type": None},
            {"start_i": 2, "end_i": 3, "severity": "undecided"},
        ],
        "esa_score": 71.5, "times": [1, 2],
    }  # fmt: skip
    found = from_json(json.dumps(esa))
    (rating,) = found.ratings()
    assert rating.item_id == "4/S/q"
    assert [(e.text, e.severity) for e in rating.errors] == [("C", "Major"), ("", "Minor"), ("d", "Undecided")]
    assert rating.errors[1].omission
    again = json.loads(to_esa(from_json(json.dumps(esa))))
    kept = ("langs", "line_id", "src", "tgt", "doc_id", "system", "annotator", "esa_score", "times")
    assert {key: again[key] for key in kept} == {key: esa[key] for key in kept}
    assert Weights.parse().unknown(found) == {"Undecided": 1}


def test_changes_to_the_spans_of_a_record_count() -> None:
    lines = [json.loads(line) for line in to_json(made()).splitlines()]
    lines[0]["errors"][0]["end"] = 9  # moved
    del lines[0]["errors"][1]  # taken out
    lines[1]["errors"] = [{"start": 0, "end": 3, "category": "Style", "severity": "Major"}]  # all others replaced
    found = from_json("\n".join(map(json.dumps, lines)))
    by_id = {rating.item_id: rating for rating in found.ratings()}
    assert [e.text for e in by_id["1/A/r1"].errors] == ["Katze"]
    assert [(e.text, e.severity) for e in by_id["1/B/r1"].errors] == [("Die", "Major")]
    emptied = [{**line, "errors": []} for line in lines]
    assert not [e for r in from_json("\n".join(map(json.dumps, emptied))).ratings() for e in r.errors]


def test_broken_records_are_named_together() -> None:
    good = json.loads(to_json(made()).splitlines()[0])
    bad = [
        "[]",
        "{",
        json.dumps({**good, "errors": [{"start": 3, "end": 99, "category": "", "severity": "Minor"}]}),
        json.dumps({key: value for key, value in good.items() if key != "hypothesis"}),
        json.dumps({**good, "source": 3}),
    ]
    with pytest.raises(BadInput) as error:
        from_json("\n".join([json.dumps(good), *bad]))
    for said in ("line 2: not an object", "line 3", "3 to 99 is not inside", "'hypothesis' is missing", "line 6"):
        assert said in error.value.problem
    with pytest.raises(BadInput, match="empty"):
        from_json("\n")


def test_segment_scores(tmp_path: Path) -> None:
    path = tmp_path / "scores.tsv"
    path.write_text("system score seg_id\nA\t-1.5 1\nA None 2\nB -0.0 1\n")
    assert read_segment_scores(path) == {("A", "1"): -1.5, ("B", "1"): 0.0}
    path.write_text("A x 1\nA y 2\nA 1 3\n")
    with pytest.raises(BadInput, match="'y' is no score"):
        read_segment_scores(path)
    path.write_text(TEXT)
    assert read_segment_scores(path) is None


# -- the published sets ----------------------------------------------------------------------------------------------

README = {
    "mqm_ted_ende.tsv.gz": {
        "ref": 0.91, "Facebook-AI": 1.06, "Online-W": 1.12, "VolcTrans-AT": 1.24, "metricsystem3": 1.44,
        "VolcTrans-GLAT": 1.49, "HuaweiTSC": 1.50, "metricsystem1": 1.63, "metricsystem2": 1.69,
        "metricsystem5": 1.72, "UEdin": 1.77, "metricsystem4": 1.78, "eTranslation": 1.96, "Nemo": 2.14,
    },
    "mqm_ted_zhen.tsv.gz": {
        "refB": 0.42, "DIDI-NLP": 1.65, "metricsystem2": 1.76, "metricsystem1": 1.90, "MiSS": 1.97, "IIE-MT": 1.98,
        "metricsystem4": 2.05, "metricsystem5": 2.15, "SMU": 2.202, "Borderline": 2.40, "NiuTrans": 2.49,
        "Facebook-AI": 2.64, "Online-W": 2.93, "metricsystem3": 2.99, "ref": 5.52,
    },
}  # fmt: skip
"""Mean MQM of each system as the README of the ratings has it."""


@needs_data
@pytest.mark.parametrize("name", README)
def test_means_of_all_systems_are_the_published_ones(name: str) -> None:
    scores = segment_scores(read_tsv(DATA / name).ratings(), Weights.parse())
    means = system_scores(scores)
    assert means.keys() == README[name].keys()
    for system, mean in README[name].items():
        assert -means[system] == pytest.approx(mean, abs=0.01), system
    published = read_segment_scores(DATA / name.replace(".tsv.gz", ".avg_seg_scores.tsv"))
    assert published is not None
    shared = scores.keys() & published.keys()
    assert len(shared) == 529 * 13  # the files name their references differently
    assert all(scores[key] == pytest.approx(published[key], abs=1e-6) for key in shared)


@needs_data
@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("convert", [to_json, to_esa])
def test_every_published_row_survives_a_round_trip(name: str, convert) -> None:
    ratings = read_tsv(DATA / name)
    original = gzip.decompress((DATA / name).read_bytes()).decode()
    assert len(ratings.rows) == SETS[name]
    assert tsv(from_json(convert(ratings))) == original


@needs_data
def test_planted_checks_are_stated() -> None:
    ratings = read_tsv(DATA / list(SETS)[2])
    assert Weights.parse().unknown(ratings) == {"HOTW-test": 245}
    kept = Counter(e.severity for r in ratings.ratings() for e in r.errors)
    assert set(kept) == {"Major", "Minor"}
