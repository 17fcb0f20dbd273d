"""This machine: its devices, a trial's share of their memory, and the inputs that nodes of a cluster must share."""

import os
import platform
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from harness import errors
from harness.base.files import digest_of, file_digest
from harness.plugins import EVALUATORS, METHODS, plugin_digest
from harness.settings import Trial

PROCESS_BYTES = 1 << 30
"""A worker process before its first tensor."""
CONTEXT_BYTES = 600 << 20
"""CUDA in each process."""
_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
_MODEL_PACKAGES = "torch transformers numpy safetensors tokenizers peft accelerate deepspeed"
_METRIC_PACKAGES = "sentence-transformers mauve-text faiss-cpu scikit-learn lm_eval rapidfuzz datasets"
PACKAGES = tuple(f"lethe {_MODEL_PACKAGES} {_METRIC_PACKAGES} ray optuna".split())
_CPUINFO = Path("/proc/cpuinfo")
_ROOM = Path(errors.__file__).parent


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
    return machine.memory // max(1, machine.cpus // spec.cpus) - PROCESS_BYTES


@cache
def versions() -> dict[str, str]:
    """Return the versions of Python, of the machine and of each package."""
    version_by_package = {"python": platform.python_version(), "machine": platform.machine()}
    for package in PACKAGES:
        try:
            version_by_package[package] = version(package)
        except ModuleNotFoundError:
            version_by_package[package] = "not installed"
    return version_by_package


@cache
def hardware(*, has_gpu: bool) -> dict[str, str]:
    """Return this machine's `processor`, `instructions`, `cores`, `memory` and, if asked for, `gpu`.

    The instructions are those of torch's kernels, such as `AVX2`: others round in another order.
    """
    import torch

    from harness.toolkit.device import device_for

    names = re.findall(r"model name\s*:\s*(.+)", _CPUINFO.read_text()) if _CPUINFO.is_file() else []
    parts = {
        "processor": names[0].strip() if names else platform.processor() or platform.machine(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "cores": str(os.cpu_count() or 1),
        "memory": f"{memory_bytes() / 2**30:.0f} GiB",
    }
    if device_for(float(has_gpu)).type == "cuda":
        gpu = torch.cuda.get_device_properties(0)
        parts["gpu"] = f"{gpu.name}, {gpu.total_memory / 2**30:.0f} GiB"
    return parts


def node_inputs(specs: Iterable[Trial], plan: Path | None = None) -> dict[str, str]:
    """Return a machine's inputs to trials in addition to specs: versions, and digests of code and plan."""
    inputs = {**versions(), "Lethe's code": digest_of([file.read_text() for file in sorted(_ROOM.rglob("*.py"))])}
    if plan is not None:
        inputs[str(plan)] = file_digest(plan) if plan.is_file() else "none"
    for spec in specs:
        plugins: list[tuple[Any, str]] = [(EVALUATORS, each.name) for each in spec.evaluators]
        plugins += [] if spec.is_reference else [(METHODS, spec.method)]
        for registry, name in plugins:
            is_known = name in registry.names()
            inputs[f"the {registry.kind} {name}"] = plugin_digest(registry.load(name)) if is_known else "none"
    return inputs


def input_differences(driver: Mapping[str, str], node: Mapping[str, str]) -> str:
    """Return a clause with each difference from the driver and the remedy; '' if there is none.

    Example:
        >>> input_differences({"torch": "2.13.0"}, {"torch": "2.12.0"}).partition(": ")[0]
        'differs from the driver in torch (2.12.0, not 2.13.0)'
    """
    differences = [f"{name} ({has}, not {driver[name]})" for name, has in node.items() if has != driver[name]]
    if not differences:
        return ""
    remedy = "install the same packages and plugins, and put the results folder on a path that all nodes share"
    return f"differs from the driver in {', '.join(differences)}: {remedy}"
