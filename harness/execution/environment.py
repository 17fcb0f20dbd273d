"""What a trial runs with and on: packages, processor, memory, GPU."""

from __future__ import annotations

import os
import platform
import re
from functools import cache
from importlib.metadata import version
from pathlib import Path

import torch

from harness.sizing.machine import memory_bytes
from harness.toolkit.device import device_for

PACKAGES = (
    "lethe",
    "torch",
    "transformers",
    "numpy",
    "safetensors",
    "tokenizers",
    "sentence-transformers",
    "mauve-text",
    "faiss-cpu",
    "scikit-learn",
    "lm_eval",
    "datasets",
    "deepspeed",
    "accelerate",
    "peft",
    "ray",
    "optuna",
)
_CPUINFO = Path("/proc/cpuinfo")


@cache
def versions() -> dict[str, str]:
    """Return what a number was made with."""
    of_packages = {"python": platform.python_version(), "machine": platform.machine()}
    for package in PACKAGES:
        try:
            of_packages[package] = version(package)
        except ModuleNotFoundError:
            of_packages[package] = "not installed"
    return of_packages


@cache
def hardware(*, has_gpu: bool) -> dict[str, str]:
    """Return this machine's `processor`, `cores` and `memory`, and the `gpu` of a trial that has one.

    A GPU is looked at only where the trial has one: looking takes some of its memory.
    """
    found = {"processor": _processor(), "cores": str(os.cpu_count() or 1), "memory": memory_size(memory_bytes())}
    if device_for(float(has_gpu)).type == "cuda":
        gpu = torch.cuda.get_device_properties(0)
        found["gpu"] = f"{gpu.name}, {memory_size(gpu.total_memory)}"
    return found


def memory_size(count: int) -> str:
    """Return a memory's size as its maker would say it.

    Example:
        >>> memory_size(16 * 2**30), memory_size(150_754_820_096)
        ('16 GiB', '140 GiB')
    """
    return f"{count / 2**30:.0f} GiB"


def _processor() -> str:
    names = re.findall(r"model name\s*:\s*(.+)", _CPUINFO.read_text()) if _CPUINFO.is_file() else []
    return names[0].strip() if names else platform.processor() or platform.machine()
