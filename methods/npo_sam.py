"""NPO with sharpness-aware minimisation."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import torch

from harness.contracts import ErasedModel, ErasureTask, LogUniform, NonNegative, Positive
from harness.toolkit import Epochs, LossTerms, RetainMethod, Step, SumRetainWeight, mean_nll, npo_loss, train_and_yield


@dataclass(frozen=True, kw_only=True)
class NPOSAM(RetainMethod):
    """Takes NPO's gradient where relearning would lead, at weights moved by ρ, plus the retain gradient here.

    Differs from the paper: its repository, OPTML-Group/Unlearn-Smooth, uses MUSE's loss of raw logits; here it is
    NPO's.

    Source: Fan et al., arXiv:2502.05374, NPO+SAM; NPO: Zhang et al., arXiv:2404.05868, equation 3.
    """

    label = "NPO+SAM"
    source = "Fan et al. 2025, arXiv:2502.05374"
    version = 1

    epochs: Epochs = 10
    radius: Annotated[NonNegative, LogUniform(low=0.001, high=0.1)] = 0.01
    """ρ, the Euclidean length of the move over all weights; 0 is NPO."""
    beta: Annotated[Positive, LogUniform(low=0.005, high=0.5)] = 0.1
    """As in NPO."""
    retain_weight: SumRetainWeight = 1.0
    """Weight of the retain gradient."""

    def erase(self, task: ErasureTask) -> Iterator[ErasedModel]:
        original = task.load_original()
        loss = LossTerms(partial(npo_loss, original, beta=self.beta), mean_nll, self.retain_weight, self.gradient)
        yield from train_and_yield(task, task.load_original(), loss, frozen=[original])

    def gradient(self, step: Step) -> dict[str, torch.Tensor]:
        """Return the forget gradient where it is sharpest nearby, plus the retain gradient here."""
        uphill = step.gradient("forget")
        length = math.sqrt(sum(float(gradient.double().square().sum()) for gradient in uphill.values()))
        if self.radius and length:
            with step.moved({name: gradient * (self.radius / length) for name, gradient in uphill.items()}):
                uphill = step.gradient("forget")
        retain = step.gradient("retain")
        return {name: uphill[name] + self.retain_weight * retain[name] for name in uphill}
