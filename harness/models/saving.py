"""A model as a checkpoint folder."""

from __future__ import annotations

from pathlib import Path

from harness.base.storage import writing
from harness.contracts import Model


def save_model(model: Model, folder: Path) -> None:
    """Write a model as `from_pretrained` reads it.

    Raises:
        StorageError: It cannot be written.
    """
    size = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    with writing(folder, "a model's weights", size):
        model.save_pretrained(folder)
