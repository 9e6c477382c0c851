"""Load and save models, find their parts, walk over their blocks."""

from burnish.models.export import check_export, export
from burnish.models.layers import LayerLog
from burnish.models.load import load, save
from burnish.models.model import Block, Lineage, Model, weight_hash
from burnish.models.rounding_settings import CalibratedRounding, WeightRounding
from burnish.models.walk import Walk, second_moments

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
