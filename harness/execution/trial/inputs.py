"""Texts and tokenizers, read once a process and copied for each caller."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import fields
from functools import lru_cache
from typing import Any, TypeVar

import torch

from harness.contracts import MoreTexts, Sequences
from harness.data import sequences
from harness.data.sequences import Utility
from harness.execution.isolate import fingerprint
from harness.execution.trial.judges import JUDGES
from harness.models.loading import load_tokenizer, vocabulary
from harness.settings import HOLDOUT, STAND_IN, Source, TrialSpec, replace
from harness.toolkit.device import device_for

Texts = TypeVar("Texts", Sequences, Utility)
MAX_TEXTS = 18
"""Texts in memory: of six roles, for each model or half of the forget set."""


@lru_cache(maxsize=MAX_TEXTS)
def _as_read(load: Callable[..., Any], *arguments: Any) -> tuple[Any, Hashable]:
    texts = load(*arguments)
    return texts, _fingerprints(texts)


def shared_texts(load: Callable[..., Texts], *arguments: Any) -> Texts:
    """Return a copy of `load(*arguments)`, read again only if the texts in memory have changed."""
    texts: Texts
    texts, fingerprints = _as_read(load, *arguments)
    if _fingerprints(texts) != fingerprints:
        _as_read.cache_clear()
        texts, _ = _as_read(load, *arguments)
    copies: dict[str, Any] = {name: tensor.clone() for name, tensor in _tensors(texts).items()}
    return replace(texts, **copies)


def _tensors(texts: Sequences | Utility) -> dict[str, torch.Tensor]:
    values = {field.name: getattr(texts, field.name) for field in fields(texts)}
    return {name: value for name, value in values.items() if isinstance(value, torch.Tensor)}


def _fingerprints(texts: Sequences | Utility) -> Hashable:
    return tuple(fingerprint(tensor) for tensor in _tensors(texts).values())


def _texts_of(spec: TrialSpec, load: Callable[..., Texts], source: Source, *more: int) -> Texts:
    return shared_texts(load, source, load_tokenizer(spec.model), vocabulary(spec.model), *more)


def forget_set(spec: TrialSpec) -> Sequences:
    """Return the texts to erase; for a holdout row, the unseen texts."""
    load = sequences.load_forget
    if spec.method == HOLDOUT:
        load = sequences.load_holdout
    elif spec.method == STAND_IN:
        load = sequences.load_stand_in
    return _texts_of(spec, load, spec.forget)


def measured_set(spec: TrialSpec) -> Sequences:
    """Return the texts that erasure is measured on: the forget set or the trial's half of it."""
    return forget_set(spec) if spec.measured is None else forget_set(replace(spec, forget=spec.measured))


def retain_set(spec: TrialSpec, sequence_tokens: int) -> Sequences | None:
    """Return the retain set, cut at `sequence_tokens`; None if the sweep has none."""
    return None if spec.retain is None else _texts_of(spec, sequences.load_retain, spec.retain, sequence_tokens)


def more_texts(spec: TrialSpec, texts: Mapping[MoreTexts, Source]) -> dict[MoreTexts, Sequences]:
    """Return an evaluator's unseen, retain and validation texts."""
    return {role: _texts_of(spec, sequences.LOADERS[role], source) for role, source in texts.items()}


def validation_set(spec: TrialSpec) -> Sequences:
    """Return the texts of early stopping."""
    return _texts_of(spec, sequences.load_validation, spec.validation)


def utility_texts(spec: TrialSpec) -> Utility:
    """Return the human texts whose beginnings are prompts."""
    return _texts_of(spec, sequences.load_utility, spec.utility)


def clear_shared() -> None:
    """Drop texts, tokenizers and judges in memory."""
    _as_read.cache_clear()
    load_tokenizer.cache_clear()
    JUDGES.clear()


def device_of(spec: TrialSpec) -> torch.device:
    """Return the GPU if the sweep gives the trial one, else the CPU."""
    return device_for(spec.gpus)
