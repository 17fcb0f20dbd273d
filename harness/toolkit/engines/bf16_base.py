"""A base in bf16: what adapters stand beside is rounded while they train, and whole again while it is measured.

Each frozen weight is held in bf16 and computes as its fp32 value: what is computed is what a model computes whose
weights were rounded by hand. A linear layer keeps the rounded matrix alone for its backward pass, where fp32 would keep
the matrix once more; any other module reads its weights through a cast, of which nothing large is kept.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch.nn import Linear, Parameter, functional
from torch.nn.utils import parametrize

from harness.contracts import Model
from harness.models.adapters import LowRankAdapters
from harness.toolkit.engines.parking import empty_device_cache, waiting_device


class AdaptersOnBf16:
    """Low-rank adapters whose model has its frozen weights in bf16 while they train.

    On a GPU the fp32 weights wait in the machine's memory meanwhile; on a CPU they stay beside the rounded ones.
    Merging puts them back first: the erased model is theirs plus the update, and what was rounded is in no number.

    Args:
        model: What is trained; its weights are fp32.
        adapters: Its adapters; theirs is the model whose weights are rounded.
    """

    def __init__(self, model: Model, adapters: LowRankAdapters) -> None:
        self._plain, self._adapters = model, adapters
        self.model = adapters.model
        self._waiting: list[tuple[Parameter, torch.Tensor]] = []
        self._rounded: dict[Parameter, Parameter] = {}
        for weight in model.parameters():
            nothing = weight.detach().new_empty(0, dtype=torch.bfloat16)  # As real or fake as the weight is.
            self._rounded[weight] = Parameter(nothing, requires_grad=False)
        for module in list(self.model.modules()):
            self._hold_rounded(module)

    def _hold_rounded(self, module: torch.nn.Module) -> None:
        """Give a module the rounded weights in the plain ones' stead, and a way to compute with them."""
        names = [name for name, weight in module.named_parameters(recurse=False) if weight in self._rounded]
        for name in names:
            setattr(module, name, self._rounded[getattr(module, name)])
        # A class of its own and no new method of the module, which would refer to itself and outlive its training.
        if names and type(module) in _on_rounded():
            module.__class__ = _on_rounded()[type(module)]
            return
        for name in names:
            parametrize.register_parametrization(module, name, _InFp32(), unsafe=True)

    @torch.no_grad()
    def unmerge(self) -> None:
        """Make ready to train: round the weights one by one, of which the fp32 one may leave its device."""
        self._adapters.unmerge()
        for weight, rounded in self._rounded.items():
            rounded.data = weight.data.to(torch.bfloat16)
            if device := waiting_device(weight.device):
                self._waiting.append((weight, weight.data.to(device)))
                weight.data = weight.data.new_empty(0)
        empty_device_cache()

    def merge(self) -> None:
        """Drop the rounded weights, bring the others back, and add the update to them."""
        self._restore()
        self._adapters.merge()

    def close(self) -> None:
        """Drop what is kept; the plain model has its own weights, in the middle of an epoch too."""
        self._restore()
        self._adapters.close()

    @torch.no_grad()
    def _restore(self) -> None:
        for rounded in self._rounded.values():
            rounded.data = rounded.data.new_empty(0)
        empty_device_cache()
        while self._waiting:
            weight, values = self._waiting.pop()
            weight.data = values.to(weight.device)


@torch.no_grad()
def round_weights(model: Model) -> Model:
    """Return `model`, its weights rounded in place as those that adapters train beside: a reference computes alike."""
    for weight in model.parameters():
        weight.copy_(weight.to(torch.bfloat16))
    return model


class _InFp32(torch.nn.Module):
    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight.float()


class _LinearOnRounded(Linear):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if torch.is_autocast_enabled(inputs.device.type):
            return super().forward(inputs)
        product: torch.Tensor = _Product.apply(inputs, self.weight, self.bias, False)  # type: ignore[no-untyped-call]
        return product


class _Product(torch.autograd.Function):
    """A linear layer in fp32 by a frozen matrix in bf16, of which no fp32 copy is kept for the backward pass."""

    @staticmethod
    def forward(
        context: Any, inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, is_inputs_first: bool
    ) -> torch.Tensor:
        context.save_for_backward(weight)
        context.is_inputs_first = is_inputs_first
        in_fp32 = None if bias is None else bias.float()
        if not is_inputs_first:
            return functional.linear(inputs, weight.float(), in_fp32)
        assert in_fp32 is not None
        rows = torch.addmm(in_fp32, inputs.view(-1, inputs.shape[-1]), weight.float())
        return rows.view(*inputs.shape[:-1], -1)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        [weight] = context.saved_tensors
        weight_OI = weight.float().T if context.is_inputs_first else weight.float()
        rows = gradient.reshape(-1, gradient.shape[-1]) @ weight_OI
        return rows.view(*gradient.shape[:-1], -1), None, None, None


@lru_cache(maxsize=1)
def _on_rounded() -> dict[type, type]:
    """Return what each class of linear layers becomes while its matrix is rounded; a plan needs no transformers."""
    from transformers.pytorch_utils import Conv1D

    class Conv1DOnRounded(Conv1D):  # type: ignore[misc]
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            if torch.is_autocast_enabled(inputs.device.type):
                return super().forward(inputs)  # type: ignore[no-any-return]
            product: torch.Tensor = _Product.apply(inputs, self.weight, self.bias, True)  # type: ignore[no-untyped-call]
            return product

    return {Linear: _LinearOnRounded, Conv1D: Conv1DOnRounded}
