"""A rubric judge: a question to a language model whose answer is one of a few labels, or none.

The label is read from the reply's own words (`ask`), by a majority over several replies where asked for; or, for small
local models whose replies are broken, from the log-probabilities of the possible answers (`weigh`). What does not state
exactly one label is *unscored*, with the reason: an error, a refusal, an empty or cut-off reply, two labels, a label
that is denied, supposed or only quoted. A judge that guesses in such cases turns its own failures into verdicts.
"""

from __future__ import annotations

import html
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from burnish.core.errors import BadInput, Unsupported
from burnish.core.run import Run
from burnish.engine import Sampling
from burnish.llm.client import LLM, Chat, Reply, request_key

_HEDGES = re.compile(
    r"\b(not|never|neither|nor|no|cannot|if|unless|would|could|might|should|may|until|once|instead|rather|than|or|"
    r"either|whether|between|except|without|hardly)\b|n['’]t\b",
    re.IGNORECASE,
)
"""Words before a label, in its sentence, after which the label is not what the sentence states."""
WEIGHED_AT_ONCE = 32
"""Questions that `weigh` gives to the model together; each is kept on its own."""
_SHORT = 160
"""Characters that a line with a bare label, or what stands before a label, has at most."""
_CONTEXT = 400
"""Characters before a label in which a denial of it is looked for."""
_CLAUSE = re.compile(r"(?<=[.!?;:])\s|\b(?:so|thus|hence|therefore|consequently)\b", re.IGNORECASE)
"""Where what is denied or supposed ends."""
_LEAD = re.compile(
    r"[\s>#*_\-•|{\"'`]*(?:\d{1,2}[.)]\s*)?(?:(?:my|the|our)\s+)?(?:final\s+|overall\s+)?"
    r"(?:verdict|judge?ment|answer|decision|rating|result|label|conclusion|status|output)?[\s*_\"']*(?:is|:|=|-|→)?[\s*_:\"'`“]*",
    re.IGNORECASE,
)
"""What may stand before a label on a line that states it."""


@dataclass(frozen=True)
class Rubric:
    """The labels that may be given, and the marks around them.

    `Rubric(("SATISFIED", "UNSATISFIED"))` reads <SATISFIED>; `Rubric(("A>B", "A=B", "B>A"), "[[", "]]")` reads [[A>B]].
    """

    labels: tuple[str, ...]
    left: str = "<"
    right: str = ">"

    def __post_init__(self) -> None:
        folded = [label.strip().upper() for label in self.labels]
        if len(folded) < 2 or len(set(folded)) < len(folded) or not all(folded) or not (self.left and self.right):
            raise BadInput(f"{self.labels} are no labels", "give two or more different ones, and marks around them")

    def tag(self, label: str) -> str:
        """A label as the judge is to write it."""
        return f"{self.left}{label}{self.right}"

    def defuse(self, text: str) -> str:
        """Untrusted text whose labels can be taken for no verdict, in case a reply repeats it."""
        return self._tags.sub(lambda match: f"({match[1]})", text)

    @property
    def _tags(self) -> re.Pattern[str]:
        names = "|".join(re.escape(label) for label in sorted(self.labels, key=len, reverse=True))
        # A slash closes what some models open: <SATISFIED>reason</SATISFIED>.
        return re.compile(rf"{re.escape(self.left)}\s*/?\s*({names})\s*{re.escape(self.right)}", re.IGNORECASE)

    @property
    def _words(self) -> re.Pattern[str]:
        """A line that is nothing but a label without its marks."""
        names = "|".join(re.escape(label) for label in sorted(self.labels, key=len, reverse=True))
        return re.compile(rf"(?:{_LEAD.pattern})({names})[\s*_.!]*", re.IGNORECASE)

    def canonical(self, name: str) -> str:
        """The label as it stands in `labels`."""
        return next(label for label in self.labels if label.upper() == name.strip().upper())


@dataclass(frozen=True)
class Reading:
    """What a reply states."""

    label: str | None
    why: str = ""
    """Why there is no label; empty when there is one."""


def read_label(text: str, rubric: Rubric, finish: str = "stop") -> Reading:
    """The one label that a reply states, or None and the reason.

    Args:
        text: The reply.
        rubric: The labels.
        finish: How the reply ended; one that was cut off before it stated anything says so.
    """
    text = _without_thinking(html.unescape(text))
    if not text.strip():
        return Reading(None, "the reply is empty")
    tags = rubric._tags
    stated: list[str] = []
    mentioned: list[str] = []
    decided: list[str] = []
    for line in text.splitlines():
        # A line that states a label is short; on long ones the patterns would take long.
        bare = rubric._words.fullmatch(line.strip().strip("`\"'{},")) if len(line) <= _SHORT else None
        if bare:
            decided.append(rubric.canonical(bare[1]))
            continue
        several = len({rubric.canonical(match[1]) for match in tags.finditer(line)}) > 1
        for match in tags.finditer(line):
            label = rubric.canonical(match[1])
            before = _CLAUSE.split(tags.sub(" ", line[max(0, match.start() - _CONTEXT) : match.start()]))[-1]
            alone = not several and match.start() <= _SHORT and _LEAD.fullmatch(line[: match.start()])
            if alone and not _HEDGES.search(line[: match.start()]):
                decided.append(label)
            elif _HEDGES.search(before) or _quoted(line, match):
                mentioned.append(label)
            else:
                stated.append(label)
    for found in (decided, stated):
        if len(set(found)) > 1:
            return Reading(None, f"the reply states {' and '.join(sorted(set(found)))}")
        if found and not (found is stated and set(mentioned) - set(found)):
            return Reading(found[0])
        if found:
            return Reading(None, f"the reply states {found[0]} and speaks of {', '.join(sorted(set(mentioned)))}")
    if mentioned:
        return Reading(
            None, f"the reply only speaks of {', '.join(sorted(set(mentioned)))}: denied, supposed or quoted"
        )
    return Reading(None, "the reply was cut off before a label" if finish == "length" else "the reply states no label")


def _without_thinking(text: str) -> str:
    """A reply without what a reasoning model thought before it."""
    return text.rpartition("</think>")[2] if "</think>" in text else text.partition("<think>")[0]


def _quoted(line: str, match: re.Match[str]) -> bool:
    """Whether a label stands in quotation marks inside a longer sentence."""
    before, after = line[: match.start()][-1:], line[match.end() :][:1]
    return any(
        before.endswith(opening) and after.startswith(closing)
        for opening, closing in (('"', '"'), ("'", "'"), ("“", "”"), ("`", "`"))
    )


@dataclass(frozen=True)
class Judgment:
    """A judge's answer to one question, and what it cost."""

    label: str | None
    """None: unscored."""
    why: str
    """Why it is unscored; empty when it is not."""
    share: float | None
    """Of the votes for the label, or its probability among the labels; None when unscored."""
    votes: tuple[str | None, ...]
    text: str
    """The reply, the first that voted for the label; empty when log-probabilities were read."""
    calls: int
    prompt_tokens: int
    completion_tokens: int
    cost: float | None
    """Dollars, the sum over the calls; None when no call has a price."""
    seconds: float


def ask(
    llm: LLM,
    chats: Sequence[Chat],
    rubric: Rubric,
    run: Run,
    *,
    sampling: Sampling,
    votes: int = 1,
    threshold: float = 0.5,
) -> list[Judgment]:
    """Ask each question `votes` times; a label wins when more than `threshold` of all votes are for it.

    Raises:
        BadInput: several votes at temperature 0, which are one vote given several times.
    """
    if votes > 1 and sampling.temperature == 0:
        raise BadInput(f"{votes} votes at temperature 0 are all the same", "raise the temperature, or take one vote")
    replies = llm.generate([chat for chat in chats for _ in range(votes)], sampling, run)
    return [
        _majority(replies[begin : begin + votes], rubric, threshold) for begin in range(0, len(chats) * votes, votes)
    ]


def _majority(replies: Sequence[Reply], rubric: Rubric, threshold: float) -> Judgment:
    readings = [read_label(reply.text, rubric, reply.finish) for reply in replies]
    counts = Counter(reading.label for reading in readings if reading.label is not None)
    label, why, share = None, "", None
    if counts:
        best, number = counts.most_common(1)[0]
        if number / len(replies) > threshold:
            label, share = best, number / len(replies)
        else:
            told = ", ".join(f"{one} {many}" for one, many in sorted(counts.items()))
            why = f"no label has more than {threshold:.0%} of {len(replies)} votes ({told})"
    else:
        why = readings[0].why
    text = next((reply.text for reply, reading in zip(replies, readings, strict=True) if reading.label == label), "")
    return Judgment(label, why, share, tuple(reading.label for reading in readings), text, **spent(replies))


def spent(replies: Sequence[Reply]) -> dict[str, Any]:
    """The sums over some calls: how many, tokens, dollars, seconds."""
    costs = [reply.cost for reply in replies if reply.cost is not None]
    return {
        "calls": len(replies),
        "prompt_tokens": sum(reply.usage.prompt_tokens for reply in replies),
        "completion_tokens": sum(reply.usage.completion_tokens for reply in replies),
        "cost": sum(costs) if costs else None,
        "seconds": sum(reply.seconds for reply in replies),
    }


@runtime_checkable
class Weighs(Protocol):
    """A language model that says how likely given answers are."""

    @property
    def name(self) -> str:
        """What tells it from any other."""

    def logprobs(self, chats: Sequence[Chat], answers: Sequence[str]) -> list[list[float]]:
        """Log-probability in nats of each token of an answer to each chat."""

    def encode(self, chat: Chat) -> list[int]:
        """The prompt of a chat, as token ids."""


def weigh(llm: Any, chats: Sequence[Chat], answers: Mapping[str, str], run: Run) -> list[Judgment]:
    """The label whose answer is likelier than all others together, by log-probability; equal ones are unscored.

    Nothing is generated, so nothing can be broken. The answers are compared as whole strings: give answers of about one
    length that begin differently, such as "yes" and "no". Each question is weighed once ever in a run.

    Args:
        llm: A model with `logprobs` (see `Weighs`).
        chats: Questions; the last turn should name the answers.
        answers: Label to the answer that stands for it.
        run: Where what was weighed is kept.

    Raises:
        Unsupported: the model gives no log-probabilities of answers.
    """
    if not isinstance(llm, Weighs):
        raise Unsupported(
            f"weighing answers with {getattr(llm, 'name', llm)}",
            "it gives no log-probabilities of given answers",
            "take a model in this process, or read verdicts from text",
        )
    labels, texts = list(answers), list(answers.values())

    ahead: dict[int, dict[str, Any]] = {}

    def one(number: int) -> dict[str, Any]:
        # Questions come in order, so those after one that is not kept yet are not kept either.
        if number not in ahead:
            together = range(number, min(number + WEIGHED_AT_ONCE, len(chats)))
            every = llm.logprobs([chats[place] for place in together for _ in texts], texts * len(together))
            for place, begin in zip(together, range(0, len(every), len(texts)), strict=True):
                rows = every[begin : begin + len(texts)]
                prompt = len(llm.encode(chats[place])) * len(texts)
                ahead[place] = {"sums": [sum(row) for row in rows], "prompt": prompt, "answer": sum(map(len, rows))}
        return ahead.pop(number)

    def key(number: int) -> str:
        return request_key(llm.name, chats[number], Sampling(), 0) + "/" + "/".join(texts)

    return [_likeliest(found, labels) for found in run.map(one, range(len(chats)), key=key, step="weighed")]


def _likeliest(found: Mapping[str, Any], labels: Sequence[str]) -> Judgment:
    sums = [float(value) for value in found["sums"]]
    top = max(sums)
    mass = [math.exp(value - top) for value in sums]
    share = max(mass) / sum(mass)
    label = labels[sums.index(top)] if share > 0.5 else None
    cost = {"calls": 1, "prompt_tokens": found["prompt"], "completion_tokens": found["answer"], "cost": None}
    why = "" if label else "no answer is likelier than all others together"
    return Judgment(label, why, share if label else None, (label,), "", seconds=0.0, **cost)
