"""Engines turn a loss into a step; the training loop calls one.

`workers` processes share each global batch, and all of them call every method. `precision` is `fp32`, `bf16 autocast`
or `bf16 weights`. `freeze` gives a frozen model the trained one's precision, `total` adds a value over the workers,
`gather` copies the current weights into the plain model, and `close` releases all memory but that model's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch.nn import Parameter
from torch.utils.checkpoint import checkpoint

from harness.contracts import Model, Training
from harness.errors import TrialError
from harness.models.blocks import Block


@contextmanager
def checkpointed_layers(model: torch.nn.Module) -> Iterator[None]:
    """Keep only each layer's input in forward passes without a cache; losses and gradients are bit-identical.

    Raises:
        TrialError: The model has no layers that transformers can checkpoint.

    Source:
        Chen et al., "Training deep nets with sublinear memory cost", arXiv:1604.06174.
    """
    from transformers.modeling_layers import GradientCheckpointingLayer

    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not layers:
        raise TrialError(
            f"a {type(model).__name__} has no layers of transformers whose activations could be computed again. Set "
            "training.activation_checkpointing to false."
        )
    for layer in layers:
        vars(layer)["forward"] = partial(_checkpointed, layer.forward)
    try:
        yield
    finally:
        for layer in layers:
            del vars(layer)["forward"]


def _checkpointed(forward: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    from transformers import Cache

    if any(isinstance(value, Cache) for value in (*arguments, *named.values())):
        return forward(*arguments, **named)
    return checkpoint(forward, *arguments, use_reentrant=False, preserve_rng_state=False, **named)


class TorchEngine:
    """Accumulates gradients and steps AdamW on the trainable weights or on some blocks.

    A block is a Parameter that is a view of its slice, so that AdamW leaves the rest of the matrix bit-identical.
    """

    def __init__(self, model: Model, training: Training, blocks: Sequence[Block] | None = None) -> None:
        self.skipped_steps = 0
        self.workers, self.rank = 1, 0
        parameters = dict(model.named_parameters())
        if blocks is None:
            self._whole = [weight for weight in parameters.values() if weight.requires_grad]
            self._slices: list[tuple[Parameter, Block, Parameter]] = []
        else:
            self._whole = []
            self._slices = [
                (Parameter(block.of(parameters[block.parameter].detach())), block, parameters[block.parameter])
                for block in blocks
            ]
        trained = {id(weight) for weight in self._whole} | {id(matrix) for _, _, matrix in self._slices}
        for parameter in parameters.values():
            parameter.requires_grad_(id(parameter) in trained)
            parameter.grad = None
        self.model = model
        self._training = training
        self.precision = "bf16 autocast" if training.precision == "bf16" else "fp32"
        self._optimizer = torch.optim.AdamW(
            self._whole or [view for view, _, _ in self._slices],
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
        """Add the gradient, and return the share's value.

        Raises:
            TrialError: The loss is NaN or infinite.
        """
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
    device = next(model.parameters()).device
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=training.precision == "bf16")


@contextmanager
def training_forward(model: Model, training: Training) -> Iterator[None]:
    """As `plain_forward`, with checkpointing if `training` sets it.

    Raises:
        TrialError: The model has no layers that can be checkpointed.
    """
    checkpointing = checkpointed_layers(model) if training.activation_checkpointing else nullcontext()
    with plain_forward(model, training), checkpointing:
        yield
