"""Measures the peak of a GPU's memory during erasing, and gives a CPU's memory back.

A CPU has no such number: what is resident is the process's whole history (libraries that earlier trials
imported, memory that the allocator keeps), and the same trial has 1.5 GiB in one worker and 2.1 in another.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class PeakMemory:
    """The largest number of bytes that a trial's erasing held on its GPU; None on a CPU.

    Neither the judges that were there before nor what measuring leaves counts: a trial has the same peak in a fresh
    process and in one that has measured before.
    """

    def __init__(self, device: torch.device) -> None:
        self._is_counted = device.type == "cuda"
        self._others = self._most = 0
        if self._is_counted:
            self._others = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()

    @property
    def bytes(self) -> int | None:
        """The peak so far."""
        return max(self._most, torch.cuda.max_memory_allocated() - self._others) if self._is_counted else None

    @contextmanager
    def not_counting(self) -> Iterator[None]:
        """Leave out the block, and memory that it still holds afterwards."""
        if not self._is_counted:
            yield
            return
        self._most, before = self.bytes or 0, torch.cuda.memory_allocated()
        yield
        self._others += torch.cuda.memory_allocated() - before
        torch.cuda.reset_peak_memory_stats()


def release_free_memory() -> None:
    """Return what is free of the process's memory to the system, where its C library is glibc.

    glibc keeps what was freed, 450 MB after a trial of the embedded model, and every worker would hold that.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
