"""Key-value caches that keep every token, one whose rows join late, and one that many rows continue.

Rows that start at different positions of their sequences are aligned by absolute position. At step
t every live row has t cached tokens, so that there is neither padding nor mask; a row joins when t
reaches its own start, by copying the first t tokens of its sequence's cache. Buffers are allocated
once: nothing is concatenated.

That needs the first t tokens of every layer. A layer with a sliding window would drop them, so that
the forward pass over the sequences is given a cache that drops nothing; windows are then a matter of
the attention mask, which transformers makes from what a cache says it holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeAlias

import torch
from transformers.cache_utils import Cache, DynamicLayer, DynamicSlidingWindowLayer

from harness.contracts import Model
from harness.toolkit.decoding.pair import cache_layers, takes_cache

Prefilled: TypeAlias = Cache | torch.Tensor
"""What rows continue: the cache of a pass over their sequences, or those sequences' tokens_BT, to be read again."""
_PLAIN_LAYERS = (DynamicLayer, DynamicSlidingWindowLayer)
"""Layers that hold keys and values of tokens and nothing else: no recurrent state, no compressed or indexed past."""
_MORE_BYTES: ContextVar[int] = ContextVar("_MORE_BYTES", default=0)


@contextmanager
def more_cache_bytes(more: int) -> Iterator[None]:
    """Let the keys and values of the rows that are written at once take so many bytes more, as long as the block lasts.

    More rows are written in the same time, where a step's time is that of reading the weights: on a GPU.
    """
    token = _MORE_BYTES.set(more)
    try:
        yield
    finally:
        _MORE_BYTES.reset(token)


def rows_in_caches(source: Prefilled, tokens: int, least_bytes: int) -> int:
    """Return how many rows of so many tokens may be written at once, whose caches take `least_bytes` and what is more.

    Example:
        >>> tokens_BT = torch.zeros(1, 1, dtype=torch.long)  # Read again: 8 bytes a token.
        >>> rows_in_caches(tokens_BT, 100, 8_000)
        10
        >>> with more_cache_bytes(4_000):
        ...     rows_in_caches(tokens_BT, 100, 8_000)
        15
    """
    return (least_bytes + _MORE_BYTES.get()) // (bytes_per_token(source) * tokens)


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


def whole_cache(model: Model) -> Cache | None:
    """Return an empty cache that keeps every token in every layer; None where the model keeps something else.

    Something else is a recurrent state (Mamba and its hybrids), or a past that is compressed or shared between
    layers: of those, the state after a sequence does not hold the states after its prefixes.
    """
    layers = cache_layers(model) if takes_cache(model) else []
    if not layers or any(type(layer) not in _PLAIN_LAYERS for layer in layers):
        return None
    return Cache(layers=[DynamicLayer() for _ in layers])


def holds_all(cache: Cache, rows: int, tokens: int) -> bool:
    """Return whether every layer holds keys and values for all tokens of all rows."""
    for layer in cache.layers:
        for held in (layer.keys, layer.values):
            if held is None or held.ndim != 4 or (held.shape[0], held.shape[2]) != (rows, tokens):
                return False
    return True


def joined(parts: Sequence[Prefilled]) -> Prefilled:
    """Return the rows of all parts, one after the other; the parts' own caches are used up."""
    caches = [part for part in parts if not isinstance(part, torch.Tensor)]
    if not caches:
        return torch.cat([part for part in parts if isinstance(part, torch.Tensor)])
    if len(caches) > 1:
        for layer, *others in zip(*(cache.layers for cache in caches), strict=True):
            for name in ("keys", "values"):
                setattr(layer, name, torch.cat([getattr(each, name) for each in (layer, *others)]))
                for each in others:
                    setattr(each, name, None)
    return caches[0]


def bytes_per_token(source: Prefilled) -> int:
    """Return the bytes that one row needs for one token: in all layers, or for its number alone."""
    if isinstance(source, torch.Tensor):
        return source.element_size()
    return sum(layer.keys[0, :, 0].nbytes + layer.values[0, :, 0].nbytes for layer in source.layers)
