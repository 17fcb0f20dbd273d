"""Artifacts that trials and sweeps share: memorised models, reference features, the original's measurements.

An artifact is a folder, `<root>/<kind>/<key>`. It is built under another name and renamed, so one that exists is
complete; a lock lets one process build while others wait. Files are compared with their digests at every use; a
damaged artifact is reported, removed and built again.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from harness.base import files, messages
from harness.contracts import Checkpoint
from harness.plugins import EVALUATORS, prepares
from harness.settings import EvaluatorSpec, Trial

ABOUT = "about.json"
"""File of each artifact's kind, parts of the key, creation time and digests of files."""
MEMORIZED = "memorized"
"""Artifact kind of memorised models."""
MEMORIZED_VERSION = 3
"""Part of the key; raised when numbers or notes of memorised models change."""
PREPARED = "prepared"
"""Artifact kind of evaluators whose arrays of an original were made."""
ARRAYS = "arrays"
"""Artifact kind of evaluators' arrays."""
_ARRAYS = "arrays.safetensors"


class Artifacts:
    """A folder of artifacts, shared by processes and sweeps; `warn` is told of each damaged one."""

    def __init__(self, root: Path, warn: Callable[[str], None] | None = None) -> None:
        self.root = root
        self._warn = warn or partial(messages.tell, is_error=True)

    def find(self, kind: str, key: str) -> Path | None:
        """Return the artifact's folder, None if it does not exist; a damaged one is removed."""
        folder = self.root / kind / key
        if not folder.exists():
            return None
        if not damage(folder):
            return folder
        with files.locked(_lock_file(folder)):
            return self._intact(folder)

    def build(self, kind: str, key: str, make: Callable[[Path], None], parts: Sequence[str] = ()) -> Path:
        """Return the artifact's folder, filled by `make` unless it exists.

        `key` is the digest of everything that decides the contents, `parts` what it was made of, for readers.
        """
        folder, description = self.root / kind / key, f"an artifact of the kind '{kind}'"
        if self.find(kind, key):
            return folder
        with files.locked(_lock_file(folder)):
            if not self._intact(folder):
                with files.folder_whole(folder, description) as building:
                    make(building)
                    about = {"kind": kind, "key": list(parts or (key,)), "files": files.folder_digests(building)}
                    about |= {"created": datetime.now(UTC).isoformat(timespec="seconds")}
                    files.write_whole(building / ABOUT, json.dumps(about, indent=1) + "\n", description)
        return folder

    def arrays(self, key: Sequence[str], make: Callable[[], Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """Return `make()`, arrays of numbers, computed once for each key."""

        def write(folder: Path) -> None:
            arrays = {name: np.array(array, order="C") for name, array in make().items()}
            with files.writing(folder / _ARRAYS, "arrays that trials share"):
                save_file(arrays, folder / _ARRAYS)

        return load_file(self.build(ARRAYS, files.digest_of(list(key)), write, key) / _ARRAYS)

    @contextmanager
    def scratch_dir(self, kind: str, key: str) -> Iterator[Path]:
        """Yield an empty folder on the shared file system; it is removed afterwards, or before its next use."""
        folder = self.root / kind / key
        with files.locked(_lock_file(folder)):
            scratch = files.name_aside(folder)
            scratch.mkdir()
            try:
                yield scratch
            finally:
                files.remove(scratch)

    def _intact(self, folder: Path) -> Path | None:
        if not folder.exists():
            return None
        if not (clause := damage(folder)):
            return folder
        files.remove(folder.rename(files.name_aside(folder)))  # Aside first: no process may see it half removed.
        self._warn(f"{folder} was damaged ({clause}), so it was removed and is built again")
        return None


def damage(folder: Path) -> str:
    """Return a clause about an artifact's damage; '' if it is this artifact and all files have their digests."""
    try:
        about = json.loads((folder / ABOUT).read_bytes())
        key = folder.name in (files.digest_of(about["key"]), *about["key"])
        return files.difference(folder, about["files"], ABOUT) if key else "it belongs elsewhere"
    except (OSError, ValueError, TypeError, KeyError):
        return f"its {ABOUT} cannot be read"


def _lock_file(folder: Path) -> Path:
    return folder.parent / ".locks" / folder.name


def prepared_key(model: Checkpoint, evaluator_spec: EvaluatorSpec) -> str:
    """Return the artifact key of an evaluator's arrays of an original."""
    return files.digest_of([model.digest, evaluator_spec.key])


def is_prepared(model: Checkpoint, evaluator_spec: EvaluatorSpec, artifacts: Artifacts) -> bool:
    """Return whether an evaluator's arrays of this original were made, or it needs none."""
    is_needed = prepares(EVALUATORS.load(evaluator_spec.name))
    return not is_needed or artifacts.find(PREPARED, prepared_key(model, evaluator_spec)) is not None


def memorized_key(spec: Trial) -> str:
    """Return the artifact key of a trial's memorised model."""
    training, engine = spec.memorized_training.identity(), str(spec.engine)
    epochs, texts = spec.memorization.epochs, spec.forget.digest
    return files.digest_of([MEMORIZED_VERSION, spec.model.digest, texts, epochs, training, engine])


def erased_key(point_id: str, code: str) -> str:
    """Return the artifact name of an erased model, which depends on the digest of the method's code."""
    return f"{point_id}-{code}" if code else point_id
