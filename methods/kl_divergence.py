"""KL divergence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch

from harness.contracts import ErasedModel, ErasureTask, Model
from harness.toolkit import Batch, RetainWeight, TrainedMethod, mean_nll, token_kl, train_and_yield


@dataclass(frozen=True, kw_only=True)
class KLDivergence(TrainedMethod):
    """Minimises −L_NLL(forget) + KL(p_original ‖ p_θ) on the retain set.

    Source: Wang et al., "KGA", arXiv:2305.06535, as Maini et al., arXiv:2401.06121, simplify it.
    """

    label = "KL"
    source = "Wang et al. 2023, arXiv:2305.06535"
    reference = "retain_data"
    version = 2

    retain_weight: RetainWeight = 1.0
    """Weight of the divergence."""
    direction: Literal["forward", "reverse"] = "forward"
    """`forward`: KL(p_original ‖ p_θ); `reverse`: KL(p_θ ‖ p_original)."""

    def erase(self, task: ErasureTask) -> Iterator[ErasedModel]:
        original = task.load_original()

        def loss(model: Model, forget: Batch, retain: Batch) -> torch.Tensor:
            ascent = -mean_nll(model, forget)
            with torch.no_grad():
                anchor = retain.logits(original)
            return ascent + self.retain_weight * retain.mean(self.divergence(anchor, retain.logits(model)))

        yield from train_and_yield(task, task.load_original(), loss, frozen=[original])

    def divergence(self, original_BSV: torch.Tensor, erased_BSV: torch.Tensor) -> torch.Tensor:
        """Return the divergence of each prediction in this direction."""
        forward = self.direction == "forward"
        return token_kl(original_BSV, erased_BSV) if forward else token_kl(erased_BSV, original_BSV)
