"""The common flags of a method's command, read with the method's own, so that all faults are found together."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from burnish.cli.flags import HELP, Device, Dtype
from burnish.cli.threads import most_threads

PACKED = "compressed-tensors"
"""The format that the packed runtime reads."""


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
    runtime: Literal["plain", "packed"] = Field(default="plain", description=HELP["runtime"])

    @model_validator(mode="after")
    def _packed_format(self) -> Self:
        if self.runtime == "packed" and "format" in self.model_fields_set and self.format != PACKED:
            raise ValueError(f"runtime: packed runs --format {PACKED}, not {self.format}")
        return self

    @property
    def saved_as(self) -> str:
        """The format; what is to run packed is saved so that it can."""
        return PACKED if self.runtime == "packed" else self.format
