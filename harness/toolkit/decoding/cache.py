"""What rows continue: the cache of a forward pass over their sequences, or the sequences themselves.

Of every layer the first t tokens are needed, whatever t is. A layer with a sliding window would drop them, so that the
forward pass over the sequences is given a cache that drops nothing; windows are then a matter of the attention mask,
which transformers makes from what a cache says it holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import torch

from harness.contracts import Model

if TYPE_CHECKING:
    from transformers.cache_utils import Cache

Prefilled: TypeAlias = "Cache | torch.Tensor"
"""What rows continue: the cache of a pass over their sequences, or those sequences' tokens_BT, to be read again."""


def rows_in_caches(source: Prefilled, tokens: int, most_bytes: int) -> int:
    """Return how many rows of so many tokens may be written at once, whose caches take `most_bytes`.

    Example:
        >>> tokens_BT = torch.zeros(1, 1, dtype=torch.long)  # Read again: 8 bytes a token.
        >>> rows_in_caches(tokens_BT, 100, 8_000)
        10
    """
    return most_bytes // (bytes_per_token(source) * tokens)


def whole_cache(model: Model) -> Cache | None:
    """Return an empty cache that keeps every token in every layer; None where the model keeps something else.

    Something else is a recurrent state (Mamba and its hybrids), or a past that is compressed or shared between
    layers: of those, the state after a sequence does not hold the states after its prefixes.
    """
    from transformers.cache_utils import Cache, DynamicLayer, DynamicSlidingWindowLayer

    from harness.toolkit.decoding.pair import cache_layers, takes_cache

    # They hold keys and values of tokens and nothing else: no recurrent state, no compressed or indexed past.
    plain = (DynamicLayer, DynamicSlidingWindowLayer)
    layers = cache_layers(model) if takes_cache(model) else []
    if not layers or any(type(layer) not in plain for layer in layers):
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
