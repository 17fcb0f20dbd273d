"""The training of each row: what the sweep, the model and the row say of it, and whether the method can take it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from harness.contracts import Checkpoint, LoRA, Training
from harness.errors import Fault, ModelError
from harness.models.adapters import target_modules
from harness.models.loading import unloaded_model
from harness.planning.grid import TrialTemplate


def training_of(settings: Mapping[str, Any]) -> Training:
    """Return the training that checked settings make; those left out have their defaults."""
    lora = settings.get("lora")
    return Training(**{**settings, "lora": LoRA(**lora) if lora else None})


def training_for(template: TrialTemplate, of_model: Mapping[str, Any]) -> Training:
    """Return a row's training on a model: without LoRA where the method itself trains nothing."""
    training = training_of({**of_model, **template.training})
    return training if template.plugin.searched_training else replace(training, lora=None)


def training_faults(
    models: Sequence[tuple[Checkpoint, Mapping[str, Any]]], templates: Sequence[TrialTemplate]
) -> Iterator[Fault]:
    """Yield every row whose method cannot be trained as the file says, each reason once.

    Args:
        models: What methods erase from, each with what the sweep and its entry set of the training.
        templates: What erases.
    """
    faults: dict[Fault, None] = {}
    for template in templates:
        own = template.training.get("lora")
        path = f"methods.{template.key}" + (".training.lora" if own else "")
        if own and not template.plugin.searched_training:
            why = f"'{template.method}' trains nothing itself, and what it is made of is trained whole: remove lora."
            faults[Fault(path, why)] = None
            continue
        dial = {template.plugin.strength.field: max(template.strengths)}
        method = template.plugin(**{**template.settings, **dial})
        for checkpoint, of_model in models:
            training = training_for(template, of_model)
            reason = method.refuses_training(training) or _target_fault(checkpoint, training.lora)
            if reason:
                faults[Fault(path, f"cannot be trained so: {reason}")] = None
    yield from faults


def _target_fault(checkpoint: Checkpoint, lora: LoRA | None) -> str | None:
    """Return why LoRA's targets are none of the model's modules; all linear ones are always there."""
    if lora is None or isinstance(lora.targets, str):
        return None
    import torch

    try:
        with torch.device("meta"):
            target_modules(unloaded_model(checkpoint), lora)
    except ModelError as error:
        return f"'{checkpoint.id}' lacks a target of lora: {error}"
    return None
