"""What trials and sweeps share: memorised models, reference features, the original's measurements.

An artifact is a folder, `<root>/<kind>/<key>`, named by what decides its contents. It is built
aside and renamed into place, so one that can be found is complete. Of several processes that ask
for the same one, the first builds it while the others wait at its lock; the lock of a builder that
dies is released by the kernel, and what it left is removed by the next builder.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from harness.errors import PluginError
from harness.specs import digest_of

ABOUT = "about.json"
"""In every artifact's folder: its kind, the parts of its key, and when it was made."""
_ARRAYS = "arrays.safetensors"
_BUILDING = ".building-"
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


class Artifacts:
    """A folder of artifacts that any number of processes and sweeps use at once."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def find(self, kind: str, key: str) -> Path | None:
        """Return the artifact's folder if it exists; it is then complete."""
        folder = self.root / kind / key
        return folder if (folder / ABOUT).exists() else None

    def build(self, kind: str, key: str, make: Callable[[Path], None]) -> Path:
        """Return the artifact's folder, after `make` has filled it if nobody had.

        Args:
            kind: Such as `memorized`; a folder's name.
            key: A digest of everything that decides the contents; a folder's name.
            make: Fills the empty folder that it is given. If it raises, nothing is left.
        """
        return self._build(kind, key, (key,), make)

    def arrays(self, key: Sequence[str], make: Callable[[], Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """Return `make()`, computed once for everyone who asks with the same key.

        Raises:
            PluginError: An array holds something other than numbers.
        """

        def write(folder: Path) -> None:
            save_file({name: _numbers(name, array) for name, array in make().items()}, folder / _ARRAYS)

        return load_file(self._build("arrays", digest_of(list(key)), key, write) / _ARRAYS)

    @contextmanager
    def aside(self, kind: str, key: str) -> Iterator[Path]:
        """Yield an empty folder that every machine sees; it is gone afterwards, or when the next one is asked for.

        Args:
            kind: Such as `workers`; a folder's name.
            key: A digest of what it is for; a folder's name.
        """
        shelf = self.root / kind
        shelf.mkdir(parents=True, exist_ok=True)
        with _lock(shelf, key) as locked:
            _remove_leftovers(shelf, held=key if locked else None)
            folder = shelf / f"{_BUILDING}{key}.{secrets.token_hex(4)}"
            folder.mkdir()
            try:
                yield folder
            finally:
                shutil.rmtree(folder, ignore_errors=True)

    def _build(self, kind: str, key: str, parts: Sequence[str], make: Callable[[Path], None]) -> Path:
        found = self.find(kind, key)
        if found:
            return found
        shelf = self.root / kind
        shelf.mkdir(parents=True, exist_ok=True)
        with _lock(shelf, key) as locked:
            _remove_leftovers(shelf, held=key if locked else None)
            return self.find(kind, key) or self._make(kind, key, parts, make)

    def _make(self, kind: str, key: str, parts: Sequence[str], make: Callable[[Path], None]) -> Path:
        # Not `tempfile`: its folders are closed to the other users of a shared path.
        building = self.root / kind / f"{_BUILDING}{key}.{secrets.token_hex(4)}"
        building.mkdir()
        try:
            make(building)
            about = {
                "kind": kind,
                "key": list(parts),
                "created": datetime.now(UTC).isoformat(timespec="seconds"),
            }
            (building / ABOUT).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
            _sync(building)
            _rename(building, self.root / kind / key)
        finally:
            shutil.rmtree(building, ignore_errors=True)
        return self.root / kind / key


def _numbers(name: str, array: np.ndarray) -> np.ndarray:
    array = np.asarray(array)
    if array.dtype.kind not in "biuf":
        raise PluginError(
            f"the array '{name}' cannot be shared between trials: it holds {array.dtype}. "
            "Allowed: booleans, integers and floats."
        )
    return np.array(array, order="C")


@contextmanager
def _lock(shelf: Path, key: str, *, wait: bool = True) -> Iterator[bool]:
    """Hold the key's lock; the value says whether it is really held.

    It is not where the file system has no locks: then several may build, and the first rename wins.
    """
    locks = shelf / ".locks"
    locks.mkdir(exist_ok=True)
    with (locks / key).open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if wait and error.errno not in _NO_LOCKS:
                raise
            yield False
        else:
            yield True


def _remove_leftovers(shelf: Path, *, held: str | None) -> None:
    """Remove what dead builders left: whatever is being built by others has its lock taken."""
    for path in shelf.glob(f"{_BUILDING}*"):
        key = path.name.removeprefix(_BUILDING).rpartition(".")[0]
        if key == held:
            shutil.rmtree(path, ignore_errors=True)
            continue
        with _lock(shelf, key, wait=False) as free:
            if free:
                shutil.rmtree(path, ignore_errors=True)


def _sync(folder: Path) -> None:
    for path in [*folder.rglob("*"), folder]:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _rename(building: Path, final: Path) -> None:
    try:
        building.rename(final)
    except OSError as error:
        # Only without locks: another builder was first, and its artifact is as good as this one.
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) or not (final / ABOUT).exists():
            raise
