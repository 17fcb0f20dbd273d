"""Engines: what turns a loss into a step. The fine-tuning loop asks one, and methods never see it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch

from harness.contracts import Model, Training
from harness.models.blocks import Block
from harness.specs import Engine
from harness.toolkit.engines.torch import TorchEngine


class TrainingEngine(Protocol):
    """What the loop asks of an engine."""

    model: Any
    """What losses are computed with."""
    workers: int
    """Processes that share each global batch; every one of them calls every method here."""
    rank: int
    """This process among them."""
    precision: str
    """What all of a trial's losses are computed in: `fp32`, `bf16 autocast` or `bf16 weights`."""

    @property
    def skipped_steps(self) -> int:
        """Return how many steps were not applied, because a gradient was not finite."""

    def forward(self) -> AbstractContextManager[None]:
        """Return the context in which losses are computed."""

    def freeze(self, model: Model) -> None:
        """Make a model that no step changes compute as the trained one does; its weights may be rounded for it."""

    def backward(self, loss: torch.Tensor) -> float:
        """Add the gradient of this share of the loss; return the share's value."""

    def total(self, share: torch.Tensor) -> float:
        """Return the sum of a value's shares over all workers; each of them calls it."""

    def step(self) -> None:
        """Apply the accumulated gradient and forget it."""

    def gather(self) -> None:
        """Bring the weights as they are now into the plain model."""

    def close(self) -> None:
        """Give back what the engine holds; the plain model stays as it was gathered last."""


def engine_for(
    engine: Engine, model: Model, training: Training, blocks: Sequence[Block] | None = None
) -> TrainingEngine:
    """Return the engine that trains the weights of `model` that ask for a gradient, or some of its blocks.

    A few blocks have next to no optimiser state to partition: they are always stepped by the plain engine.
    """
    if engine.name == "torch" or blocks is not None:
        return TorchEngine(model, training, blocks)
    from harness.toolkit.engines.deepspeed import DeepSpeedEngine

    return DeepSpeedEngine(model, training, engine)
