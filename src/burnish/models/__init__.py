"""Load and save models, find their parts, walk over their blocks.

What needs torch is imported when it is first used, so that listing and fetching models stays quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from burnish.models.export import check_export, export

if TYPE_CHECKING:
    from burnish.models.layers import LayerLog
    from burnish.models.loading import load, save
    from burnish.models.model import Block, Lineage, Model, weight_hash
    from burnish.models.rounding_settings import CalibratedRounding, WeightRounding
    from burnish.models.walk import Walk, second_moments

_HOMES = {
    "Block": "model",
    "CalibratedRounding": "rounding_settings",
    "LayerLog": "layers",
    "Lineage": "model",
    "Model": "model",
    "Walk": "walk",
    "WeightRounding": "rounding_settings",
    "load": "loading",
    "save": "loading",
    "second_moments": "walk",
    "weight_hash": "model",
}

__all__ = [
    "Block",
    "CalibratedRounding",
    "LayerLog",
    "Lineage",
    "Model",
    "Walk",
    "WeightRounding",
    "check_export",
    "export",
    "load",
    "save",
    "second_moments",
    "weight_hash",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"burnish.models.{_HOMES[name]}"), name)
