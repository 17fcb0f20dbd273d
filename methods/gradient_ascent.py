"""Gradient ascent: make every token of the forget set less likely."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch

from harness.contracts import Count, ErasedModel, ErasureTask, Json, LogUniform, Method, Model, Strength
from harness.toolkit import Batch, mean_nll, train_and_yield


@dataclass(frozen=True, kw_only=True)
class GradientAscent(Method):
    """Minimises −L_NLL on the forget set; nothing holds it back.

    Source: Jang et al., arXiv:2210.01504, section 3.1; its rate is its repository's, joeljang/knowledge-unlearning.
    """

    label = "GA"
    source = "Jang et al. 2023, arXiv:2210.01504"
    reference = "none"
    version = 2
    strength = Strength("epochs", cumulative=True, off=0, divisible=True)
    published: ClassVar[Mapping[str, Json]] = {"training.learning_rate": 5e-5}

    epochs: Annotated[Count, LogUniform(low=1, high=12)] = 1
    """Passes over the forget set."""

    def loss(self, model: Model, forget: Batch, retain: Batch) -> torch.Tensor:
        """Return −NLL on the forget set."""
        return -mean_nll(model, forget)

    def erase(self, task: ErasureTask) -> Iterator[ErasedModel]:
        """Yield the model after each epoch asked for."""
        yield from train_and_yield(task, task.load_original(), self.loss)
