"""A language model whose answers are a function of the question, with known usage and a price."""

from __future__ import annotations

from burnish.llm.budget import Spent
from burnish.llm.client import Journaled, Reply, Usage


class Scripted(Journaled):
    """Answers with `say(text of the last turn)`."""

    name = "scripted"

    def __init__(self, say) -> None:
        super().__init__()
        self.say = say
        self.prompts: list[str] = []

    def answer(self, asked, keep, run) -> None:
        for request in asked:
            prompt = request.chat[-1]["content"]
            self.prompts.append(prompt)
            text = self.say(prompt)
            usage = Usage(prompt_tokens=len(prompt) // 4, completion_tokens=len(text) // 4)
            keep(request, Reply(text=text, finish="stop", usage=usage, model=self.name, seconds=0.25, cost=0.001))

    def worst(self, request) -> Spent:
        return Spent(1)
