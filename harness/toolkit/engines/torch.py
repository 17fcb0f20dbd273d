"""The plain engine: one process, one device, AdamW."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch.nn import Parameter

from harness.contracts import Model, Training
from harness.errors import TrialError
from harness.models.blocks import Block
from harness.toolkit.engines.activation_checkpointing import checkpointed_layers
from harness.toolkit.engines.fused_gelu import fused_gelu
from harness.toolkit.engines.parking import Parking


class TorchEngine:
    """Accumulates gradients and steps AdamW on the weights that ask for a gradient, or on some blocks of a model.

    A block is trained as a Parameter that is a view of its slice, with the slice of the matrix's
    gradient: AdamW never sees the rest of the matrix, which stays as it is to the last bit.
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
        self._frozen: set[Model] = set()
        self.precision = "bf16 autocast" if training.precision == "bf16" else "fp32"
        self._parking = Parking()
        self._optimizer = torch.optim.AdamW(
            self._whole or [view for view, _, _ in self._slices],
            lr=training.learning_rate,
            weight_decay=training.weight_decay,
            # On a GPU in one pass, without intermediate results as large as the model; blocks are no dense tensors.
            fused=(model.device.type == "cuda" and blocks is None) or None,
        )

    def forward(self) -> AbstractContextManager[None]:
        """Return the context in which losses are computed."""
        return training_forward(self.model, self._training, self._frozen)

    def freeze(self, model: Model) -> None:
        """Train no weight of this model; the context does the rest."""
        model.requires_grad_(False)
        self._frozen.add(model)

    def backward(self, loss: torch.Tensor) -> float:
        """Add the gradient of this share of the loss; return the share's value.

        Raises:
            TrialError: The loss is NaN or infinite.
        """
        value = float(loss.detach())
        if not torch.isfinite(loss.detach()):
            raise TrialError(f"the loss is {value}. Lower training.learning_rate, or train in fp32.")
        loss.backward()
        return value

    def total(self, share: torch.Tensor) -> float:
        """Return the sum of a value's shares over all workers: of the only one."""
        return float(share)

    def step(self) -> None:
        """Apply the accumulated gradient and forget it."""
        for view, block, matrix in self._slices:
            assert matrix.grad is not None
            view.grad = block.of(matrix.grad)
        self._optimizer.step()
        self.model.zero_grad(set_to_none=True)

    def suspend(self) -> None:
        """Take the optimiser's state off the device; the plain model is the one that is trained."""
        self._parking.park(value for state in self._optimizer.state.values() for value in state.values())

    def resume(self) -> None:
        """Bring the optimiser's state back."""
        self._parking.restore()

    def close(self) -> None:
        """Free the optimiser's state, wherever it is."""
        self._optimizer.state.clear()
        self._parking.forget()


def plain_forward(model: Model, training: Training) -> AbstractContextManager[None]:
    """Return the context of a plain model's forward passes: bf16 autocast, or nothing."""
    device = next(model.parameters()).device
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=training.precision == "bf16")


@contextmanager
def training_forward(model: Model, training: Training, frozen: Collection[Model] = ()) -> Iterator[None]:
    """Make forward passes meanwhile those of a plain model that is trained: as `plain_forward`, and `as_set`.

    Raises:
        TrialError: As of `as_set`.
    """
    with plain_forward(model, training), as_set(model, training, frozen):
        yield


@contextmanager
def as_set(model: torch.nn.Module, training: Training, frozen: Collection[Model]) -> Iterator[None]:
    """Keep of the model's layers what `training` says, and compute its activations, and those of `frozen`, so.

    Raises:
        TrialError: The model has no layers that can be checkpointed, or no activations that can be fused.
    """
    fused = fused_gelu if training.fused_gelu else None
    with (
        fused(model, *frozen) if fused else nullcontext(),
        checkpointed_layers(model, fused) if training.activation_checkpointing else nullcontext(),
    ):
        yield
