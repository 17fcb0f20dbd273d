"""A hub model into the local cache; weights that the hub has only as a pickle are written once as safetensors.

Nothing else reads a pickle, and this with `weights_only=True`, which builds tensors and plain containers and
refuses all else.
"""

from __future__ import annotations

import json
import pickle
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Literal

import torch

from harness.base import hub
from harness.base.digests import difference, folder_digests, known_digest
from harness.base.files import folder_whole, remove, writing
from harness.base.hub import Repository
from harness.errors import ModelError

INDEX = "model.safetensors.index.json"
DIGESTS = "digests.json"
"""Beside converted weights: the sha256 of each file."""
CacheState = Literal["here", "pickled", "missing"]


def cache_state(repository: Repository, *, weights: bool = True) -> CacheState:
    """Return whether a model is in the cache, is there only as a pickle, or not at all."""
    if not hub.cached(repository, hub.DESCRIPTION):
        return "missing"
    if not weights or hub.cached(repository, hub.WEIGHTS):
        return "here"
    pickles = hub.cached(repository, hub.PICKLED)
    if pickles is None:
        return "missing"
    return "here" if is_converted(hub.conversion_folder(replace(repository, revision=pickles.name))) else "pickled"


def fetch_model(repository: Repository, *, weights: bool = True) -> str:
    """Bring a model into the cache and return what was done: `fetched`, or what was converted.

    Raises:
        ModelError: The hub does not have it, or a pickle that holds more than tensors.
    """
    pinned = replace(repository, revision=hub.commit(repository))
    hub.fetch(pinned, hub.DESCRIPTION)
    if not weights:
        return "fetched"
    snapshot = hub.cached(pinned, hub.PICKLED)
    if snapshot is None:
        names = hub.files_on_hub(pinned)
        if hub.matching(names, hub.WEIGHTS):
            hub.fetch(pinned, hub.WEIGHTS)
            return "fetched"
        if not hub.matching(names, hub.PICKLED):
            raise ModelError(f"{repository} has neither safetensors nor a pytorch_model.bin on the hub.")
        snapshot = hub.fetch(pinned, hub.PICKLED)
    pickles = convert(snapshot, hub.conversion_folder(pinned))
    return f"converted to safetensors from {', '.join(pickles)}, read with weights_only=True"


def convert(snapshot: Path, folder: Path) -> list[str]:
    """Write a snapshot's pickled weights as safetensors into `folder`, with its configuration and tokenizer.

    The folder is there whole or not at all. Tensors keep their names, types and values.

    Returns:
        The names of the pickles that were read.

    Raises:
        ModelError: A pickle holds anything but tensors; none of it was run.
        StorageError: The folder cannot be written.
    """
    if not is_converted(folder):
        discard(folder)
    pickles = sorted(file for pattern in hub.PICKLED for file in snapshot.glob(pattern))
    with folder_whole(folder, "converted weights") as half:
        with writing(half, "a model's description"):
            for pattern in hub.DESCRIPTION:
                for file in snapshot.rglob(pattern):
                    if not file.name.endswith(".index.json"):
                        copy = half / file.relative_to(snapshot)
                        copy.parent.mkdir(parents=True, exist_ok=True)
                        shutil.copyfile(file, copy)
        _write_weights(pickles, half)
        with writing(half, "the digests of converted weights"):
            (half / DIGESTS).write_text(json.dumps(folder_digests(half)))
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
    if folder.exists():
        with writing(folder, "damaged weights, to be removed"):
            remove(folder)


def _write_weights(pickles: list[Path], half: Path) -> None:
    from safetensors.torch import save_file

    file_of_tensor: dict[str, str] = {}
    many = len(pickles) > 1
    for number, file in enumerate(pickles, 1):
        tensors, seen = _unpickled(file), set[int]()
        for (
            name,
            tensor,
        ) in tensors.items():  # Each gets memory of its own: safetensors does not allow what tied ones do.
            address = tensor.untyped_storage().data_ptr()
            tensors[name] = tensor.clone() if address in seen else tensor.contiguous()
            seen.add(address)
        target = f"model-{number:05d}-of-{len(pickles):05d}.safetensors" if many else "model.safetensors"
        with writing(half / target, "converted weights"):
            save_file(tensors, half / target, metadata={"format": "pt"})
        file_of_tensor |= dict.fromkeys(tensors, target)
    if many:
        with writing(half / INDEX, "the index of converted weights"):
            (half / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": file_of_tensor}))


def _unpickled(file: Path) -> dict[str, torch.Tensor]:
    try:
        tensors = torch.load(file, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(file))
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise ModelError(
            f"{file.name} of {file.parent} holds more than tensors, or is damaged ({type(error).__name__}): "
            "it was not converted, and nothing of it was run."
        ) from error
    if not isinstance(tensors, dict) or not all(isinstance(value, torch.Tensor) for value in tensors.values()):
        raise ModelError(f"{file.name} of {file.parent} is not a table of tensors: it was not converted.")
    return tensors
