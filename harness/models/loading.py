"""Pinned checkpoints to models and tokenizers. Only safetensors are read, and no code of a checkpoint is run."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from harness.base.paths import path_of
from harness.contracts import Checkpoint
from harness.errors import ModelError
from harness.models.configurations import (
    POSITION_NAMES,
    UNBOUNDED,
    longest_context,
    read_config,
    read_configuration,
    several_parts,
)
from harness.models.resolving import check_unchanged, ensure_local, is_local
from harness.models.weights import check_weights, matched_model, own_finite_weights

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

MOST_QUOTED = 300
"""Characters of another package's message."""
UNUSED_POOLER = r"pooler\."
_SIZES = ("model_type", "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
_REACH = ("max_position_embeddings", "num_key_value_heads", "attention_layers", "window_size")
ARCHITECTURE = (*_SIZES, *_REACH, "layer_types", "sliding_window")


def load_model(checkpoint: Checkpoint, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """Return a fresh causal LM, in evaluation mode, on the CPU.

    Args:
        checkpoint: Where it is.
        dtype: Of its weights; buffers, such as rotary frequencies, are fp32.

    Raises:
        ModelError: The weights do not fit the configuration, are not those that were planned with, are
            damaged or not finite, or only pickled weights exist.
    """
    from transformers import AutoModelForCausalLM

    model = _fresh_model(AutoModelForCausalLM, checkpoint, attn_implementation="eager")
    for weight in model.parameters():
        weight.data = weight.data.to(dtype)
    return model


def copied_in(model: PreTrainedModel, dtype: torch.dtype) -> PreTrainedModel:
    """Return a copy whose weights are of this type; buffers, such as rotary frequencies, stay as they are."""
    weights: dict[int, Any] = {}
    for weight in model.parameters():
        weights[id(weight)] = torch.nn.Parameter(weight.detach().to(dtype), weight.requires_grad)
    return copy.deepcopy(model, weights)


def load_encoder(checkpoint: Checkpoint) -> PreTrainedModel:
    """Return an encoder of texts in fp32, in evaluation mode, on the CPU; the files may hold more heads than it uses.

    Raises:
        ModelError: As for `load_model`; an encoder without its pooler is refused too.
    """
    from transformers import AutoModel

    return _fresh_model(AutoModel, checkpoint, leftovers=True)


def _fresh_model(auto_class: Any, checkpoint: Checkpoint, **options: Any) -> PreTrainedModel:
    local = ensure_local(checkpoint)
    model = matched_model(auto_class, local, **options)
    own_finite_weights(model, local)
    check_unchanged(local)  # Once more: another process may have written the files meanwhile.
    return model


@lru_cache(maxsize=64)
def check_model(checkpoint: Checkpoint) -> None:
    """Refuse what `load_model` would, from the headers of the files; what is still on the hub is not looked at.

    Raises:
        ModelError: As for `load_model`, but for what only the numbers themselves show.
    """
    if is_local(checkpoint):
        check_weights("AutoModelForCausalLM", ensure_local(checkpoint))


@lru_cache(maxsize=64)
def check_encoder(checkpoint: Checkpoint) -> None:
    """Refuse what `load_encoder` would, from the headers of the files; what is still on the hub is not looked at.

    Raises:
        ModelError: As for `load_encoder`, but for what only the numbers themselves show.
    """
    if not is_local(checkpoint):
        return
    local = ensure_local(checkpoint)
    if not (Path(local.location) / "modules.json").is_file():
        check_weights("AutoModel", local, leftovers=True)
        return
    for folder in _sentence_folders(Path(local.location)):
        check_weights("AutoModel", replace(local, location=str(folder)), UNUSED_POOLER, leftovers=True)


def check_sentence_encoder(encoder: torch.nn.Module, checkpoint: Checkpoint) -> None:
    """Refuse a loaded sentence-transformers model whose weights do not all come from its files.

    Its weights are given memory of their own.

    Raises:
        ModelError: As for `load_model`; but the pooler, which it does not use, need not be stored.
    """
    from transformers import PreTrainedModel

    inner: set[torch.nn.Module] = set()
    for part in encoder.modules():
        if isinstance(part, PreTrainedModel) and part not in inner:
            inner |= set(part.modules())
            at_its_folder = replace(checkpoint, location=part.name_or_path)
            matched_model(type(part), at_its_folder, UNUSED_POOLER, leftovers=True, device_map="meta")
    own_finite_weights(encoder, checkpoint)


def _sentence_folders(folder: Path) -> list[Path]:
    """Return where a sentence-transformers folder has its encoders.

    A model that also has a decoder is left out: half of it is loaded, by another class than its configuration names.
    """
    try:
        modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
        parts = [path_of(folder / module["path"], ModelError) for module in modules]
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise ModelError(f"{folder}/modules.json is not a list of modules ({type(error).__name__}).") from error
    encoders = []
    for part in parts:
        config = read_configuration(part) if (part / "config.json").is_file() else {}
        if "model_type" in config and not config.get("is_encoder_decoder"):
            encoders.append(part)
    return encoders


def unloaded_model(
    checkpoint: Checkpoint, dtype: torch.dtype = torch.float32, layers: int | None = None
) -> PreTrainedModel:
    """Return the causal LM that the configuration describes, with weights that were never loaded.

    Args:
        checkpoint: Its configuration is enough.
        dtype: Of the weights.
        layers: How many to make of the configuration's; None: all.
    """
    from transformers import AutoModelForCausalLM

    config = read_config(ensure_local(checkpoint, weights=False))
    if layers is not None:
        depth = config.num_hidden_layers
        for name, value in vars(config).items():  # What is said layer by layer: GPT-Neo's attention, others' types.
            if isinstance(value, list) and len(value) == depth:
                setattr(config, name, value[:layers])
        if getattr(config, "attention_types", None):
            config.attention_types = [[config.attention_layers, 1]]
        config.num_hidden_layers = layers
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=dtype)
    return model.eval()


@lru_cache(maxsize=8)
def load_tokenizer(checkpoint: Checkpoint) -> PreTrainedTokenizerBase:
    """Return the checkpoint's tokenizer: what tokenizer.json says where there is one, else what its class makes.

    A folder with vocab.json and merges.txt, and no configuration that names a class, is GPT-2's format.

    Raises:
        ModelError: No tokenizer can be made from what is there, or the files changed since the checkpoint was pinned.
    """
    from transformers import AutoTokenizer, GPT2TokenizerFast

    local = ensure_local(checkpoint, weights=False)
    folder = Path(local.tokenizer)
    try:
        if (folder / "tokenizer.json").is_file():
            tokenizer = _exact_tokenizer(folder)
        elif not (folder / "tokenizer_config.json").is_file() and not (folder / "config.json").is_file():
            tokenizer = GPT2TokenizerFast(vocab=str(folder / "vocab.json"), merges=str(folder / "merges.txt"))
        else:
            tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    # A damaged file makes transformers and its parts raise just about anything, and Rust's panics are no Exception.
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit | MemoryError):
            raise
        reason = " ".join(str(error).split())[:MOST_QUOTED]
        raise ModelError(
            f"no tokenizer can be loaded from {checkpoint.tokenizer} ({type(error).__name__}): {reason}"
        ) from error
    if local.revision is None:
        check_unchanged(local)
    return tokenizer


def _exact_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    # Classes and settings of transformers rebuild parts of what the file says: its pre-tokenizer, its start of text.
    tokenizer._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    return tokenizer


def check_tokenizer(checkpoint: Checkpoint) -> None:
    """Refuse a tokenizer that cannot be the model's: each would read the other's token ids as other texts.

    A model's table of tokens may be rounded up, by a tenth at most in any family, and a tokenizer may know a few more
    (for padding, say), which texts then must not use.

    Raises:
        ModelError: It knows less than half of the model's token ids, or twice as many.
    """
    tokenizer, needed = load_tokenizer(checkpoint), vocabulary(checkpoint)
    known = len(tokenizer)
    if not needed / 2 <= known <= needed * 2:
        raise ModelError(
            f"the tokenizer in {checkpoint.tokenizer} knows {known} tokens, and the model '{checkpoint.id}' "
            f"{needed}: it is another model's. Name the right one: models: [{{id: ..., tokenizer: FOLDER}}]."
        )
    for kind, token in (("starts", tokenizer.bos_token_id), ("ends", tokenizer.eos_token_id)):
        if token is not None and token >= needed:
            raise ModelError(
                f"the tokenizer in {checkpoint.tokenizer} {kind} texts with the token id {token}, and the model "
                f"'{checkpoint.id}' knows 0 to {needed - 1}. Copy the tokenizer_config.json or tokenizer.json that "
                "belongs to the model into that folder."
            )


def vocabulary(checkpoint: Checkpoint) -> int:
    """Return the number of token ids that the model knows, from its configuration alone.

    Raises:
        ModelError: There is no such number in it.
    """
    return _whole_number(checkpoint, "vocab_size")


def positions(checkpoint: Checkpoint) -> int:
    """Return the longest context that the model takes, in tokens; `UNBOUNDED` where its configuration says none.

    Raises:
        ModelError: The configuration says something else than a number.
    """
    raw = configuration(checkpoint)
    for name in POSITION_NAMES:
        if raw.get(name):
            _whole_number(checkpoint, name)
    return longest_context(read_config(ensure_local(checkpoint, weights=False)))


def _whole_number(checkpoint: Checkpoint, name: str) -> int:
    config = configuration(checkpoint)
    value = config.get(name)
    if value is None and "text_config" in config:
        raise ModelError(several_parts(checkpoint, str(config.get("model_type"))))
    if type(value) is not int or not 0 < value <= UNBOUNDED:
        said = "has no" if value is None else "has no usable"
        raise ModelError(
            f"{checkpoint.location}/config.json {said} {name}, a whole number of at least 1: it is not the "
            "configuration of a language model."
        )
    return value


def architecture(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return what the configuration says of a model's kind and shapes, by the names that all families share."""
    config = read_config(ensure_local(checkpoint, weights=False))
    return {name: getattr(config, name, None) for name in ARCHITECTURE}


def configuration(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the checkpoint's `config.json`; no weights are looked for.

    Raises:
        ModelError: It cannot be read, or is not a configuration.
    """
    return read_configuration(Path(ensure_local(checkpoint, weights=False).location))
