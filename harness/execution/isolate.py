"""Isolation of plugins: a plugin that changes its task, or a model, fails by name.

A process runs many trials, so global state that decides numbers is restored after every plugin. Some state is in no
list: plugins of other packages get a process each on Ray (`has_outside_plugins`).
"""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import torch

from harness.base.messages import first_names
from harness.contracts import ErasedModel, Sequences
from harness.errors import TrialError
from harness.plugins import EVALUATORS, METHODS
from harness.settings import TrialSpec

_VARIABLES = tuple(os.environ)
"""Variables at the start of the process; libraries may set others when imported."""
_INFERENCE_MODES: list[Any] = []
"""Entered modes, which are never left: leaving one would end later ones too."""


class PluginTask(Protocol):
    """The task of a plugin."""

    def changes(self) -> list[str]:
        """Return the changed parts by name."""


class ProcessState:
    """Global state of a process that numbers may depend on."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    @classmethod
    def capture(cls) -> ProcessState:
        return cls({name: read() for name, (read, _) in _SHARED.items()})

    def restore(self) -> None:
        for name, (read, write) in _SHARED.items():
            if read() != self._values[name]:
                write(self._values[name])

    def changed(self) -> list[str]:
        """Return the names of changed parts."""
        return [name for name, (read, _) in _SHARED.items() if read() != self._values[name]]

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Restore this state within the block."""
        around = ProcessState.capture()
        self.restore()
        try:
            yield
        finally:
            around.restore()


@contextmanager
def guarded(plugin: str, task: PluginTask) -> Iterator[None]:
    """Restore the process's state after the block; `plugin` names the plugin in errors.

    Raises:
        TrialError: The plugin changed its task.
    """
    ours = ProcessState.capture()
    try:
        yield
    finally:
        ours.restore()
    refuse_changes(plugin, task)


def guarded_models(
    plugin: str, erase: Callable[[], Iterator[ErasedModel]], task: PluginTask
) -> Generator[ErasedModel, None, None]:
    """Yield a method's models; between them the process has its state from before.

    The method resumes in its own state: a generator may yield inside `torch.no_grad()`.

    Raises:
        TrialError: The method changed its task.
    """
    models = None
    theirs = ProcessState.capture()
    try:
        while True:
            with guarded(plugin, task):
                theirs.restore()
                models = erase() if models is None else models
                erased = next(models, None)
                theirs = ProcessState.capture()
            if erased is None:
                return
            yield erased
    finally:
        if models is not None and hasattr(models, "close"):
            with guarded(plugin, task):
                theirs.restore()
                models.close()


def has_outside_plugins(specs: Iterable[TrialSpec]) -> bool:
    """Return whether another package provides a trial's method or evaluator."""
    modules = {METHODS.load(spec.method).__module__ for spec in specs if not spec.is_reference}
    modules |= {EVALUATORS.load(evaluator.name).__module__ for spec in specs for evaluator in spec.evaluators}
    return any(module.partition(".")[0] not in ("methods", "evaluators") for module in modules)


def refuse_changes(plugin: str, task: PluginTask) -> None:
    """Raise a TrialError if the plugin changed its task."""
    changed = task.changes()
    if changed:
        raise TrialError(
            f"{plugin} changed {'; '.join(changed)}. A plugin must leave what it is lent as it was: change a copy "
            "(tensor.clone(), copy.deepcopy) or put it back. Nothing that it made since is kept; "
            "harness.testing shows more."
        )


def _enter_inference_mode(is_on: bool) -> None:
    mode = torch.inference_mode(is_on)
    mode.__enter__()
    _INFERENCE_MODES.append(mode)


def _autocast() -> list[bool]:
    return [torch.is_autocast_enabled(kind) for kind in ("cpu", "cuda")]


def _set_autocast(values: list[bool]) -> None:
    for kind, is_on in zip(("cpu", "cuda"), values, strict=True):
        torch.set_autocast_enabled(kind, is_on)
    torch.clear_autocast_cache()


def _torch_random() -> list[bytes]:
    gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return [state.numpy().tobytes() for state in [torch.get_rng_state(), *gpus]]


def _set_torch_random(states: list[bytes]) -> None:
    cpu, *gpus = (torch.frombuffer(bytearray(state), dtype=torch.uint8) for state in states)
    torch.set_rng_state(cpu)
    for number, state in enumerate(gpus):
        torch.cuda.set_rng_state(state, number)


def _numpy_random() -> tuple[Any, ...]:
    kind, keys, *rest = np.random.get_state(legacy=True)
    return kind, np.asarray(keys).tobytes(), *rest


def _set_numpy_random(state: tuple[Any, ...]) -> None:
    kind, keys, *rest = state
    np.random.set_state((kind, np.frombuffer(keys, dtype=np.uint32), *rest))


def _environment() -> dict[str, str | None]:
    return {name: os.environ.get(name) for name in _VARIABLES}


def _set_environment(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


_SHARED: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    # Inference mode comes first: entering or leaving it sets the grad mode too.
    "torch's inference mode": (torch.is_inference_mode_enabled, _enter_inference_mode),
    "torch's grad mode": (torch.is_grad_enabled, torch.set_grad_enabled),
    "torch's default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "torch's autocast": (_autocast, _set_autocast),
    "torch's threads": (torch.get_num_threads, torch.set_num_threads),
    "torch's random state": (_torch_random, _set_torch_random),
    "NumPy's random state": (_numpy_random, _set_numpy_random),
    "Python's random state": (random.getstate, random.setstate),
    "the working directory": (os.getcwd, os.chdir),
    "the environment": (_environment, _set_environment),
}


Fingerprints = Mapping[tuple[str, str], Hashable]
"""(thing, part) to fingerprint: `("the model's weights", "lm_head.weight")`."""

NAMED_PARTS = 3
"""Parts that a message names; the others are counted."""


@torch.no_grad()
def fingerprint(tensor: torch.Tensor) -> Hashable:
    """Return dtype, shape and a digest of the bits.

    Example:
        >>> fingerprint(torch.tensor([0.0, 1.0])) == fingerprint(torch.tensor([-0.0, 1.0]))
        False
    """
    plain = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    flat = plain.detach().contiguous().reshape(-1)
    bits = hashlib.sha256(flat.cpu().view(torch.uint8).numpy().data).digest()
    return str(tensor.dtype), tuple(tensor.shape), bits


def model_fingerprints(model: torch.nn.Module) -> Fingerprints:
    """Return fingerprints of weights, buffers and modes."""
    modes: Fingerprints = {("the model's mode", name): module.training for name, module in model.named_modules()}
    return {**weights_fingerprints(model, "the model's"), **modes}


def weights_fingerprints(module: torch.nn.Module, whose: str) -> Fingerprints:
    """Return fingerprints of weights and buffers."""
    tensors = [*module.named_parameters(), *module.named_buffers()]
    return {(f"{whose} weights", name): fingerprint(tensor) for name, tensor in tensors}


def sequences_fingerprints(what: str, sequences: Sequences | None) -> Fingerprints:
    """Return fingerprints of sequences by their name in the task."""
    if sequences is None:
        return {(what, ""): None}
    return {
        (what, "tokens_NT"): fingerprint(sequences.tokens_NT),
        (what, "lengths_N"): fingerprint(sequences.lengths_N),
        (what, "prefix_tokens"): sequences.prefix_tokens,
        (what, "digest"): sequences.digest,
    }


def changes(before: Fingerprints, after: Fingerprints) -> list[str]:
    """Return the changed things, each with its first changed parts.

    Example:
        >>> changes({("task.seed", ""): 0, ("the weights", "a"): 1}, {("task.seed", ""): 0, ("the weights", "a"): 2})
        ['the weights (a)']
    """
    absent = object()
    parts: dict[str, list[str]] = {}
    for what, part in {**before, **after}:
        if before.get((what, part), absent) != after.get((what, part), absent):
            parts.setdefault(what, []).append(part)
    clauses = []
    for what, named in parts.items():
        names = [name for name in named if name]
        clauses.append(f"{what} ({first_names(names, NAMED_PARTS)})" if names else what)
    return clauses


def modules_in(value: Any, depth: int = 3) -> Iterator[torch.nn.Module]:
    """Yield the modules in an object, its attributes, lists and dictionaries."""
    if isinstance(value, torch.nn.Module):
        yield value
    elif depth:
        inside = value if isinstance(value, list | tuple | dict) else vars(value) if hasattr(value, "__dict__") else ()
        for item in list(inside.values()) if isinstance(inside, Mapping) else inside:
            yield from modules_in(item, depth - 1)
