"""A language model in this process, through `burnish.engine`.

A chat becomes a prompt through the tokenizer's own chat template. A base model has none and simply continues text: its
prompt is the contents of the messages with an empty line between them, without any word about roles.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence

from jinja2 import TemplateError

from burnish.core.errors import BadInput
from burnish.core.run import Run
from burnish.engine.generate import BATCH, generate_as_finished, score
from burnish.llm.budget import Spent
from burnish.llm.client import Chat, Journaled, Reply, Request, Usage, check_chats
from burnish.models import Model, weight_hash


class Local(Journaled):
    """Answers chats with a model that is loaded here.

    Args:
        model: The model; its weights must not change afterwards, for their hash is part of each call's key.
        batch_size: Chats that are worked on together; the answers do not depend on it.
    """

    def __init__(self, model: Model, *, batch_size: int = BATCH) -> None:
        super().__init__()
        self.model, self.batch_size = model, batch_size
        # The same name with other weights, or with activations on another grid, is another model.
        content = hashlib.sha256("\n".join([weight_hash(model), *model.online]).encode()).hexdigest()
        self.name = f"{model.name}@{content[:12]}"

    def answer(self, asked: list[Request], keep: Callable[[Request, Reply], None], run: Run) -> None:
        """Generate all, giving each reply as soon as its row of the batch is finished."""
        began = time.monotonic()
        prompts = [self.encode(request.chat) for request in asked]
        sampling = [request.sampling for request in asked]
        seeds = [run.seed_of(f"llm/{request.key}") for request in asked]
        for number, found in generate_as_finished(self.model, prompts, sampling, seeds, batch_size=self.batch_size):
            reply = Reply(
                text=found.text,
                finish=found.finish,
                usage=Usage(prompt_tokens=len(prompts[number]), completion_tokens=len(found.ids)),
                model=self.name,
                logprobs=found.logprobs,
                seconds=round(time.monotonic() - began, 3),
            )
            keep(asked[number], reply)

    def worst(self, request: Request) -> Spent:
        """The prompt's tokens and all that may follow."""
        return Spent(len(self.encode(request.chat)) + request.sampling.max_tokens)

    def logprobs(self, chats: Sequence[Chat], answers: Sequence[str]) -> list[list[float]]:
        """Log-probability in nats of each token of an answer to each chat, before any end token.

        Raises:
            BadInput: chats that cannot be used, or more or fewer answers than chats.
        """
        check_chats(chats)
        if len(chats) != len(answers):
            raise BadInput(f"{len(chats)} chats and {len(answers)} answers do not belong together", "give one for each")
        ids = [self.model.tokenizer(answer, add_special_tokens=False)["input_ids"] for answer in answers]
        pairs = [(self.encode(chat), tokens) for chat, tokens in zip(chats, ids, strict=True)]
        return score(self.model, pairs, batch_size=self.batch_size)

    def encode(self, chat: Chat) -> list[int]:
        """The prompt of a chat, as token ids.

        Raises:
            BadInput: the model's chat template refuses the chat.
        """
        tokenizer = self.model.tokenizer
        if not tokenizer.chat_template:
            return list(tokenizer("\n\n".join(message["content"] for message in chat))["input_ids"])
        try:
            text = tokenizer.apply_chat_template(list(chat), tokenize=False, add_generation_prompt=True)
        except TemplateError as error:
            raise BadInput(
                f"the chat template of {self.model.name} refuses a chat: {error}",
                "some templates know no system turn, or want the user's and the assistant's turns to alternate",
            ) from None
        # The template writes the special tokens itself.
        return list(tokenizer(text, add_special_tokens=False)["input_ids"])
