"""Texts, tokenizers and judges in memory: texts are read once a process and copied for each caller."""

import gc
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import torch

from harness.contracts import Checkpoint, MoreTexts, Sequences
from harness.data import sequences
from harness.models import loading, resolving
from harness.settings import HOLDOUT, VALIDATION_ROW, Source, Trial, replace
from harness.toolkit.device import JUDGE_BYTES, computing_device, device_for, judges_dtype

Texts = TypeVar("Texts", Sequences, sequences.Utility)
MAX_TEXTS = 18
"""Texts in memory."""


@lru_cache(maxsize=MAX_TEXTS)
def _as_read(load: Callable[..., Any], *arguments: Any) -> Any:
    return load(*arguments)


def shared_texts(load: Callable[..., Texts], *arguments: Any) -> Texts:
    """Return a copy of `load(*arguments)`, which is called once."""
    texts: Texts = _as_read(load, *arguments)
    tensors = {name: value for name, value in vars(texts).items() if isinstance(value, torch.Tensor)}
    return replace(texts, **{name: value.clone() for name, value in tensors.items()})


def _texts_of(spec: Trial, load: Callable[..., Texts], source: Source, *more: int) -> Texts:
    return shared_texts(load, source, loading.load_tokenizer(spec.model), loading.vocabulary(spec.model), *more)


def forget_set(spec: Trial) -> Sequences:
    """Return the texts to erase; for a holdout row, the unseen texts."""
    loaders = {HOLDOUT: sequences.load_holdout, VALIDATION_ROW: sequences.load_validation_row}
    return _texts_of(spec, loaders.get(spec.method, sequences.load_forget), spec.forget)


def measured_set(spec: Trial) -> Sequences:
    """Return the texts that erasure is measured on: the forget set or the trial's half of it."""
    return forget_set(spec) if spec.measured is None else forget_set(replace(spec, forget=spec.measured))


def retain_set(spec: Trial, sequence_tokens: int) -> Sequences | None:
    """Return the retain set, cut at `sequence_tokens`; None if the sweep has none."""
    return None if spec.retain is None else _texts_of(spec, sequences.load_retain, spec.retain, sequence_tokens)


def more_texts(spec: Trial, texts: Mapping[MoreTexts, Source]) -> dict[MoreTexts, Sequences]:
    """Return an evaluator's unseen, retain and validation texts."""
    return {role: _texts_of(spec, sequences.LOADERS[role], source) for role, source in texts.items()}


def validation_set(spec: Trial) -> Sequences:
    """Return the texts of early stopping."""
    return _texts_of(spec, sequences.load_validation, spec.validation)


def utility_texts(spec: Trial) -> sequences.Utility:
    """Return the human texts whose beginnings are prompts."""
    return _texts_of(spec, sequences.load_utility, spec.utility)


def choose_device(spec: Trial) -> torch.device:
    """Return the GPU if the sweep gives the trial one, else the CPU."""
    return device_for(spec.gpus)


Load = Callable[[Checkpoint], object]
Key = tuple[Load, Checkpoint, torch.device, torch.dtype]


class JudgeCache:
    """Judges that fit into `kept_bytes` together; the latest always."""

    def __init__(self, kept_bytes: int = JUDGE_BYTES) -> None:
        self._kept_bytes = kept_bytes
        self._loaded: dict[Key, tuple[object, int]] = {}
        """With bytes on disk."""

    def get(self, load: Load, checkpoint: Checkpoint) -> object:
        """Return `load(checkpoint)`, from memory if possible."""
        key = load, checkpoint, computing_device(), judges_dtype()
        if key not in self._loaded:
            local = resolving.ensure_local(checkpoint)
            size = sum(file.stat().st_size for file in Path(local.location).glob("*.safetensors"))
            self.make_room(size)
            judge = load(local)
            # Again: a plugin's own loader may have read files that were changed in between.
            resolving.check_unchanged(local)
            self._loaded[key] = judge, size
        return self._loaded[key][0]

    def clear(self) -> None:
        self._loaded.clear()

    def make_room(self, size: int = 0) -> None:
        """Drop all judges if `size` more bytes do not fit."""
        if size + sum(loaded for _, loaded in self._loaded.values()) > self._kept_bytes:
            self._loaded.clear()
            gc.collect()


JUDGES = JudgeCache()


def clear_shared() -> None:
    """Drop texts, tokenizers and judges in memory."""
    _as_read.cache_clear()
    loading.load_tokenizer.cache_clear()
    JUDGES.clear()
