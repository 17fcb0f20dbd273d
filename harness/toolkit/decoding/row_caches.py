"""Key-value caches of rows: one whose rows join late, and one that many rows continue.

Rows that start at different positions of their sequences are aligned by absolute position. At step
t every live row has t cached tokens, so that there is neither padding nor mask; a row joins when t
reaches its own start, by copying the first t tokens of its sequence's cache. Buffers are allocated
once: nothing is concatenated.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicLayer


class JoiningLayer(DynamicLayer):  # type: ignore[misc]
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


class JoiningCache(Cache):  # type: ignore[misc]
    """The joining layers of a whole model, made from the cache of a forward pass over whole sequences."""

    def __init__(self, source: Cache, rows: int, tokens: int, start: int) -> None:
        super().__init__(
            layers=[JoiningLayer(layer.keys, layer.values, rows, tokens, start) for layer in source.layers]
        )

    def join(self, sources: torch.Tensor) -> None:
        """Add rows that continue these rows of the source cache."""
        for layer in self.layers:
            layer.join(sources)

    def skip(self, tokens: int) -> None:
        """Have every live row hold so many tokens more, without contents."""
        for layer in self.layers:
            layer.length += tokens


class BranchingLayer(DynamicLayer):  # type: ignore[misc]
    """One layer's keys and values of B beginnings, and which of them each row continues; what rows add is not kept."""

    def __init__(self, keys_BHTD: torch.Tensor, values_BHTD: torch.Tensor, sources: torch.Tensor) -> None:
        super().__init__()
        self.keys, self.values, self._sources = keys_BHTD, values_BHTD, sources
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return each row's beginning and what it adds."""
        keys = torch.cat([self.keys[self._sources], key_states], dim=-2)
        return keys, torch.cat([self.values[self._sources], value_states], dim=-2)


class BranchingCache(Cache):  # type: ignore[misc]
    """The branching layers of a whole model, made from the cache of a forward pass over beginnings of one length.

    A pass with it leaves it as it was, so that no more than one layer's keys and values of all rows lie in memory.
    """

    def __init__(self, source: Cache, sources: torch.Tensor) -> None:
        super().__init__(layers=[BranchingLayer(layer.keys, layer.values, sources) for layer in source.layers])
