"""Sizes that this process has estimated before."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, cast

from harness.base.digests import digest_of
from harness.contracts import Checkpoint, Json
from harness.models.resolving import ensure_local

T = TypeVar("T")


class SizeCache:
    """Sizes by everything that decides them: each is estimated once."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}

    def get(self, key: Json, make: Callable[[], T]) -> T:
        """Return `make()`, made once for all that agree in `key`."""
        name = digest_of(key)
        if name not in self._known:
            self._known[name] = make()
        return cast(T, self._known[name])


def code_digest(module: ModuleType) -> str:
    """Return a digest of a plugin's source: of its package's files, or of its own where it has no package."""
    package = sys.modules[module.__name__.partition(".")[0]]
    if not hasattr(package, "__path__"):
        return _files_digest((Path(module.__file__ or ""),))
    return _files_digest(tuple(file for folder in package.__path__ for file in sorted(Path(folder).rglob("*.py"))))


def model_digest(checkpoint: Checkpoint) -> str:
    """Return a digest of a model's configuration: weights of one shape need the same."""
    return _files_digest((Path(ensure_local(checkpoint, weights=False).location) / "config.json",))


@lru_cache(maxsize=256)
def _files_digest(files: tuple[Path, ...]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:16]
