"""An erased model that was kept: read again, or laid over its original and written as a checkpoint folder."""

from __future__ import annotations

from pathlib import Path

from harness.contracts import Checkpoint, Model
from harness.errors import ModelError
from harness.models.loading import load_model, load_tokenizer
from harness.models.patch import apply_patch


def load_erased(original: Checkpoint, folder: Path) -> Model:
    """Return the erased model that a sweep kept in `folder`, as a patch of `original` or whole.

    Raises:
        ModelError: The patch belongs to another original.
    """
    patch = folder / "patch.safetensors"
    if patch.is_file():
        return apply_patch(load_model(original), original.digest, patch)
    # Without a digest: the artifact's own were compared when it was found.
    return load_model(Checkpoint(f"{original.id} (erased)", str(folder), original.tokenizer, ""))


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
