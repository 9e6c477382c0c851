"""A stage of queries, keys and values that stays in a model: attention's own tap (`nn/attention`) may still come and go.

BoA looks at a block's attention through a tap that it sets and deletes again. A stage that sat in the tap's place would be
lost with it, without a word. Here the place is a property of the attention module: whatever tap is set sees queries, keys
and values first, as the layers gave them, and the stage follows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from burnish.core.errors import Unsupported

Tap = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
_STAGED: dict[type[nn.Module], type[nn.Module]] = {}


def attach_cache_stage(attention: Any, stage: Tap) -> None:
    """Let queries, keys and values pass `stage` before attention from now on.

    Args:
        attention: An attention module of a model that attends through `nn.attention.use`.
        stage: See `nn.attention`; a module becomes a child of `attention`, so that it is saved and moved with it.

    Raises:
        Unsupported: something sees them already.
    """
    if getattr(attention, "cache_stage", None) is not None or getattr(attention, "tap", None) is not None:
        raise Unsupported(f"a second cache stage of one {type(attention).__name__}", "the first one would be lost")
    attention.cache_stage = stage
    attention.__class__ = _staged(type(attention))


def _staged(kind: type[nn.Module]) -> type[nn.Module]:
    """The same kind of attention, with the place of its tap as a property; one class for all blocks."""
    if kind not in _STAGED:
        names = {"tap": property(_get, _set, _delete), "__module__": kind.__module__, "__qualname__": kind.__qualname__}
        _STAGED[kind] = type(kind.__name__, (kind,), names)
    return _STAGED[kind]


def _get(attention: Any) -> Tap:
    stage: Tap = attention.cache_stage
    passing: Tap | None = attention.__dict__.get("passing_tap")
    if passing is None:
        return stage
    return lambda query, key, value: stage(*passing(query, key, value))


def _set(attention: Any, tap: Tap) -> None:
    attention.__dict__["passing_tap"] = tap


def _delete(attention: Any) -> None:
    del attention.__dict__["passing_tap"]
