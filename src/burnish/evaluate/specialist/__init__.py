"""Specialist autoraters: `copy`, the baseline without a model; `judge`, a model with examples; `rank`, systems."""
