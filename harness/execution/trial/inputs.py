"""What a process reads once for all of its trials: texts, of which each caller gets a copy, and tokenizers."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any, Generic, TypeVar

import torch

from harness.contracts import MoreTexts, Sequences
from harness.data import sequences
from harness.data.sequences import Utility
from harness.execution.guard.fingerprint import fingerprint
from harness.execution.trial.judges import JUDGES
from harness.models.loading import load_tokenizer, vocabulary
from harness.specs import HOLDOUT, STAND_IN, Source, TrialSpec
from harness.toolkit.device import device_for

Texts = TypeVar("Texts", Sequences, Utility)
KEPT = 3
"""How many texts of each role are kept: one for each of a sweep's models, or the halves of the forget set."""


class SharedTexts(Generic[Texts]):
    """A loader that remembers what it read last, with fingerprints."""

    def __init__(self, load: Callable[..., Texts]) -> None:
        def load_and_fingerprint(*arguments: Any) -> tuple[Texts, Hashable]:
            texts = load(*arguments)
            return texts, _fingerprints(texts)

        kept = lru_cache(maxsize=KEPT)(load_and_fingerprint)
        self._load: Callable[..., tuple[Texts, Hashable]] = kept
        self.clear = kept.cache_clear

    def __call__(self, *arguments: Any) -> Texts:
        """Return a copy of `load(*arguments)`; read again only if the kept texts have changed."""
        texts, as_read = self._load(*arguments)
        if _fingerprints(texts) != as_read:
            self.clear()
            texts, _ = self._load(*arguments)
        copies: dict[str, Any] = {name: tensor.clone() for name, tensor in _tensors(texts).items()}
        return replace(texts, **copies)


def _tensors(texts: Sequences | Utility) -> dict[str, torch.Tensor]:
    values = {field.name: getattr(texts, field.name) for field in fields(texts)}
    return {name: value for name, value in values.items() if isinstance(value, torch.Tensor)}


def _fingerprints(texts: Sequences | Utility) -> Hashable:
    return tuple(fingerprint(tensor) for tensor in _tensors(texts).values())


_FORGET = SharedTexts(sequences.load_forget)
_RETAIN = SharedTexts(sequences.load_retain)
_VALIDATION = SharedTexts(sequences.load_validation)
_UTILITY = SharedTexts(sequences.load_utility)
_UNSEEN = {HOLDOUT: SharedTexts(sequences.load_holdout), STAND_IN: SharedTexts(sequences.load_stand_in)}
"""How the rows of unseen texts read the texts that replace the forget set."""


def forget_set(spec: TrialSpec) -> Sequences:
    """Return what a trial erases; for a row of unseen texts, the unseen texts."""
    load = _UNSEEN.get(spec.method, _FORGET)
    return load(spec.forget, load_tokenizer(spec.model), vocabulary(spec.model))


def measured_set(spec: TrialSpec) -> Sequences:
    """Return what erasure is measured on: the forget set, or the half of it that the trial names."""
    return forget_set(spec) if spec.measured is None else forget_set(replace(spec, forget=spec.measured))


def retain_set(spec: TrialSpec, sequence_tokens: int) -> Sequences | None:
    """Return a trial's retain set, cut at `sequence_tokens`; None where the sweep has none."""
    if spec.retain is None:
        return None
    return _RETAIN(spec.retain, load_tokenizer(spec.model), vocabulary(spec.model), sequence_tokens)


def more_texts(spec: TrialSpec, texts: Mapping[MoreTexts, Source], role: MoreTexts) -> Sequences | None:
    """Return unseen or retain texts for an evaluator, which gets what it declares; None where it does not."""
    if role not in texts:
        return None
    load = _UNSEEN[HOLDOUT] if role == HOLDOUT else _RETAIN
    return load(texts[role], load_tokenizer(spec.model), vocabulary(spec.model))


def validation_set(spec: TrialSpec) -> Sequences:
    """Return the held-out texts on which a trial's early stop watches the model."""
    return _VALIDATION(spec.validation, load_tokenizer(spec.model), vocabulary(spec.model))


def utility_texts(spec: TrialSpec) -> Utility:
    """Return the human texts whose beginnings a trial's model continues."""
    return _UTILITY(spec.utility, load_tokenizer(spec.model), vocabulary(spec.model))


def clear_shared() -> None:
    """Forget all that one trial leaves to the next: texts, tokenizers and judges are read again."""
    for texts in (_FORGET, _RETAIN, _VALIDATION, *_UNSEEN.values()):
        texts.clear()
    _UTILITY.clear()
    load_tokenizer.cache_clear()
    JUDGES.clear()


def device_of(spec: TrialSpec) -> torch.device:
    """Return where a trial computes: a GPU only if the sweep gives it one."""
    return device_for(spec.gpus)
