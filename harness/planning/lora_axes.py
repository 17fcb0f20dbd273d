"""LoRA's settings as axes of a row's grid: `lora: {rank: [4, 16]}` asks for two ranks, as any other list does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def flat(training: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row's training with LoRA's settings beside the others, as axes of their own; targets are a list anyway.

    Example:
        >>> flat({"learning_rate": 0.1, "lora": {"rank": [4, 16], "targets": ["q_proj", "v_proj"]}})
        {'learning_rate': 0.1, 'lora.rank': [4, 16], 'lora.targets': [['q_proj', 'v_proj']]}
    """
    lora = training.get("lora")
    if not isinstance(lora, dict) or not lora:
        return dict(training)
    others = {name: value for name, value in training.items() if name != "lora"}
    return others | {f"lora.{name}": [value] if name == "targets" else value for name, value in lora.items()}


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `flat` was made of, for one combination."""
    lora = {name.removeprefix("lora."): value for name, value in flat.items() if name.startswith("lora.")}
    others = {name: value for name, value in flat.items() if not name.startswith("lora.")}
    return {**others, "lora": lora} if lora else others


def mappings_in_words(given: Mapping[str, Any]) -> dict[str, str]:
    """Return settings that are given as mappings, in words."""
    mappings = {name: value for name, value in given.items() if isinstance(value, dict)}
    return {name: " ".join(f"{key} {value[key]}" for key in value) for name, value in mappings.items()}
