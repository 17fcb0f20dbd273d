"""What is checked: a GPU, or a CPU that stands in for one where the check itself is tested."""

from __future__ import annotations

import gc
import platform
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

import torch

from harness.execution.trial.memory import PeakMemory, memory_counters
from harness.sizing.machine import CONTEXT_BYTES
from harness.sizing.memory_tracker import MemoryTracker

PACKAGES = ("torch", "transformers", "deepspeed")


@dataclass
class Peak:
    """The most that tensors held."""

    bytes: int = 0
    """Known after the block that was measured."""


@dataclass(frozen=True)
class Card:
    """A device with its memory."""

    device: torch.device
    name: str
    memory: int
    """Bytes that tensors of one process may take."""

    @property
    def gpus(self) -> float:
        """Return what a trial on it asks for in `resources.gpus`."""
        return 1.0 if self.device.type == "cuda" else 0.0

    def synchronize(self) -> None:
        """Wait until all that was asked of the device is done."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def release(self) -> None:
        """Give back what nothing refers to any more."""
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def seconds(self, run: Callable[[], object]) -> float:
        """Return how long `run` takes, until the device is done with it."""
        self.synchronize()
        began = time.perf_counter()
        run()
        self.synchronize()
        return time.perf_counter() - began

    @contextmanager
    def peak(self) -> Iterator[Peak]:
        """Measure what tensors hold at most in the block: by torch's counters, on a CPU by counting every tensor."""
        measured = Peak()
        self.release()
        if (counters := memory_counters(self.device)) is not None:
            memory = PeakMemory(counters)
            yield measured
            measured.bytes = memory.bytes or 0
        else:
            with MemoryTracker() as tracker:
                yield measured
            measured.bytes = tracker.peak().total

    def flops_per_second(self, dtype: torch.dtype) -> float:
        """Return what the device computes at best in this precision: a product of two large square matrices."""
        side, repeats = (8192, 10) if self.device.type == "cuda" else (256, 2)
        left, right = (torch.randn(side, side, device=self.device, dtype=dtype) for _ in range(2))

        def multiply() -> None:
            for _ in range(repeats):
                torch.mm(left, right)

        multiply()
        return 2 * side**3 * repeats / min(self.seconds(multiply) for _ in range(3))

    def facts(self) -> dict[str, str]:
        """Return what decides its figures beside the code: the card, its driver, the versions."""
        facts = {"card": f"{self.name}, {gigabytes(self.memory)} for one process", "machine": platform.machine()}
        if self.device.type == "cuda":
            facts |= {"driver": _driver(), "CUDA": str(torch.version.cuda)}
            facts["fp32 matrix products"] = torch.get_float32_matmul_precision()
        return facts | {"Python": platform.python_version()} | {name: _version(name) for name in PACKAGES}


def cuda_card() -> Card | None:
    """Return the first GPU; None where torch sees none."""
    if not torch.cuda.is_available():
        return None
    properties = torch.cuda.get_device_properties(0)
    return Card(torch.device("cuda", 0), properties.name, properties.total_memory - CONTEXT_BYTES)


def gigabytes(count: int) -> str:
    """Return bytes as people read them.

    Example:
        >>> gigabytes(25_300_000_000), gigabytes(1_500_000)
        ('25.3 GB', '1.5 MB')
    """
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def _driver() -> str:
    asked = ["nvidia-smi", "--id=0", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(asked, capture_output=True, text=True, check=True, timeout=60).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "not known: nvidia-smi does not answer"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
