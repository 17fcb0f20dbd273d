"""Weights that the hub has only as a pickle, written once as safetensors: nothing else here reads a pickle.

The file is read with `weights_only=True`, which builds tensors and plain containers and refuses all else.
"""

from __future__ import annotations

import contextlib
import json
import pickle
import secrets
import shutil
import tempfile
import zipfile
from pathlib import Path

import torch

from harness.digests import difference, folder_digests, known_digest
from harness.errors import ModelError
from harness.hub import DESCRIPTION, PICKLED

INDEX = "model.safetensors.index.json"
DIGESTS = "digests.json"
"""Beside converted weights: the sha256 of each file."""


def convert(snapshot: Path, folder: Path) -> list[str]:
    """Write a snapshot's pickled weights as safetensors into `folder`, with its configuration and tokenizer.

    The folder is there whole or not at all. Tensors keep their names, types and values.

    Returns:
        The names of the pickles that were read.

    Raises:
        ModelError: A pickle holds anything but tensors; none of it was run.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    pickles = sorted(file for pattern in PICKLED for file in snapshot.glob(pattern))
    with tempfile.TemporaryDirectory(prefix="converting-", dir=folder.parent) as name:
        half = Path(name) / "model"
        half.mkdir()
        for pattern in DESCRIPTION:
            for file in snapshot.rglob(pattern):
                if not file.name.endswith(".index.json"):
                    place = half / file.relative_to(snapshot)
                    place.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(file, place)
        _write_weights(pickles, half)
        (half / DIGESTS).write_text(json.dumps(folder_digests(half)))
        if not is_converted(folder):
            discard(folder)
            half.rename(folder)
    return [file.name for file in pickles]


def is_converted(folder: Path) -> bool:
    """Return whether converted weights lie in a folder, with the digests by which damage would show."""
    return (folder / DIGESTS).is_file()


def converted_damage(folder: Path) -> str:
    """Return how converted weights differ from what was written: a clause, '' if they do not."""
    try:
        written = dict(json.loads((folder / DIGESTS).read_text()))
    except (OSError, ValueError, TypeError):
        return f"{DIGESTS} cannot be read"
    return difference(folder, written, DIGESTS, known_digest)


def discard(folder: Path) -> None:
    """Remove a folder, if it is there: whole or not at all to whoever looks for it."""
    aside = folder.with_name(f"converting-{secrets.token_hex(4)}")
    with contextlib.suppress(FileNotFoundError):
        folder.rename(aside)
        shutil.rmtree(aside)


def _write_weights(pickles: list[Path], half: Path) -> None:
    from safetensors.torch import save_file

    places: dict[str, str] = {}
    many = len(pickles) > 1
    for number, file in enumerate(pickles, 1):
        tensors = _apart(_read(file))
        target = f"model-{number:05d}-of-{len(pickles):05d}.safetensors" if many else "model.safetensors"
        save_file(tensors, half / target, metadata={"format": "pt"})
        places |= dict.fromkeys(tensors, target)
    if many:
        (half / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": places}))


def _apart(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the tensors, each with memory of its own: tied ones share it, which safetensors does not allow."""
    seen: set[int] = set()
    own = {}
    for name, tensor in tensors.items():
        place = tensor.untyped_storage().data_ptr()
        own[name] = tensor.clone() if place in seen else tensor.contiguous()
        seen.add(place)
    return own


def _read(file: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of one pickle."""
    try:
        found = torch.load(file, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(file))
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise ModelError(
            f"{file.name} of {file.parent} holds more than tensors, or is damaged ({type(error).__name__}): "
            "it was not converted, and nothing of it was run."
        ) from error
    if not isinstance(found, dict) or not all(isinstance(each, torch.Tensor) for each in found.values()):
        raise ModelError(f"{file.name} of {file.parent} is no table of tensors: it was not converted.")
    return found
