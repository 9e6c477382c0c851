"""What every language model is asked and answers, whichever way it is reached, and the journal of the calls.

A call's key is the SHA-256 of the model, the chat, the sampling and the sample's number. The same chat given n times in
one call to `generate` is n samples, numbered from 0; the same chat in a later call is the same samples again, taken
from the journal. Another `Sampling.seed` asks for new ones.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol
from urllib.parse import urldefrag, urlsplit

from pydantic import BaseModel, ConfigDict
from typing_extensions import TypedDict  # pydantic refuses typing's own before Python 3.12

from burnish.core.errors import BadInput
from burnish.core.extras import require
from burnish.core.journal import Journal
from burnish.core.progress import Progress
from burnish.core.run import Run
from burnish.engine import Sampling
from burnish.llm.budget import CALLS, Budget, Meter, Prices, Spent

ROLES = ("system", "user", "assistant")


class Message(TypedDict):
    """One turn of a chat."""

    role: Literal["system", "user", "assistant"]
    content: str


Chat = Sequence[Message]
"""Turns, oldest first; the last one is not the assistant's."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Usage(_Frozen):
    """Tokens of one call."""

    prompt_tokens: int
    completion_tokens: int


class Reply(_Frozen):
    """One answer."""

    text: str
    finish: str
    """"stop", or "length" when it was cut off at `Sampling.max_tokens`, or what else the server says."""
    usage: Usage
    model: str
    """As the server, or the weights, name it."""
    logprobs: list[float] | None = None
    """Of each token of a local model's answer, in nats, before temperature and truncation."""
    seconds: float
    """Wall time from asking to the answer; a local model's includes waiting for its batch."""
    cost: float | None = None
    """Dollars; None when no price is known or none is due."""


class Entry(_Frozen):
    """One line of a journal or a replay file: what was asked and what came back."""

    model: str
    chat: list[Message]
    sampling: Sampling
    sample: int
    reply: Reply


class Request(_Frozen):
    """One sample of one chat."""

    key: str
    chat: list[Message]
    sampling: Sampling
    sample: int


class LLM(Protocol):
    """A language model that answers chats."""

    @property
    def name(self) -> str:
        """What tells it from any other: part of each call's key."""

    def generate(self, chats: Sequence[Chat], sampling: Sampling, run: Run) -> list[Reply]:
        """One reply for each chat, in their order; what the run's journal holds is not asked again.

        Raises:
            BadInput: chats that cannot be used, all of them listed.
            BudgetReached: the next call might pass the run's `Budget`; what was answered is in the journal.
        """


def request_key(model: str, chat: Chat, sampling: Sampling, sample: int) -> str:
    """SHA-256, in hexadecimal, of all that an answer depends on."""
    asked = {"model": model, "chat": list(chat), "sampling": sampling.model_dump(mode="json"), "sample": sample}
    return hashlib.sha256(json.dumps(asked, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def requests(model: str, chats: Sequence[Chat], sampling: Sampling) -> list[Request]:
    """Number the samples of each chat and give every request its key.

    Raises:
        BadInput: listing every chat that cannot be used.
    """
    check_chats(chats)
    seen: Counter[str] = Counter()
    asked = []
    for chat in chats:
        first = request_key(model, chat, sampling, 0)
        sample = seen[first]
        seen[first] += 1
        key = request_key(model, chat, sampling, sample)
        asked.append(Request(key=key, chat=list(chat), sampling=sampling, sample=sample))
    return asked


def check_chats(chats: Sequence[Chat]) -> None:
    """Refuse chats that cannot be used, listing all faults."""
    if found := [fault for number, chat in enumerate(chats) for fault in _faults(number, chat)]:
        raise BadInput.of("some chats cannot be used", found)


def _faults(number: int, chat: Chat) -> list[str]:
    if isinstance(chat, str) or not chat:
        return [f"chat {number} is {'a string' if chat else 'empty'}; give a list of messages"]
    found = []
    for place, message in enumerate(chat):
        where = f"chat {number}, message {place}"
        if not isinstance(message, dict) or set(message) != {"role", "content"}:
            found.append(f"{where}: not a role and a content")
        elif message["role"] not in ROLES:
            found.append(f"{where}: the role is {message['role']!r}, not one of {', '.join(ROLES)}")
        elif not isinstance(message["content"], str) or not _is_text(message["content"]):
            found.append(f"{where}: the content is no text")
    if not found and chat[-1]["role"] == "assistant":
        found.append(f"chat {number} ends with the assistant's turn; end it with the user's")
    return found


def _is_text(content: str) -> bool:
    # Half of a surrogate pair can stand in a Python string and nowhere else.
    try:
        content.encode()
    except UnicodeEncodeError:
        return False
    return True


class Journaled(ABC):
    """An LLM whose every answer is written to the run's folder before anything is done with it.

    A subclass answers requests, in any order, and says how many tokens a prompt has.
    """

    name: str

    def __init__(self) -> None:
        self._meter = Meter()
        self._journals: dict[Path, tuple[int, Journal]] = {}

    @abstractmethod
    def answer(self, asked: list[Request], keep: Callable[[Request, Reply], None], run: Run) -> None:
        """Answer each request and give each reply to `keep` as soon as it is there."""

    @abstractmethod
    def worst(self, request: Request) -> Spent:
        """The most that a request is expected to cost."""

    def generate(self, chats: Sequence[Chat], sampling: Sampling, run: Run) -> list[Reply]:
        """One reply for each chat, in their order (see `LLM`)."""
        asked = requests(self.name, chats, sampling)
        path = run.folder / CALLS
        journal = self._open(path)
        todo = [request for request in asked if request.key not in journal]
        budget = Budget.of(run)
        with Progress(self.name, len(asked), "replies") as progress:
            progress.advance(len(asked) - len(todo))

            def keep(request: Request, reply: Reply) -> None:
                entry = Entry(model=self.name, **request.model_dump(exclude={"key"}), reply=reply)
                journal.add(request.key, entry.model_dump(mode="json"))
                self._journals[path] = (path.stat().st_size, journal)
                progress.advance()

            while todo:
                fits = self._admit(todo, budget, run)
                self.answer(todo[:fits], keep, run)
                todo = todo[fits:]
        return [Reply.model_validate(journal[request.key]["reply"]) for request in asked]

    def _admit(self, todo: list[Request], budget: Budget, run: Run) -> int:
        """How many of the requests may be sent at once without passing the budget, whatever they cost."""
        if budget.unlimited:
            return len(todo)
        spent = sofar = self._meter.read(run)
        for number, request in enumerate(todo):
            cost = self.worst(request)
            sofar += cost
            if not budget.allows(sofar):
                if number == 0:
                    raise budget.reached(spent, cost, len(todo), run)
                return number
        return len(todo)

    def _open(self, path: Path) -> Journal:
        # Another LLM of the same run may have written to it since.
        size = path.stat().st_size if path.exists() else 0
        known = self._journals.get(path)
        if known is None or known[0] != size:
            journal = Journal(path)
            self._journals[path] = (path.stat().st_size if path.exists() else 0, journal)
            return journal
        return known[1]


def connect(spec: str, prices: Prices | None = None) -> LLM:
    """The language model of that name.

    Args:
        spec: A server's address and the model's name there, ``http://127.0.0.1:8000/v1#name``; a recording,
            ``replay:file.jsonl`` (``replay:file.jsonl#name`` when it holds several models); or else a model for this
            process, by whatever name `burnish.models.load` knows it.
        prices: For servers; see `read_prices`.

    Raises:
        BadInput: the name says too little, or what it names cannot be used.
        MissingExtra: a model for this process, and the extra "models" is not installed.
    """
    if spec.startswith("replay:"):
        from burnish.llm.replay import Replay

        file, _, model = spec.removeprefix("replay:").partition("#")
        return Replay(Path(file), model)
    if spec.startswith(("http://", "https://")):
        from burnish.llm.server import Server

        url, model = urldefrag(spec)
        _check_address(url, model)
        return Server(url, model, price=(prices or {}).get(model))
    if not spec:
        raise BadInput("no language model is named", "e.g. smollm2-135m, http://127.0.0.1:8000/v1#name, replay:file")
    require("a language model in this process", "models")
    from burnish.llm.local import Local
    from burnish.models import load

    return Local(load(spec))


def _check_address(url: str, model: str) -> None:
    parts = urlsplit(url)
    # The address is written to journals and shown; a secret must not be in it, nor in this message.
    if parts.username or parts.password or parts.query:
        raise BadInput(
            f"the address of the server at {parts.hostname} carries a user, a password or a query",
            "put the key into the environment variable BURNISH_API_KEY (or OPENAI_API_KEY)",
        )
    try:
        named = bool(parts.hostname) and parts.port != 0
    except ValueError:
        named = False
    if not named:
        raise BadInput(f"{url} names no server", "e.g. http://127.0.0.1:8000/v1#name")
    if not model:
        raise BadInput(f"{url} does not say which of the server's models", f"add #name, e.g. {url}#name")


def shorten(text: Any, most: int = 100) -> str:
    """One line of a text, for messages."""
    line = " ".join(str(text).split())
    return line if len(line) <= most else line[: most - 1] + "…"
