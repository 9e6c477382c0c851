"""The seven criteria of a prompt that tells models apart: what the annotator is asked, and how its answer is read."""

from __future__ import annotations

import re

from burnish.llm import Message

CRITERIA: dict[str, str] = {
    "specificity": "it asks for a definite, well-described result, and leaves no doubt about what is wanted",
    "domain_knowledge": "answering well needs knowledge of one or more fields",
    "complexity": "it has several parts, conditions or variables",
    "problem_solving": "it has to be thought through: analysed, reasoned about, solved step by step",
    "creativity": "it calls for an original approach or solution",
    "technical_accuracy": "the answer must be technically exact and sound",
    "real_world": "it stands for something that people really have to do",
}
"""Name to meaning, in the paper's order, which gives their numbers from 1."""

_SYSTEM = "\n".join(
    [
        "You are given a prompt that somebody wrote to an assistant. Do not answer it. Say which of these criteria it meets:",
        *(f"{n}. {name.replace('_', ' ')}: {what}" for n, (name, what) in enumerate(CRITERIA.items(), 1)),
        "Answer only with the list of the numbers of the criteria that are met, such as [1, 3, 6], or [] for none.",
    ]
)
_TOPIC = (
    "Below are prompts of one group. Name what they have in common in at most five words. Answer only with the name."
)
TOPIC_WORDS = 5
_LIST = re.compile(r"\[([\d\s,]*)\]")
_BARE = re.compile(r"[`\s]*(\d+(?:\s*,\s*\d+)*)[`\s.]*")


def criteria_chat(prompt: str) -> list[Message]:
    """What the annotator is asked about one prompt."""
    return [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": f"<prompt>\n{prompt}\n</prompt>"}]


def parse_criteria(text: str) -> frozenset[int] | None:
    """The numbers (1 to 7) in an annotator's answer; None where it gives no list, or one with other numbers.

    The last list in brackets counts, with or without blanks, else an answer that is nothing but numbers and commas.
    An empty list is the answer "none of them", which a missing list is not.
    """
    if lists := _LIST.findall(text):
        inside = lists[-1].strip().rstrip(",")
    elif bare := _BARE.fullmatch(text):
        inside = bare[1]
    else:
        return None
    parts = [part.strip() for part in inside.split(",")] if inside else []
    if not all(part.isdigit() and 1 <= int(part) <= len(CRITERIA) for part in parts):
        return None
    return frozenset(map(int, parts))


def topic_chat(prompts: list[str]) -> list[Message]:
    """What the annotator is asked about one group of prompts."""
    shown = "\n".join(f"<prompt>\n{prompt}\n</prompt>" for prompt in prompts)
    return [{"role": "system", "content": _TOPIC}, {"role": "user", "content": shown}]


def parse_topic(text: str, number: int) -> str:
    """The name in an annotator's answer, at most five words; "Topic 7" where there is none."""
    line = next((line for line in text.splitlines() if line.strip()), "")
    words = line.strip().strip("\"'`*#.").removeprefix("Topic:").split()
    return " ".join(words[:TOPIC_WORDS]) or f"Topic {number}"
