"""Stepping: one more token for many rows at once, of any causal LM, and faster of a GPT-Neo.

All live rows hold the same number of tokens (`harness.toolkit.cache` says why). A row joins by copying
the first tokens of a row that a forward pass over whole sequences has cached; where there is no such
cache, by copying the tokens themselves, and then each step reads all of them again.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from transformers.cache_utils import Cache

from harness.contracts import Model
from harness.toolkit.batches import rows_at_once, vocabulary_of
from harness.toolkit.cache import JoiningCache, Source, whole_cache
from harness.toolkit.gpt_neo import GPTNeoStepper, is_plain_gpt_neo
from harness.toolkit.pair import PairModel


class Stepper(Protocol):
    """Rows of one model that advance together."""

    def join(self, sources: torch.Tensor) -> None:
        """Add rows that continue these rows of the source, each with as many tokens as the live rows hold."""

    def step(self, tokens_R: torch.Tensor) -> torch.Tensor:
        """Feed one token to every live row and return the logits_RV that follow it."""


def read(model: Model, tokens_BT: torch.Tensor, is_cached: bool) -> tuple[torch.Tensor, Source]:
    """Return the logits_BTV of a forward pass over rows without padding, and what their continuations start from."""
    cache = whole_cache(model) if is_cached else None
    if cache is None:
        return model(input_ids=tokens_BT, use_cache=False).logits, tokens_BT
    return model(input_ids=tokens_BT, past_key_values=cache, use_cache=True).logits, cache


def stepper(model: Model, source: Source, rows: int, tokens: int, start: int) -> Stepper:
    """Return a stepper of `model` for at most `rows` rows of at most `tokens` tokens.

    Args:
        model: Any causal LM; a pair of models is stepped one by one.
        source: What `read` gave with the logits of the sequences that rows will continue.
        rows: Room for so many.
        tokens: Room in each.
        start: How many tokens the first rows to join hold.
    """
    if isinstance(source, torch.Tensor):
        return ReadingStepper(model, source, rows, tokens, start)
    if isinstance(model, PairModel):
        halves = zip((model.first, model.second), model.halves(source), strict=True)
        return PairStepper([stepper(half, cache, rows, tokens, start) for half, cache in halves], model.combine)
    if is_plain_gpt_neo(model):
        return GPTNeoStepper(model, source.layers, rows, tokens, start)
    return CacheStepper(model, source, rows, tokens, start)


class ReadingStepper:
    """Steps any model by reading each row from its beginning: slow, and right for whatever the model keeps."""

    def __init__(self, model: Model, source_BT: torch.Tensor, rows: int, tokens: int, start: int) -> None:
        self._model, self._source_BT = model, source_BT
        self._rows_RT = source_BT.new_empty(rows, tokens)
        self._live, self._length = 0, start

    def join(self, sources: torch.Tensor) -> None:
        """Add rows."""
        rows = slice(self._live, self._live + len(sources))
        self._rows_RT[rows, : self._length] = self._source_BT[sources, : self._length]
        self._live += len(sources)

    def step(self, tokens_R: torch.Tensor) -> torch.Tensor:
        """Feed one token to every row."""
        self._rows_RT[: self._live, self._length] = tokens_R
        self._length += 1
        vocabulary, device = vocabulary_of(self._model), tokens_R.device
        at_once = rows_at_once(vocabulary, self._length, device, most=self._live)
        parts = self._rows_RT[: self._live, : self._length].split(at_once)
        return torch.cat([self._model(input_ids=part, use_cache=False).logits[:, -1] for part in parts])


class CacheStepper:
    """Steps any model through its own forward pass, with a joining cache."""

    def __init__(self, model: Model, source: Cache, rows: int, tokens: int, start: int) -> None:
        self._model = model
        self._cache = JoiningCache(source, rows, tokens, start)
        self._position = start

    def join(self, sources: torch.Tensor) -> None:
        """Add rows."""
        self._cache.join(sources)

    def step(self, tokens_R: torch.Tensor) -> torch.Tensor:
        """Feed one token to every row."""
        position = torch.tensor([[self._position]], device=tokens_R.device)
        self._position += 1
        output = self._model(
            input_ids=tokens_R[:, None], past_key_values=self._cache, position_ids=position, use_cache=True
        )
        return output.logits[:, -1]


class PairStepper:
    """Steps two models and combines their logits."""

    def __init__(self, steppers: list[Stepper], combine: Any) -> None:
        self._steppers, self._combine = steppers, combine

    def join(self, sources: torch.Tensor) -> None:
        """Add rows to both."""
        for half in self._steppers:
            half.join(sources)

    def step(self, tokens_R: torch.Tensor) -> torch.Tensor:
        """Feed one token to every row of both."""
        return self._combine(*(half.step(tokens_R) for half in self._steppers))  # type: ignore[no-any-return]
