"""Weights to files: a model as a checkpoint folder, and what any tensors weigh."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch

from harness.base.files import writing
from harness.contracts import Model


def weight_in_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Return how many bytes the values of all these tensors take."""
    return sum(tensor.nbytes for tensor in tensors)


def save_model(model: Model, folder: Path) -> None:
    """Write a model as `from_pretrained` reads it.

    Raises:
        StorageError: It cannot be written.
    """
    with writing(folder, "a model's weights"):
        model.save_pretrained(folder)
