"""Replicates: models that differ from a shipped one in their seed alone, and what is written down beside them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from harness.base.digests import known_digest
from harness.errors import ModelError
from harness.miniature.checkpoints import MANIFEST
from harness.miniature.checkpoints import manifest as shipped_manifest

_ENTRIES = {"replicate_of", "seed", "size", "corpus", "tokenizer", "models"}


@dataclass(frozen=True)
class Replicate:
    """A folder with an original model and its retrained twin, which `python -m studies.miniature --seed` made."""

    ORIGINAL: ClassVar[str] = "original"
    RETRAINED: ClassVar[str] = "retrained"

    folder: Path
    replicate_of: str
    """The shipped model: `miniature-s`."""

    @property
    def original(self) -> Path:
        """Return the folder of the model that memorised the forget set, with its tokenizer."""
        return self.folder / self.ORIGINAL

    @property
    def retrained(self) -> Path:
        """Return the folder of the model that never saw it, with its tokenizer."""
        return self.folder / self.RETRAINED


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """Return what is written down of a replicate (seed, size, digests, versions, quality); None if there is none."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return manifest if isinstance(manifest, dict) and manifest.keys() >= _ENTRIES else None


def read_replicate(folder: Path) -> Replicate | None:
    """Return the replicate in a folder; None if there is none.

    Raises:
        ModelError: It is of another corpus or tokenizer than the shipped models, or not what was written down.
    """
    manifest = read_manifest(folder)
    if manifest is None:
        return None
    try:
        _check_made(folder, manifest)
    except (TypeError, KeyError, AttributeError, OSError) as error:
        raise ModelError(
            f"{folder / MANIFEST} is damaged ({type(error).__name__}): remove {folder} and make it again."
        ) from error
    return Replicate(folder, manifest["replicate_of"])


def _check_made(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Refuse a replicate that is not what its manifest says was made, or that does not fit the shipped models."""
    arguments = f"--seed {manifest['seed']} --size {manifest['size']} --out {folder}"
    again = f"python -m studies.miniature {arguments}, in a checkout"
    for key in ("corpus", "tokenizer"):
        if manifest[key] != shipped_manifest()[key]:
            reason = f"the models in {folder} were made with another {key} than the shipped ones"
            raise ModelError(f"{reason}: remove the folder and make them again ({again}).")
    for kind in (Replicate.ORIGINAL, Replicate.RETRAINED):
        entry = manifest["models"][kind]
        written = {"model.safetensors": entry["sha256"], "tokenizer.json": manifest["tokenizer"]["sha256"]}
        for name, digest in written.items():
            file = folder / kind / name
            if not file.is_file() or known_digest(file) != digest:
                reason = f"{file} is not what {folder / MANIFEST} says was made"
                raise ModelError(f"{reason}: remove {folder} and make it again ({again}).")
