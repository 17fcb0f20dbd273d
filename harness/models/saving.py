"""A model to a checkpoint folder."""

from __future__ import annotations

from pathlib import Path

from harness.base.files import writing
from harness.contracts import Model


def save_model(model: Model, folder: Path) -> None:
    """Write a model as `from_pretrained` reads it.

    Raises:
        StorageError: It cannot be written.
    """
    with writing(folder, "a model's weights"):
        model.save_pretrained(folder)
