"""The specialist autorater: what is copied, what a model's reply is worth, and that no example holds the answer."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from burnish.core.errors import BadInput
from burnish.core.run import Run
from burnish.data.mqm import Error, Rating, read_tsv
from burnish.data.mqm_bank import Bank, Leak, base_system, copy_spans, guard, leak, paint, severity_codes
from burnish.data.mqm_formats import read_ratings, read_translations
from burnish.data.mqm_weights import Weights, segment_scores
from burnish.data.scores import Scores
from burnish.engine import Sampling
from burnish.evaluate.specialist.copy import SpecialistCopy
from burnish.evaluate.specialist.judge import SpecialistJudge
from burnish.evaluate.specialist.rank import SpecialistRank
from burnish.llm.client import Reply, Usage
from burnish.llm.error_spans import locate, read_reply
from burnish.stats.bootstrap import bootstrap
from burnish.stats.spans import character_counts, f1, linear_f1, span_f1, span_f1_difference

DATA = Path(os.environ.get("BURNISH_DATA", "")) / "specialist_mqm"
needs_data = pytest.mark.skipif(
    not os.environ.get("BURNISH_DATA") or not DATA.is_dir(), reason="BURNISH_DATA does not hold specialist_mqm"
)
ENDE, ZHEN = "mqm_ted_ende.tsv.gz", "mqm_ted_zhen.tsv.gz"
SXS = "sxs_mqm_generalMT2023_ende.3ratingsPerSegment.nometa.tsv.gz"
CODES = severity_codes({"Minor": 1, "Major": 5})
HEAD = "system\tdoc\tseg_id\trater\tsource\ttarget\tcategory\tseverity"


def rating(system: str, text: str, *spans: tuple[str, str], segment: str = "1", rater: str = "r") -> Rating:
    errors = [Error(text.find(s), text.find(s) + len(s), "Style", severity, "target", s) for s, severity in spans]
    return Rating(segment, system, rater, "d", "source", text, errors)


@pytest.fixture
def ratings(tmp_path: Path) -> Path:
    """Four systems on six sources; every system makes the same error of the source, and every rater marks it."""
    rows = [HEAD]
    for segment, system in itertools.product(range(6), "ABCD"):
        word = f"Fehler{segment}"
        text = f"{system} sagt <v>{word}</v> heute."
        severity = "Major" if segment % 2 else "Minor"
        rows.append(
            f"{system}\td\t{segment}\tr{segment % 2}\tsource {segment}\t{text}\tAccuracy/Mistranslation\t{severity}"
        )
        if system > "B":
            extra = f"<v>{system}</v> sagt {word} heute."
            rows.append(f"{system}\td\t{segment}\tr{segment % 2}\tsource {segment}\t{extra}\tStyle/Awkward\tMinor")
    path = tmp_path / "ratings.tsv"
    path.write_text("\n".join(rows) + "\n")
    return path


# -- F1 --------------------------------------------------------------------------------------------------------------


def test_credit_is_whole_for_the_same_severity_and_half_for_another() -> None:
    gold = paint([Error(0, 4, "", "Minor"), Error(2, 6, "", "Major")], 8, CODES)
    assert gold.tolist() == [1, 1, 2, 2, 2, 2, 0, 0]  # where spans overlap, Major wins
    predicted = paint(
        [Error(1, 3, "", "Minor"), Error(5, 8, "", "Major"), Error(0, 8, "", "Major", "source")], 8, CODES
    )
    assert character_counts(gold, predicted) == (1 + 0.5 + 1, 5, 6)
    precision, recall = 2.5 / 5, 2.5 / 6
    assert f1(2.5, 5, 6) == pytest.approx(2 * precision * recall / (precision + recall))


def test_intervals_resample_whole_segments() -> None:
    counts = np.array([[1, 2, 2], [0, 1, 2], [2, 2, 3]] * 10, dtype=float)
    alone = span_f1(counts, range(30))
    clustered = span_f1(counts, [n // 3 for n in range(30)])
    assert alone.estimate == clustered.estimate == pytest.approx(2 * 3 / (5 + 7))
    assert clustered.degenerate  # all clusters are alike
    assert alone.low < alone.estimate < alone.high
    assert span_f1_difference(counts, counts, range(30)).degenerate


def test_shares_of_clusters_stand_for_f1() -> None:
    rng = np.random.default_rng(3)
    clusters = rng.integers(0, 60, 400)
    gold = rng.integers(1, 40, 400)
    parts = []
    for rate in (0.3, 0.2):
        predicted = rng.integers(0, 40, 400)
        parts.append(np.column_stack([rng.binomial(np.minimum(gold, predicted), rate), predicted, gold]).astype(float))
    shares = [linear_f1(part, clusters) for part in parts]
    for part, share in zip(parts, shares, strict=True):
        whole = span_f1(part, clusters)
        alone = bootstrap(list(share.values()))
        assert alone.estimate == pytest.approx(whole.estimate, abs=1e-12)
        assert (alone.low, alone.high) == pytest.approx((whole.low, whole.high), abs=0.003)
    assert shares[0].keys() == shares[1].keys() == {str(name) for name in clusters}
    difference = span_f1_difference(*parts, clusters)
    alone = bootstrap([shares[0][name] - shares[1][name] for name in shares[0]])
    assert alone.estimate == pytest.approx(difference.estimate, abs=1e-12)
    assert (alone.low, alone.high) == pytest.approx((difference.low, difference.high), abs=0.003)
    with pytest.raises(BadInput, match="not defined"):
        linear_f1(np.zeros((3, 3)), "abc")


# -- copying ---------------------------------------------------------------------------------------------------------


def test_marked_strings_are_marked_wherever_they_occur() -> None:
    bank = [rating("B", "so gut", ("gut", "Minor")), rating("C", "sehr gut", ("gut", "Minor"), ("sehr", "Major"))]
    found = copy_spans("gut, sehr gut", bank, CODES)
    assert [(e.start, e.end, e.severity, e.text) for e in found] == [
        (0, 3, "Minor", "gut"),
        (5, 9, "Major", "sehr"),
        (10, 13, "Minor", "gut"),
    ]
    assert copy_spans("nichts", bank, CODES) == []
    assert copy_spans("", bank, CODES) == []


def test_the_severity_of_a_character_is_the_majority_and_the_heavier_when_equal() -> None:
    bank = [rating("B", "ab", ("ab", "Minor")), rating("C", "ab", ("b", "Major"))]
    assert paint(copy_spans("ab", bank, CODES), 2, CODES).tolist() == [1, 2]
    bank.append(rating("D", "ab", ("ab", "Minor")))
    assert paint(copy_spans("ab", bank, CODES), 2, CODES).tolist() == [1, 1]


def test_blank_and_source_spans_are_not_copied() -> None:
    blank = rating("B", "a b", (" ", "Minor"))
    source = Rating("1", "C", "r", "d", "b", "x", [Error(0, 1, "", "Major", "source", "b")])
    assert copy_spans("a b", [blank, source], CODES) == []


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_copying_is_its_definition(data: st.DataObject) -> None:
    text = st.text("ab ", max_size=8)
    hypothesis = data.draw(text)
    bank = []
    for system in "BC":
        theirs = data.draw(text)
        places = st.integers(0, len(theirs))
        errors = [
            Error(start, end, "", data.draw(st.sampled_from(["Minor", "Major"])), "target", theirs[start:end])
            for start, end in data.draw(st.lists(st.tuples(places, places).map(sorted), max_size=3))
        ]
        bank.append(Rating("1", system, "r", "", "", theirs, errors))
    votes = [[0, 0, 0] for _ in hypothesis]
    for error in (error for one in bank for error in one.errors if error.text.strip()):
        for start in range(len(hypothesis)):
            if hypothesis.startswith(error.text, start):
                for place in range(start, start + len(error.text)):
                    votes[place][CODES[error.severity.casefold()]] += 1
    expected = [0 if not any(vote) else 2 if vote[2] >= vote[1] else 1 for vote in votes]
    assert paint(copy_spans(hypothesis, bank, CODES), len(hypothesis), CODES).tolist() == expected


def test_the_table_of_made_up_ratings(ratings: Path, tmp_path: Path) -> None:
    with Run(tmp_path / "run") as run:
        scores = SpecialistCopy(draws=3)(ratings, run=run)
    metrics = run.metrics
    # The error of the source is always copied; what C and D have of their own never is.
    shared, own = 7 * 24, 12
    f1_any = metrics["f1_any_strict"]
    assert f1_any["estimate"] == pytest.approx(2 * shared / (shared + shared + own))
    assert metrics["precision_any_strict"] == 1
    assert metrics["f1_shuffled"]["estimate"] == 0
    assert f1_any["low"] <= f1_any["estimate"] <= f1_any["high"]
    assert metrics["source_gain"]["low"] > 0
    assert set(scores.column("model")) == {
        "any strict",
        "any lenient",
        "same strict",
        "same lenient",
        "shuffled",
        "minor",
    }
    minor = [row for row in scores.rows() if row["model"] == "minor"]
    assert all(row["predicted"] == len("A sagt Fehler0 heute.") for row in minor)
    again = SpecialistCopy(draws=3)(ratings, run=Run.scratch())
    assert again.rows() == scores.rows()


def test_severities_without_a_weight_are_told(ratings: Path) -> None:
    ratings.write_text(ratings.read_text().replace("\tMinor\n", "\tCritical\n", 2))
    run = Run.scratch()
    scores = SpecialistCopy(arms=("any",))(ratings, run=run)
    assert scores.notes["severities_without_a_weight"] == {"Critical": 2}
    assert run.metrics["rows_of_unknown_severity"] == 2


def test_one_segment_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "one.tsv"
    path.write_text(f"{HEAD}\nA\td\t1\tr\ts\tt\tNo-error\tNo-error\n")
    with pytest.raises(BadInput, match="one source"):
        SpecialistCopy()(path)


# -- the guard -------------------------------------------------------------------------------------------------------


def test_what_gives_the_answer_away() -> None:
    mine = rating("GPT_with_refA", "Ja.")
    assert "is the rated system" in leak(mine, rating("GPT_with_refA", "Nein."))
    assert "another name" in leak(mine, rating("GPT_with_refB", "Nein."))
    assert "another name" in leak(mine, rating("GPT", "Nein."))
    assert "same translation" in leak(mine, rating("X", " Ja. "))
    assert not leak(mine, rating("X", "Nein."))
    assert not leak(mine, rating("GPT_with_refB", "Ja."), "lenient")
    with pytest.raises(Leak) as error:
        guard(mine, [rating("X", "Ja."), rating("Y", "Nein."), rating("GPT", "Nein.")])
    assert error.value.problem.count("\n") == 2


NAMES = st.sampled_from(["A", "B", "A_with_x", "A_with_y", "B_with_x", "C"])


@settings(max_examples=1000, deadline=None)
@given(
    st.lists(st.tuples(NAMES, st.sampled_from(["x", " x", "y ", "z"]), st.sampled_from("rs")), min_size=1), st.data()
)
def test_no_example_of_a_bank_is_a_leak(rows: list[tuple[str, str, str]], data: st.DataObject) -> None:
    rated = [rating(system, text, rater=rater) for system, text, rater in rows]
    mine = data.draw(st.sampled_from(rated))
    offered = Bank(rated).others(mine)
    guard(mine, offered)
    for one in rated:
        own = base_system(one.system) == base_system(mine.system) or one.hypothesis.strip() == mine.hypothesis.strip()
        assert own == (one not in offered)
        if own:
            with pytest.raises(Leak):
                SpecialistJudge().chat(mine, [*offered, one])


@needs_data
@pytest.mark.parametrize("name", [ENDE, ZHEN, SXS])
def test_a_thousand_random_picks_of_the_published_sets_hold_no_leak(name: str) -> None:
    rated = read_tsv(DATA / name).ratings()
    bank = Bank(rated)
    rng = np.random.default_rng(0)
    refused = 0
    for number in rng.integers(0, len(rated), 1000):
        mine = rated[number]
        offered = bank.others(mine, rater=("any", "same", "other")[number % 3])
        assert all(one.system != mine.system and not leak(mine, one) for one in offered)
        for one in bank.ratings(mine.segment):
            alike = (
                base_system(one.system) == base_system(mine.system) or one.hypothesis.strip() == mine.hypothesis.strip()
            )
            if alike:
                refused += 1
                with pytest.raises(Leak):
                    SpecialistJudge().chat(mine, [one])
    assert refused >= 1000  # at least the rated system's own


# -- what a model writes ---------------------------------------------------------------------------------------------

GOOD = '{"span": "Katze", "category": "Style", "severity": "minor"}'
CASES = [
    ("[]", "ok", 0, 0),
    (f"[{GOOD}]", "ok", 1, 0),
    (f"```json\n[{GOOD}]\n```", "ok", 1, 0),
    (f"Here are the errors: [{GOOD}] I hope this helps [1].", "ok", 1, 0),
    (f"<think>[{GOOD}, {GOOD}]</think>[{GOOD}]", "ok", 1, 0),
    (f'{{"errors": [{GOOD}]}}', "ok", 1, 0),
    ('{"errors": []}', "ok", 0, 0),
    (f"[{GOOD}, {GOOD[:-1]}", "partial", 1, 0),
    (f"[{GOOD}, {GOOD}, ", "partial", 2, 0),
    (f"[{GOOD},]", "partial", 1, 0),
    (f"{GOOD}\n{GOOD}", "partial", 2, 0),
    (f"[{GOOD} {GOOD}]", "partial", 2, 0),
    (f'[{GOOD}, {{"span": 3, "severity": "minor"}}]', "partial", 1, 1),
    (f'[{GOOD}, {{"span": "x", "severity": "terrible"}}]', "partial", 1, 1),
    (f'[{GOOD}, "Katze"]', "partial", 1, 1),
    ('[{"category": "Style", "severity": "minor"}]', "unscored", 0, 1),
    ("", "unscored", 0, 0),
    ("The translation is perfect.", "unscored", 0, 0),
    ("[{'span': 'Katze', 'severity': 'minor'}]", "unscored", 0, 0),
    ("[" * 3000, "unscored", 0, 0),
    ('"[]', "ok", 0, 0),
    ("null", "unscored", 0, 0),
    ("[1, 2]", "unscored", 0, 0),
    ('[{"span": "Katze", "category": null, "severity": "MAJOR "}]', "ok", 1, 0),
    ('{"span": "Katze", "severity": "minor", "others": []}', "partial", 1, 0),
    ('{"errors": [{"span": "Katze", "severity": "minor", "others": [{"a": 1}]}]}', "ok", 1, 0),
]


@pytest.mark.parametrize(("text", "status", "claims", "malformed"), CASES)
def test_broken_replies_are_read_in_part_or_left_unscored(text: str, status: str, claims: int, malformed: int) -> None:
    found = read_reply(text)
    assert (found.status, len(found.claims), found.malformed) == (status, claims, malformed)


def test_there_are_twenty_cases_and_each_end_occurs() -> None:
    assert len(CASES) >= 20
    assert {case[1] for case in CASES} == {"ok", "partial", "unscored"}


def test_invented_spans_are_dropped_and_counted() -> None:
    reply = json.dumps(
        [
            {"span": "die", "category": "Style", "severity": "minor"},
            {"span": " die ", "category": "Style", "severity": "major"},
            {"span": "die", "category": "Style", "severity": "major"},
            {"span": "Hund", "category": "Style", "severity": "major"},
            {"span": "dog", "category": "Accuracy/Omission", "severity": "major"},
            {"span": "", "category": "Accuracy/Omission", "severity": "minor"},
            {"span": "", "category": "Style", "severity": "minor"},
        ]
    )
    found = locate(read_reply(reply).claims, "die Katze, die", "a dog")
    assert [(e.start, e.end, e.severity, e.side) for e in found.errors] == [
        (0, 3, "Minor", "target"),
        (11, 14, "Major", "target"),
        (2, 5, "Major", "source"),
        (0, 0, "Minor", "target"),
    ]
    assert found.invented == 2  # the dog in German, and the blank
    assert found.repeated == 1  # the third "die" of two


def test_errors_of_the_source_stand_there() -> None:
    reply = json.dumps(
        [{"span": "dog", "category": category, "severity": "minor"} for category in ("Source issue", "Style")]
    )
    found = locate(read_reply(reply).claims, "Katze", "a dog")
    assert [(e.side, e.text) for e in found.errors] == [("source", "dog")]
    assert found.invented == 1


# -- the judge -------------------------------------------------------------------------------------------------------


class Parrot:
    """Marks the first span of the last example, as far as it can; every tenth reply is broken."""

    name = "parrot"

    def __init__(self, broken: bool = True) -> None:
        self.asked: list[str] = []
        self.broken = broken

    def generate(self, chats, sampling: Sampling, run: Run) -> list[Reply]:
        replies = []
        for chat in chats:
            text = chat[-1]["content"]
            self.asked.append(text)
            lists = [
                json.loads(line.removeprefix("Errors: ")) for line in text.splitlines() if line.startswith("Errors: [")
            ]
            said = json.dumps(lists[-1][:1] if lists else [])
            if self.broken and len(self.asked) % 10 == 0:
                said = "I cannot."
            usage = Usage(prompt_tokens=1, completion_tokens=1)
            replies.append(Reply(text=said, finish="stop", usage=usage, model="parrot", seconds=0.0))
        return replies


def test_a_specialist_that_repeats_its_examples_beats_the_control(ratings: Path, tmp_path: Path) -> None:
    judge = Parrot(broken=False)
    with Run(tmp_path / "run") as run:
        scores = SpecialistJudge(each=-1, segments=-1)(ratings, judge, run=run)
    metrics = run.metrics
    assert metrics["ratings"] == 24
    assert metrics["f1_specialist"]["estimate"] > 0.9
    assert metrics["gain_over_shuffled"]["low"] > 0
    assert metrics["gain_over_copy"]["estimate"] == pytest.approx(0)
    assert metrics["unscored_specialist"] == 0
    assert metrics["invented_shuffled"] == 24  # the errors of another source
    assert len(scores) == 24 * 4
    rows = {(row["model"], row["item_id"]): row for row in scores.rows()}
    assert rows["specialist", "1/A/r1"]["examples"] == 3
    assert rows["zero-shot", "1/A/r1"]["examples"] == 0
    assert rows["specialist", "1/A/r1"]["mqm"] == rows["specialist", "1/A/r1"]["human"] == -5
    for text in judge.asked[:24]:
        *_, last = text.split("\n\n")
        shown = text.removesuffix(last)
        assert last.splitlines()[1] not in shown.splitlines()  # its own translation is no example


def test_unscored_replies_are_left_out_and_counted(ratings: Path) -> None:
    run = Run.scratch()
    scores = SpecialistJudge(arms=("specialist", "copy"), each=-1, segments=-1)(ratings, Parrot(), run=run)
    assert run.metrics["unscored_specialist"] == 2
    lost = [row for row in scores.rows() if row["status"] == "unscored"]
    assert all(row["credit"] is None and row["mqm"] is None for row in lost)
    assert run.metrics["f1_specialist"]["estimate"] > 0.9
    table = SpecialistRank()(scores)  # scores that are missing are no obstacle as long as segments are whole
    assert {row["item_id"] for row in table.rows()} == {"specialist", "copy"}


def test_so_few_marks_that_there_is_no_interval_are_no_failure(tmp_path: Path) -> None:
    rows = [HEAD]
    for segment, system in itertools.product(range(12), "AB"):
        if segment == 0:
            rows.append(f"{system}\td\t{segment}\tr\ts{segment}\t{system} sagt <v>x</v>.\tStyle\tMinor")
        else:
            rows.append(f"{system}\td\t{segment}\tr\ts{segment}\t{system} sagt y{segment}.\tNo-error\tNo-error")
    path = tmp_path / "few.tsv"
    path.write_text("\n".join(rows) + "\n")
    run = Run.scratch()
    SpecialistJudge(arms=("specialist", "copy"), segments=-1, each=-1)(path, Parrot(broken=False), run=run)
    assert run.metrics["f1_specialist"] == run.metrics["f1_copy"] == {"estimate": 1}
    assert run.metrics["gain_over_copy"] == {"estimate": 0}


def test_examples_are_those_that_were_asked_for(ratings: Path) -> None:
    settings = {"arms": ("specialist", "fixed"), "segments": 4}
    for count, rater in ((2, "any"), (1, "same")):
        rows = SpecialistJudge(examples=count, rater=rater, **settings)(ratings, Parrot()).rows()
        assert len(rows) == 8
        assert all(row["examples"] == count for row in rows)
    short = {"arms": ("zero-shot",), "segments": -1, "each": -1}
    assert len(SpecialistJudge(longest=8, **short)(ratings, Parrot()).rows()) == 24
    with pytest.raises(BadInput, match="no source is as short as 7"):
        SpecialistJudge(longest=7, **short)(ratings, Parrot())
    with pytest.raises(BadInput, match="by the other rater"):  # each source has one rater only
        SpecialistJudge(rater="other")(ratings, Parrot())
    with pytest.raises(BadInput, match="fixed has no source left"):
        SpecialistJudge(arms=("fixed",), segments=-1)(ratings, Parrot())
    judge = Parrot()
    SpecialistJudge(arms=("zero-shot",), languages="English to German")(ratings, judge)
    assert "from English to German" in judge.asked[0]


def test_the_control_shows_as_many_examples_of_the_same_systems(tmp_path: Path) -> None:
    """Three raters a translation: a cap on the examples must bind both arms alike."""
    rows = [HEAD]
    for segment, system, rater in itertools.product(range(5), "ABCDE", "xyz"):
        rows.append(f"{system}\td\t{segment}\t{rater}\tsource {segment}\t{system} sagt {segment}.\tNo-error\tNo-error")
    path = tmp_path / "three.tsv"
    path.write_text("\n".join(rows) + "\n")
    judge = Parrot(broken=False)
    scores = SpecialistJudge(arms=("specialist", "shuffled"), examples=4, segments=-1, each=-1)(path, judge)
    assert {row["examples"] for row in scores.rows()} == {4}
    half = len(judge.asked) // 2
    for ours, control in zip(judge.asked[:half], judge.asked[half:], strict=True):
        shown = [
            [line.split()[1] for line in asked.splitlines() if line.startswith("Translation: ")][:-1]
            for asked in (ours, control)
        ]
        assert sorted(shown[0]) == sorted(shown[1])
        sources = [{line for line in asked.splitlines() if line.startswith("Source: ")} for asked in (ours, control)]
        assert len(sources[0]) == 1
        assert len(sources[1]) == 2


def test_the_same_source_under_another_number_is_no_other_source(tmp_path: Path) -> None:
    rows = [HEAD]
    for segment, system in itertools.product(range(4), "AB"):
        source = "Thanks." if segment < 3 else "Bye."
        rows.append(f"{system}\td\t{segment}\tr\t{source}\t{system} dankt {segment}\tStyle\tMinor")
    path = tmp_path / "repeated.tsv"
    path.write_text("\n".join(rows) + "\n")
    assert Bank(read_ratings(path).ratings()).elsewhere() == {"0": ["3"], "1": ["3"], "2": ["3"], "3": ["0", "1", "2"]}
    judge = Parrot(broken=False)
    SpecialistJudge(arms=("shuffled",), segments=-1)(path, judge)
    for asked in judge.asked:
        *shown, mine = [line for line in asked.splitlines() if line.startswith("Source: ")]
        assert mine not in shown


def test_what_is_marked_is_written_as_ratings(ratings: Path, tmp_path: Path) -> None:
    with Run(tmp_path / "judge") as run:
        scores = SpecialistJudge(arms=("specialist", "copy"), each=-1, segments=-1)(ratings, Parrot(), run=run)
    written = {one.item_id: one for one in read_ratings(run.artifact / "specialist.jsonl").ratings()}
    assert len(written) == 24 - run.metrics["unscored_specialist"]
    weights = Weights.parse()
    for row in scores.rows():
        if row["model"] == "specialist" and row["status"] != "unscored":
            one = written[f"{row['cluster']}/{row['subset']}/specialist as {row['rater']}"]
            assert weights.score(one.errors) == row["mqm"]
    with Run(tmp_path / "copy") as run:
        SpecialistCopy(arms=("any", "shuffled"))(ratings, run=run)
    assert [path.name for path in run.artifact.iterdir()] == ["any-strict.jsonl"]
    assert len(read_ratings(run.artifact / "any-strict.jsonl").ratings()) == 24


def test_translations_that_nobody_rated_are_rated(ratings: Path, tmp_path: Path) -> None:
    path = tmp_path / "new.tsv"
    lines = [f"E\t{n}\tsource {n}\tE sagt Fehler{n} heute." for n in range(6)]
    path.write_text("\n".join(["system\tseg_id\tsource\ttarget", *lines]) + "\n")
    with Run(tmp_path / "run") as run:
        scores = SpecialistJudge()(ratings, Parrot(broken=False), translations=path, run=run)
    rows = [row for row in scores.rows() if row["model"] == "specialist"]
    assert [row["item_id"] for row in rows] == [f"{n}/E" for n in range(6)]
    assert all(row["human"] is None and row["gold"] is None and row["examples"] == 4 for row in rows)
    assert run.metrics["mqm_specialist"] == pytest.approx(-3)  # three major errors, three minor ones
    assert not [name for name in run.metrics if name.startswith(("f1", "gain"))]
    assert len(read_ratings(run.artifact / "specialist.jsonl").ratings()) == 6
    with pytest.raises(BadInput, match="no rater"):
        SpecialistJudge(rater="same")(ratings, Parrot(), translations=path)
    path.write_text(path.read_text().replace("source 3", "another").replace("E\t5", "E\t9"))
    with pytest.raises(BadInput, match="2 of 6 translations") as error:
        SpecialistJudge()(ratings, Parrot(), translations=path)
    assert "3/E" in error.value.problem


def test_a_translation_is_given_once(ratings: Path, tmp_path: Path) -> None:
    assert len(read_translations(ratings)) == 24  # several rows a rating
    path = tmp_path / "twice.tsv"
    path.write_text("system\tseg_id\tsource\ttarget\nA\t1\ts\ta\nA\t1\ts\tb\n")
    with pytest.raises(BadInput, match="row 2: another translation of segment 1 by A"):
        read_translations(path)


def test_the_same_run_asks_the_same(ratings: Path) -> None:
    one, other = Parrot(), Parrot()
    for judge in (one, other):
        SpecialistJudge(examples=2, segments=3)(ratings, judge, run=Run.scratch(seed=5))
    assert one.asked == other.asked


# -- ranking ---------------------------------------------------------------------------------------------------------


def made_scores(aliases: bool = False) -> Scores:
    rng = np.random.default_rng(0)
    rows = []
    for segment in range(40):
        for number, system in enumerate(("A", "B", "C", "C_with_x") if aliases else ("A", "B", "C")):
            human = -float(rng.integers(0, 3) + min(number, 2))
            rows.append({"item_id": f"{segment}/{system}", "model": "good", "subset": system, "cluster": str(segment),
                         "mqm": human + 0.01 * rng.normal(), "human": human})  # fmt: skip
            rows.append({**rows[-1], "model": "flat", "mqm": -1.0})
    return Scores.of(rows)


def test_a_good_autorater_ranks_as_humans_do(tmp_path: Path) -> None:
    with Run(tmp_path / "run") as run:
        good, flat = SpecialistRank(resamples=300)(made_scores(), run=run).rows()
    assert (good["kendall"], good["pairwise"]) == (1, 1)
    assert good["spa"] > 0.99
    assert good["acc_star"] > 0.95
    assert good["threshold"] < 0.1
    assert flat["kendall"] is None
    assert "kendall_flat" not in run.metrics
    assert flat["acc_star"] < good["acc_star_low"]
    assert (good["systems"], good["segments"], good["segments_left_out"]) == (3, 40, 0)


def test_a_system_with_two_names_counts_once() -> None:
    assert SpecialistRank(resamples=300)(made_scores(aliases=True)).rows()[0]["systems"] == 3
    assert SpecialistRank(resamples=300, merge=False)(made_scores(aliases=True)).rows()[0]["systems"] == 4


def test_human_scores_come_from_either_kind_of_file(ratings: Path, tmp_path: Path) -> None:
    scores = SpecialistCopy(arms=("any",), modes=("strict",))(ratings)
    inside = SpecialistRank(resamples=300)(scores).rows()
    segments = segment_scores(read_tsv(ratings).ratings(), Weights.parse())
    path = tmp_path / "human.tsv"
    path.write_text("system score seg_id\n" + "".join(f"{k[0]}\t{v:.6f} {k[1]}\n" for k, v in segments.items()))
    assert SpecialistRank(resamples=300)(scores, ratings).rows() == inside
    assert SpecialistRank(resamples=300)(scores, path).rows() == inside


def test_scores_that_cannot_be_ranked_are_refused() -> None:
    with pytest.raises(BadInput, match="no column cluster, mqm, subset"):
        SpecialistRank()(Scores.of([{"item_id": "a", "model": "m", "human": 1.0}]))
    rows = [row for row in made_scores().rows() if row["subset"] == "A"]
    with pytest.raises(BadInput, match="share 1 systems and 40 segments"):
        SpecialistRank()(Scores.of(rows))


# -- the published figures -------------------------------------------------------------------------------------------

TABLE = {
    ENDE: {"any_strict": 0.266, "any_lenient": 0.289, "same_strict": 0.265, "same_lenient": 0.335, "minor": 0.157},
    ZHEN: {"any_strict": 0.214, "any_lenient": 0.221, "same_strict": 0.247, "same_lenient": 0.272, "minor": 0.136},
    SXS: {"any_strict": 0.274, "any_lenient": 0.291, "minor": 0.109},
}
"""Character F1 as another implementation measured it."""
OTHERS = {ENDE: 0.008, ZHEN: 0.017, SXS: 0.0422}
"""The same for other sources: in TED for one draw, in WMT'23 for all of them together.

The other implementation's single draw gave .053 in WMT'23. It could hit the source itself, and 95 % of such draws lie between
.035 and .065; of draws that cannot, between .033 and .051."""


@needs_data
@pytest.mark.slow
@pytest.mark.parametrize("name", TABLE)
def test_the_copy_table(name: str) -> None:
    run = Run.scratch()
    SpecialistCopy()(DATA / name, run=run)
    metrics = run.metrics
    for measure, value in TABLE[name].items():
        assert metrics[f"f1_{measure}"]["estimate"] == pytest.approx(value, abs=0.005), measure
        assert metrics[f"f1_{measure}"]["low"] < value < metrics[f"f1_{measure}"]["high"]
    assert metrics["f1_shuffled"]["estimate"] == pytest.approx(OTHERS[name], abs=0.005)
    assert metrics["source_gain"]["low"] > 0.15
    assert (metrics["same_rater_gain"]["low"] > 0) == (name != ENDE)
    assert metrics["leak_same"]["low"] > 0
