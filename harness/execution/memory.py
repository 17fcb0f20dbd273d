"""Peak memory of a trial: the GPU's if it has one, else the process's."""

from __future__ import annotations

import resource
from pathlib import Path

import torch

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def reset_peak_memory() -> None:
    """Start a new peak, as far as the system allows."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    if _CLEAR.exists():
        _CLEAR.write_text("5")


def peak_memory_bytes() -> int:
    """Return the peak since the reset: of GPU tensors, or of the process's resident memory."""
    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return torch.cuda.max_memory_allocated()
    if _STATUS.exists():
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
