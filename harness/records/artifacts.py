"""What trials and sweeps share: memorised models, reference features, the original's measurements.

An artifact is a folder, `<root>/<kind>/<key>`, named by what decides its contents. It is built
aside and renamed into place, so an artifact that exists is complete. When several processes ask
for the same one, the first builds it while the others wait at its lock. The kernel releases the lock of
a builder that dies, and the next builder removes what that left.

A process that wants an artifact reads all of its files first. If they are not what was written, by the digests
that it carries, the artifact is reported, removed and built again, and never used.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from harness.base.files import difference, digest_of, folder_digests, locked, read_file, remove, writing
from harness.base.messages import tell
from harness.errors import DataError, PluginError
from harness.settings import TrialSpec

ABOUT = "about.json"
"""In every artifact's folder: its kind, the parts of its key, when it was made, and the digest of each file."""
MEMORIZED = "memorized"
"""The kind of artifact that a memorised model is."""
MEMORIZED_VERSION = 3
"""Raised when the numbers of memorised models change, or what is noted of them; part of their key."""
ARRAYS = "arrays"
"""The kind of artifact that the arrays of an evaluator are."""
_ARRAYS = "arrays.safetensors"
_BUILDING = ".building-"


class Artifacts:
    """A folder of artifacts that any number of processes and sweeps use at once.

    Args:
        root: The folder.
        warn: Called with a sentence about each artifact that was damaged and is removed; None: it is printed.
    """

    def __init__(self, root: Path, warn: Callable[[str], None] | None = None) -> None:
        self.root = root
        self._warn = warn or partial(tell, is_error=True)

    def has(self, kind: str, key: str) -> bool:
        """Return whether the artifact is there, damaged or not: quick, for callers that do not read it."""
        return (self.root / kind / key / ABOUT).exists()

    def find(self, kind: str, key: str) -> Path | None:
        """Return the artifact's folder if it exists and is what was written; damaged, it is removed."""
        folder = self.root / kind / key
        if not folder.exists():
            return None
        if not damage(folder, kind, key):
            return folder
        with locked(_lock_file(folder)):
            return self._intact(folder)

    def build(self, kind: str, key: str, make: Callable[[Path], None], parts: Sequence[str] = ()) -> Path:
        """Return the artifact's folder, after `make` has filled it if nobody had.

        Args:
            kind: Such as `memorized`; a folder's name.
            key: A digest of everything that decides the contents; a folder's name.
            make: Fills the empty folder that it is given. If it raises, nothing is left.
            parts: What `key` is the digest of, for who reads the folder.
        """
        folder = self.root / kind / key
        if not folder.exists() or damage(folder, kind, key):
            with self._held(folder):
                if not self._intact(folder):
                    _make(folder, parts or (key,), make)
        return folder

    def arrays(self, key: Sequence[str], make: Callable[[], Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """Return `make()`, computed once for everyone who asks with the same key.

        Raises:
            PluginError: An array holds something other than numbers.
        """

        def write(folder: Path) -> None:
            arrays = {name: _shareable(name, array) for name, array in make().items()}
            with writing(folder / _ARRAYS, "arrays that trials share"):
                save_file(arrays, folder / _ARRAYS)

        return load_file(self.build(ARRAYS, digest_of(list(key)), write, key) / _ARRAYS)

    @contextmanager
    def scratch_dir(self, kind: str, key: str) -> Iterator[Path]:
        """Yield an empty folder that every machine sees; it is gone afterwards, or when the next one is asked for.

        Args:
            kind: Such as `workers`; a folder's name.
            key: A digest of what it is for; a folder's name.
        """
        with self._held(self.root / kind / key):
            folder = _aside(self.root / kind / key)
            with writing(folder, "a temporary folder"):
                folder.mkdir()
            try:
                yield folder
            finally:
                remove(folder)

    @contextmanager
    def _held(self, folder: Path) -> Iterator[None]:
        """Hold an artifact's lock, and remove what a dead builder of it left."""
        with locked(_lock_file(folder)):
            for path in folder.parent.glob(f"{_BUILDING}{folder.name}.*"):
                remove(path)
            yield

    def _intact(self, folder: Path) -> Path | None:
        """Return the artifact's folder, or remove it; its lock is held, so no one else removes or builds it."""
        if not folder.exists():
            return None
        clause = damage(folder, folder.parent.name, folder.name)
        if not clause:
            return folder
        # Aside first: no process may see it half removed. One that dies here leaves what a dead builder does.
        aside = _aside(folder)
        with writing(folder, "a damaged artifact, to be removed"):
            folder.rename(aside)
            remove(aside)
        self._warn(f"{folder} was damaged ({clause}), so it was removed and is built again")
        return None


def _make(folder: Path, parts: Sequence[str], make: Callable[[Path], None]) -> None:
    building, kind = _aside(folder), folder.parent.name
    what = f"an artifact of the kind '{kind}'"
    with writing(folder, what):
        building.mkdir()
    try:
        make(building)
        with writing(folder, what):
            created = datetime.now(UTC).isoformat(timespec="seconds")
            about = {"kind": kind, "key": list(parts), "created": created, "files": folder_digests(building)}
            (building / ABOUT).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
            building.rename(folder)
    finally:
        remove(building)


def _aside(folder: Path) -> Path:
    """Return a new name beside an artifact; not `tempfile`'s: its folders are closed to others of a shared path."""
    return folder.with_name(f"{_BUILDING}{folder.name}.{secrets.token_hex(4)}")


def damage(folder: Path, kind: str | None = None, key: str | None = None) -> str:
    """Return how an artifact differs from what was written: a clause, '' if it does not. All of its files are read.

    Args:
        folder: Of the artifact.
        kind: What it should be; None: whatever it says.
        key: What it should be made for; None: whatever it says.
    """
    try:
        about = json.loads(read_file(folder / ABOUT, "what an artifact is"))
        is_right = kind in (None, about["kind"]) and key in (None, digest_of(about["key"]), *about["key"])
        written = dict(about["files"])
    except (DataError, OSError, ValueError, TypeError, KeyError):
        return f"its {ABOUT} cannot be read"
    try:
        return difference(folder, written, ABOUT) if is_right else "it belongs elsewhere"
    except FileNotFoundError:  # Another process noticed the damage too, and removes it.
        return "it is being removed"


def _shareable(name: str, array: np.ndarray) -> np.ndarray:
    array = np.asarray(array)
    if array.dtype.kind not in "biuf":
        raise PluginError(
            f"the array '{name}' cannot be shared between trials: it holds {array.dtype}. "
            "Allowed: booleans, integers and floats."
        )
    return np.array(array, order="C")


def _lock_file(folder: Path) -> Path:
    return folder.parent / ".locks" / folder.name


def memorized_key(spec: TrialSpec) -> str:
    """Return the artifact key of the memorised model that a trial needs."""
    training, engine = spec.memorized_training.identity(), str(spec.engine)
    return digest_of(
        [MEMORIZED_VERSION, spec.model.digest, spec.forget.digest, spec.memorization.epochs, training, engine]
    )
