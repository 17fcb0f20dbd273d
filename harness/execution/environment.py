"""Packages and hardware of a trial, and the inputs that every node of a cluster must share."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import Path

import torch

from harness.errors import PluginError
from harness.planning.machine import memory_bytes
from harness.plugins import EVALUATORS, METHODS
from harness.settings import TrialSpec
from harness.toolkit.device import device_for

_MODEL_PACKAGES = "torch transformers numpy safetensors tokenizers peft accelerate deepspeed"
_METRIC_PACKAGES = "sentence-transformers mauve-text faiss-cpu scikit-learn lm_eval rapidfuzz datasets"
PACKAGES = tuple(f"lethe {_MODEL_PACKAGES} {_METRIC_PACKAGES} ray optuna".split())
_CPUINFO = Path("/proc/cpuinfo")
_PART_BYTES = 1 << 16
"""Bytes read at each end of a file; loading checks the whole file's digest."""
_OWN_CODE = "harness"


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

    The instructions are those of torch's kernels, such as `AVX2`: others round in another order. Querying a GPU takes
    some of its memory.
    """
    names = re.findall(r"model name\s*:\s*(.+)", _CPUINFO.read_text()) if _CPUINFO.is_file() else []
    parts = {
        "processor": names[0].strip() if names else platform.processor() or platform.machine(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "cores": str(os.cpu_count() or 1),
        "memory": memory_size(memory_bytes()),
    }
    if device_for(float(has_gpu)).type == "cuda":
        gpu = torch.cuda.get_device_properties(0)
        parts["gpu"] = f"{gpu.name}, {memory_size(gpu.total_memory)}"
    return parts


def memory_size(count: int) -> str:
    """Return a memory's size in GiB.

    Example:
        >>> memory_size(16 * 2**30), memory_size(150_754_820_096)
        ('16 GiB', '140 GiB')
    """
    return f"{count / 2**30:.0f} GiB"


@dataclass(frozen=True)
class NodeInputs:
    """Everything except the spec that decides a trial's numbers, on one machine."""

    versions: Mapping[str, str]
    code: Mapping[str, str] = field(default_factory=dict)
    """Digest of the source of `harness`, each `method NAME` and each `evaluator NAME`; '' if missing."""
    paths: Mapping[str, str] = field(default_factory=dict)
    """By model folder and data file, a digest of names, sizes and both ends; '' if missing."""

    def like(self) -> NodeInputs:
        """Return this machine's inputs of the same names."""
        return NodeInputs(
            versions=versions(),
            code={name: _code_digest(name) for name in self.code},
            paths={path: ends_digest(Path(path)) for path in self.paths},
        )


def inputs_of(specs: Sequence[TrialSpec], files: Iterable[Path] = ()) -> NodeInputs:
    """Return the inputs of trials on this machine, and more files that every node must see."""
    plugins = {f"method {spec.method}" for spec in specs if not spec.is_reference}
    plugins |= {f"evaluator {evaluator.name}" for spec in specs for evaluator in spec.evaluators}
    paths = {*map(str, files), *(path for spec in specs for path in _paths_of(spec))}
    return NodeInputs({}, dict.fromkeys([_OWN_CODE, *sorted(plugins)], ""), dict.fromkeys(sorted(paths), "")).like()


def input_differences(driver: NodeInputs, node: NodeInputs) -> list[str]:
    """Return clauses that name each difference and its remedy.

    Example:
        >>> input_differences(NodeInputs({"torch": "2.13.0"}), NodeInputs({"torch": "2.12.0"}))
        ['has torch 2.12.0, and 2.13.0 runs the sweep: install the same versions on every node']
    """
    clauses = []
    for name, needed in driver.versions.items():
        if (has := node.versions.get(name, "not installed")) != needed:
            clauses.append(f"has {name} {has}, and {needed} runs the sweep: install the same versions on every node")
    for name, digest in driver.code.items():
        if not node.code[name] and digest:
            clauses.append(f"has no {name} that can be imported: install it there too")
        elif node.code[name] != digest:
            clauses.append(f"has other source files of {name}: install the same on every node")
    for path, digest in driver.paths.items():
        if node.paths[path] != digest:
            sees = "sees other files at" if node.paths[path] else "cannot read"
            clauses.append(f"{sees} {path}, which the sweep reads: put it on a path that all nodes share")
    return clauses


def ends_digest(path: Path) -> str:
    """Return a digest of the size and both ends of a file, or of a folder's files; '' if unreadable."""
    try:
        files = sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else [path]
        digest = hashlib.sha256()
        for file in files:
            size = file.stat().st_size
            digest.update(f"{file.name} {size} ".encode())
            with file.open("rb") as stream:
                digest.update(stream.read(_PART_BYTES))
                stream.seek(max(0, size - _PART_BYTES))
                digest.update(stream.read(_PART_BYTES))
        return digest.hexdigest()[:16]
    except OSError:
        return ""


def _code_digest(name: str) -> str:
    module, _, plugin = name.partition(" ")
    try:
        if plugin:
            module = (METHODS.load(plugin) if module == "method" else EVALUATORS.load(plugin)).__module__
        return _source_digest(module)
    except (PluginError, OSError):
        return ""


def _source_digest(name: str) -> str:
    """Return a digest of the plugin's package, or of its file without one."""
    package, files = sys.modules[name.partition(".")[0]], [Path(sys.modules[name].__file__ or "")]
    if hasattr(package, "__path__"):
        files = [file for folder in package.__path__ for file in sorted(Path(folder).rglob("*.py"))]
    return hashlib.sha256(b"".join(hashlib.sha256(file.read_bytes()).digest() for file in files)).hexdigest()[:16]


def _paths_of(spec: TrialSpec) -> Iterator[str]:
    for checkpoint in (spec.model, spec.retrained, *spec.judges.values()):
        if checkpoint is not None:
            yield from (path for path in (checkpoint.location, checkpoint.tokenizer) if Path(path).is_dir())
    sources = [spec.forget, spec.measured, spec.retain, spec.utility, spec.validation]
    for evaluator in spec.evaluators:
        sources += evaluator.texts.values()
    while sources:
        if source := sources.pop():
            sources.append(source.not_memorized)
            if source.path is not None and Path(source.path).is_absolute():
                yield source.path
