"""A cap on what the calls of one run may cost, in tokens and in dollars, and the prices behind the dollars.

The cap is a file in the run's folder and what is spent is read from the run's journals, so both outlive the process
and hold for every model and every part of the run. A call is started only when its worst case still fits: its prompt
as counted or estimated, and all the tokens that it may write.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from burnish.core.errors import BadInput, BurnishError
from burnish.core.files import write_json
from burnish.core.method import faults
from burnish.core.run import Run

CALLS = "llm.jsonl"
"""The journal of a run's calls, in its folder and in those of its parts."""
_FILE = "budget.json"


class BudgetReached(BurnishError):
    """The next call might pass the cap; everything before it is kept."""


class Price(BaseModel):
    """What a server charges for one model, in dollars per million tokens."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    completion: Annotated[float, Field(ge=0, allow_inf_nan=False)]

    def cost(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Dollars for one call."""
        return (self.prompt * prompt_tokens + self.completion * completion_tokens) / 1e6


Prices = Mapping[str, Price]
"""A model's name, as its server knows it, to its price."""


def read_prices(path: Path | str) -> dict[str, Price]:
    """Prices from a TOML or JSON file: a table for each model with `prompt` and `completion`, dollars per million tokens.

    Raises:
        BadInput: the file cannot be read, or listing every fault in it.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
        table = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
        return TypeAdapter(dict[str, Price]).validate_python(table)
    except ValidationError as error:
        raise BadInput.of(f"{path} is no table of prices", faults(error)) from None
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} cannot be read as prices: {error}", "write TOML or JSON (file name *.json)") from None


@dataclass(frozen=True)
class Spent:
    """What calls have cost."""

    tokens: int = 0
    dollars: float = 0.0

    def __add__(self, other: Spent) -> Spent:
        return Spent(self.tokens + other.tokens, self.dollars + other.dollars)


class Budget(BaseModel):
    """The most that a run may spend on language models; None is no limit."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    tokens: Annotated[int, Field(ge=1)] | None = None
    """Of prompts and completions together."""
    dollars: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """At the prices that the servers were connected with; a model in this process costs none."""

    def set(self, run: Run) -> None:
        """Make this the cap of `run` and all its parts, instead of the one that it had."""
        write_json(_root(run) / _FILE, self.model_dump())

    @classmethod
    def of(cls, run: Run) -> Self:
        """The cap of the run that `run` is, or is a part of.

        Raises:
            BadInput: the file that holds it is damaged.
        """
        path = _root(run) / _FILE
        if not path.exists():
            return cls()
        try:
            return cls.model_validate_json(path.read_text(encoding="utf-8"))
        except ValidationError:
            raise BadInput(f"{path} is damaged", "delete it, and give the budget again") from None

    @property
    def unlimited(self) -> bool:
        """Whether there is nothing to watch."""
        return self.tokens is None and self.dollars is None

    def allows(self, spent: Spent) -> bool:
        """Whether so much may be spent in all."""
        return not (
            (self.tokens is not None and spent.tokens > self.tokens)
            or (self.dollars is not None and spent.dollars > self.dollars)
        )

    def reached(self, spent: Spent, next_call: Spent, left: int, run: Run) -> BudgetReached:
        """The error that says why the run stops here and how it goes on."""
        parts = []
        if self.tokens is not None:
            parts.append(f"{spent.tokens} of {self.tokens} tokens are spent, the next call may take {next_call.tokens}")
        if self.dollars is not None:
            parts.append(
                f"{spent.dollars:.4f} of {self.dollars:g} dollars are spent, "
                f"the next call may take {next_call.dollars:.4f}"
            )
        return BudgetReached(
            f"the budget of this run is used up with {left} calls to go: {'; '.join(parts)}",
            f"every reply so far is kept in {_root(run)}: give the same command with a larger budget to go on from there",
        )


class Meter:
    """Adds up what a run has spent, reading of each journal only what was written since the last look."""

    def __init__(self) -> None:
        self._seen: dict[Path, tuple[int, Spent]] = {}

    def read(self, run: Run) -> Spent:
        """What the run that `run` is, or is a part of, has spent so far."""
        total = Spent()
        for path in _root(run).rglob(CALLS):
            done, spent = self._seen.get(path, (0, Spent()))
            with path.open("rb") as file:
                file.seek(done)
                news = file.read()
            news = news[: news.rfind(b"\n") + 1]
            for line in news.splitlines():
                reply: dict[str, Any] = json.loads(line)["value"]["reply"]
                usage = reply["usage"]
                spent += Spent(usage["prompt_tokens"] + usage["completion_tokens"], reply["cost"] or 0.0)
            self._seen[path] = (done + len(news), spent)
            total += spent
        return total


def _root(run: Run) -> Path:
    # A part of a run has no manifest of its own.
    return next((folder for folder in (run.folder, *run.folder.parents) if (folder / "run.json").exists()), run.folder)
