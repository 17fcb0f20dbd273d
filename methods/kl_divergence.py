"""KL divergence."""

from dataclasses import dataclass
from typing import Literal

import torch

from harness.contracts import Model
from harness.toolkit import Batch, RetainMethod, ascent, token_kl


@dataclass(frozen=True, kw_only=True)
class KLDivergence(RetainMethod):
    """Raises the loss of forget texts near the original: −L_NLL(forget) + KL(p_original ‖ p_θ) on the retain set.

    Source: Wang et al., "KGA", arXiv:2305.06535, as Maini et al., arXiv:2401.06121, simplify it.
    """

    label = "KL"
    source = "Wang et al. 2023, arXiv:2305.06535"
    version = 2
    needs_original = True

    direction: Literal["forward", "reverse"] = "forward"
    """`forward`: KL(p_original ‖ p_θ); `reverse`: KL(p_θ ‖ p_original)."""

    def loss(self, original: Model, model: Model, forget: Batch, retain: Batch) -> torch.Tensor:
        forget_loss = ascent(model, forget)
        with torch.no_grad():
            anchor = retain.logits(original)
        return forget_loss + self.retain_weight * retain.mean(self.divergence(anchor, retain.logits(model)))

    def divergence(self, original_BSV: torch.Tensor, erased_BSV: torch.Tensor) -> torch.Tensor:
        """Return the divergence of each prediction in this direction."""
        forward = self.direction == "forward"
        return token_kl(original_BSV, erased_BSV) if forward else token_kl(erased_BSV, original_BSV)
