"""Tensors only: grids, Hadamard matrices, Hessians, the rounding loops, attention taps."""
