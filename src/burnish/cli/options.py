"""The common flags of a method's command, read with the method's own, so that all faults are found together."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from burnish.cli.flags import HELP, Device, Dtype
from burnish.cli.threads import most_threads


class Options(BaseModel):
    """How one run is done."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    out: Path | None = Field(default=None, description=HELP["out"])
    seed: int = Field(default=0, description=HELP["seed"])
    device: Device = Field(default="auto", description=HELP["device"])
    dtype: Dtype = Field(default="auto", description=HELP["dtype"])
    threads: int | None = Field(default=None, ge=1, le=most_threads(), description=HELP["threads"])
    dry_run: bool = Field(default=False, description=HELP["dry_run"])


class Looking(Options):
    """Options of a run that gives a table."""

    json_: bool = Field(default=False, description=HELP["json"])


class Saving(Options):
    """Options of a run that makes a model."""

    format: Literal["hf", "compressed-tensors", "gptq", "gguf"] = Field(default="hf", description=HELP["format"])
    reload: bool = Field(default=True, description=HELP["reload"])
