"""Patches: an erasure kept as the few blocks it changed, or as a LoRA adapter, to be laid over the original again."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from harness.base.files import writing
from harness.contracts import Checkpoint, Model
from harness.errors import ModelError
from harness.models.adapters import ADAPTER_FILE, add_adapter, read_adapter
from harness.models.blocks import blocks
from harness.models.loading import load_model

PATCH_FILE = "patch.safetensors"


def save_patch(model: Model, names: Iterable[str], original_digest: str, file: Path) -> None:
    """Write the blocks `names` of `model`, with the digest of the original they belong to.

    Raises:
        ModelError: The model lacks one of them.
        StorageError: The file cannot be written.
    """
    wanted = set(names)
    parameters = dict(model.named_parameters())
    tensors: dict[str, torch.Tensor] = {}
    for block in blocks(model):
        if block.name in wanted:
            tensors[block.name] = block.of(parameters[block.parameter]).detach().cpu().clone().contiguous()
    if unknown := sorted(wanted - tensors.keys()):
        raise ModelError(f"a patch cannot hold {', '.join(unknown)}: this model has no such block.")
    with writing(file, "a patch"):
        save_file(tensors, file, metadata={"lethe": json.dumps({"original": original_digest})})


def apply_patch(original: Model, original_digest: str, file: Path) -> Model:
    """Return `original`, changed in place into the erased model that the patch was made from.

    Raises:
        ModelError: The patch is damaged, belongs to another original, or has a block that this one lacks or
            of another shape.
    """
    by_name = {block.name: block for block in blocks(original)}
    parameters = dict(original.named_parameters())
    belongs, tensors = read_patch(file)
    if belongs != original_digest:
        raise ModelError(f"{file} is a patch of the model with digest {belongs}, and this one's is {original_digest}.")
    for name, tensor in tensors.items():
        if name not in by_name:
            raise ModelError(f"{file} patches the block {name}, which this model does not have.")
        block = by_name[name]
        weights = block.of(parameters[block.parameter])
        if weights.shape != tensor.shape:
            shapes = f"{tuple(tensor.shape)} there and {tuple(weights.shape)} here"
            raise ModelError(f"{file} patches the block {name} of another shape: {shapes}.")
        if not tensor.is_floating_point() or not tensor.isfinite().all():
            raise ModelError(f"{file} has no usable weights for the block {name}: {tensor.dtype}, or not finite.")
        with torch.no_grad():
            weights.copy_(tensor)
    return original


def load_erased(original: Checkpoint, folder: Path) -> Model:
    """Return the erased model that a sweep kept in `folder`, as a patch or an adapter of `original`, or whole.

    Raises:
        ModelError: The patch or adapter belongs to another original.
    """
    patch = folder / PATCH_FILE
    if (folder / ADAPTER_FILE).is_file():
        return add_adapter(load_model(original), read_adapter(folder, original.digest))
    if patch.is_file():
        return apply_patch(load_model(original), original.digest, patch)
    # Without a digest: the artifact's own were compared when it was looked up.
    return load_model(Checkpoint(f"{original.id} (erased)", str(folder), original.tokenizer, ""))


def read_patch(file: Path) -> tuple[str, dict[str, torch.Tensor]]:
    """Return the digest of the original that a patch belongs to, and its blocks by name.

    Raises:
        ModelError: It is damaged, or another file.
    """
    try:
        with safe_open(file, framework="pt") as patch:
            belongs = json.loads(patch.metadata()["lethe"])["original"]
            return belongs, {name: patch.get_tensor(name) for name in patch.keys()}  # noqa: SIM118 - no mapping
    except (SafetensorError, OSError, ValueError, TypeError, LookupError, RecursionError) as error:
        raise ModelError(f"{file} is damaged, or no patch that Lethe wrote ({type(error).__name__}).") from error
