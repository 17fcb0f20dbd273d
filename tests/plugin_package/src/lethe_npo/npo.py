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
    """Minimises (2/β) log(1 + (p_θ / p_original)^β) on the forget set, token by token.

    Differs from the paper: its ratio is of whole sequences; this one is of tokens, so that sequences
    of any length weigh by their tokens as in the other methods.

    Source: Zhang et al., arXiv:2404.05868, equation 3.
    """

    label = "NPO"
    source = "Zhang et al. 2024, arXiv:2404.05868"
    reference = "none"
    version = 1
    strength = Strength("epochs", cumulative=True, off=0)

    epochs: Annotated[Count, LogUniform(low=1, high=12)] = 1
    """Passes over the forget set."""
    beta: Annotated[Positive, LogUniform(low=0.01, high=1.0)] = 0.1
    """How soon the ascent lets go of a token."""

    def erase(self, task: ErasureTask) -> Iterator[ErasedModel]:
        """Yield the model after each epoch asked for."""
        original = task.load_original()

        def loss(model: Model, forget: Batch, retain: Batch) -> torch.Tensor:
            with torch.no_grad():
                before = token_nll(forget.logits(original), forget.targets_BS)
            log_ratio = before - token_nll(forget.logits(model), forget.targets_BS)
            return forget.mean(torch.nn.functional.softplus(self.beta * log_ratio) * 2 / self.beta)

        yield from train_and_yield(task, task.load_original(), loss, frozen=[original])
