"""Negative preference optimisation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import torch

from harness.contracts import ErasedModel, ErasureTask, LogUniform, Model, Positive
from harness.toolkit import Batch, Epochs, RetainedMethod, SumRetainWeight, nll_rise, preference_loss, train_and_yield


@dataclass(frozen=True, kw_only=True)
class NPO(RetainedMethod):
    """Minimises the mean over forget sequences of −(2/β) log σ(β (L_θ − L_original)), L being a sequence's summed NLL.

    As β → 0 it is gradient ascent on the sums. A sequence is let go of when its NLL has risen by some 5/β nats in all.

    Differs from the paper: there L is of an answer, here of the tokens in `training.loss_region`. MUSE's NPO
    (arXiv:2407.06460) is another loss, of all raw logits.

    Source: Zhang et al., arXiv:2404.05868, equation 3; settings: licong-lin/negative-preference-optimization.
    """

    label = "NPO"
    source = "Zhang et al. 2024, arXiv:2404.05868"
    version = 1

    epochs: Epochs = 10
    beta: Annotated[Positive, LogUniform(low=0.005, high=0.5)] = 0.1
    """Higher lets go of a sequence sooner, and of long ones first."""
    retain_weight: SumRetainWeight = 1.0
    """Weight of the retain NLL, a mean over tokens next to sums."""

    def erase(self, task: ErasureTask) -> Iterator[ErasedModel]:
        original = task.load_original()
        yield from train_and_yield(task, task.load_original(), partial(self.loss, original), frozen=[original])

    def loss(self, original: Model, model: Model, forget: Batch, retain: Batch) -> torch.Tensor:
        rise = nll_rise(original, model, forget)
        ascent = forget.sequence_mean(preference_loss(forget.sums_per_sequence(rise), self.beta))
        return self.with_retain(ascent, model, retain)
