"""Deliberate imagination."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import torch

from harness import contracts
from harness.contracts import ErasedModel, ErasureTask, LogUniform, Model, NonNegative, PositiveCount, Strength
from harness.toolkit import Batch, token_distillation, train


@dataclass(frozen=True, kw_only=True)
class DeliberateImagination(contracts.Method):
    """Learns from the frozen original, with γ added to every logit but the true token's.

    The target of a token of probability p is p e^−γ / (p e^−γ + 1 − p): γ = 3 moves the argmax only where p < 0.953.

    Source: Dong et al., arXiv:2402.10052, equation 3; EMSO paper, appendix D; settings: dong-river/LLM_unlearning.
    """

    label = "DI"
    source = "Dong et al. 2024, arXiv:2402.10052"
    reference = "none"
    version = 2
    strength = Strength("gamma", cumulative=False, off=0.0)
    published = {"epochs": 10, "training.learning_rate": 1e-6}

    gamma: Annotated[NonNegative, LogUniform(low=0.5, high=30.0)] = 3.0
    """Bonus of every logit but the true token's."""
    epochs: Annotated[PositiveCount, LogUniform(low=1, high=12)] = 7
    """Passes over the forget set, unless stopped early."""

    def erase(self, task: ErasureTask) -> Iterator[ErasedModel]:
        model, teacher = task.load_original(), task.load_original()

        def loss(model: Model, forget: Batch, retain: Batch) -> torch.Tensor:
            with torch.no_grad():
                target = imagine(forget.logits(teacher), forget.targets_BS, self.gamma)
            return forget.mean(token_distillation(target, forget.logits(model)))

        *_, last = train(task, model, loss, self.epochs, frozen=[teacher])
        yield ErasedModel(self.gamma, model, last.notes, stop_reason=last.stop_reason)


def imagine(logits_BSV: torch.Tensor, targets_BS: torch.Tensor, gamma: float) -> torch.Tensor:
    """Return the teacher's logits with γ taken from the true token's, which has the same softmax.

    Example:
        >>> imagine(torch.tensor([[[2.0, 1.0]]]), torch.tensor([[0]]), gamma=3.0)
        tensor([[[-1.,  1.]]])
    """
    index = targets_BS.unsqueeze(-1)
    return logits_BSV.scatter_add(-1, index, torch.full_like(index, -gamma, dtype=logits_BSV.dtype))
