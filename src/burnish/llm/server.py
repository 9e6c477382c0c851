"""A language model behind an OpenAI-compatible HTTP server.

The openai library sends, retries (refused connections, 408, 409, 429 and 5xx; with growing pauses, or with the pause
that the server asks for in Retry-After) and gives up. Several calls are under way at once. When one fails for good, no
new ones start, those under way end and are kept, and one error tells what happened. A call that the server finds wrong
in itself (400, 422) holds up no other.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from burnish.core.errors import BadInput, BurnishError
from burnish.core.run import Run
from burnish.llm.budget import Budget, Price, Spent
from burnish.llm.client import Journaled, Reply, Request, Usage, shorten

if TYPE_CHECKING:
    from openai import AsyncOpenAI

KEYS = ("BURNISH_API_KEY", "OPENAI_API_KEY")
"""Environment variables that may hold the server's key; the first that is set counts."""


class Server(Journaled):
    """Answers chats by asking a server.

    Args:
        url: The address that ``/chat/completions`` is added to, e.g. ``http://127.0.0.1:8000/v1``.
        model: The model's name there.
        price: What the server charges; None when it is unknown.
        concurrency: Calls under way at once.
        retries: Times that one call is tried again.
        timeout: Seconds that one try may take.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        price: Price | None = None,
        concurrency: int = 8,
        retries: int = 6,
        timeout: float = 600.0,
    ) -> None:
        super().__init__()
        self.url, self.model, self.price = url, model, price
        self.concurrency, self.retries, self.timeout = concurrency, retries, timeout
        self.name = f"{url}#{model}"

    def answer(self, asked: list[Request], keep: Callable[[Request, Reply], None], run: Run) -> None:
        """Send all, a few at a time, giving each reply as soon as it is there."""
        if self.price is None and Budget.of(run).dollars is not None:
            raise BadInput(
                f"the budget of this run is in dollars, and the price of {self.model} is not known",
                "give a table of prices, or a budget in tokens",
            )
        _wait(self._answer(asked, keep, run))

    def worst(self, request: Request) -> Spent:
        """All the tokens that may be written, after a prompt that is estimated from its length."""
        prompt = sum(estimate(message["content"]) for message in request.chat)
        most = request.sampling.max_tokens
        return Spent(prompt + most, self.price.cost(prompt, most) if self.price else 0.0)

    async def _answer(self, asked: list[Request], keep: Callable[[Request, Reply], None], run: Run) -> None:
        from openai import APIError, AsyncOpenAI, BadRequestError, Timeout, UnprocessableEntityError

        gate = asyncio.Semaphore(self.concurrency)
        failures: list[Exception] = []
        stopped = False

        async def one(client: AsyncOpenAI, request: Request) -> None:
            nonlocal stopped
            async with gate:
                if stopped:
                    return
                try:
                    reply = await self._ask(client, request, run.seed_of(f"llm/{request.key}"))
                except (APIError, BurnishError) as error:
                    failures.append(error)
                    stopped = stopped or not isinstance(error, BadRequestError | UnprocessableEntityError)
                else:
                    keep(request, reply)

        # An answer may take minutes; a connection that takes more than seconds will not come.
        timeout = Timeout(self.timeout, connect=min(10.0, self.timeout))
        # The library wants a key even where a server does not.
        async with AsyncOpenAI(
            base_url=self.url, api_key=_key() or "none", max_retries=self.retries, timeout=timeout
        ) as client:
            await asyncio.gather(*(one(client, request) for request in asked))
        if failures:
            raise self._failed(failures)

    async def _ask(self, client: AsyncOpenAI, request: Request, seed: int) -> Reply:
        began = time.monotonic()
        answer: Any = await client.chat.completions.create(**self._parameters(request, seed))
        if not getattr(answer, "choices", None):
            raise BurnishError(f"what {self.url} sent is no chat completion: {shorten(answer)}")
        choice = answer.choices[0]
        text = choice.message.content or ""
        if answer.usage is not None:
            usage = Usage(prompt_tokens=answer.usage.prompt_tokens, completion_tokens=answer.usage.completion_tokens)
        else:
            prompt = sum(estimate(message["content"]) for message in request.chat)
            usage = Usage(prompt_tokens=prompt, completion_tokens=estimate(text))
        return Reply(
            text=text,
            finish=choice.finish_reason or "stop",
            usage=usage,
            model=answer.model or self.model,
            seconds=round(time.monotonic() - began, 3),
            cost=self.price.cost(usage.prompt_tokens, usage.completion_tokens) if self.price else None,
        )

    def _parameters(self, request: Request, seed: int) -> dict[str, Any]:
        sampling = request.sampling
        # OpenAI's own service has given the old name up; many other servers do not know the new one.
        own = urlsplit(self.url).hostname == "api.openai.com"
        chosen: dict[str, Any] = {
            "model": self.model,
            "messages": request.chat,
            "temperature": sampling.temperature,
            "max_completion_tokens" if own else "max_tokens": sampling.max_tokens,
        }
        if sampling.temperature > 0:
            chosen["seed"] = seed % 2**31
        if sampling.top_p < 1:
            chosen["top_p"] = sampling.top_p
        if sampling.stop:
            chosen["stop"] = list(sampling.stop)
        if sampling.top_k:
            chosen["extra_body"] = {"top_k": sampling.top_k}
        return chosen

    def _failed(self, failures: list[Exception]) -> BurnishError:
        from openai import APIConnectionError, APIStatusError, BadRequestError, UnprocessableEntityError

        told = list(dict.fromkeys(_without_key(str(failure)) for failure in failures))
        # What stopped the others matters more than what is wrong with one call.
        own = (BadRequestError, UnprocessableEntityError)
        cause = next((failure for failure in failures if not isinstance(failure, own)), failures[0])
        status = cause.status_code if isinstance(cause, APIStatusError) else 0
        if isinstance(cause, APIConnectionError):
            fix = f"see that the server at {self.url} runs and can be reached"
        elif status in (401, 403):
            fix = f"put the server's key into the environment variable {' or '.join(KEYS)}"
        elif status == 404:
            fix = f"see what models the server has: {self.url}/models"
        elif status in (400, 422):
            fix = "mend the chats or the sampling that the server refuses"
        else:
            fix = "wait until the server is well"
        return BurnishError(
            "\n".join(
                [f"{len(failures)} calls to {self.name} failed", *(f"  {shorten(one, 300)}" for one in told[:3])]
            ),
            f"{fix}; every reply so far is kept, and the same command asks only for the others",
        )


def estimate(text: str) -> int:
    """About how many tokens a text and its turn take, where no tokenizer is at hand: four bytes each, and four more."""
    return len(text.encode()) // 4 + 4


def _key() -> str:
    return next((key for name in KEYS if (key := os.environ.get(name, "").strip())), "")


def _without_key(message: str) -> str:
    return message.replace(key, "[key]") if (key := _key()) else message


def _wait(work: Coroutine[Any, Any, None]) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(work)
        return
    # In a notebook a loop is running already, and it cannot wait for itself.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, work).result()
