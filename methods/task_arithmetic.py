"""Task arithmetic."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

import torch

from harness.contracts import ErasedModel, ErasureTask, LogUniform, Method, NonNegative, Strength


@dataclass(frozen=True, kw_only=True)
class TaskArithmetic(Method):
    """Subtracts a model that recites more: θ_o − γ θ_memo, as the EMSO paper prints it, or one of two other readings.

    Differs from the paper's source: Ilharco et al. subtract γ (θ_memo − θ_o). The literal formula is (1 − γ) θ_o − γ
    (θ_memo − θ_o), so it shrinks every weight as well; `shrink`, (1 − γ) θ_o, is the control.

    Source: EMSO paper, appendix D; Ilharco et al., arXiv:2212.04089.
    """

    label = "TA"
    source = "Ilharco et al. 2022, arXiv:2212.04089"
    reference = "memorized_model"
    version = 2
    strength = Strength("gamma", cumulative=False, off=0.0)
    searched_training = ()

    gamma: Annotated[NonNegative, LogUniform(low=0.005, high=1.0)] = 0.05
    """Subtracted share of the memorised model."""
    formula: Literal["literal", "task_vector", "shrink"] = "literal"
    """`literal`: θ_o − γ θ_memo; `task_vector`: θ_o − γ (θ_memo − θ_o); `shrink`: (1 − γ) θ_o."""

    @torch.no_grad()
    def erase(self, task: ErasureTask) -> Iterator[ErasedModel]:
        model = task.load_original()
        memorized = dict(task.memorized_model().named_parameters()) if self.formula != "shrink" else {}
        for name, weight in model.named_parameters():
            weight.copy_(self.subtract(weight, memorized.get(name, weight)))
        yield ErasedModel(self.gamma, model)

    def subtract(self, original: torch.Tensor, memorized: torch.Tensor) -> torch.Tensor:
        """Return the erased weights.

        Example:
            >>> one, three = torch.tensor(1.0), torch.tensor(3.0)
            >>> [round(TaskArithmetic(gamma=0.1, formula=f).subtract(one, three).item(), 6)
            ...  for f in ("literal", "task_vector", "shrink")]
            [0.7, 0.8, 0.9]
        """
        if self.formula == "task_vector":
            return original - self.gamma * (memorized - original)
        return original - self.gamma * (memorized if self.formula == "literal" else original)
