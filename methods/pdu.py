"""Primal-dual unlearning."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch

from harness.contracts import Count, ErasedModel, ErasureTask, LogUniform, Model, NonNegative
from harness.toolkit import Batch, LossTerms, TrainedMethod, mean_nll, train_and_yield, whole_loss


@dataclass(frozen=True, kw_only=True)
class PDU(TrainedMethod):
    """Flattens the forget set's logits (their mean spread) while r, the mean NLL on the retain set, stays below ε.

    The loss is the spread + λ (r − ε). After each step λ becomes max(0, λ + η (r − ε)). ε is the original's own r plus
    a slack. The spread is 0 where all tokens are equally likely.

    Differs from the paper: r is of next-token prediction, and ε relative to the original's. λ learns from the second
    epoch on (the paper's warm-up is 3 to 5 of 10 to 30). Its code compared each logit with the label one position
    further.

    Source: arXiv:2506.05314, the logit-margin flattening loss and its dual update.
    """

    label = "PDU"
    source = "PDU 2025, arXiv:2506.05314"
    reference = "retain_data"
    version = 1

    multiplier: Annotated[NonNegative, LogUniform(low=1.0, high=200.0)] = 50.0
    """First λ."""
    slack: Annotated[NonNegative, LogUniform(low=0.03, high=1.0)] = 0.1
    """Allowed rise of r above the original's, in nats a token."""
    dual_step: NonNegative = 1.0
    """η of the multiplier; 0 keeps λ fixed."""
    warm_up: Count = 1
    """Epochs before the multiplier learns."""
    spread: Literal["margin", "variance"] = "margin"
    """`margin`: the square of the largest logit less the mean; `variance`: of all logits."""

    def erase(self, task: ErasureTask) -> Iterator[ErasedModel]:
        """Yield the model after each epoch; the notes contain λ."""
        assert task.retain is not None
        model = task.load_original()
        limit = whole_loss(model, task.retain, mean_nll, task.training) + self.slack
        loss = LossTerms(self.flatness, mean_nll, self.multiplier)
        warm_up_steps = self.warm_up * -(-len(task.forget) // task.training.global_batch)
        steps = 0

        def learn(values: Mapping[str, float]) -> None:
            nonlocal steps
            steps += 1
            if steps > warm_up_steps:
                loss.retain_weight = self.learnt(loss.retain_weight, values["retain"] - limit)

        loss.after_step = learn
        for erased in train_and_yield(task, model, loss):
            notes = {**erased.notes, "multiplier": loss.retain_weight, "retain_limit": limit}
            yield replace(erased, notes=notes)

    def flatness(self, model: Model, forget: Batch) -> torch.Tensor:
        """Return the mean spread of the logits."""
        return forget.mean(logit_spread(forget.logits(model), self.spread))

    def learnt(self, multiplier: float, violation: float) -> float:
        """Return λ after a step with this r − ε.

        Example:
            >>> PDU(dual_step=2.0).learnt(1.0, 0.5), PDU(dual_step=2.0).learnt(1.0, -0.75)
            (2.0, 0.0)
        """
        return max(0.0, multiplier + self.dual_step * violation)


def logit_spread(logits_BSV: torch.Tensor, spread: Literal["margin", "variance"]) -> torch.Tensor:
    """Return the spread of each prediction's logits: 0 where they are equal.

    Source: arXiv:2506.05314, the logit-margin flattening loss (before its mean).

    Example:
        >>> logits = torch.tensor([[[1.0, 2.0, 6.0]]])
        >>> logit_spread(logits, "margin").item()
        9.0
        >>> round(logit_spread(logits, "variance").item(), 4)
        4.6667
    """
    if spread == "variance":
        return logits_BSV.var(dim=-1, unbiased=False)
    return (logits_BSV.amax(dim=-1) - logits_BSV.mean(dim=-1)).square()
