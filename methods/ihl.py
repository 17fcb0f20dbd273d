"""Inverted hinge loss."""

from dataclasses import dataclass

import torch

from harness.contracts import Model
from harness.toolkit import Batch, Epochs, RetainedMethod


@dataclass(frozen=True, kw_only=True)
class IHL(RetainedMethod):
    """Lowers a forget token below its strongest rival: mean of max(0, 1 + p(x_t) − max_{v ≠ x_t} p(v)), from 0 to 2.

    The gradient in the text token's logit is p (1 − p + p'), p' the strongest rival's probability: it fades once the
    token is unlikely.

    Differs from the paper: low-rank adapters start as LoRA's do, not from the weights that matter to the forget set
    (FILA).

    Source: Cha et al., "LoKU", arXiv:2408.06621, equation 3; settings: its repository, with `lora: {rank: 32}`.
    """

    label = "IHL"
    source = "Cha et al. 2025, arXiv:2408.06621"
    version = 1
    published = {"training.learning_rate": 1e-4}

    epochs: Epochs = 5

    def loss(self, model: Model, forget: Batch, retain: Batch) -> torch.Tensor:
        hinge = forget.mean(inverted_hinge(forget.logits(model), forget.targets_BS))
        return self.with_retain(hinge, model, retain)


def inverted_hinge(logits_BSV: torch.Tensor, targets_BS: torch.Tensor) -> torch.Tensor:
    """Return 1 + p(target) − max p(any other) of each prediction, never below 0.

    Source: Cha et al., arXiv:2408.06621, equation 3.

    Example:
        >>> logits = torch.tensor([[[0.5, 0.3, 0.2]]]).log()
        >>> [round(inverted_hinge(logits, torch.tensor([[token]])).item(), 6) for token in (0, 1)]
        [1.2, 0.8]
    """
    p_BSV = logits_BSV.softmax(dim=-1)
    index = targets_BS.unsqueeze(-1)
    rival_BS = p_BSV.scatter(-1, index, 0.0).max(dim=-1).values
    return 1 + p_BSV.gather(-1, index).squeeze(-1) - rival_BS
