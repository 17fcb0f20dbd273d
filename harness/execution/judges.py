"""Judges that are loaded: small ones stay for the process's next trial, a large one makes room for the next."""

from __future__ import annotations

import gc
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from pathlib import Path

from harness.contracts import Checkpoint
from harness.execution.fingerprint import State, changes, modules_in, weights_state
from harness.models.resolving import check_unchanged, ensure_local
from harness.toolkit.batches import JUDGE_BYTES

Load = Callable[[Checkpoint], object]


@dataclass(frozen=True)
class _Judge:
    judge: object
    weight: int
    """In bytes, on disk."""
    state: State
    """As it was loaded."""


class Judges:
    """Every judge that was asked for and still has its place, the latest last."""

    def __init__(self, kept_bytes: int = JUDGE_BYTES) -> None:
        self._kept_bytes = kept_bytes
        self._loaded: dict[tuple[Load, Checkpoint], _Judge] = {}
        self._lent: set[tuple[Load, Checkpoint]] = set()

    def get(self, load: Load, checkpoint: Checkpoint) -> object:
        """Return `load(checkpoint)`, loading it unless it is; others go first until there is room for it."""
        key = load, checkpoint
        judge = self._loaded.pop(key, None)
        if judge is None:
            local = ensure_local(checkpoint)
            weight = weights_bytes(local)
            self._make_room(weight)
            loaded = load(local)
            check_unchanged(local)  # Once more: a loader of a plugin's own may have read what was written meanwhile.
            judge = _Judge(loaded, weight, _state(loaded, checkpoint))
        self._loaded[key] = judge
        self._lent.add(key)
        return judge.judge

    def changes(self) -> list[str]:
        """Return what is not as it was loaded, of the judges asked for since the last call; those are let go."""
        found: list[str] = []
        for key in [key for key in self._loaded if key in self._lent]:
            judge = self._loaded[key]
            found += (changed := changes(judge.state, _state(judge.judge, key[1])))
            if changed:
                del self._loaded[key]
        self._lent.clear()
        return found

    def clear(self) -> None:
        """Let go of every judge."""
        self._loaded.clear()
        self._lent.clear()

    def rest(self) -> None:
        """Let go of what is too large to be kept while no one measures."""
        self._make_room(0)

    def _make_room(self, weight: int) -> None:
        while self._loaded and weight + sum(judge.weight for judge in self._loaded.values()) > self._kept_bytes:
            del self._loaded[next(iter(self._loaded))]
            gc.collect()


def weights_bytes(checkpoint: Checkpoint) -> int:
    """Return the size of a local checkpoint's weight files."""
    return sum(file.stat().st_size for file in Path(checkpoint.location).glob("*.safetensors"))


def _state(judge: object, checkpoint: Checkpoint) -> State:
    state: dict[tuple[str, str], Hashable] = {}
    for number, module in enumerate(modules_in(judge)):
        state |= weights_state(module, f"the judge {checkpoint.id}'s{f' model {number}' if number else ''}")
    return state


JUDGES = Judges()
"""Of this process."""
