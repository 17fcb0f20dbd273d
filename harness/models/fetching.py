"""A hub model into the local cache; weights that the hub has only as a pickle are converted on the way."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from harness import hub
from harness.errors import ModelError
from harness.hub import Repository
from harness.models.conversion import convert, is_converted

State = Literal["here", "pickled", "missing"]


def state(repository: Repository, *, weights: bool = True) -> State:
    """Return whether a model is in the cache, is there only as a pickle, or not at all."""
    if not hub.cached(repository, hub.DESCRIPTION):
        return "missing"
    if not weights or hub.cached(repository, hub.WEIGHTS):
        return "here"
    pickles = hub.cached(repository, hub.PICKLED)
    if pickles is None:
        return "missing"
    return "here" if is_converted(hub.converted(replace(repository, revision=pickles.name))) else "pickled"


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
        names = hub.listed(pinned)
        if hub.matching(names, hub.WEIGHTS):
            hub.fetch(pinned, hub.WEIGHTS)
            return "fetched"
        if not hub.matching(names, hub.PICKLED):
            raise ModelError(f"{repository} has neither safetensors nor a pytorch_model.bin on the hub.")
        snapshot = hub.fetch(pinned, hub.PICKLED)
    read = convert(snapshot, hub.converted(pinned))
    return f"converted to safetensors from {', '.join(read)}, read with weights_only=True"
