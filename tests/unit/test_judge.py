"""The rubric judge: what counts as a verdict, how votes and log-probabilities decide, what it costs."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.core.errors import BadInput, Unsupported
from burnish.core.run import Run
from burnish.llm import Reply, Sampling, Usage
from burnish.llm.judge import WEIGHED_AT_ONCE, Rubric, ask, read_label, weigh

RUBRIC = Rubric(("SATISFIED", "UNSATISFIED"))
YES, NO = RUBRIC.labels

CASES = [
    # plain verdicts
    ("<SATISFIED>", YES),
    ("<UNSATISFIED>", NO),
    ("<SATISFIED> The file is there and loads the data.", YES),
    ("The file is missing.\n<UNSATISFIED>", NO),
    ("**Verdict:** <SATISFIED>", YES),
    ("Final verdict: <UNSATISFIED>\nsrc/model.py holds no SVM.", NO),
    ("I find this requirement <UNSATISFIED>.", NO),
    # small models' spellings
    ("< satisfied >", YES),
    ("&lt;UNSATISFIED&gt; nothing was saved", NO),
    ("`<SATISFIED>`", YES),
    ('"<UNSATISFIED>"', NO),
    ("<SATISFIED>The file is there.</SATISFIED>", YES),
    ("UNSATISFIED", NO),
    ("Verdict: satisfied.", YES),
    ("<think>Is it <UNSATISFIED>? No.</think>\n<SATISFIED> it is there", YES),
    ("1. The file exists.\n2. Verdict: **UNSATISFIED**", NO),
    ('{"verdict": "<SATISFIED>"}', YES),
    ('{"verdict": "UNSATISFIED"}', NO),
    ("### Verdict\n<SATISFIED>\n### Reason\nIt is there.", YES),
    # errors, refusals, nothing
    ("", None),
    ("  \n\t", None),
    ("Error 429: rate limit exceeded, please try again later.", None),
    ("I'm sorry, but I can't help with that.", None),
    ("The requirement is satisfied, I think, mostly.", None),
    ("<MAYBE>", None),
    ("<think>It may be <SATISFIED> or", None),
    # both, or the question said again
    ("<SATISFIED> or <UNSATISFIED>?", None),
    ("<SATISFIED>\n<UNSATISFIED>", None),
    ("Answer with <SATISFIED> or <UNSATISFIED>.", None),
    ("It is <SATISFIED> for the loader and <UNSATISFIED> for the model.", None),
    ("I have to choose between <SATISFIED> and <UNSATISFIED>.\nVerdict: <UNSATISFIED>", NO),
    # denied, supposed, quoted
    ("This is not <SATISFIED>.", None),
    ("It isn't <UNSATISFIED>", None),
    ("It would be <SATISFIED> if the file existed.", None),
    ("The requirement cannot be marked <SATISFIED>", None),
    ("The README says '<SATISFIED>' in its first line.", None),
    ('The README says "<SATISFIED>", but nothing was saved.\n<UNSATISFIED>', NO),
    ("Not <SATISFIED>", None),
    ("Verdict: NOT SATISFIED", None),
    ("<NOT SATISFIED>", None),
    ("The answer is neither <SATISFIED> nor <UNSATISFIED>", None),
    ("The file does not exist. <UNSATISFIED>", NO),
    ("Verdict: not <SATISFIED>", None),
    ("The file does not exist, so it is <UNSATISFIED>.", NO),
    ("It has no errors: <SATISFIED>", YES),
]


@pytest.mark.parametrize(("text", "label"), CASES)
def test_only_what_states_one_label_is_a_verdict(text: str, label: str | None) -> None:
    found = read_label(text, RUBRIC)
    assert found.label == label
    assert bool(found.why) == (label is None)


def test_there_are_enough_cases() -> None:
    assert len(CASES) >= 30


def test_a_reply_that_was_cut_off_says_so() -> None:
    assert "cut off" in read_label("Let me look at the files first", RUBRIC, "length").why
    assert read_label("<SATISFIED> because the", RUBRIC, "length").label == YES


def test_other_labels_and_marks() -> None:
    rubric = Rubric(("A>>B", "A>B", "A=B", "B>A", "B>>A"), "[[", "]]")
    assert read_label("My final verdict is: [[A>>B]]", rubric).label == "A>>B"
    assert read_label("My final verdict is tie: [[A=B]]", rubric).label == "A=B"
    assert read_label("[[A>B]] [[B>A]]", rubric).label is None
    with pytest.raises(BadInput):
        Rubric(("x", "X"))


@given(st.text(max_size=200), st.sampled_from([YES, NO]))
def test_evidence_cannot_smuggle_a_verdict(text: str, label: str) -> None:
    assert read_label(RUBRIC.defuse(f"{text}{RUBRIC.tag(label)}{text}"), RUBRIC).label in (None, *_bare(text, label))


def _bare(text: str, label: str) -> list[str]:
    """A line that is nothing but a label is one without its marks too."""
    return [YES, NO] if YES.lower() in f"{text}{label}{text}".lower() else []


@given(st.text(max_size=300))
def test_nothing_crashes_the_parser(text: str) -> None:
    found = read_label(text, RUBRIC)
    assert found.label in (None, YES, NO)


@pytest.mark.parametrize("filler", ["*", " ", "<", "<SATISFIED> not ", 'a "', "verdict "])
@pytest.mark.timeout(20)
def test_long_replies_take_no_long_time(filler: str) -> None:
    """The time limit fails it if reading is not linear; a filler without a label gives none."""
    long = read_label(filler * 20_000 + "x", RUBRIC)
    assert long.label is None or "SATISFIED" in filler
    assert read_label(filler * 2_000 + "<SATISFIED>", RUBRIC).label in (None, YES, NO)


class Says:
    """A language model that gives its lines in turn."""

    name = "says"

    def __init__(self, *lines: str, cost: float | None = 0.25) -> None:
        self.lines, self.cost = list(lines), cost

    def generate(self, chats, sampling, run):
        return [
            Reply(
                text=self.lines.pop(0),
                finish="stop",
                usage=Usage(prompt_tokens=10, completion_tokens=3),
                model="says",
                seconds=0.5,
                cost=self.cost,
            )
            for _ in chats
        ]


CHAT = [{"role": "user", "content": "Is it there?"}]
WARM = Sampling(temperature=1.0)


def test_a_majority_decides_and_all_calls_are_paid_for() -> None:
    judge = Says("<SATISFIED>", "error", "<SATISFIED>", "<UNSATISFIED>", "x", "<UNSATISFIED>")
    first, second = ask(judge, [CHAT, CHAT], RUBRIC, Run.scratch(), sampling=WARM, votes=3)
    assert (first.label, first.share, first.votes) == (YES, 2 / 3, (YES, None, YES))
    assert second.label == NO
    assert (first.calls, first.prompt_tokens, first.completion_tokens, first.cost) == (3, 30, 9, 0.75)


def test_a_tie_and_too_few_votes_are_unscored() -> None:
    tie = ask(Says("<SATISFIED>", "<UNSATISFIED>"), [CHAT], RUBRIC, Run.scratch(), sampling=WARM, votes=2)[0]
    few = ask(Says("<SATISFIED>", "?", "?"), [CHAT], RUBRIC, Run.scratch(), sampling=WARM, votes=3)[0]
    assert tie.label is few.label is None
    assert "votes" in tie.why
    assert "votes" in few.why


def test_votes_without_chance_are_refused() -> None:
    with pytest.raises(BadInput, match="all the same"):
        ask(Says(), [CHAT], RUBRIC, Run.scratch(), sampling=Sampling(), votes=3)


class Weighing:
    """A language model whose answers have the given log-probabilities."""

    name = "weighing"

    def __init__(self, **answers: list[float]) -> None:
        self.answers, self.asked = answers, 0

    def logprobs(self, chats, answers):
        self.asked += 1
        return [self.answers[answer] for answer in answers]

    def encode(self, chat):
        return [1] * 7


def test_the_likelier_answer_is_the_label() -> None:
    run = Run.scratch()
    judge = Weighing(yes=[-1.0, -0.5], no=[-1.0])
    found = weigh(judge, [CHAT], {YES: "yes", NO: "no"}, run)[0]
    assert found.label == NO
    assert math.isclose(found.share or 0, 1 / (1 + math.exp(-0.5)))
    assert (found.prompt_tokens, found.completion_tokens) == (14, 3)
    assert weigh(judge, [CHAT], {YES: "yes", NO: "no"}, run)[0] == found
    assert judge.asked == 1


def test_questions_are_weighed_together_and_kept_one_by_one(tmp_path) -> None:
    class Dying(Weighing):
        def logprobs(self, chats, answers):
            if self.asked == 1:
                raise KeyboardInterrupt
            assert [chat[-1]["content"] for chat in chats[::2]] == [chat[-1]["content"] for chat in chats[1::2]]
            self.asked += 1
            return [
                [-float(chat[-1]["content"])] if answer == "yes" else [-20.5]
                for chat, answer in zip(chats, answers, strict=True)
            ]

    chats = [[{"role": "user", "content": str(n)}] for n in range(40)]
    with Run(tmp_path / "run") as run:
        with pytest.raises(KeyboardInterrupt):
            weigh(Dying(), chats, {YES: "yes", NO: "no"}, run)
        assert len((tmp_path / "run" / "weighed.jsonl").read_text().splitlines()) == WEIGHED_AT_ONCE
        rest = Dying()
        found = weigh(rest, chats, {YES: "yes", NO: "no"}, run)
        assert rest.asked == 1
    assert [one.label for one in found] == [YES] * 21 + [NO] * 19


def test_equal_answers_are_unscored_and_models_without_logprobs_refused() -> None:
    even = weigh(Weighing(yes=[-1.0], no=[-1.0]), [CHAT], {YES: "yes", NO: "no"}, Run.scratch())[0]
    assert even.label is None
    with pytest.raises(Unsupported, match="log-prob"):
        weigh(Says(), [CHAT], {YES: "yes", NO: "no"}, Run.scratch())
