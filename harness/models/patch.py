"""Patches: an erasure kept as the few blocks it changed, to be laid over the original again."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from harness.contracts import Model
from harness.errors import ModelError
from harness.models.blocks import blocks


def save_patch(model: Model, names: Iterable[str], original_digest: str, file: Path) -> None:
    """Write the blocks `names` of `model`, with the digest of the original they belong to.

    Raises:
        ModelError: The model lacks one of them.
    """
    wanted = set(names)
    parameters = dict(model.named_parameters())
    tensors = {
        block.name: block.of(parameters[block.parameter]).detach().cpu().clone().contiguous()
        for block in blocks(model)
        if block.name in wanted
    }
    if unknown := sorted(wanted - tensors.keys()):
        raise ModelError(f"a patch cannot hold {', '.join(unknown)}: this model has no such block.")
    save_file(tensors, file, metadata={"lethe": json.dumps({"original": original_digest})})


def apply_patch(original: Model, original_digest: str, file: Path) -> Model:
    """Return `original`, changed in place into the erased model that the patch was made from.

    Raises:
        ModelError: The patch is damaged, belongs to another original, or has a block that this one lacks or
            of another shape.
    """
    places = {block.name: block for block in blocks(original)}
    parameters = dict(original.named_parameters())
    belongs, tensors = _read(file)
    if belongs != original_digest:
        raise ModelError(f"{file} is a patch of the model with digest {belongs}, and this one's is {original_digest}.")
    for name, tensor in tensors.items():
        if name not in places:
            raise ModelError(f"{file} patches the block {name}, which this model does not have.")
        block = places[name]
        weights = block.of(parameters[block.parameter])
        if weights.shape != tensor.shape:
            shapes = f"{tuple(tensor.shape)} there and {tuple(weights.shape)} here"
            raise ModelError(f"{file} patches the block {name} of another shape: {shapes}.")
        with torch.no_grad():
            weights.copy_(tensor)
    return original


def _read(file: Path) -> tuple[str, dict[str, torch.Tensor]]:
    """Return the digest of the original that a patch belongs to, and its blocks by name."""
    try:
        with safe_open(file, framework="pt") as patch:
            belongs = json.loads(patch.metadata()["lethe"])["original"]
            return belongs, {name: patch.get_tensor(name) for name in patch.keys()}  # noqa: SIM118 - no mapping
    except (SafetensorError, OSError, ValueError, TypeError, KeyError) as error:
        raise ModelError(f"{file} is damaged, or no patch that Lethe wrote ({type(error).__name__}).") from error
