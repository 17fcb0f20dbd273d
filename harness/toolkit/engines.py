"""Engines turn a loss, its terms or a method's own gradient into an optimiser step.

`workers` processes share each global batch, and all of them call every method. `freeze` gives a frozen model the
trained one's precision, `total` adds a value over the workers, `gather` copies the weights into the plain model.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch.nn import Parameter

from harness.contracts import Model, Training
from harness.errors import TrialError
from harness.models.blocks import Block
from harness.toolkit import deepspeed, device, losses


class TorchEngine:
    """Accumulates gradients and steps AdamW on the trainable weights or on some blocks.

    A block is a Parameter that is a view of its slice, so that AdamW leaves the rest of the matrix bit-identical.
    """

    def __init__(self, model: Model, training: Training, blocks: Sequence[Block] | None = None) -> None:
        self.skipped_steps = 0
        self.workers, self.rank = 1, 0
        parameters = dict(model.named_parameters())
        whole = [weight for weight in parameters.values() if weight.requires_grad and blocks is None]
        self._slices: list[tuple[Parameter, Block, Parameter]] = []
        for block in blocks or ():
            matrix = parameters[block.parameter]
            self._slices.append((Parameter(block.of(matrix.detach())), block, matrix))
        trained = {id(weight) for weight in whole} | {id(matrix) for _, _, matrix in self._slices}
        for parameter in parameters.values():
            parameter.requires_grad_(id(parameter) in trained)
            parameter.grad = None
        self.model = model
        self._training = training
        self.precision = "bf16 autocast" if training.precision == "bf16" else "fp32"
        self._optimizer = torch.optim.AdamW(
            whole or [view for view, _, _ in self._slices],
            lr=training.learning_rate,
            weight_decay=training.weight_decay,
            # On a GPU in one pass, without intermediate results as large as the model; blocks are no dense tensors.
            fused=(model.device.type == "cuda" and blocks is None) or None,
        )

    def forward(self) -> AbstractContextManager[None]:
        return training_forward(self.model, self._training)

    def freeze(self, model: Model) -> None:
        model.requires_grad_(False)

    def backward(self, loss: torch.Tensor) -> float:
        """Add the gradient, and return the share's value."""
        value = float(loss.detach())
        if not torch.isfinite(loss.detach()):
            raise TrialError(f"the loss is {value}. Lower training.learning_rate, or train in fp32.")
        loss.backward()
        return value

    def total(self, share: torch.Tensor) -> float:
        return float(share)

    def step(self) -> None:
        for view, block, matrix in self._slices:
            assert matrix.grad is not None
            view.grad = block.of(matrix.grad)
        self._optimizer.step()
        self.model.zero_grad(set_to_none=True)

    def gather(self) -> None:
        """Do nothing: the plain model is trained."""

    def close(self) -> None:
        self._optimizer.state.clear()


def plain_forward(model: Model, training: Training) -> AbstractContextManager[None]:
    """Return a plain model's forward context: bf16 autocast or nothing."""
    kind = next(model.parameters()).device.type
    return torch.autocast(kind, dtype=torch.bfloat16, enabled=training.precision == "bf16")


@contextmanager
def training_forward(model: Model, training: Training) -> Iterator[None]:
    """As `plain_forward`, with checkpointing if `training` sets it."""
    checkpointing = device.checkpointed_layers(model) if training.activation_checkpointing else nullcontext()
    with plain_forward(model, training), checkpointing:
        yield


# One optimiser step: of a loss, of two terms, or with a method's own gradient.

TrainingEngine: TypeAlias = TorchEngine | deepspeed.DeepSpeedEngine
Loss = Callable[..., torch.Tensor]
"""(model, forget, retain) to this micro-batch's share of the loss.

`retain` is empty without retain data; a batch of paired texts is a fourth argument."""
Gradients = Mapping[str, torch.Tensor]
"""By name in `named_parameters`."""
Parts = tuple[losses.Batch, ...]
"""Micro-batches of the forget set, the retain data and any paired texts."""


@dataclass
class LossTerms:
    """The loss forget + `retain_weight` · retain, each term with its own value and gradient; the weight may change."""

    forget: Callable[..., torch.Tensor]
    """(model, forget) to this micro-batch's share; paired texts are a third argument."""
    retain: Callable[[Model, losses.Batch], torch.Tensor]
    """(model, retain) to this micro-batch's share."""
    retain_weight: float = 1.0
    gradient: "Callable[[Step], Gradients] | None" = None
    """Makes each step's gradient from the terms'; needs torch's engine."""
    after_step: Callable[[Mapping[str, float]], None] | None = None
    """Receives a step's `loss` and both terms."""

    def __call__(self, model: Model, forget: losses.Batch, retain: losses.Batch, *paired: losses.Batch) -> torch.Tensor:
        return self.forget(model, forget, *paired) + self.retain_weight * self.retain(model, retain)


class Step:
    """A step of a method that makes its own gradient, here or at shifted weights."""

    weights: dict[str, torch.nn.Parameter]
    """By name in `named_parameters`."""
    values: dict[str, float]
    """Each term's value when first computed."""

    def __init__(self, engine: TrainingEngine, loss: LossTerms, batch: Sequence[Parts]) -> None:
        self._engine, self._loss, self._batch = engine, loss, batch
        self.weights = {name: weight for name, weight in engine.model.named_parameters() if weight.requires_grad}
        self.values = {}

    def gradient(self, term: Literal["forget", "retain"]) -> dict[str, torch.Tensor]:
        """Return a term's gradient over the global batch at the current weights, without `retain_weight`."""
        value = 0.0
        for forget, retain, *paired in self._batch:
            with self._engine.forward():
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
        """Add `by` to the weights within the context, then restore them bit by bit."""
        copies = {name: self.weights[name].detach().clone() for name in by}
        with torch.no_grad():
            for name, change in by.items():
                self.weights[name].add_(change)
        try:
            yield
        finally:
            with torch.no_grad():
                for name, weight in copies.items():
                    self.weights[name].copy_(weight)

    def apply(self, gradients: Gradients) -> None:
        """Set the gradient of this step."""
        for name, weight in self.weights.items():
            if not gradients[name].isfinite().all():
                raise TrialError(f"a method's gradient of {name} is not finite. Lower training.learning_rate.")
            weight.grad = gradients[name]


def take_step(engine: TrainingEngine, loss: Loss, batch: Sequence[Parts]) -> dict[str, float]:
    """Make one optimiser step; return its `loss` and the values of `LossTerms`."""
    if isinstance(loss, LossTerms) and loss.gradient is not None:
        step = Step(engine, loss, batch)
        step.apply(loss.gradient(step))
        engine.step()
        retain_value = loss.retain_weight * step.values.get("retain", 0.0)
        return {**step.values, "loss": step.values.get("forget", 0.0) + retain_value}
    values: dict[str, float] = defaultdict(float)
    for parts, weight in shares_of_worker(batch, engine):
        terms: dict[str, torch.Tensor] = {}
        with engine.forward():
            if isinstance(loss, LossTerms):
                forget, retain, *paired = parts
                terms["forget"] = loss.forget(engine.model, forget, *paired)
                terms["retain"] = loss.retain(engine.model, retain)
                share = terms["forget"] + loss.retain_weight * terms["retain"]
            else:
                share = loss(engine.model, *parts)
        if not isinstance(share, torch.Tensor) or share.numel() != 1 or not share.requires_grad:
            has_shape = isinstance(share, torch.Tensor)
            kind = f"has the shape {(*share.shape,)}" if has_shape else f"is a {type(share).__name__}"
            raise TrialError(f"the method's loss {kind}: it must be a tensor of one number, with a gradient.")
        values["loss"] += engine.backward(share * weight)
        for name, term in terms.items():
            values[name] += engine.total(term.detach() * weight)
    engine.step()
    return values


def shares_of_worker(batch: Sequence[Parts], engine: TrainingEngine) -> Iterator[tuple[Parts, float]]:
    """Yield this worker's parts of a global batch and their weights.

    Workers step equally often: one without parts repeats the last, with weight 0.
    """
    for first in range(0, len(batch), engine.workers):
        index = first + engine.rank
        yield (batch[index], 1.0) if index < len(batch) else (batch[-1], 0.0)
