"""SimNPO."""

from dataclasses import dataclass
from typing import Annotated

import torch

from harness.contracts import LogUniform, Model, NonNegative, Positive
from harness.toolkit import Batch, Epochs, RetainedMethod, preference_loss, token_nll


@dataclass(frozen=True, kw_only=True)
class SimNPO(RetainedMethod):
    """Raises a forget text's mean NLL ℓ, up to a bound: −(2/β) log σ(β (ℓ − δ)).

    As β → 0 it is gradient ascent on the means.

    Differs from the paper: its γ is βδ. Its repository, OPTML-Group/Unlearn-Simple, weighs the forget term by 0.1375
    (OpenUnlearning, with β 4.5: 0.125) and the retain term by 1; here `retain_weight` is their ratio.

    Source: Fan et al., arXiv:2410.07163, equation 4; settings: its repository.
    """

    label = "SimNPO"
    source = "Fan et al. 2024, arXiv:2410.07163"
    version = 1
    published = {"retain_weight": 7.27}

    epochs: Epochs = 10
    beta: Annotated[Positive, LogUniform(low=0.5, high=8.0)] = 2.5
    """Rate at which a sequence is let go of."""
    margin: NonNegative = 0.0
    """δ, in nats a token."""

    def loss(self, model: Model, forget: Batch, retain: Batch) -> torch.Tensor:
        nll = token_nll(forget.logits(model), forget.targets_BS)
        rises = forget.means_per_sequence(nll) - self.margin
        return self.with_retain(forget.sequence_mean(preference_loss(rises, self.beta)), model, retain)
