"""SatImp and WGA."""

from dataclasses import dataclass
from typing import Annotated

import torch

from harness.contracts import LogUniform, Model, NonNegative
from harness.toolkit import Batch, Epochs, RetainedMethod, token_nll


@dataclass(frozen=True, kw_only=True)
class SatImp(RetainedMethod):
    """Raises the loss of forget tokens, least of forgotten and certain ones: −w log(1/p), w = p^β1 (1 − p)^β2.

    β1 lets go of forgotten tokens (saturation), β2 takes less of certain ones (importance). `beta1: 1, beta2: 0` is
    WGA, and `beta1: 0, beta2: 0` gradient ascent.

    Differs from the paper: `retain_weight` is the ratio of the two terms, 0.1 by default. At the published ratio of 10
    only the retain term moves the weights, since w is nearly 0 for a recited text.

    Source: Yang et al., arXiv:2505.11953, section 5; WGA: Wang et al., arXiv:2502.19301. Settings: OpenUnlearning,
    SatImp with β1 5 (or 6), β2 1 and a ratio of 10, WGA with `retain_weight: 1`, both in 5 epochs at 1e-5.
    """

    label = "SatImp"
    source = "Yang et al. 2025, arXiv:2505.11953"
    version = 1
    published = {"retain_weight": 10.0}

    epochs: Epochs = 5
    beta1: Annotated[NonNegative, LogUniform(low=0.25, high=8.0)] = 5.0
    """Saturation: larger lets go of a token sooner."""
    beta2: Annotated[NonNegative, LogUniform(low=0.1, high=4.0)] = 1.0
    """Importance: larger ignores tokens that are all but certain."""
    retain_weight: Annotated[NonNegative, LogUniform(low=0.01, high=10.0)] = 0.1
    """Weight of the retain NLL. A token's weight is at most 0.067 by default, and 1 in WGA."""

    def loss(self, model: Model, forget: Batch, retain: Batch) -> torch.Tensor:
        nll = token_nll(forget.logits(model), forget.targets_BS)
        return self.with_retain(-forget.mean(self.weight(nll.detach()) * nll), model, retain)

    def weight(self, nll_BS: torch.Tensor) -> torch.Tensor:
        """Return p^β1 (1 − p)^β2 of each token, from its NLL.

        Example:
            >>> round(SatImp(beta1=2.0, beta2=1.0).weight(-torch.tensor(0.5).log()).item(), 6)
            0.125
        """
        return (-self.beta1 * nll_BS).exp() * (-torch.expm1(-nll_BS)) ** self.beta2
