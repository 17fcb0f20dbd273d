"""Pinned checkpoints to models and tokenizers. Only safetensors are read, and no code of a checkpoint is run."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from harness.contracts import Checkpoint
from harness.errors import ModelError
from harness.models.resolving import here

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


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
            here(checkpoint).location,
            dtype="float32",
            use_safetensors=True,
            trust_remote_code=False,
            attn_implementation="eager",
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise ModelError(f"the model '{checkpoint.id}' ({checkpoint.location}) cannot be loaded: {error}") from error
    return model.eval()  # type: ignore[no-any-return]


def unloaded_model(
    checkpoint: Checkpoint, dtype: torch.dtype = torch.float32, layers: int | None = None
) -> PreTrainedModel:
    """Return the causal LM that the configuration describes, with weights that were never loaded.

    Args:
        checkpoint: Its configuration is enough.
        dtype: Of the weights.
        layers: How many to make of the configuration's; None: all.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(here(checkpoint, weights=False).location, trust_remote_code=False)
    if layers is not None:
        depth = config.num_hidden_layers
        for name, value in vars(config).items():  # What is said layer by layer: GPT-Neo's attention, others' types.
            if isinstance(value, list) and len(value) == depth:
                setattr(config, name, value[:layers])
        if getattr(config, "attention_types", None):
            config.attention_types = [[config.attention_layers, 1]]
        config.num_hidden_layers = layers
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=dtype)
    return model.eval()  # type: ignore[no-any-return]


@lru_cache(maxsize=8)
def load_tokenizer(checkpoint: Checkpoint) -> PreTrainedTokenizerBase:
    """Return the checkpoint's tokenizer; a folder with only vocab.json and merges.txt is GPT-2's format.

    Raises:
        ModelError: No tokenizer can be made from what is there.
    """
    from transformers import AutoTokenizer, GPT2TokenizerFast

    place = Path(here(checkpoint, weights=False).tokenizer)
    try:
        if (place / "vocab.json").is_file() and not (place / "tokenizer.json").is_file():
            return GPT2TokenizerFast(vocab=str(place / "vocab.json"), merges=str(place / "merges.txt"))
        return AutoTokenizer.from_pretrained(place, trust_remote_code=False)  # type: ignore[no-any-return]
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
    return json.loads((Path(here(checkpoint, weights=False).location) / "config.json").read_text())  # type: ignore[no-any-return]
