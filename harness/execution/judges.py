"""Judges that are loaded: small ones stay for the process's next trial, a large one makes room for the next."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path

from harness.contracts import Checkpoint
from harness.models.resolving import check_unchanged, here
from harness.toolkit.batches import JUDGE_BYTES

Load = Callable[[Checkpoint], object]


class Judges:
    """Every judge that was asked for and still has its place, the latest last."""

    def __init__(self, kept_bytes: int = JUDGE_BYTES) -> None:
        self._kept_bytes = kept_bytes
        self._loaded: dict[tuple[Load, Checkpoint], tuple[object, int]] = {}

    def get(self, load: Load, checkpoint: Checkpoint) -> object:
        """Return `load(checkpoint)`, loading it unless it is; others go first until there is room for it."""
        key = load, checkpoint
        judge, weight = self._loaded.pop(key, (None, 0))
        if judge is None:
            local = here(checkpoint)
            weight = weights_bytes(local)
            self._make_room(weight)
            judge = load(local)
            check_unchanged(local)  # Once more: a loader of a plugin's own may have read what was written meanwhile.
        self._loaded[key] = judge, weight
        return judge

    def rest(self) -> None:
        """Let go of what is too large to be kept while no one measures."""
        self._make_room(0)

    def _make_room(self, weight: int) -> None:
        while self._loaded and weight + sum(held for _, held in self._loaded.values()) > self._kept_bytes:
            del self._loaded[next(iter(self._loaded))]
            gc.collect()


def weights_bytes(checkpoint: Checkpoint) -> int:
    """Return the size of a local checkpoint's weight files."""
    return sum(file.stat().st_size for file in Path(checkpoint.location).glob("*.safetensors"))


JUDGES = Judges()
"""Of this process."""
