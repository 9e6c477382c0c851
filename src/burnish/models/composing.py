"""Which models a method that moves scales, transforms or layers may be given: those whose activations nothing changes yet."""

from __future__ import annotations

from burnish.core.errors import Unsupported
from burnish.models.model import Model


def require_plain(model: Model, method: str) -> None:
    """Refuse a model that already changes its activations while it runs.

    Its folded scales and matrices are made for what enters its layers now. A method that divides a norm, rotates the
    hidden states or replaces a layer would pull the two apart, and the model would compute something else.

    Args:
        model: What the method was given.
        method: Its name, for the message.

    Raises:
        Unsupported: the model has online steps.
    """
    if model.online:
        done = "; ".join(model.lineage.steps) or "an earlier step"
        raise Unsupported(
            f"{method} on a model with online steps",
            f"{'; '.join(model.online)} (from: {done}), and {method} would change what these steps are made for",
            f"apply {method} to the original model, before such a step",
        )
