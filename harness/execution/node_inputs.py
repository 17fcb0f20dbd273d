"""What decides a trial's numbers besides its spec: packages, code and files, which every node must have alike."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.errors import PluginError
from harness.execution.environment import versions
from harness.plugins import EVALUATORS, METHODS
from harness.sizing.size_cache import code_digest
from harness.specs import Source, TrialSpec

_PART_BYTES = 1 << 16
"""Read of each end of a file: all of it is held against its digest when it is loaded."""
_OWN_CODE = "harness"


@dataclass(frozen=True)
class NodeInputs:
    """What one machine has of it."""

    versions: Mapping[str, str]
    """Of Python and of packages."""
    code: Mapping[str, str] = field(default_factory=dict)
    """The source's digest, of `harness` and of each `method NAME` and `evaluator NAME`; '' of one that is not there."""
    paths: Mapping[str, str] = field(default_factory=dict)
    """Of each model's folder and data file: a digest of names, sizes and both ends; '' where nothing is there."""

    def like(self) -> NodeInputs:
        """Return what this machine has of the same packages, code and paths."""
        return NodeInputs(
            versions=versions(),
            code={name: _code_digest(name) for name in self.code},
            paths={path: ends_digest(Path(path)) for path in self.paths},
        )


def inputs_of(specs: Sequence[TrialSpec]) -> NodeInputs:
    """Return what trials need, as this machine has it."""
    plugins = {f"method {spec.method}" for spec in specs if not spec.is_reference}
    plugins |= {f"evaluator {evaluator.name}" for spec in specs for evaluator in spec.evaluators}
    paths = {path for spec in specs for path in _paths_of(spec)}
    return NodeInputs({}, dict.fromkeys([_OWN_CODE, *sorted(plugins)], ""), dict.fromkeys(sorted(paths), "")).like()


def input_differences(driver: NodeInputs, node: NodeInputs) -> list[str]:
    """Return how a node differs from the driver: clauses that say of what, and what to do.

    Example:
        >>> input_differences(NodeInputs({"torch": "2.13.0"}), NodeInputs({"torch": "2.12.0"}))
        ['has torch 2.12.0, and 2.13.0 runs the sweep: install the same versions on every node']
    """
    clauses = [
        f"has {name} {node.versions.get(name, 'not installed')}, and {version} runs the sweep: "
        "install the same versions on every node"
        for name, version in driver.versions.items()
        if node.versions.get(name) != version
    ]
    clauses += [
        f"has no {name} that can be imported: install it there too"
        if not node.code[name]
        else f"has other source files of {name}: install the same on every node"
        for name, digest in driver.code.items()
        if node.code[name] != digest
    ]
    clauses += [
        f"{'sees other files at' if node.paths[path] else 'cannot read'} {path}, which the sweep reads: "
        "put it on a path that all nodes share"
        for path, digest in driver.paths.items()
        if node.paths[path] != digest
    ]
    return clauses


def ends_digest(path: Path) -> str:
    """Return a digest of a file's size and both ends, or of all files in a folder; '' if it cannot be read."""
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
    kind, _, plugin = name.partition(" ")
    try:
        return code_digest(sys.modules[_class_of(kind, plugin).__module__ if plugin else kind])
    except (PluginError, OSError):
        return ""


def _class_of(kind: str, plugin: str) -> type:
    return METHODS.load(plugin) if kind == "method" else EVALUATORS.load(plugin)


def _paths_of(spec: TrialSpec) -> Iterator[str]:
    """Yield where a trial's models and texts lie, as far as they lie in files of the user's."""
    for checkpoint in (spec.model, spec.retrained, *spec.judges.values()):
        if checkpoint is not None:
            yield from (place for place in (checkpoint.location, checkpoint.tokenizer) if Path(place).is_dir())
    more = [source for evaluator in spec.evaluators for source in evaluator.texts.values()]
    for source in _with_nested((spec.forget, spec.measured, spec.retain, spec.utility, spec.validation, *more)):
        if source.path is not None and Path(source.path).is_absolute():
            yield source.path


def _with_nested(sources: Iterable[Source | None]) -> Iterator[Source]:
    for source in sources:
        if source is not None:
            yield source
            yield from _with_nested([source.not_memorized])
