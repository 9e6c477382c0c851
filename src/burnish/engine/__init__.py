"""Running a model: what is asked of it (`Sampling`) and what comes back (`Generated`), without importing torch.

`burnish.engine.generate` holds plain batched generation and scoring, `burnish.engine.embed` sentence embeddings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Finish = Literal["stop", "length"]
"""Why a generation ended: an end token or a stop string, or `Sampling.max_tokens`."""


class Sampling(BaseModel):
    """How the tokens of one request are chosen, and when it ends."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    temperature: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """The logits are divided by it; 0 takes the likeliest token."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Keep the fewest likeliest tokens whose probabilities reach this sum; 1 keeps all."""
    top_k: Annotated[int, Field(ge=0)] = 0
    """Keep this many likeliest tokens, before `top_p`; 0 keeps all."""
    max_tokens: Annotated[int, Field(ge=1)] = 256
    """Tokens to generate at most."""
    stop: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """The text ends before the first of these strings."""
    seed: int = 0
    """Another seed, another draw."""


@dataclass(frozen=True)
class Generated:
    """What a model wrote for one prompt."""

    ids: list[int]
    """Every token that was chosen, with the end token or those of the stop string when there was one."""
    logprobs: list[float]
    """Natural log-probability of each of `ids` under the model itself: before temperature, top_k and top_p."""
    finish: Finish
    text: str
    """`ids` as text, without special tokens, cut before the stop string."""
