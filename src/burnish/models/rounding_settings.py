"""Settings that every weight-rounding compressor has, and those of the ones that read calibration text."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from burnish.core.shapes import Compressor
from burnish.nn.grid import GridSpec

Role = Literal["q", "k", "v", "o", "gate", "up", "down", "fc1", "fc2"]


def _group(value: int) -> int:
    if value < 1 and value != -1:
        raise ValueError("group is 1 or more, or -1 for a whole row")
    return value


Group = Annotated[int, AfterValidator(_group)]
"""Weights that share a scale: 1 or more, or -1 for a whole row."""


class WeightRounding(Compressor):
    """A compressor that puts the weights of linear layers on a uniform grid."""

    bits: Literal[2, 3, 4, 8] = 4
    """Bits per weight."""
    group: Group = 128
    """Weights along a row that share one scale; -1 for a whole row (per output channel)."""
    sym: bool = False
    """Symmetric grid: the zero sits in the middle of the codes."""
    zero: Literal["integer", "float"] = "integer"
    """Zero of an asymmetric grid: an integer point, or a floating-point offset (GGUF's Q4_1)."""
    layers: tuple[Role, ...] = ()
    """Which linear layers of each block to round, e.g. q k v; all when empty."""

    @property
    def spec(self) -> GridSpec:
        """The kind of grid."""
        return GridSpec(self.bits, self.sym, self.group, self.zero)

    def describe(self) -> str:
        """For the model's lineage."""
        rows = "row" if self.spec.group == -1 else f"group of {self.group}"
        kind = "symmetric" if self.sym else "asymmetric"
        only = f" ({', '.join(self.layers)} only)" if self.layers else ""
        return f"{type(self).__name__}: weights on {self.bits}-bit {kind} grids, one a {rows}{only}"


class CalibratedRounding(WeightRounding):
    """A weight-rounding compressor that looks at the activations of calibration text."""

    samples: Annotated[int, Field(ge=1)] = 128
    """Calibration windows; the default takes what a shorter text holds, a number that you give must fit."""
    length: Annotated[int, Field(ge=2)] = 2048
    """Tokens in a calibration window."""
    calib_seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Which windows of the calibration text are taken."""
