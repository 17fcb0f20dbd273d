"""What a whole process shares, and a plugin may leave changed: torch's modes and defaults, and random states.

Not among it: the environment and the filters of warnings, which libraries change for good reason when they
are first imported.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch


@dataclass(frozen=True)
class _Setting:
    read: Callable[[], Any]
    """Its value, which `==` compares."""
    put: Callable[[Any], object]


class Surroundings:
    """The process's shared state at one moment."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    @classmethod
    def now(cls) -> Surroundings:
        """Return the state as it is."""
        return cls({name: setting.read() for name, setting in _SETTINGS.items()})

    def put_back(self) -> None:
        """Make the process's state this one."""
        for name, setting in _SETTINGS.items():
            if setting.read() != self._values[name]:
                setting.put(self._values[name])

    def changed(self) -> list[str]:
        """Return the names of what is no longer as it was."""
        return [name for name, setting in _SETTINGS.items() if setting.read() != self._values[name]]

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Let this state hold for a while, whatever holds around it."""
        around = Surroundings.now()
        self.put_back()
        try:
            yield
        finally:
            around.put_back()


_ENTERED: list[Any] = []
"""Inference modes are left in the order they were entered: these never are, so that nothing else is left early."""


def _set_inference_mode(on: bool) -> None:
    mode = torch.inference_mode(on)
    mode.__enter__()
    _ENTERED.append(mode)


def _set_device(device: torch.device) -> None:
    # None, for the CPU: a default device that is set costs every call of torch a detour.
    torch.set_default_device(None if device.type == "cpu" else device)


def _deterministic() -> tuple[bool, bool]:
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


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


_SETTINGS: Mapping[str, _Setting] = {
    # Inference mode first: to enter it or leave it sets the grad mode too.
    "torch's inference mode": _Setting(torch.is_inference_mode_enabled, _set_inference_mode),
    "torch's grad mode": _Setting(torch.is_grad_enabled, torch.set_grad_enabled),
    "torch's default dtype": _Setting(torch.get_default_dtype, torch.set_default_dtype),
    "torch's default device": _Setting(torch.get_default_device, _set_device),
    "torch's autocast": _Setting(_autocast, _set_autocast),
    "torch's deterministic algorithms": _Setting(
        _deterministic, lambda flags: torch.use_deterministic_algorithms(flags[0], warn_only=flags[1])
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
