"""CE-U."""

from dataclasses import dataclass

import torch

from harness.contracts import Model
from harness.toolkit import Batch, Epochs, TrainedMethod, token_distillation


@dataclass(frozen=True, kw_only=True)
class CEU(TrainedMethod):
    """Teaches the model its own distribution without the text's token.

    The gradient in the logits is p for the text's token and −p p_v / (1 − p) for any other: it ends where the token is
    unlikely. It is deliberate imagination with itself as the teacher and γ → ∞.

    Differs from the paper: the first token of an answer is not left out, since a text has none.

    Source: Yang, arXiv:2503.01224; settings: OpenUnlearning, pull request 72.
    """

    label = "CE-U"
    source = "Yang 2025, arXiv:2503.01224"
    version = 1
    published = {"training.learning_rate": 2e-6}

    epochs: Epochs = 9

    def loss(self, model: Model, forget: Batch, retain: Batch) -> torch.Tensor:
        logits = forget.logits(model)
        return forget.mean(token_distillation(without_target(logits.detach(), forget.targets_BS), logits))


def without_target(logits_BSV: torch.Tensor, targets_BS: torch.Tensor) -> torch.Tensor:
    """Return logits whose softmax is renormalised without the target.

    Example:
        >>> logits = torch.tensor([[[0.5, 0.3, 0.2]]]).log()
        >>> [round(p, 6) for p in without_target(logits, torch.tensor([[0]])).softmax(-1).flatten().tolist()]
        [0.0, 0.6, 0.4]
    """
    return logits_BSV.scatter(-1, targets_BS.unsqueeze(-1), float("-inf"))
