"""This machine's devices, and a trial's share of their memory."""

import os
from dataclasses import dataclass
from pathlib import Path

from harness.settings import Trial

PROCESS_BYTES = 1 << 30
"""Of a worker process before its first tensor."""
CONTEXT_BYTES = 600 << 20
"""Of CUDA in each process."""
_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


@dataclass(frozen=True)
class Machine:
    """One machine's devices."""

    cpus: int
    memory: int
    """Bytes."""
    gpus: int
    gpu_memory: int
    """Bytes of one GPU; 0 without."""


def this_machine() -> Machine | None:
    """Return this machine; None where RAY_ADDRESS names a cluster."""
    import torch

    if "RAY_ADDRESS" in os.environ:
        return None
    gpus = torch.cuda.device_count()
    gpu_memory = torch.cuda.get_device_properties(0).total_memory if gpus else 0
    return Machine(cpus=os.cpu_count() or 1, memory=memory_bytes(), gpus=gpus, gpu_memory=gpu_memory)


def memory_bytes() -> int:
    """Return this machine's memory, or a container's limit."""
    pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [int(text) for file in _LIMITS if file.is_file() and (text := file.read_text().strip()).isdecimal()]
    return min([pages, *limits])


def memory_share(machine: Machine, spec: Trial) -> int:
    """Return the bytes of each process of a trial on its device, next to as many trials as fit.

    Example:
        >>> from harness.testing import small_spec
        >>> from harness.settings import replace
        >>> machine = Machine(cpus=4, memory=16 << 30, gpus=0, gpu_memory=0)
        >>> memory_share(machine, replace(small_spec(), cpus=2)) >> 30
        7
    """
    if spec.gpus > 0:
        return int(machine.gpu_memory * min(1.0, spec.gpus)) - CONTEXT_BYTES
    processes = max(1, machine.cpus // spec.cpus)
    return machine.memory // processes - PROCESS_BYTES
