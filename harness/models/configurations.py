"""A checkpoint's `config.json`, read before anything is built from it: it may be damaged, or made to do harm."""

from __future__ import annotations

import json
from collections.abc import Iterator
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


def read_configuration(folder: Path) -> dict[str, Any]:
    """Return the `config.json` of a folder.

    Raises:
        ModelError: It cannot be read, is no mapping, or asks for more parts than any model has.
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
    for name, number in _numbers(config):
        if any(word in name for word in _COUNTED) and number > MOST_PARTS:
            raise ModelError(f"{file} says {name}: {number}, and no model has more than {MOST_PARTS} of these.")
        if any(word in name for word in _SIZES) and number > MOST_SIZE:
            raise ModelError(f"{file} says {name}: {number}, and no model has more than {MOST_SIZE}.")
    attention = config.get("attention_types")
    if isinstance(attention, list) and sum(_repeats(entry) for entry in attention) > MOST_PARTS:
        raise ModelError(f"{file} says attention_types of more than {MOST_PARTS} layers, and no model has so many.")
    return config


def _repeats(entry: Any) -> int:
    """Return of how many layers an entry of GPT-Neo's `attention_types` speaks: `[["global", "local"], 6]`, of 12."""
    match entry:
        case [list() as kinds, int() as times]:
            return len(kinds) * times
        case _:
            return 0


def _numbers(value: Any, name: str = "") -> Iterator[tuple[str, int | float]]:
    """Yield every number below a setting, with the setting's name."""
    if isinstance(value, dict):
        for key, inside in value.items():
            yield from _numbers(inside, f"{name}.{key}" if name else key)
    elif isinstance(value, list):
        for inside in value:
            yield from _numbers(inside, name)
    elif isinstance(value, int | float):
        yield name, value


def read_config(local: Checkpoint) -> PreTrainedConfig:
    """Return the configuration of a checkpoint in folders of this machine, as transformers reads it.

    Raises:
        ModelError: It is none that transformers knows.
    """
    from transformers import AutoConfig

    read_configuration(Path(local.location))
    try:
        return AutoConfig.from_pretrained(local.location, trust_remote_code=False)
    except Exception as error:  # A configuration of nonsense makes it raise just about anything.
        reason = " ".join(str(error).split())
        raise ModelError(
            f"{local.location}/config.json is not a model's configuration ({type(error).__name__}). {reason}"
        ) from error


def check_causal(config: PreTrainedConfig, local: Checkpoint) -> None:
    """Refuse a model that reads a text in both directions: transformers would load it as a causal one all the same.

    Raises:
        ModelError: It is an encoder, or has one.
    """
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

    is_encoder = config.model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES and not getattr(config, "is_decoder", False)
    if is_encoder or getattr(config, "is_encoder_decoder", False):
        raise ModelError(
            f"'{local.id}' ({local.location}) is a {config.model_type}, which reads a text in both directions, and "
            "predicts no next token. Name a causal language model."
        )
