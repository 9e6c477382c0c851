"""Calibration windows for a method that has the fields `samples`, `length` and `calib_seed`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from burnish.core.errors import BadInput, Unsupported
from burnish.core.run import Run

if TYPE_CHECKING:
    from datasets import Dataset
    from torch import Tensor

    from burnish.models.model import Model


class Calibrated(Protocol):
    """What is asked of calibration text."""

    samples: int
    length: int
    calib_seed: int

    @property
    def model_fields_set(self) -> set[str]:
        """Fields that the user gave."""


def require_float64(model: Model) -> None:
    """Refuse a device without double precision, in which Hessians are summed and scales and rotations are folded.

    Raises:
        Unsupported: the model is on Apple's GPU.
    """
    if model.device.type == "mps":
        raise Unsupported("calibration on an Apple GPU", "it has no double precision", "use --device cpu")


def calibration_windows(method: Calibrated, model: Model, calib: Dataset, run: Run) -> Tensor:
    """Calibration tokens, (samples, length) int64.

    A number of windows that was asked for is a demand. The default, which is the paper's, is a wish: a shorter text gives
    as many windows as it holds, and the run's events and metrics say how many that were.

    Raises:
        BadInput: the text does not hold the windows that were asked for, or not one.
        Unsupported: a device without double precision.
    """
    import burnish.data.windows as module

    require_float64(model)
    try:
        tokens = module.windows(model.tokenizer, calib, method.samples, method.length, seed=method.calib_seed)
    except BadInput:
        if "samples" in method.model_fields_set:
            raise
        tokens = module.windows(model.tokenizer, calib, -1, method.length, seed=method.calib_seed)
        run.event("calibration", windows=len(tokens), instead_of=method.samples, reason="the text holds no more")
    run.metric(calibration_windows=len(tokens), calibration_tokens=tokens.numel())
    return tokens
