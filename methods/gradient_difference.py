"""Gradient difference: ascend on the forget set while descending on the retain set."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import torch

from harness.contracts import Count, ErasedModel, ErasureTask, LogUniform, Method, Model, NonNegative, Strength
from harness.toolkit import Batch, mean_nll, train_and_yield


@dataclass(frozen=True, kw_only=True)
class GradientDifference(Method):
    """Minimises −L_NLL(forget) + L_NLL(retain).

    Source: Liu et al., "Continual Learning and Private Unlearning", arXiv:2203.12817.
    """

    label = "GD"
    source = "Liu et al. 2022, arXiv:2203.12817"
    reference = "retain_data"
    version = 2
    strength = Strength("epochs", cumulative=True, off=0, divisible=True)

    epochs: Annotated[Count, LogUniform(low=1, high=12)] = 1
    """Passes over the forget set; each batch comes with a retain batch of the same size."""
    retain_weight: Annotated[NonNegative, LogUniform(low=0.1, high=10.0)] = 1.0
    """Of the retain term."""

    def loss(self, model: Model, forget: Batch, retain: Batch) -> torch.Tensor:
        """Return −NLL on the forget set plus NLL on the retain set."""
        ascent = -mean_nll(model, forget)
        descent = mean_nll(model, retain)
        return ascent + self.retain_weight * descent

    def erase(self, task: ErasureTask) -> Iterator[ErasedModel]:
        """Yield the model after each epoch asked for."""
        yield from train_and_yield(task, task.load_original(), self.loss)
