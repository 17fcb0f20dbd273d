"""Bases of methods that train on the forget set."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch

from harness.contracts import (
    Count,
    ErasedModel,
    ErasureTask,
    LogUniform,
    Method,
    Model,
    NonNegative,
    Reference,
    Strength,
)
from harness.toolkit.finetune import train_and_yield
from harness.toolkit.losses import Batch, mean_nll

Epochs = Annotated[Count, LogUniform(low=1, high=12)]
RetainWeight = Annotated[NonNegative, LogUniform(low=0.1, high=10.0)]
SumRetainWeight = Annotated[NonNegative, LogUniform(low=0.1, high=100.0)]
"""Weight of a mean over retain tokens next to a sum over a forget sequence."""


@dataclass(frozen=True, kw_only=True)
class TrainedMethod(Method):
    """A method whose dial is the epochs of training on its `loss`."""

    strength = Strength("epochs", cumulative=True, off=0, divisible=True)
    loss: ClassVar[Callable[..., torch.Tensor]]
    """(self, model, forget, retain) to a micro-batch's share."""

    epochs: Epochs = 1
    """Passes over the forget set, each batch with a retain batch of the same size."""

    def erase(self, task: ErasureTask) -> Iterator[ErasedModel]:
        """Yield the model after each requested epoch."""
        yield from train_and_yield(task, task.load_original(), self.loss)


@dataclass(frozen=True, kw_only=True)
class RetainedMethod(TrainedMethod):
    """A trained method that adds L_NLL on the retain set to its loss by default."""

    retain: bool = True
    """Add NLL on the retain set."""
    retain_weight: RetainWeight = 1.0
    """The weight of that NLL."""

    @property
    def reference(self) -> Reference:
        """Return `retain_data`, or `none` where `retain` is false."""
        return "retain_data" if self.retain else "none"

    def with_retain(self, ascent: torch.Tensor, model: Model, retain: Batch) -> torch.Tensor:
        """Return a forget loss plus the weighted NLL on the retain set, if `retain`."""
        return ascent + self.retain_weight * mean_nll(model, retain) if self.retain else ascent
