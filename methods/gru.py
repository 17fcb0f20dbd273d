"""Gradient rectified unlearning."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Gt, Le

from harness.contracts import ErasedModel, ErasureTask
from harness.toolkit import LossTerms, Step, TrainedMethod, ascent, mean_nll, train_and_yield


@dataclass(frozen=True, kw_only=True)
class GRU(TrainedMethod):
    """Raises the loss of forget texts without the part of the gradient g that raises the retain loss.

    m is an average of the retain texts' gradients that starts at 0. Where ⟨g, m⟩ < 0 the step takes g − ⟨g, m⟩ / ‖m‖²
    m.

    Differs from the paper: any loss can be rectified, here it is gradient ascent's. As in the paper's code, AdamW's
    step need not be orthogonal to m.

    Source: Wang et al., arXiv:2503.09117, section 3.2; the average is its repository's, tmlr-group/GRU.
    """

    label = "GRU"
    source = "Wang et al. 2025, arXiv:2503.09117"
    reference = "retain_data"
    version = 2
    published = {"training.learning_rate": 1e-5, "epochs": 5}

    newest: Annotated[float, Gt(0.0), Le(1.0)] = 0.8
    """Weight of the step's retain gradient in m."""

    def erase(self, task: ErasureTask) -> Iterator[ErasedModel]:
        average: dict[str, torch.Tensor] = {}

        def rectified_gradient(step: Step) -> dict[str, torch.Tensor]:
            for name, gradient in step.gradient("retain").items():
                before = average.get(name, torch.zeros_like(gradient))
                average[name] = self.newest * gradient + (1 - self.newest) * before
            return rectified(step.gradient("forget"), average)

        loss = LossTerms(ascent, mean_nll, retain_weight=0.0, gradient=rectified_gradient)
        yield from train_and_yield(task, task.load_original(), loss)


def rectified(forget: Mapping[str, torch.Tensor], retain: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the forget gradient without its part against the retain gradient, over all weights together.

    Source: Wang et al., arXiv:2503.09117, section 3.2, its closed form.

    Example:
        >>> against, retain = {"w": torch.tensor([-1.0, 1.0])}, {"w": torch.tensor([2.0, 0.0])}
        >>> rectified(against, retain)["w"].tolist()
        [0.0, 1.0]
    """
    product = sum(float((forget[name].double() * retain[name]).sum()) for name in forget)
    if product >= 0:
        return dict(forget)
    share = product / sum(float(retain[name].double().square().sum()) for name in forget)
    return {name: gradient - share * retain[name] for name, gradient in forget.items()}
