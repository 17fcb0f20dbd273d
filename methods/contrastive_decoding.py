"""Contrastive decoding."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

import torch

from harness.contracts import ErasedModel, ErasureTask, LogUniform, Method, NonNegative, Strength


@dataclass(frozen=True, kw_only=True)
class ContrastiveDecoding(Method):
    """Decodes against a model that recites more, from z − γ ReLU(z_memo − z): the erased model is a pair.

    A constant added to z_memo switches the ReLU on everywhere; `space: logprobs` normalises the logits first.

    Source: EMSO paper, appendix D (the formula is Eldan and Russinovich's, arXiv:2310.02238).
    """

    label = "CD"
    source = "Li et al. 2023, arXiv:2210.15097"
    reference = "memorized_model"
    version = 2
    strength = Strength("gamma", cumulative=False, off=0.0)
    searched_training = ()

    gamma: Annotated[NonNegative, LogUniform(low=0.05, high=10.0)] = 0.3
    """Strength of the push."""
    space: Literal["logits", "logprobs"] = "logits"
    """Space of the difference; `logits` is the paper's."""

    def erase(self, task: ErasureTask) -> Iterator[ErasedModel]:
        # Here, not above: it imports all of transformers, and planning needs the settings only.
        from harness.toolkit import PairModel

        yield ErasedModel(self.gamma, PairModel(task.load_original(), task.memorized_model(), self.contrast))

    def contrast(self, original: torch.Tensor, memorized: torch.Tensor) -> torch.Tensor:
        """Return the logits to decode from.

        Example:
            >>> z, z_memo = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 1.0])
            >>> ContrastiveDecoding(gamma=0.5).contrast(z, z_memo).tolist()
            [0.0, 2.0]
        """
        if self.space == "logprobs":
            original, memorized = original.log_softmax(-1), memorized.log_softmax(-1)
        return original - self.gamma * torch.relu(memorized - original)
