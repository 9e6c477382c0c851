"""Keys and values in buffers that are allocated ahead: a step writes its tokens in place instead of copying all before them.

Layers of a transformers cache, so they serve plain `generate()` with everything that it does to caches: beams are reordered,
candidates cropped, batches narrowed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import Cache, DynamicCache
from transformers.cache_utils import DynamicLayer

STEP = 256
"""Positions by which a buffer is longer than asked for, at first; later it doubles."""


class Store:
    """What the layers of one cache share.

    Attributes:
        moves: How often any buffer was replaced: addresses taken before are void.
    """

    def __init__(self) -> None:
        self.moves = 0


class StoredLayer(DynamicLayer):
    """Keys and values of one transformer block, (batch, heads, tokens, width), in buffers with room for more."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.length = 0
        self.buffers: list[Tensor] = []
        self.is_initialized = False

    @property
    def capacity(self) -> int:
        """Positions that the buffers hold."""
        return self.buffers[0].shape[2] if self.buffers else 0

    @property
    def keys(self) -> Tensor | None:
        """(batch, heads, tokens, width)."""
        return self.buffers[0][:, :, : self.length] if self.buffers else None

    @keys.setter
    def keys(self, value: Tensor | None) -> None:
        self._replace(0, value)

    @property
    def values(self) -> Tensor | None:
        """(batch, heads, tokens, width)."""
        return self.buffers[1][:, :, : self.length] if self.buffers else None

    @values.setter
    def values(self, value: Tensor | None) -> None:
        self._replace(1, value)

    def _replace(self, which: int, value: Tensor | None) -> None:
        """transformers reorders, selects and crops by assigning: first keys, then values."""
        if value is None:
            self.buffers, self.length = [], 0
            return
        if which == 0:
            self.length = value.shape[2]
        if value.data_ptr() != self.buffers[which].data_ptr() or len(value) != len(self.buffers[which]):
            self.buffers[which] = self._room(value, self.buffers[which].shape[2])

    def _room(self, value: Tensor, capacity: int) -> Tensor:
        buffer = value.new_empty(*value.shape[:2], capacity, value.shape[3])
        buffer[:, :, : value.shape[2]] = value
        self.store.moves += 1
        return buffer

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Take batch, heads, width, dtype and device from the first tokens."""
        self.device, self.dtype = key_states.device, key_states.dtype
        self.buffers = [self._room(states[:, :, :0], STEP) for states in (key_states, value_states)]
        self.is_initialized = True

    def reserve(self, more: int) -> None:
        """Have room for so many more tokens."""
        wanted = self.length + more
        if wanted > self.capacity:
            capacity = max(2 * self.capacity, -(-wanted // STEP) * STEP + STEP)
            self.buffers = [self._room(buffer[:, :, : self.length], capacity) for buffer in self.buffers]

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write new tokens; returns all keys and values."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        self.reserve(key_states.shape[2])
        end = self.length + key_states.shape[2]
        for buffer, states in zip(self.buffers, (key_states, value_states), strict=True):
            buffer[:, :, self.length : end] = states
        self.length = end
        return self.buffers[0][:, :, :end], self.buffers[1][:, :, :end]

    def crop(self, tokens_to_remove: int) -> None:
        """Drop the last tokens, of which transformers gives the negative number; their room stays."""
        if tokens_to_remove > 0:
            raise ValueError("give the negative number of tokens that are to go")
        self.length = max(0, self.length + tokens_to_remove)

    def get_seq_length(self) -> int:
        """Tokens that are held."""
        return self.length


def stored(cache: Cache, layers: int) -> bool:
    """Make an empty cache of transformers' default kind hold its tokens in a store; says whether it does."""
    if cache.layers and all(isinstance(layer, StoredLayer) for layer in cache.layers):
        return len(cache.layers) == layers
    if type(cache) is not DynamicCache or cache.get_seq_length() or cache.offloading:
        return False
    store = Store()
    cache.layers = [StoredLayer(store) for _ in range(layers)]
    cache.layer_class_to_replicate = None
    return True


def filled(cache: Cache, rows: Tensor, heads: int, width: int) -> None:
    """Give every layer of an empty store its buffers, so that a compiled step can write into them.

    Args:
        cache: Made by `stored`.
        rows: Anything with the batch as its first dimension.
        heads: Key/value heads.
        width: Of a head.
    """
    for layer in cache.layers:
        if isinstance(layer, StoredLayer) and not layer.is_initialized:
            nothing = torch.empty(len(rows), heads, 0, width, dtype=torch.float32, device=rows.device)
            layer.lazy_initialization(nothing, nothing)
