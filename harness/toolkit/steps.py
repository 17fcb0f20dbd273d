"""One optimiser step: of a loss, of a loss in two terms, or with a gradient that a method makes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch.nn.modules.module import register_module_forward_pre_hook

from harness.contracts import Model
from harness.errors import TrialError
from harness.toolkit.engines import TrainingEngine
from harness.toolkit.losses import Batch

Loss = Callable[..., torch.Tensor]
"""(model, forget, retain) to this micro-batch's share of the loss. Without retain data `retain` is empty; with texts
paired with the forget set, their batch is a fourth argument."""
Gradients = Mapping[str, torch.Tensor]
"""Gradients of the trained weights, by their names in `named_parameters`."""
Parts = tuple[Batch, ...]
"""Micro-batches of the forget set, the retain data and, where there are any, the paired texts."""


@dataclass
class LossTerms:
    """A loss in two terms: each has its value in the notes and after each step, and its gradient where asked for.

    What is minimised is forget + `retain_weight` · retain; the weight may be changed between two steps.

    Example:
        >>> def value(number):
        ...     return lambda model, batch: torch.tensor(number)
        >>> float(LossTerms(value(-2.0), value(3.0), retain_weight=0.5)(None, None, None))
        -0.5
    """

    forget: Callable[..., torch.Tensor]
    """(model, forget) to this micro-batch's share; paired texts are a third argument."""
    retain: Callable[[Model, Batch], torch.Tensor]
    """(model, retain) to this micro-batch's share."""
    retain_weight: float = 1.0

    def __call__(self, model: Model, forget: Batch, retain: Batch, *paired: Batch) -> torch.Tensor:
        """Return the whole loss."""
        return self.forget(model, forget, *paired) + self.retain_weight * self.retain(model, retain)


class Step:
    """One step as a method sees that makes its gradient itself: each term's, here or at weights moved for a moment."""

    weights: dict[str, torch.nn.Parameter]
    """Trained weights, by their names in `named_parameters`."""
    values: dict[str, float]
    """Each term's value at the weights at which it was first computed."""

    def __init__(
        self, engine: TrainingEngine, loss: LossTerms, batch: Sequence[Parts], frozen: Sequence[Model]
    ) -> None:
        self._engine, self._loss, self._batch, self._frozen = engine, loss, batch, frozen
        self.weights = {name: weight for name, weight in engine.model.named_parameters() if weight.requires_grad}
        self.values = {}

    def gradient(self, term: Literal["forget", "retain"]) -> dict[str, torch.Tensor]:
        """Return a term's gradient over the whole global batch, at the weights as they are now.

        The retain term's is that of the term alone: `retain_weight` is the method's to apply.

        Raises:
            TrialError: The term is NaN or infinite.
        """
        value = 0.0
        for forget, retain, *paired in self._batch:
            with self._engine.forward(), only_running(self._engine.model, *self._frozen):
                if term == "forget":
                    share = self._loss.forget(self._engine.model, forget, *paired)
                else:
                    share = self._loss.retain(self._engine.model, retain)
            value += self._engine.backward(share)
        self.values.setdefault(term, value)
        gradients = {}
        for name, weight in self.weights.items():
            gradients[name] = torch.zeros_like(weight) if weight.grad is None else weight.grad
            weight.grad = None
        return gradients

    @contextmanager
    def moved(self, by: Gradients) -> Iterator[None]:
        """Add `by` to the weights while the context lasts; afterwards they are what they were, to the bit."""
        before = {name: self.weights[name].detach().clone() for name in by}
        with torch.no_grad():
            for name, change in by.items():
                self.weights[name].add_(change)
        try:
            yield
        finally:
            with torch.no_grad():
                for name, weight in before.items():
                    self.weights[name].copy_(weight)

    def apply(self, gradients: Gradients) -> None:
        """Give the engine the gradient to step with.

        Raises:
            TrialError: It is not of the trained weights, each in its shape, or not finite.
        """
        if gradients.keys() != self.weights.keys():
            raise TrialError(
                f"a method made gradients of {len(gradients)} weights, and {len(self.weights)} others are trained. "
                "Return one for each name in step.weights."
            )
        for name, weight in self.weights.items():
            if gradients[name].shape != weight.shape or not gradients[name].isfinite().all():
                raise TrialError(
                    f"a method's gradient of {name} is not finite, or not of the shape {tuple(weight.shape)}. Lower "
                    "training.learning_rate, or mend the rule that makes it."
                )
            weight.grad = gradients[name]


GradientRule = Callable[[Step], Gradients]
"""(step) to the gradient that the optimiser gets, by name."""


def take_step(
    engine: TrainingEngine,
    loss: Loss,
    batch: Sequence[Parts],
    frozen: Sequence[Model] = (),
    gradient: GradientRule | None = None,
) -> dict[str, float]:
    """Make one optimiser step on a global batch; return what its `loss` was, and each term's of `LossTerms`.

    Raises:
        TrialError: The loss, or a gradient that a method makes, is not finite.
    """
    if gradient is not None:
        assert isinstance(loss, LossTerms)
        step = Step(engine, loss, batch, frozen)
        step.apply(gradient(step))
        engine.step()
        of_retain = loss.retain_weight * step.values.get("retain", 0.0)
        return {**step.values, "loss": step.values.get("forget", 0.0) + of_retain}
    values = {"loss": 0.0}
    for parts, weight in shares_of_worker(batch, engine):
        with engine.forward(), only_running(engine.model, *frozen):
            if isinstance(loss, LossTerms):
                forget, retain, *paired = parts
                terms = {
                    "forget": loss.forget(engine.model, forget, *paired),
                    "retain": loss.retain(engine.model, retain),
                }
                share = terms["forget"] + loss.retain_weight * terms["retain"]
            else:
                terms, share = {}, loss(engine.model, *parts)
        values["loss"] += engine.backward(share * weight)
        for name, term in terms.items():
            values[name] = values.get(name, 0.0) + engine.total(term.detach() * weight)
    engine.step()
    return values


def shares_of_worker(batch: Sequence[Parts], engine: TrainingEngine) -> Iterator[tuple[Parts, float]]:
    """Yield the parts of a global batch that this worker computes, each with its weight.

    All workers must step equally often: one that has run out computes a part again, for nothing.
    """
    for first in range(0, len(batch), engine.workers):
        index = first + engine.rank
        yield (batch[index], 1.0) if index < len(batch) else (batch[-1], 0.0)


@contextmanager
def only_running(*models: Model) -> Iterator[None]:
    """Refuse the forward pass of any other model: its precision, or on DeepSpeed its weights, would be another.

    Raises:
        TrialError: Another model ran.
    """
    known = {id(module) for model in models for module in model.modules()}

    def check(module: torch.nn.Module, inputs: Any) -> None:
        if id(module) not in known and next(module.parameters(recurse=False), None) is not None:
            raise TrialError(
                f"a loss, or a selection, ran a {type(module).__name__} of a model that the training loop does not "
                "know. Use the model that it is given, and name all others: train_and_yield(task, model, loss, "
                "frozen=[teacher])."
            )

    handle = register_module_forward_pre_hook(check)
    try:
        yield
    finally:
        handle.remove()
