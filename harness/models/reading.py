"""How a model reads and ends texts, and in what precision it lies in its files: what a report says of each model."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from harness.contracts import Checkpoint, Json
from harness.models.configurations import UNBOUNDED
from harness.models.loading import configuration, load_tokenizer, positions
from harness.models.resolving import CAUSAL_ROLES, ensure_local, is_local
from harness.models.tokenizing import end_tokens, start_tokens

_LOGIT_SCALES = ("final_logit_softcapping", "logits_scaling", "logit_scale")
"""What Gemma 2, Granite and Cohere call what they do to their logits."""
_DTYPES = {"F64": "fp64", "F32": "fp32", "F16": "fp16", "BF16": "bf16", "F8_E4M3": "fp8", "F8_E5M2": "fp8"}


def text_start(checkpoint: Checkpoint) -> tuple[int, ...]:
    """Return the token ids that stand before every text that the model reads, such as BOS; none for most.

    Raises:
        ModelError: The tokenizer cannot be loaded.
    """
    return tuple(_starts_and_ends(checkpoint)["starts"])


def text_ends(checkpoint: Checkpoint) -> tuple[int, ...]:
    """Return the token ids at which what the model writes after a utility prompt is cut; none where it has no end.

    Raises:
        ModelError: The tokenizer cannot be loaded.
    """
    return tuple(_starts_and_ends(checkpoint)["ends"])


@lru_cache(maxsize=64)
def _starts_and_ends(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the ids of `text_start` and `text_ends`, and the same as text: loading a tokenizer takes a second."""
    local, tokenizer = ensure_local(checkpoint, weights=False), load_tokenizer(checkpoint)
    starts = list(start_tokens(tokenizer))
    ends = list(end_tokens(tokenizer, _configured_ends(Path(local.location) / "generation_config.json")))
    return {
        "starts": starts,
        "starts_as_text": tokenizer.convert_ids_to_tokens(starts),
        "ends": ends,
        "ends_as_text": tokenizer.convert_ids_to_tokens(ends),
    }


def _configured_ends(file: Path) -> list[int]:
    try:
        settings = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return []  # It is there for `generate`, which nothing here calls.
    ends = settings.get("eos_token_id") if isinstance(settings, dict) else None
    return [token for token in (ends if isinstance(ends, list) else [ends]) if type(token) is int]


def stored_precision(checkpoint: Checkpoint) -> str:
    """Return what precision most of a local checkpoint's weights are stored in; '' if its files do not say.

    It is always loaded in fp32, which holds every bf16 and fp16 number exactly.
    """
    from safetensors import SafetensorError, safe_open

    weights: Counter[str] = Counter()
    for file in Path(ensure_local(checkpoint).location).glob("*.safetensors"):
        try:
            with safe_open(file, framework="pt") as tensors:
                for part in map(tensors.get_slice, tensors.keys()):
                    weights[part.get_dtype()] += math.prod(part.get_shape())
        except (OSError, SafetensorError):
            return ""  # Whoever loads it says what is wrong.
    [(most, _)] = weights.most_common(1) or [("", 0)]
    return _DTYPES.get(most, most)


def how_it_reads(checkpoint: Checkpoint) -> dict[str, Json]:
    """Return what was decided of a model's texts and precision, for the plan, the journal and the report.

    Returns:
        `starts_with` and `ends_at` are tokens as text, `context` the most tokens at once (None: no end is known),
        `stored` the precision of the files ('' if unknown, as of what is not on this machine yet).
    """
    starts_and_ends, most = _starts_and_ends(checkpoint), positions(checkpoint)
    return {
        "starts_with": starts_and_ends["starts_as_text"],
        "ends_at": starts_and_ends["ends_as_text"],
        "context": None if most == UNBOUNDED else most,
        "stored": stored_precision(checkpoint) if is_local(checkpoint) else "",
    }


def judge_facts(judge: Checkpoint) -> list[str]:
    """Return what decides a causal judge's numbers besides its files: how it starts a text, and scales its logits."""
    config = configuration(judge)
    scaled = [name for name in _LOGIT_SCALES if config.get(name) is not None]
    return [*(f"starts with {token}" for token in text_start(judge)), *(f"logits by {name}" for name in scaled)]


def judges_start_with(judges: Mapping[str, Checkpoint]) -> dict[str, Json]:
    """Return the tokens, as text, that causal judges put before every text, by role; of those that put any."""
    starts: dict[str, Json] = {}
    for role, judge in judges.items():
        if role in CAUSAL_ROLES and (tokens := _starts_and_ends(judge)["starts_as_text"]):
            starts[role] = tokens
    return starts
