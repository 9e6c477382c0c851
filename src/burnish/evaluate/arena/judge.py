"""Arena judge: a language model compares each model's answers with a baseline's, in two games with the sides swapped.

## How it works

For each prompt the judge sees the prompt and both answers, first the baseline's as A and the model's as B, then the
other way round. Except for creative writing it is told to write its own answer first. It ends with one of five verdicts,
`[[A>>B]]`, `[[A>B]]`, `[[A=B]]`, `[[B>A]]`, `[[B>>A]]`; the last label in its text counts, in single brackets where
there are none in double ones, and a text without any gives no verdict.

Every reply is in the run's journal as soon as it is there, so a run that was stopped goes on with the same command.
Calls, tokens and, with prices, dollars are estimated before the first call (`--dry-run` shows only that). The judgments
are written in the released shape, one file a model, with the judge's name, a digest of its instructions and its sampling.

## Differences

* The instructions are burnish's own words for the same task and labels; `instructions` takes the text of another file,
  such as the released one. A digest of them and of the frame around the answers stands in every judgment, and `arena
  score` mixes no two.
* A judge is asked once; the code of version 0.1 told one that had given no label to go on, once.
* Any model is a judge: a server, one in this process, a recording.
* A label that is none of the five (`[[A]]`) is no verdict, for the released scoring has no value for it. A label the
  other way round (`[[A<B]]`) means what it says.
* A game without a verdict is a row with the status "no verdict", and is counted.

## When not to use it

Small judges mostly prefer a side, not an answer: look at `consistent` and `first_side` in the score. A judge that is
one of the models, or of their family, is no neutral one.

## References

Li et al., arXiv 2406.11939, section 5; Zheng et al., arXiv 2306.05685, on judges' biases.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field

from burnish.core.errors import BadInput, UnknownName
from burnish.core.files import write_text
from burnish.core.method import Paper
from burnish.core.run import Run, ensure, slug
from burnish.core.shapes import Evaluation
from burnish.data.arena_hard import Answer, Game, Question, parse_verdict, prompt_digest, read_answers, read_questions
from burnish.data.scores import Scores
from burnish.evaluate.arena import PAPER
from burnish.llm import LLM, Message, Reply, Sampling
from burnish.llm.server import estimate as tokens_of

BASELINES = {
    "arena-hard-v0.1": "gpt-4-0314",
    "hard_prompt": "o3-mini-2025-01-31",
    "coding": "o3-mini-2025-01-31",
    "math": "o3-mini-2025-01-31",
    "creative_writing": "gemini-2.0-flash-001",
}
"""Category to the baseline of the released benchmark."""
CREATIVE = frozenset({"creative_writing"})
"""Categories in which the judge writes no answer of its own."""

_TASK = """\
You are an impartial judge. Two AI assistants, A and B, have answered the same user prompt. Decide whose answer is better.
"""
_OWN = """
First write your own answer to the prompt, before you look at theirs, and compare theirs with it.
"""
_COMPARE = """
Find mistakes in both answers and correct them. Then weigh whether each answer is helpful (it does what the prompt asks; \
an unclear prompt may deserve a question or a stated assumption), relevant (nothing in it is beside the point) and \
concise (nothing in it is needless). After that weigh originality where it matters, and say what important things an \
answer leaves out. Do not let the order of the answers, their length as such or the assistants' names sway you.

Explain your reasons, and end with exactly one of these labels:
1. A is much better: [[A>>B]]
2. A is a little better: [[A>B]]
3. Both are about as good: [[A=B]]
4. B is a little better: [[B>A]]
5. B is much better: [[B>>A]]
For example: "My final verdict is: [[A=B]]".
"""
_GAME = """\
<|The user's prompt|>
{prompt}

<|Assistant A's answer begins|>
{a}
<|Assistant A's answer ends|>

<|Assistant B's answer begins|>
{b}
<|Assistant B's answer ends|>"""


class ArenaJudge(Evaluation):
    """Judge answers against a baseline's, in two games a prompt with the sides swapped."""

    paper: ClassVar[Paper | None] = PAPER

    baseline: str = ""
    """The model that all others are compared with; by default that of each category of the released benchmark."""
    models: tuple[str, ...] = ()
    """Models to judge; by default all that answer, but the baseline."""
    prompts: Annotated[int, Field(ge=0)] = 0
    """Only so many prompts, drawn by the run's seed; 0 for all."""
    instructions: str = ""
    """File with the judge's system prompt, instead of burnish's own."""
    max_tokens: Annotated[int, Field(ge=1)] = 4096
    """The longest judgment; 4096 in version 0.1, 16000 in version 2."""
    temperature: Annotated[float, Field(ge=0)] = 0.0
    """0 in the released settings."""
    prompt_price: Annotated[float, Field(ge=0)] | None = None
    """Dollars for a million tokens of prompt, for the estimate."""
    completion_price: Annotated[float, Field(ge=0)] | None = None
    """Dollars for a million tokens of judgment, for the estimate."""
    speed: Annotated[float, Field(gt=0)] | None = None
    """Tokens that the judge writes in a second, all calls together, for the estimate of the time."""

    def __call__(self, answers: Path, questions: Path, judge: LLM, run: Run | None = None) -> Scores:
        """Play all games.

        Args:
            answers: A file or folder with the answers of the models and the baseline.
            questions: The benchmark's questions.
            judge: The model that judges.
            run: Where judgments go: ``artifact/<judge>/<model>.jsonl``.

        Returns:
            A row a game: item_id, model, cluster (the prompt), subset (its category), status, score (1, 0.5, 0, or
            null), verdict, first (who was shown first), baseline, judge.

        Raises:
            BadInput: answers that are missing, a category without a known baseline, files that cannot be read.
            UnknownName: a model that has no answers.
            BudgetReached: the run's budget; the same command goes on from there.
        """
        run = ensure(run)
        asked, texts, models = self._work(answers, questions, run)
        run.event("estimate", **self._costs(asked, texts, models))
        sampling = Sampling(temperature=self.temperature, max_tokens=self.max_tokens)
        rows: list[dict[str, Any]] = []
        cut = 0
        for model in models:
            own = [question for question in asked if self._against(question) != model]
            chats = [chat for question in own for chat in self._chats(question, texts, model)]
            replies = judge.generate(chats, sampling, run)
            cut += sum(reply.finish == "length" for reply in replies)
            pairs = list(zip(replies[::2], replies[1::2], strict=True))
            games = [self._games(q, model, judge.name, pair) for q, pair in zip(own, pairs, strict=True)]
            self._save(run, judge.name, model, games, pairs)
            rows += [game.row() for pair in games for game in pair]
        missing = sum(row["status"] != "judged" for row in rows)
        run.items(rows)
        run.metric(games=len(rows), without_verdict=missing, cut_off=cut)
        return Scores.of(rows, judge=judge.name, games=len(rows), without_verdict=missing, cut_off=cut)

    def estimate(self, sources: Mapping[str, str]) -> dict[str, Any]:
        """Calls, tokens and, where prices and speed are given, dollars and minutes, before anything is asked."""
        return self._costs(*self._work(Path(sources["answers"]), Path(sources["questions"]), None))

    def _work(
        self, answers: Path, questions: Path, run: Run | None
    ) -> tuple[list[Question], dict[str, dict[str, Answer]], list[str]]:
        """The questions that are played, all answers, and the models that are judged."""
        asked = read_questions(questions)
        if self.prompts > len(asked):
            raise BadInput(f"{questions} has {len(asked)} questions, and {self.prompts} are asked for")
        if self.prompts:
            rng = ensure(run).rng("arena judge")
            asked = [asked[place] for place in sorted(rng.choice(len(asked), self.prompts, replace=False))]
        texts = read_answers(answers)
        baselines = {self._against(question) for question in asked}
        models = list(self.models) or [name for name in sorted(texts) if {name} != baselines]
        for name in [*models, *sorted(baselines)]:
            if name not in texts:
                raise UnknownName("model with answers", name, texts)
        if not models:
            raise BadInput("there are only the baseline's answers", "give those of the models to judge")
        if len(set(models)) < len(models):
            raise BadInput(f"a model is named twice: {', '.join(models)}")
        lacking = Counter(
            name for q in asked for name in {*models, self._against(q)} if q.uid not in texts[name]
        )  # fmt: skip
        if lacking:
            faults = [f"{name}: {count} of {len(asked)}" for name, count in sorted(lacking.items())]
            raise BadInput.of("answers to questions are missing", faults, "models must answer the same prompts")
        return asked, texts, models

    def _against(self, question: Question) -> str:
        found = self.baseline or BASELINES.get(question.category, "")
        if not found:
            raise BadInput(f"no baseline is known for the category {question.category!r}", "--baseline MODEL")
        return found

    def _system(self, question: Question) -> str:
        if self.instructions:
            try:
                return Path(self.instructions).read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise BadInput(f"{self.instructions} cannot be read: {error}", "give a text file") from None
        return _TASK + ("" if question.category in CREATIVE else _OWN) + _COMPARE

    def _chats(
        self, question: Question, texts: Mapping[str, Mapping[str, Answer]], model: str
    ) -> tuple[list[Message], list[Message]]:
        """Game 0, with the baseline as A, and game 1, with the model as A."""
        base, own = texts[self._against(question)][question.uid].text, texts[model][question.uid].text
        system: Message = {"role": "system", "content": self._system(question)}

        def game(a: str, b: str) -> list[Message]:
            return [system, {"role": "user", "content": _GAME.format(prompt=question.prompt, a=a, b=b)}]

        return game(base, own), game(own, base)

    def _games(self, question: Question, model: str, judge: str, replies: Sequence[Reply]) -> list[Game]:
        digest = prompt_digest(self._system(question) + _GAME)
        base = self._against(question)
        return [
            Game(question.uid, question.category, judge, model, base, number, parse_verdict(reply.text), digest)
            for number, reply in enumerate(replies)
        ]

    def _save(
        self, run: Run, judge: str, model: str, games: Sequence[list[Game]], replies: Sequence[Sequence[Reply]]
    ) -> None:
        lines = [
            {
                "uid": pair[0].uid, "category": pair[0].category, "judge": judge, "model": model,
                "baseline": pair[0].baseline, "prompt_digest": pair[0].prompt,
                "sampling": {"temperature": self.temperature, "max_tokens": self.max_tokens},
                "games": [
                    {"score": game.verdict, "judgment": {"answer": reply.text}, "finish": reply.finish}
                    for game, reply in zip(pair, said, strict=True)
                ],
            }
            for pair, said in zip(games, replies, strict=True)
        ]  # fmt: skip
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        write_text(run.artifact / slug(judge) / f"{slug(model)}.jsonl", text)

    def _costs(
        self, asked: Sequence[Question], texts: Mapping[str, Mapping[str, Answer]], models: Sequence[str]
    ) -> dict[str, Any]:
        chats = [
            chat
            for model in models
            for question in asked
            if self._against(question) != model
            for chat in self._chats(question, texts, model)
        ]
        prompt = sum(tokens_of(message["content"]) for chat in chats for message in chat)
        most = len(chats) * self.max_tokens
        found: dict[str, Any] = {"calls": len(chats), "prompt_tokens_about": prompt, "judgment_tokens_at_most": most}
        if self.prompt_price is not None and self.completion_price is not None:
            found["dollars_at_most"] = round((self.prompt_price * prompt + self.completion_price * most) / 1e6, 2)
        if self.speed is not None:
            found["minutes_at_most"] = round(most / self.speed / 60, 1)
        return found
