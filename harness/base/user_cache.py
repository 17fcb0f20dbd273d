"""What took long to find out, as JSON files that all sweeps of a user share."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from harness.base.digests import digest_of
from harness.base.files import write_whole
from harness.errors import StorageError


class UserCache:
    """Values by what decides them, each in a file of a folder."""

    def __init__(self, folder: Path | None) -> None:
        """Keep values in `folder`, which is made when there is one; None: nowhere."""
        self._folder = folder

    def get(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return `make()`, plain data, made once for all that agree in `key`; if it raises, nothing is kept."""
        value = self.find(key)
        if value is None:
            value = make()
            self.put(key, value)
        return value

    def find(self, key: Any) -> Any:
        """Return the value that is kept of a key; None where there is none, or none that is whole and unchanged."""
        if self._folder is None:
            return None
        name = digest_of(key)
        try:
            stored = json.loads((self._folder / f"{name}.json").read_bytes())
            return stored["value"] if stored["digest"] == digest_of([name, stored["value"]]) else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def put(self, key: Any, value: Any) -> None:
        """Keep the value of a key; where nothing can be written it is found out again the next time."""
        if self._folder is None:
            return
        name = digest_of(key)
        text = json.dumps({"value": value, "digest": digest_of([name, value])})
        try:
            write_whole(self._folder / f"{name}.json", f"{text}\n")
        except StorageError:
            self._folder = None


def user_cache_folder(kind: str) -> Path | None:
    """Return where values of one kind stay, if this user has a place for that: `~/.cache/lethe/sizing`."""
    try:
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:  # A user without a home.
        return None
    return Path(cache) / "lethe" / kind


@lru_cache(maxsize=256)
def digest_of_files(files: tuple[Path, ...]) -> str:
    """Return 16 hex digits that name the contents of files, in this order; each is read once."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:16]
