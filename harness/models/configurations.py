"""A checkpoint's `config.json`, read before anything is built from it: it may be damaged, or made to do harm."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.contracts import Checkpoint
from harness.errors import ModelError

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

MOST_BYTES = 2**20
MOST_PARTS = 4096
"""Layers, experts or heads of a model: what a configuration counts is built one by one."""
_COUNTED = (
    "layer",
    "block",
    "expert",
    "head",
    "stage",
    "depth",
    "attention_types",
    "groups",
    "num_labels",
    "codebooks",
)
_SIZES = ("_size", "_dim", "d_model", "position", "n_ctx", "window")
MOST_SIZE = 2**24
UNBOUNDED = 10**9
"""Tokens: stands for a context that the configuration does not limit."""
POSITION_NAMES = ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length", "n_ctx", "seq_length")
"""What families call the longest context; the first one that a configuration has counts."""
_CHANGING_ROTARY = ("longrope", "dynamic")
"""Kinds of rotary positions that change for a whole text once it is longer than a limit."""


def read_configuration(folder: Path) -> dict[str, Any]:
    """Return the `config.json` of a folder.

    Raises:
        ModelError: It cannot be read, is not a mapping, or asks for more parts than any model has.
    """
    file = folder / "config.json"
    try:
        with file.open("rb") as stream:
            content = stream.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise ModelError(f"{file} has more than {MOST_BYTES:,} bytes, as no configuration has.")
        config = json.loads(content.decode("utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{file} cannot be read as JSON ({type(error).__name__}): {error}") from error
    if not isinstance(config, dict):
        kind = type(config).__name__
        raise ModelError(f"{file} is not a model's configuration: it holds a {kind}, and must be a mapping of names.")
    for name, number in _numbers_in(config):
        if any(word in name for word in _COUNTED) and number > MOST_PARTS:
            raise ModelError(f"{file} says {name}: {number}, and no model has more than {MOST_PARTS} of these.")
        if any(word in name for word in _SIZES) and number > MOST_SIZE:
            raise ModelError(f"{file} says {name}: {number}, and no model has more than {MOST_SIZE}.")
    attention = config.get("attention_types")
    layers = 0
    for entry in attention if isinstance(attention, list) else ():
        match entry:
            case [list() as kinds, int() as times]:  # GPT-Neo's `[["global", "local"], 6]` says what 12 layers are.
                layers += len(kinds) * times
    if layers > MOST_PARTS:
        raise ModelError(f"{file} says attention_types of more than {MOST_PARTS} layers, and no model has so many.")
    return config


def _numbers_in(value: Any, name: str = "") -> Iterator[tuple[str, int | float]]:
    if isinstance(value, dict):
        for key, inside in value.items():
            yield from _numbers_in(inside, f"{name}.{key}" if name else key)
    elif isinstance(value, list):
        for inside in value:
            yield from _numbers_in(inside, name)
    elif isinstance(value, int | float):
        yield name, value


def read_config(local: Checkpoint) -> PreTrainedConfig:
    """Return the configuration of a checkpoint in folders of this machine, as transformers reads it.

    Raises:
        ModelError: It is none that transformers knows.
    """
    from transformers import CONFIG_MAPPING, AutoConfig, __version__

    raw = read_configuration(Path(local.location))
    kind = raw.get("model_type")
    if isinstance(kind, str) and kind not in CONFIG_MAPPING:
        code = ", and code of the checkpoint's own, which it asks for (auto_map), is never run" * ("auto_map" in raw)
        raise ModelError(
            f"'{local.id}' ({local.location}) is a '{kind}' (model_type in its config.json), which transformers "
            f"{__version__} does not know{code}. Name a model of a family that it knows, or update transformers."
        )
    try:
        return AutoConfig.from_pretrained(local.location, trust_remote_code=False)
    except Exception as error:  # A configuration of nonsense makes it raise just about anything.
        reason = " ".join(str(error).split())
        raise ModelError(
            f"{local.location}/config.json is not a model's configuration ({type(error).__name__}). {reason}"
        ) from error


def longest_context(config: PreTrainedConfig) -> int:
    """Return the most tokens that a model reads as its configuration means it; `UNBOUNDED` where it says nothing.

    Phi-3's longrope gives a text of more than so many tokens other positions throughout, so that what is predicted
    after a prefix would depend on what follows it: that limit counts then, and not the longest context.
    """
    text = config.get_text_config(decoder=True)
    stated = (getattr(text, name, None) for name in POSITION_NAMES)
    most = next((value for value in stated if isinstance(value, int) and value > 0), UNBOUNDED)
    for rotary in _rotary_settings(text):
        if rotary.get("rope_type") == "longrope":
            most = min(most, rotary.get("original_max_position_embeddings") or most)
    return most


def reads_beyond(config: PreTrainedConfig) -> bool:
    """Return whether a model can read more tokens than `longest_context` says, each as it would without the others.

    Rotary positions go on. A table of positions ends; and longrope and dynamic scaling change the tokens before.
    """
    text = config.get_text_config(decoder=True)
    rotary = _rotary_settings(text)
    if not rotary:
        return not hasattr(text, "max_position_embeddings")
    return all(settings.get("rope_type") not in _CHANGING_ROTARY for settings in rotary)


def _rotary_settings(text: PreTrainedConfig) -> list[Mapping[str, Any]]:
    """Return the settings of the rotary positions: one for all layers, or one for each kind of layer; none without."""
    settings = getattr(text, "rope_parameters", None)
    if not isinstance(settings, Mapping) or not settings:
        return []
    by_kind = [value for value in settings.values() if isinstance(value, Mapping)]
    return by_kind or [settings]


def check_causal(config: PreTrainedConfig, local: Checkpoint) -> None:
    """Refuse a model that reads a text in both directions: transformers would load it as a causal one all the same.

    Raises:
        ModelError: It is an encoder, or has one; or its language model is a part of it.
    """
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

    is_encoder = config.model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES and not getattr(config, "is_decoder", False)
    if is_encoder or getattr(config, "is_encoder_decoder", False):
        raise ModelError(
            f"'{local.id}' ({local.location}) is a {config.model_type}, which reads a text in both directions, and "
            "predicts no next token. Name a causal language model."
        )
    if config.get_text_config(decoder=True) is not config:
        raise ModelError(several_parts(local, config.model_type))


def several_parts(local: Checkpoint, kind: str) -> str:
    """Return why a model is refused whose language model is one of several parts."""
    return (
        f"'{local.id}' ({local.location}) is a {kind}, whose language model is a part of it (text_config in its "
        "config.json) beside what sees or hears. Save that part alone with save_pretrained, and name its folder."
    )
