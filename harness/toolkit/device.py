"""Where a trial computes, and in what its judges do: the one place that decides it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

_DEVICE: ContextVar[torch.device | None] = ContextVar("_DEVICE", default=None)
_JUDGES_DTYPE: ContextVar[torch.dtype] = ContextVar("_JUDGES_DTYPE", default=torch.float32)


def device_for(gpus: float) -> torch.device:
    """Return where what was given so many GPUs computes: on a GPU only if it was given one, and there is one.

    Example:
        >>> device_for(0.0)
        device(type='cpu')
    """
    return torch.device("cuda" if gpus > 0 and torch.cuda.is_available() else "cpu")


@contextmanager
def judging_on(device: torch.device, dtype: torch.dtype) -> Iterator[None]:
    """Say to `computing_device` and `judges_dtype`, as long as the block lasts, what its trial asks for."""
    device_token, dtype_token = _DEVICE.set(device), _JUDGES_DTYPE.set(dtype)
    try:
        yield
    finally:
        _DEVICE.reset(device_token)
        _JUDGES_DTYPE.reset(dtype_token)


def computing_device() -> torch.device:
    """Return where the trial that asks for a judge computes, which is where the judge belongs; else the CPU.

    A GPU that the machine has may be another trial's.
    """
    return _DEVICE.get() or torch.device("cpu")


def judges_dtype() -> torch.dtype:
    """Return in what the causal judges of the trial that asks for one compute: fp32 unless it says otherwise."""
    return _JUDGES_DTYPE.get()
