"""A checkpoint's `config.json`: what kind of model it describes, and how much of a text that model reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.contracts import Checkpoint
from harness.errors import ModelError
from harness.models.resolving import ensure_local

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

UNBOUNDED = 10**9
"""Tokens: stands for a context that the configuration does not limit."""
POSITION_NAMES = ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length", "n_ctx", "seq_length")
"""Names of the longest context; the first one that a configuration has counts."""


def configuration(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the checkpoint's `config.json`; no weights are looked for.

    Raises:
        ModelError: It cannot be read, or is not a configuration.
    """
    file = Path(ensure_local(checkpoint, weights=False).location) / "config.json"
    try:
        return dict(json.loads(file.read_text(encoding="utf-8-sig")))
    except (OSError, ValueError, TypeError) as error:
        raise ModelError(f"{file} is not a model's configuration ({type(error).__name__}): {error}") from error


def read_config(checkpoint: Checkpoint) -> PreTrainedConfig:
    """Return a checkpoint's configuration as transformers reads it.

    Raises:
        ModelError: It is of no kind that transformers has.
    """
    from transformers import CONFIG_MAPPING, AutoConfig, __version__

    local = ensure_local(checkpoint, weights=False)
    kind = configuration(local).get("model_type")
    if kind not in CONFIG_MAPPING:
        raise ModelError(
            f"'{local.id}' ({local.location}) is a '{kind}' (model_type in its config.json), which transformers "
            f"{__version__} does not have; code of the checkpoint's own is never run. Name a model of a family that it "
            "has, or update transformers."
        )
    try:
        return AutoConfig.from_pretrained(local.location, trust_remote_code=False)
    except Exception as error:  # A configuration of nonsense makes it raise just about anything.
        reason = f"({type(error).__name__}). {' '.join(str(error).split())}"
        raise ModelError(f"{local.location}/config.json is not a model's configuration {reason}") from error


def check_causal(config: PreTrainedConfig, local: Checkpoint) -> None:
    """Refuse a model that reads a text in both directions: transformers would load it as a causal one all the same.

    Raises:
        ModelError: It is an encoder, or has one; or its language model is a part of it.
    """
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

    is_encoder = config.model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES and not getattr(config, "is_decoder", False)
    where = f"'{local.id}' ({local.location}) is a {config.model_type}"
    if is_encoder or getattr(config, "is_encoder_decoder", False):
        raise ModelError(
            f"{where}, which reads a text in both directions, and predicts no next token. Name a causal language model."
        )
    if config.get_text_config(decoder=True) is not config:
        raise ModelError(
            f"{where}, whose language model is only a part of it (text_config in its config.json). Save that part with "
            "save_pretrained, and name its folder."
        )


def longest_context(config: PreTrainedConfig) -> int:
    """Return the most tokens that a model reads as its configuration means it; `UNBOUNDED` where it sets no limit.

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
    """Return whether a model can read more tokens than `longest_context`, each as it would without the others.

    Rotary positions go on. A table of positions ends; and longrope and dynamic scaling change the tokens before.
    """
    text = config.get_text_config(decoder=True)
    rotary = _rotary_settings(text)
    if not rotary:
        return not hasattr(text, "max_position_embeddings")
    return all(settings.get("rope_type") not in ("longrope", "dynamic") for settings in rotary)


def _rotary_settings(text: PreTrainedConfig) -> list[Mapping[str, Any]]:
    """Return the settings of the rotary positions: one for all layers, or one for each kind of layer; none without."""
    settings = getattr(text, "rope_parameters", None) or {}
    return [value for value in settings.values() if isinstance(value, Mapping)] or [settings][: len(settings)]
