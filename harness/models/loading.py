"""Pinned checkpoints to models and tokenizers: from safetensors and JSON only, and whole or not at all.

transformers fills gaps with random numbers; its own report of the loading is checked, so renamed, fused and tied
weights are understood.
"""

import copy
import json
import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias
from unittest.mock import patch

import torch

from harness.base import files, messages
from harness.contracts import Checkpoint, Model, Tokenizer
from harness.errors import ModelError
from harness.models.resolving import check_unchanged, ensure_local, is_local

Config: TypeAlias = Any
"""transformers' `PreTrainedConfig`, whose import takes seconds."""
UNBOUNDED = 10**9
"""Tokens, where the configuration sets no limit."""
POSITION_NAMES = ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length", "n_ctx", "seq_length")
"""The first one in a configuration counts."""


def configuration(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the checkpoint's `config.json`."""
    file = Path(ensure_local(checkpoint, weights=False).location) / "config.json"
    with _told_as(f"{file} is not a model's configuration"):
        return dict(json.loads(file.read_text(encoding="utf-8-sig")))


def read_config(checkpoint: Checkpoint) -> Config:
    """Return a checkpoint's configuration as transformers reads it."""
    from transformers import CONFIG_MAPPING, AutoConfig, __version__

    local = ensure_local(checkpoint, weights=False)
    kind = configuration(local).get("model_type")
    if kind not in CONFIG_MAPPING:
        lacks = f"which transformers {__version__} does not have; code of the checkpoint's own is never run"
        raise ModelError(f"'{local.id}' ({local.location}) is a '{kind}', {lacks}. Name another, or update it.")
    with _told_as(f"{local.location}/config.json is not a model's configuration"):
        return AutoConfig.from_pretrained(local.location, trust_remote_code=False)


@contextmanager
def _told_as(fault: str) -> Iterator[None]:
    # A damaged file makes transformers and its parts raise just about anything.
    try:
        yield
    except Exception as error:
        raise ModelError(f"{fault} ({type(error).__name__}). {' '.join(str(error).split())}") from error


def check_causal(config: Config, local: Checkpoint) -> None:
    """Refuse a model that reads in both directions, which transformers would load as a causal one."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

    is_encoder = config.model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES and not getattr(config, "is_decoder", False)
    where = f"'{local.id}' ({local.location}) is a {config.model_type}"
    if is_encoder or getattr(config, "is_encoder_decoder", False):
        raise ModelError(f"{where}, which reads a text in both directions. Name a causal language model.")
    if config.get_text_config(decoder=True) is not config:
        remedy = "Save that part with save_pretrained, and name its folder."
        raise ModelError(f"{where}, whose language model is only a part of it (text_config). {remedy}")


def longest_context(config: Config) -> int:
    """Return the maximum of tokens; `UNBOUNDED` where the configuration sets no limit.

    Phi-3's longrope moves all positions of longer texts, so that predictions would depend on later tokens: its limit
    counts.
    """
    text = config.get_text_config(decoder=True)
    stated = (getattr(text, name, None) for name in POSITION_NAMES)
    most = next((value for value in stated if isinstance(value, int) and value > 0), UNBOUNDED)
    for rotary in _rotary_settings(text):
        if rotary.get("rope_type") == "longrope":
            most = min(most, rotary.get("original_max_position_embeddings") or most)
    return most


def reads_beyond(config: Config) -> bool:
    """Return whether tokens beyond `longest_context` are read without changing those before."""
    text = config.get_text_config(decoder=True)
    if not (rotary := _rotary_settings(text)):
        return not hasattr(text, "max_position_embeddings") and not hasattr(text, "max_seq_len")
    return all(settings.get("rope_type") not in ("longrope", "dynamic") for settings in rotary)


def _rotary_settings(text: Config) -> list[Mapping[str, Any]]:
    settings = getattr(text, "rope_parameters", None) or {}
    return [value for value in settings.values() if isinstance(value, Mapping)] or [settings][: len(settings)]


MASK = re.compile(r"(^|\.)attn\.(attention\.)?(bias|masked_bias)$")
"""Masks that older transformers stored with the weights (GPT-Neo, GPT-J)."""
_SIZES = ("model_type", "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
_REACH = ("max_position_embeddings", "num_key_value_heads", "attention_layers", "window_size")
ARCHITECTURE = (*_SIZES, *_REACH, "layer_types", "sliding_window")


def load_model(checkpoint: Checkpoint, dtype: torch.dtype = torch.float32) -> Model:
    """Return a fresh causal LM in evaluation mode on the CPU, with weights of `dtype` and fp32 buffers."""
    model = load_encoder(checkpoint, "AutoModelForCausalLM")
    for weight in model.parameters():
        weight.data = weight.data.to(dtype)
    return model


def copy_as(model: Model, dtype: torch.dtype) -> Model:
    """Return a copy with weights of this type; buffers such as rotary frequencies are kept."""
    weights: dict[int, Any] = {}
    for weight in model.parameters():
        weights[id(weight)] = torch.nn.Parameter(weight.detach().to(dtype), weight.requires_grad)
    return copy.deepcopy(model, weights)


def load_encoder(checkpoint: Checkpoint, auto_class: str = "AutoModel") -> Model:
    """Return an fp32 encoder in evaluation mode on the CPU."""
    local = ensure_local(checkpoint)
    model = _whole_model(auto_class, local)
    copy_and_check_weights(model, local)
    check_unchanged(local)
    return model


@lru_cache(maxsize=64)
def check_model(checkpoint: Checkpoint) -> None:
    """Refuse a model as `load_model` does, from its files' headers; skip one on the hub."""
    if is_local(checkpoint):
        _whole_model("AutoModelForCausalLM", ensure_local(checkpoint), device_map="meta")


@lru_cache(maxsize=64)
def check_encoder(checkpoint: Checkpoint) -> None:
    """Refuse an encoder as `load_encoder` does, from its files' headers; a sentence encoder needs no pooler."""
    if not is_local(checkpoint):
        return
    local = ensure_local(checkpoint)
    modules = Path(local.location) / "modules.json"
    if not modules.is_file():
        _whole_model("AutoModel", local, device_map="meta")
    for module in json.loads(modules.read_text(encoding="utf-8")) if modules.is_file() else ():
        part = replace(local, location=str(Path(local.location) / module["path"]))
        # An encoder with a decoder is left out: half of it is loaded, by another class than it names.
        if module["type"].endswith(".Transformer") and not read_config(part).is_encoder_decoder:
            _whole_model("AutoModel", part, may_lack=r"pooler\.", device_map="meta")


def check_sentence_encoder(encoder: torch.nn.Module, checkpoint: Checkpoint) -> None:
    """Refuse a sentence-transformers model with weights that are not finite; copy its weights from the file."""
    check_encoder(checkpoint)
    copy_and_check_weights(encoder, checkpoint)


def copy_and_check_weights(model: torch.nn.Module, local: Checkpoint) -> None:
    """Copy weights out of the file, which may change; refuse NaN and infinity."""
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        tensor.data = tensor.data.clone()
        # An extreme takes no memory, as a mask over the tensor would; NaN is both the least and the greatest value.
        if tensor.is_floating_point() and tensor.numel() and not torch.stack(tensor.aminmax()).isfinite().all():
            fault = f"hold NaN or infinity in {name}: their training went wrong, or the file is damaged."
            raise ModelError(f"the weights of '{local.id}' ({local.location}) {fault}")


def _whole_model(auto_class: str, local: Checkpoint, may_lack: str = "^$", **options: Any) -> Model:
    import transformers

    is_causal = auto_class == "AutoModelForCausalLM"
    config = read_config(local)
    if is_causal:
        check_causal(config, local)
        # transformers takes torch's attention where a family has it, which may leave out a cap on its logits.
        options["attn_implementation"] = "eager" if getattr(config, "attn_logit_softcapping", None) else None
    transformers.utils.logging.disable_progress_bar()
    logging.getLogger("transformers").setLevel(logging.ERROR)  # Faults are in the error below.
    options |= {"dtype": "float32", "use_safetensors": True, "trust_remote_code": False}
    options |= {"output_loading_info": True, "ignore_mismatched_sizes": True}
    with _told_as(f"the model '{local.id}' ({local.location}) cannot be loaded"):
        model, account = getattr(transformers, auto_class).from_pretrained(local.location, **options)
    kinds = {
        "missing": [name for name in account["missing_keys"] if not re.match(may_lack, name)],
        "not part of the model": [name for name in account["unexpected_keys"] if is_causal and not MASK.search(name)],
        "of another shape": [name for name, *_ in account["mismatched_keys"]],
    }
    if faults := [f"{kind}: {messages.first_names(sorted(names), 3)}" for kind, names in kinds.items() if names]:
        remedy = "Save the model again with save_pretrained, or restore the weights' own configuration."
        unfit = f"the weights of '{local.id}' ({local.location}) do not fit its config.json: {'; '.join(faults)}."
        raise ModelError(f"{unfit} {remedy}")
    return model.eval()


@lru_cache(maxsize=64)
def vocabulary(checkpoint: Checkpoint) -> int:
    """Return the configuration's number of token ids."""
    if not (size := getattr(read_config(checkpoint), "vocab_size", None)):
        raise ModelError(f"{checkpoint.location}/config.json has no vocab_size: it is no language model's.")
    return int(size)


def positions(checkpoint: Checkpoint) -> int:
    """Return the longest context, in tokens."""
    return longest_context(read_config(checkpoint))


def unloaded_model(checkpoint: Checkpoint, layers: int | None = None) -> Model:
    """Return the configuration's eager causal LM, without weights, with so many `layers`."""
    from transformers import AutoModelForCausalLM

    config = read_config(checkpoint)
    if layers is not None:
        depth = config.num_hidden_layers
        for name, value in vars(config).items():  # Lists of a value a layer: GPT-Neo's attention, others' types.
            if isinstance(value, list) and len(value) == depth:
                setattr(config, name, value[:layers])
        if getattr(config, "attention_types", None):
            config.attention_types = [[config.attention_layers, 1]]
        config.num_hidden_layers = layers
    return AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32).eval()


@lru_cache(maxsize=8)
def load_tokenizer(checkpoint: Checkpoint) -> Tokenizer:
    """Return the checkpoint's tokenizer, from tokenizer.json or by its class; a folder without one is GPT-2's."""
    from transformers import AutoTokenizer, GPT2TokenizerFast, PreTrainedTokenizerFast

    local = ensure_local(checkpoint, weights=False)
    folder = Path(local.tokenizer)
    with _told_as(f"no tokenizer can be loaded from {checkpoint.tokenizer}"):
        if (folder / "tokenizer.json").is_file():
            from tokenizers import Tokenizer

            tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
            # transformers rebuilds parts of it by its classes and settings: its pre-tokenizer, its start of text.
            tokenizer._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        elif not (folder / "tokenizer_config.json").is_file() and not (folder / "config.json").is_file():
            tokenizer = GPT2TokenizerFast(vocab=str(folder / "vocab.json"), merges=str(folder / "merges.txt"))
        else:
            tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    check_unchanged(local)
    return tokenizer


def check_tokenizer(checkpoint: Checkpoint) -> None:
    """Refuse a tokenizer with less than half of the model's token ids, or twice as many: tables may be rounded up."""
    tokenizer, size = load_tokenizer(checkpoint), vocabulary(checkpoint)
    special = (tokenizer.bos_token_id, tokenizer.eos_token_id)
    beyond = [token for token in special if token is not None and token >= size]
    if beyond or not size / 2 <= len(tokenizer) <= size * 2:
        has = f"the special token {beyond[0]}" if beyond else f"{len(tokenizer)} tokens"
        differs = f"the tokenizer in {checkpoint.tokenizer} has {has}, and the model '{checkpoint.id}' {size}"
        raise ModelError(f"{differs}: it is another model's. Name its own: models: [{{id: ..., tokenizer: FOLDER}}].")


def save_model(model: Model, folder: Path) -> None:
    """Write a model in the format of `from_pretrained`."""
    from transformers import modeling_utils

    # No model here is wrapped, and looking whether one is imports DeepSpeed, which takes seconds and prints.
    with patch.object(modeling_utils, "unwrap_model", lambda model: model), files.writing(folder, "a model's weights"):
        model.save_pretrained(folder)
