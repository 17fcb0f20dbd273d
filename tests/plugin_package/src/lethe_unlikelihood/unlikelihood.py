"""Unlikelihood training, which makes every token of the forget set less likely."""

from dataclasses import dataclass

import torch

from harness.contracts import Model
from harness.toolkit import Batch, RetainMethod


@dataclass(frozen=True, kw_only=True)
class Unlikelihood(RetainMethod):
    """Minimises the mean over forget tokens of −log(1 − p(x_t)), plus NLL on the retain set.

    Differs from the paper: it makes the forget set's own tokens less likely, and not those written before.

    Source: Welleck et al., arXiv:1908.04319, equation 4.
    """

    label = "UL"
    source = "Welleck et al. 2019, arXiv:1908.04319"
    version = 1

    def loss(self, model: Model, forget: Batch, retain: Batch) -> torch.Tensor:
        logits = forget.logits(model)
        others = logits.scatter(-1, forget.targets_BS.unsqueeze(-1), float("-inf"))
        # Finite, also where p rounds to 1.
        unlikelihood = logits.logsumexp(dim=-1) - others.logsumexp(dim=-1)
        return self.with_retain(forget.mean(unlikelihood), model, retain)
