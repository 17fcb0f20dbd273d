"""A key-value cache whose rows join late: every live row holds exactly as many tokens as the others.

Rows that start at different positions of their sequences are aligned by absolute position. At step
t every live row has t cached tokens, so that there is neither padding nor mask; a row joins when t
reaches its own start, by copying the first t tokens of its sequence's cache. Buffers are allocated
once: nothing is concatenated.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicLayer


class JoiningLayer(DynamicLayer):
    """One layer's keys and values, R rows of at most T tokens."""

    def __init__(self, keys_BHTD: torch.Tensor, values_BHTD: torch.Tensor, rows: int, tokens: int, start: int) -> None:
        super().__init__()
        self._source_keys, self._source_values = keys_BHTD, values_BHTD
        _, heads, _, width = keys_BHTD.shape
        self.keys = keys_BHTD.new_empty(rows, heads, tokens, width)
        self.values = values_BHTD.new_empty(rows, heads, tokens, values_BHTD.shape[-1])
        self.is_initialized = True
        self.live = 0
        self.length = start

    def join(self, sources: torch.Tensor) -> None:
        """Add rows that continue these source rows, each with the first `length` tokens of its source."""
        rows = slice(self.live, self.live + len(sources))
        self.keys[rows, :, : self.length] = self._source_keys[sources, :, : self.length]
        self.values[rows, :, : self.length] = self._source_values[sources, :, : self.length]
        self.live += len(sources)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append one token to every live row and return views of all that is cached."""
        end = self.length + key_states.shape[-2]
        self.keys[: self.live, :, self.length : end] = key_states
        self.values[: self.live, :, self.length : end] = value_states
        self.length = end
        return self.keys[: self.live, :, :end], self.values[: self.live, :, :end]

    def get_seq_length(self) -> int:
        """Return how many tokens every live row holds."""
        return self.length


class JoiningCache(Cache):
    """The joining layers of a whole model, made from the cache of a forward pass over whole sequences."""

    def __init__(self, source: Cache, rows: int, tokens: int, start: int) -> None:
        super().__init__(
            layers=[JoiningLayer(layer.keys, layer.values, rows, tokens, start) for layer in source.layers]
        )

    def join(self, sources: torch.Tensor) -> None:
        """Add rows that continue these rows of the source cache."""
        for layer in self.layers:
            layer.join(sources)


def bytes_per_token(cache: Cache) -> int:
    """Return the bytes that one row needs for one token, in all layers."""
    return sum(
        layer.keys[0, :, 0].numel() * layer.keys.element_size()
        + layer.values[0, :, 0].numel() * layer.values.element_size()
        for layer in cache.layers
    )
