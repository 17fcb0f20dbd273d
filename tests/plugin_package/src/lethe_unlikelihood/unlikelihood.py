"""Negative preference optimisation: ascend on the forget set, but ever more gently."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import torch

from harness.contracts import Count, ErasedModel, ErasureTask, LogUniform, Method, Model, Positive, Strength
from harness.toolkit import Batch, token_nll, train_and_yield


@dataclass(frozen=True, kw_only=True)
class NPO(Method):
    """Minimises the mean over the forget sequences of (2/β) log(1 + (p_θ(y) / p_original(y))^β).

    Differs from the paper: there, y is an answer to a prompt; here it is what `training.loss_region` counts of a
    sequence: all of it, unless the sweep file says `continuation`. Nothing of the retain data is looked at.

    Source: Zhang et al., arXiv:2404.05868, equation 3.
    """

    label = "NPO"
    source = "Zhang et al. 2024, arXiv:2404.05868"
    reference = "none"
    version = 2
    strength = Strength("epochs", cumulative=True, off=0)

    epochs: Annotated[Count, LogUniform(low=1, high=12)] = 1
    """Passes over the forget set."""
    beta: Annotated[Positive, LogUniform(low=0.01, high=1.0)] = 0.1
    """How soon the ascent lets go of a sequence."""

    def erase(self, task: ErasureTask) -> Iterator[ErasedModel]:
        """Yield the model after each epoch asked for."""
        original = task.load_original()

        def loss(model: Model, forget: Batch, retain: Batch) -> torch.Tensor:
            with torch.no_grad():
                before = token_nll(forget.logits(original), forget.targets_BS)
            ratio = before - token_nll(forget.logits(model), forget.targets_BS)  # log p_θ − log p_original, by token
            of_sequence = torch.nn.functional.softplus(self.beta * forget.sums_per_sequence(ratio)) * 2 / self.beta
            return forget.sequence_mean(of_sequence)

        yield from train_and_yield(task, task.load_original(), loss, frozen=[original])
