"""Unlikelihood training: make every token of the forget set less likely, and let go of it once it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import torch

from harness.contracts import Count, ErasedModel, ErasureTask, LogUniform, Method, Model, NonNegative, Strength
from harness.toolkit import Batch, mean_nll, train_and_yield


@dataclass(frozen=True, kw_only=True)
class Unlikelihood(Method):
    """Minimises the mean over forget tokens of −log(1 − p(x_t)), and α NLL on the retain set.

    Differs from the paper: there, what is made less likely is what was written before, and α weighs that term; here it
    is what `training.loss_region` counts of the forget set's own texts.

    Source: Welleck et al., arXiv:1908.04319, equation 4.
    """

    label = "UL"
    source = "Welleck et al. 2019, arXiv:1908.04319"
    reference = "retain_data"  # or none, memorized_model
    version = 1  # raised whenever the numbers change
    strength = Strength("epochs", cumulative=True, off=0, divisible=True)  # the one dial that turns erasure up

    epochs: Annotated[Count, LogUniform(low=1, high=12)] = 1  # what a tuned sweep may try
    """Passes over the forget set."""
    alpha: Annotated[NonNegative, LogUniform(low=0.1, high=10.0)] = 1.0
    """The weight of the retain term."""

    def loss(self, model: Model, forget: Batch, retain: Batch) -> torch.Tensor:
        """Return the unlikelihood of the forget set plus NLL on the retain set."""
        logits = forget.logits(model)
        others = logits.scatter(-1, forget.targets_BS.unsqueeze(-1), float("-inf"))
        # From the logits of all others: of a p that rounds to 1, log(1 − p) would be −inf, and its gradient NaN.
        unlikelihood = logits.logsumexp(dim=-1) - others.logsumexp(dim=-1)
        descent = mean_nll(model, retain)
        return forget.mean(unlikelihood) + self.alpha * descent

    def erase(self, task: ErasureTask) -> Iterator[ErasedModel]:
        """Yield the model after each epoch asked for."""
        yield from train_and_yield(task, task.load_original(), self.loss)
