"""Sizes that were estimated before: by this process, or by an earlier one that left them on disk."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, cast

from harness.base.digests import digest_of
from harness.base.user_cache import UserCache, digest_of_files, user_cache_folder
from harness.contracts import Checkpoint, Json
from harness.models.resolving import ensure_local

T = TypeVar("T")
_HARNESS = Path(__file__).resolve().parents[1]
_DECIDING = ("toolkit", "models", "sizing")
"""Rooms of the harness whose code decides what tensors a trial holds."""


class SizeCache:
    """Sizes by what decides them: each is estimated once."""

    def __init__(self, folder: Path | None = None) -> None:
        """Look into `folder` too, which all sweeps may share; None: into this process's memory only."""
        self._on_disk = UserCache(folder)
        self._known: dict[str, Any] = {}

    def in_process(self, key: Json, make: Callable[[], T]) -> T:
        """Return `make()`, made once in this process for all that agree in `key`."""
        name = digest_of(key)
        if name not in self._known:
            self._known[name] = make()
        return cast(T, self._known[name])

    def on_disk(self, key: Json, make: Callable[[], Json]) -> Json:
        """Return `make()`, plain data, made once for all that agree in `key` and run the same code."""
        key = [key, _deciding_code()]
        return self.in_process(key, lambda: self._on_disk.get(key, make))


def cache_folder() -> Path | None:
    """Return where sizes stay for all sweeps of this user, if there is such a place."""
    return user_cache_folder("sizing")


def code_digest(module: ModuleType) -> str:
    """Return a digest of a plugin's source: of its package's files, or of its own where it has no package."""
    package = sys.modules[module.__name__.partition(".")[0]]
    if not hasattr(package, "__path__"):
        return digest_of_files((Path(module.__file__ or ""),))
    return digest_of_files(tuple(file for folder in package.__path__ for file in sorted(Path(folder).rglob("*.py"))))


def model_digest(checkpoint: Checkpoint) -> str:
    """Return a digest of a model's configuration: weights of one shape need the same."""
    return digest_of_files((Path(ensure_local(checkpoint, weights=False).location) / "config.json",))


@lru_cache(maxsize=1)
def _deciding_code() -> list[str]:
    files = tuple(file for room in _DECIDING for file in sorted((_HARNESS / room).rglob("*.py")))
    return [digest_of_files(files), version("torch"), version("transformers")]
