"""Texts that a process reads once for all of its trials; whoever asks is given a copy."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any, Generic, TypeVar

import torch

from harness.contracts import Sequences
from harness.data.sequences import Utility
from harness.execution.fingerprint import fingerprint

Texts = TypeVar("Texts", bound=Sequences | Utility)
KEPT = 2
"""Of each role: a sweep's trials use one, or one for each of its models."""


class SharedTexts(Generic[Texts]):
    """A loader that remembers what it read last, and what that was like."""

    def __init__(self, load: Callable[..., Texts]) -> None:
        self._load = load
        self._kept = lru_cache(maxsize=KEPT)(self._read)

    def _read(self, *arguments: Any) -> tuple[Texts, Hashable]:
        texts = self._load(*arguments)
        return texts, _state(texts)

    def __call__(self, *arguments: Any) -> Texts:
        """Return a copy of `load(*arguments)`, read again only if what was kept is no longer what was read."""
        texts, state = self._kept(*arguments)
        if _state(texts) != state:
            self.drop()
            texts, _ = self._kept(*arguments)
        copies: dict[str, Any] = {name: tensor.clone() for name, tensor in _tensors(texts).items()}
        return replace(texts, **copies)

    def drop(self) -> None:
        """Forget what was read."""
        self._kept.cache_clear()


def _tensors(texts: Sequences | Utility) -> dict[str, torch.Tensor]:
    values = {each.name: getattr(texts, each.name) for each in fields(texts)}
    return {name: value for name, value in values.items() if isinstance(value, torch.Tensor)}


def _state(texts: Sequences | Utility) -> Hashable:
    return tuple(fingerprint(tensor) for tensor in _tensors(texts).values())
