"""Where a trial computes: the one place that decides it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

_DEVICE: ContextVar[torch.device | None] = ContextVar("_DEVICE", default=None)


def device_for(gpus: float) -> torch.device:
    """Return where what was given so many GPUs computes: on a GPU only if it was given one, and there is one.

    Example:
        >>> device_for(0.0)
        device(type='cpu')
    """
    return torch.device("cuda" if gpus > 0 and torch.cuda.is_available() else "cpu")


@contextmanager
def computing_on(device: torch.device) -> Iterator[None]:
    """Say to `computing_device`, as long as the block lasts, where its trial computes."""
    token = _DEVICE.set(device)
    try:
        yield
    finally:
        _DEVICE.reset(token)


def computing_device() -> torch.device:
    """Return where the trial that asks for a judge computes, which is where the judge belongs; else the CPU.

    A GPU that the machine has may be another trial's.
    """
    return _DEVICE.get() or torch.device("cpu")
