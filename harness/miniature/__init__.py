"""The miniature: shipped models and replicates, texts and reasoning rows."""

import gzip
import json
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from harness.base.files import file_digest
from harness.errors import ModelError

FORGET_RECORDS, UNSEEN_RECORDS = 256, 128
"""Memorised records, and records that no model ever saw."""
WEIGHTS = Path(__file__).parent / "weights"
MANIFEST = "manifest.json"
"""In the folder of the shipped models and in each replicate."""

ORIGINALS = ("miniature-s", "miniature-m", "miniature-l")
RETRAINED = tuple(f"{name}-retrained" for name in ORIGINALS)
JUDGE = "miniature-judge"


def names() -> tuple[str, ...]:
    """Return the names of all shipped models."""
    return (*ORIGINALS, *RETRAINED, JUDGE)


def folder(name: str) -> Path:
    """Return the folder of a named model, or of their `tokenizer`."""
    return WEIGHTS / name


@cache
def manifest() -> dict[str, Any]:
    """Return digests, settings and measured quality of the shipped models."""
    return dict(json.loads((WEIGHTS / MANIFEST).read_text()))


_ENTRIES = {"replicate_of", "seed", "size", "corpus", "tokenizer", "models"}


@dataclass(frozen=True)
class Replicate:
    """A folder with an original and its retrained twin, made by `python -m studies.miniature --seed`."""

    ORIGINAL: ClassVar[str] = "original"
    RETRAINED: ClassVar[str] = "retrained"

    folder: Path
    replicate_of: str
    """The shipped model: `miniature-s`."""

    @property
    def original(self) -> Path:
        """Return the folder of the model that memorised the forget set."""
        return self.folder / self.ORIGINAL

    @property
    def retrained(self) -> Path:
        """Return the folder of the model that never saw it."""
        return self.folder / self.RETRAINED


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """Return a replicate's manifest; None if there is none."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return manifest if isinstance(manifest, dict) and manifest.keys() >= _ENTRIES else None


def read_replicate(folder: Path) -> Replicate | None:
    """Return the replicate in a folder; None if there is none."""
    entries = read_manifest(folder)
    if entries is None:
        return None
    reason = ""
    if any(entries[key] != manifest()[key] for key in ("corpus", "tokenizer")):
        reason = f"the models in {folder} were made with another corpus or tokenizer than the shipped ones"
    for kind in (Replicate.ORIGINAL, Replicate.RETRAINED):
        weights = folder / kind / "model.safetensors"
        if not weights.is_file() or file_digest(weights) != entries["models"][kind]["sha256"]:
            reason = f"{weights} is not the model that {MANIFEST} names"
    if reason:
        again = f"python -m studies.miniature --seed {entries['seed']} --size {entries['size']} --out {folder}"
        raise ModelError(f"{reason}: remove the folder and make them again ({again}).")
    return Replicate(folder, entries["replicate_of"])


FILE = "texts.json.gz"
REASONING_FILE = "reasoning.json.gz"


def texts(role: str, weights: Path = WEIGHTS) -> tuple[str, ...]:
    """Return the texts of `forget`, `holdout`, `retain`, `utility` or `validation`, in order."""
    return tuple(_content(weights / FILE)[role])


def reasoning_rows(task: str) -> list[dict[str, Any]]:
    """Return fresh validation rows of a task, in the schema of the hub's data set."""
    return list(deepcopy(_content(WEIGHTS / REASONING_FILE)[task]))


@cache
def _content(file: Path) -> Any:
    return json.loads(gzip.decompress(file.read_bytes()))
