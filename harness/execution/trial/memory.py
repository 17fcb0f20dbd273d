"""Measures the peak of a GPU's memory during erasing, and gives a CPU's memory back.

A CPU has no such number: what is resident is the process's whole history (libraries that earlier trials
imported, memory that the allocator keeps), and the same trial has 1.5 GiB in one worker and 2.1 in another.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import torch


class MemoryCounters(Protocol):
    """Counts the bytes of a device's tensors."""

    def memory_allocated(self) -> int:
        """Return what they hold now."""

    def max_memory_allocated(self) -> int:
        """Return the most that they held since the reset."""

    def reset_peak_memory_stats(self) -> None:
        """Start again from what they hold now."""


class PeakMemory:
    """The most that a trial's erasing held: neither what was there before it, nor what its measuring leaves.

    Judges stay loaded between trials. Without them the same trial has the same peak in a fresh process
    and in one that has measured before.
    """

    def __init__(self, counters: MemoryCounters | None) -> None:
        self._counters = counters
        self._others = self._most = 0
        if counters is not None:
            self._others = counters.memory_allocated()
            counters.reset_peak_memory_stats()

    @property
    def bytes(self) -> int | None:
        """The peak so far; None where nothing counts them."""
        if self._counters is None:
            return None
        return max(self._most, self._counters.max_memory_allocated() - self._others)

    @contextmanager
    def not_counting(self) -> Iterator[None]:
        """Leave out what happens inside, and what of it is still held afterwards."""
        if self._counters is None:
            yield
            return
        self._most, before = self.bytes or 0, self._counters.memory_allocated()
        yield
        self._others += self._counters.memory_allocated() - before
        self._counters.reset_peak_memory_stats()


def memory_counters(device: torch.device) -> MemoryCounters | None:
    """Return what counts the device's bytes; on a CPU nothing does."""
    return torch.cuda if device.type == "cuda" else None


def release_free_memory() -> None:
    """Return what is free of the process's memory to the system, where its C library is glibc.

    glibc keeps what was freed, 450 MB after a trial of the embedded model, and every worker would hold that.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
