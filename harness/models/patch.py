"""Patches: an erasure kept as the few blocks it changed, to be laid over the original again."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from harness.contracts import Model
from harness.errors import ModelError
from harness.models.blocks import blocks


def save_patch(model: Model, names: Iterable[str], original_digest: str, file: Path) -> None:
    """Write the blocks `names` of `model`, with the digest of the original they belong to."""
    wanted = set(names)
    parameters = dict(model.named_parameters())
    tensors = {
        block.name: block.of(parameters[block.parameter]).detach().cpu().clone().contiguous()
        for block in blocks(model)
        if block.name in wanted
    }
    save_file(tensors, file, metadata={"lethe": json.dumps({"original": original_digest})})


def apply_patch(original: Model, original_digest: str, file: Path) -> Model:
    """Return `original`, changed in place into the erased model that the patch was made from.

    Raises:
        ModelError: The patch belongs to another original, or names a block that it lacks.
    """
    places = {block.name: block for block in blocks(original)}
    parameters = dict(original.named_parameters())
    with safe_open(file, framework="pt") as patch:
        belongs = json.loads(patch.metadata()["lethe"])["original"]
        if belongs != original_digest:
            raise ModelError(
                f"{file} is a patch of the model with digest {belongs}, and this one's is {original_digest}."
            )
        for name in patch.keys():  # noqa: SIM118 - a safe_open handle is no mapping
            if name not in places:
                raise ModelError(f"{file} patches the block {name}, which this model does not have.")
            block = places[name]
            with torch.no_grad():
                block.of(parameters[block.parameter]).copy_(patch.get_tensor(name))
    return original
