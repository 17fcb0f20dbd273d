"""Judges in memory: large ones make room for the next."""

from __future__ import annotations

import gc
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from pathlib import Path

import torch

from harness.contracts import Checkpoint
from harness.execution.isolate import Fingerprints, changes, modules_in, weights_fingerprints
from harness.models.resolving import check_unchanged, ensure_local
from harness.toolkit.device import JUDGE_BYTES, computing_device, judges_dtype

Load = Callable[[Checkpoint], object]
Key = tuple[Load, Checkpoint, torch.device, torch.dtype]
"""Trials of one process may differ in device and precision."""


@dataclass(frozen=True)
class _LoadedJudge:
    judge: object
    bytes: int
    """Bytes of the weights on disk."""
    as_loaded: Fingerprints


class JudgeCache:
    """The last judges, as many as fit into `kept_bytes`; the latest always."""

    def __init__(self, kept_bytes: int = JUDGE_BYTES) -> None:
        self._kept_bytes = kept_bytes
        self._loaded: dict[Key, _LoadedJudge] = {}
        self._lent: set[Key] = set()

    def get(self, load: Load, checkpoint: Checkpoint) -> object:
        """Return `load(checkpoint)`, from memory if possible."""
        key = load, checkpoint, computing_device(), judges_dtype()
        judge = self._loaded.pop(key, None)
        if judge is None:
            local = ensure_local(checkpoint)
            size = sum(file.stat().st_size for file in Path(local.location).glob("*.safetensors"))
            self._make_room(size)
            loaded = load(local)
            check_unchanged(local)  # Again: a plugin's own loader may have read files that were changed meanwhile.
            judge = _LoadedJudge(loaded, size, _fingerprints_of(loaded, checkpoint))
        self._loaded[key] = judge
        self._lent.add(key)
        return judge.judge

    def changes(self) -> list[str]:
        """Return the names of judges that changed since the last call, and drop these."""
        changed: list[str] = []
        for key in [key for key in self._loaded if key in self._lent]:
            judge = self._loaded[key]
            if changed_parts := changes(judge.as_loaded, _fingerprints_of(judge.judge, key[1])):
                changed += changed_parts
                del self._loaded[key]
        self._lent.clear()
        return changed

    def clear(self) -> None:
        self._loaded.clear()
        self._lent.clear()

    def shrink(self) -> None:
        """Drop judges larger than `kept_bytes`."""
        self._make_room(0)

    def _make_room(self, size: int) -> None:
        """Drop the oldest judges until `size` bytes fit."""
        needed = size + sum(judge.bytes for judge in self._loaded.values())
        for key in list(self._loaded):
            if needed <= self._kept_bytes:
                break
            needed -= self._loaded.pop(key).bytes
            gc.collect()


def _fingerprints_of(judge: object, checkpoint: Checkpoint) -> Fingerprints:
    fingerprints: dict[tuple[str, str], Hashable] = {}
    for number, module in enumerate(modules_in(judge)):
        whose = f"the judge {checkpoint.id}'s{f' model {number}' if number else ''}"
        fingerprints |= weights_fingerprints(module, whose)
    return fingerprints


JUDGES = JudgeCache()
