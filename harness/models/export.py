"""An erasure that was kept, laid over its original and written as a checkpoint folder."""

from __future__ import annotations

from pathlib import Path

from harness.contracts import Checkpoint
from harness.errors import ModelError
from harness.models.loading import load_model, load_tokenizer
from harness.models.patch import apply_patch


def export_patched(original: Checkpoint, patch: Path, out: Path) -> None:
    """Write the original with `patch` applied, and its tokenizer, to the new folder `out`.

    Raises:
        ModelError: `out` exists, there is no patch, or it belongs to another original.
    """
    if out.exists():
        raise ModelError(f"{out} exists already; name a new folder.")
    file = patch / "patch.safetensors" if patch.is_dir() else patch
    if not file.is_file():
        raise ModelError(f"no patch at {file}. A sweep keeps them in results/artifacts/erased/<point id>.")
    model = apply_patch(load_model(original), original.digest, file)
    model.save_pretrained(out)
    load_tokenizer(original).save_pretrained(out)
