"""Negative preference optimisation."""

from dataclasses import dataclass
from typing import Annotated

import torch

from harness.contracts import LogUniform, Model, Positive
from harness.toolkit import Batch, Epochs, RetainedMethod, SumRetainWeight, npo_loss


@dataclass(frozen=True, kw_only=True)
class NPO(RetainedMethod):
    """Raises a forget text's summed NLL L above the original's, up to a bound: −(2/β) log σ(β (L_θ − L_original)).

    As β → 0 it is gradient ascent on the sums. A sequence is let go of when its NLL has risen by some 5/β nats in all.

    Differs from the paper: there L is of an answer, here of the tokens in `training.loss_region`. MUSE's NPO
    (arXiv:2407.06460) is another loss, of all raw logits.

    Source: Zhang et al., arXiv:2404.05868, equation 3; settings: licong-lin/negative-preference-optimization.
    """

    label = "NPO"
    source = "Zhang et al. 2024, arXiv:2404.05868"
    version = 1
    needs_original = True

    epochs: Epochs = 10
    beta: Annotated[Positive, LogUniform(low=0.005, high=0.5)] = 0.1
    """Higher lets go of a sequence sooner, and of long ones first."""
    retain_weight: SumRetainWeight = 1.0
    """Weight of the retain NLL, a mean over tokens next to sums."""

    def loss(self, original: Model, model: Model, forget: Batch, retain: Batch) -> torch.Tensor:
        return self.with_retain(npo_loss(original, model, forget, beta=self.beta), model, retain)
