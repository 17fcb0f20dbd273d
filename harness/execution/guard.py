"""The guard around plugins: what one was lent or shares is as it was afterwards, or the plugin fails by name.

A process runs trial after trial. So what the process shares (torch's modes, random states) is put back after
every plugin, well or not; and a plugin that changed a model, a text or a judge that it was lent is stopped
before its numbers are journaled and before an array that it made is kept for others.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from harness.contracts import ErasedModel
from harness.errors import TrialError
from harness.execution.threads import no_thread_left


@dataclass(frozen=True)
class _Setting:
    read: Callable[[], Any]
    """Its value, which `==` compares."""
    write: Callable[[Any], object]


class ProcessState:
    """What a whole process shares, at one moment: torch's modes and defaults, and random states.

    Not among it: the environment and the filters of warnings, which libraries change for good reason when
    they are first imported.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    @classmethod
    def capture(cls) -> ProcessState:
        """Return the state as it is."""
        return cls({name: setting.read() for name, setting in _SHARED.items()})

    def restore(self) -> None:
        """Make the process's state this one again."""
        for name, setting in _SHARED.items():
            if setting.read() != self._values[name]:
                setting.write(self._values[name])

    def changed(self) -> list[str]:
        """Return the names of what is no longer as it was."""
        return [name for name, setting in _SHARED.items() if setting.read() != self._values[name]]

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Let this state hold for a while, whatever holds around it."""
        around = ProcessState.capture()
        self.restore()
        try:
            yield
        finally:
            around.restore()


_ENTERED: list[Any] = []
"""Inference modes are left in the order they were entered: these never are, so that nothing else is left early."""


def _set_inference_mode(on: bool) -> None:
    mode = torch.inference_mode(on)
    mode.__enter__()
    _ENTERED.append(mode)


def _set_device(device: torch.device) -> None:
    # None, for the CPU: a default device that is set costs every call of torch a detour.
    torch.set_default_device(None if device.type == "cpu" else device)


def _cudnn() -> tuple[bool, bool, bool]:
    flags = torch.backends.cudnn
    return flags.enabled, flags.benchmark, flags.deterministic


def _set_cudnn(flags: tuple[bool, bool, bool]) -> None:
    torch.backends.cudnn.enabled, torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic = flags


def _autocast_depth() -> int:
    torch.autocast_increment_nesting()
    return torch.autocast_decrement_nesting()


def _autocast() -> tuple[Any, ...]:
    kinds = [(torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in ("cpu", "cuda")]
    return (*kinds, torch.is_autocast_cache_enabled(), _autocast_depth())


def _set_autocast(values: tuple[Any, ...]) -> None:
    *kinds, caches, depth = values
    for kind, (enabled, dtype) in zip(("cpu", "cuda"), kinds, strict=True):
        torch.set_autocast_enabled(kind, enabled)
        torch.set_autocast_dtype(kind, dtype)
    torch.set_autocast_cache_enabled(caches)
    # Only on leaving the outermost context are rounded weights forgotten: one that was never left would keep
    # those of the first step for all the training that follows.
    while _autocast_depth() > depth:
        torch.autocast_decrement_nesting()
    while _autocast_depth() < depth:
        torch.autocast_increment_nesting()
    torch.clear_autocast_cache()


def _torch_random() -> tuple[bytes, ...]:
    gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return tuple(state.numpy().tobytes() for state in [torch.get_rng_state(), *gpus])


def _set_torch_random(states: tuple[bytes, ...]) -> None:
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


_SHARED: Mapping[str, _Setting] = {
    # Inference mode first: to enter it or leave it sets the grad mode too.
    "torch's inference mode": _Setting(torch.is_inference_mode_enabled, _set_inference_mode),
    "torch's grad mode": _Setting(torch.is_grad_enabled, torch.set_grad_enabled),
    "torch's default dtype": _Setting(torch.get_default_dtype, torch.set_default_dtype),
    "torch's default device": _Setting(torch.get_default_device, _set_device),
    "torch's autocast": _Setting(_autocast, _set_autocast),
    "torch's deterministic algorithms": _Setting(
        lambda: (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ),
        lambda flags: torch.use_deterministic_algorithms(flags[0], warn_only=flags[1]),
    ),
    "torch's matmul precision": _Setting(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    "torch's threads": _Setting(torch.get_num_threads, torch.set_num_threads),
    "cuDNN's flags": _Setting(_cudnn, _set_cudnn),
    "torch's random state": _Setting(_torch_random, _set_torch_random),
    "NumPy's random state": _Setting(_numpy_random, _set_numpy_random),
    "NumPy's error handling": _Setting(np.geterr, lambda kinds: np.seterr(**kinds)),
    "Python's random state": _Setting(random.getstate, random.setstate),
    "the working directory": _Setting(os.getcwd, os.chdir),
}


class PluginTask(Protocol):
    """What a plugin is given: a task."""

    def changes(self) -> list[str]:
        """Return what is not as it was given, each with its parts' names."""


@contextmanager
def guarded(plugin: str, task: PluginTask) -> Iterator[None]:
    """Run a plugin inside, `plugin` being its name for people.

    Raises:
        TrialError: It changed what it was lent.
    """
    ours = ProcessState.capture()
    try:
        yield
    finally:
        ours.restore()
    refuse_changes(plugin, task)


def guarded_models(plugin: str, erase: Callable[[], Iterator[ErasedModel]], task: PluginTask) -> Iterator[ErasedModel]:
    """Yield what a method yields; while it waits, and afterwards, the process's state is the one it started with.

    A method that goes on finds the state that it left: a generator may well yield inside `torch.no_grad()`.

    Raises:
        TrialError: It changed what it was lent, or left a thread behind.
    """
    models = None
    theirs = ProcessState.capture()
    try:
        with no_thread_left(plugin):
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


def refuse_changes(plugin: str, task: PluginTask) -> None:
    """Raise a TrialError, by the name of the plugin that ran last, if what it was lent is not as it was."""
    changed = task.changes()
    if changed:
        raise TrialError(
            f"{plugin} changed {'; '.join(changed)}. What a plugin is lent stays as it was: change a copy "
            "(tensor.clone(), copy.deepcopy) or put it back. Nothing that it made since is kept; "
            "harness.testing tells more."
        )
