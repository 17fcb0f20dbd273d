"""A gradient that a method makes from those of its two loss terms: no step goes against the retain texts."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from harness.contracts import ErasedModel, ErasureTask
from harness.toolkit import LossTerms, Step, ascent, mean_nll, train_and_yield


def without_conflict(step: Step) -> dict[str, torch.Tensor]:
    """Return the gradient of both terms, without the part of the forget term's that raises the retain loss."""
    forget, retain = step.gradient("forget"), step.gradient("retain")
    dot = sum(float((forget[name] * retain[name]).sum()) for name in forget)
    if dot < 0:
        size = sum(float(retain[name].square().sum()) for name in retain)
        forget = {name: forget[name] - dot / size * retain[name] for name in forget}
    return {name: forget[name] + retain[name] for name in forget}


def erase(task: ErasureTask) -> Iterator[ErasedModel]:
    """Yield the model after each epoch."""
    loss = LossTerms(forget=ascent, retain=mean_nll, retain_weight=1.0, gradient=without_conflict)
    yield from train_and_yield(task, task.load_original(), loss)
