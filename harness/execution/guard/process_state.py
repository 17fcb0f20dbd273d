"""What a whole process shares, and a plugin may leave changed: read, compared and put back as one state.

Not on the list, and left as a plugin leaves it: what its own module changes when it is loaded; variables that a library
sets while it is imported; `sys.path`; loggers; filters of warnings but those that raise; and what C code, or a library
of its own, keeps. Only a process of its own would isolate that.
"""

from __future__ import annotations

import faulthandler
import gc
import locale
import logging
import os
import random
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np
import torch

from harness.execution.guard.interruption import is_importing
from harness.execution.guard.patched_code import patches, set_patches


@dataclass(frozen=True)
class _Setting:
    read: Callable[[], Any]
    """Its value, which `==` compares."""
    write: Callable[[Any], object]


class ProcessState:
    """What a whole process shares, at one moment."""

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


_PRECISIONS = (  # Parents first: to set one sets those below it.
    torch.backends,
    torch.backends.cuda.matmul,
    torch.backends.cudnn,
    torch.backends.cudnn.conv,  # type: ignore[attr-defined]
    torch.backends.cudnn.rnn,
    torch.backends.mkldnn,
    torch.backends.mkldnn.matmul,  # type: ignore[attr-defined]
    torch.backends.mkldnn.conv,  # type: ignore[attr-defined]
    torch.backends.mkldnn.rnn,  # type: ignore[attr-defined]
)


def _precisions() -> tuple[Any, ...]:
    older: list[Any] = []
    for read in (torch.get_float32_matmul_precision, lambda: torch.backends.cudnn.allow_tf32):
        try:
            older.append(read())
        except RuntimeError:  # Torch refuses it once the newer settings say what the older ones cannot.
            older.append(None)
    return (*older, *(backend.fp32_precision for backend in _PRECISIONS))


def _set_precisions(values: tuple[Any, ...]) -> None:
    matmul, cudnn, *newer = values
    if matmul is not None:
        torch.set_float32_matmul_precision(matmul)
    if cudnn is not None:
        torch.backends.cudnn.allow_tf32 = cudnn
    for backend, value in zip(_PRECISIONS, newer, strict=True):
        backend.fp32_precision = value


_REDUCTIONS = (
    "allow_fp16_reduced_precision_reduction",
    "allow_bf16_reduced_precision_reduction",
    "allow_fp16_accumulation",
)


def _of_cuda_matmul(name: str) -> _Setting:
    flags = torch.backends.cuda.matmul
    return _Setting(lambda: getattr(flags, name), lambda value: setattr(flags, name, value))


def _of_attention(kind: str) -> _Setting:
    flags = torch.backends.cuda
    return _Setting(getattr(flags, f"{kind}_sdp_enabled"), getattr(flags, f"enable_{kind}_sdp"))


def _flushes_denormals() -> bool:
    return sys.float_info.min / 2 == 0.0


_HOOKED = (sys.modules["torch.nn.modules.module"], sys.modules["torch.optim.optimizer"])


def _global_hooks() -> dict[tuple[ModuleType, str], Any]:
    """Return torch's hooks on everything, each dictionary of them as a tuple."""
    hooks = {}
    for module in _HOOKED:
        for name, held in vars(module).items():
            if name.startswith("_global_"):
                hooks[module, name] = tuple(held.items()) if isinstance(held, dict) else held
    return hooks


def _set_global_hooks(values: Mapping[tuple[ModuleType, str], Any]) -> None:
    for (module, name), value in values.items():
        held = getattr(module, name)
        if isinstance(held, dict):  # Others hold the same dictionary.
            held.clear()
            held.update(value)
        else:
            setattr(module, name, value)


_OF_IMPORTS: set[str] = set()
"""Variables that were set while a module was imported: a library may need them as long as it is there."""


def _note_variable(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "os.putenv" and is_importing():
        _OF_IMPORTS.add(os.fsdecode(arguments[0]))


sys.addaudithook(_note_variable)


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in _OF_IMPORTS}


def _set_environment(values: Mapping[str, str]) -> None:
    for name in _environment().keys() - values.keys():
        del os.environ[name]
    for name, value in values.items():
        if os.environ.get(name) != value and name not in _OF_IMPORTS:
            os.environ[name] = value


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _set_handlers(handlers: Mapping[int, Any]) -> None:
    for number, handler in handlers.items():
        # Python can put back no handler that C code set, and sets any in the main thread alone.
        if handler is not None and _is_main_thread() and signal.getsignal(number) != handler:
            signal.signal(number, handler)


def _wakeup() -> int:
    """Return the pipe that signals are written to; what cannot be read is set and put back."""
    pipe = signal.set_wakeup_fd(-1) if _is_main_thread() else -1
    _set_wakeup(pipe)
    return pipe


def _set_wakeup(pipe: int) -> None:
    if _is_main_thread():
        signal.set_wakeup_fd(pipe, warn_on_full_buffer=False)


@dataclass(frozen=True)
class _Timer:
    kind: int
    left: float = field(compare=False)
    interval: float
    is_on: bool

    @classmethod
    def read(cls, kind: int) -> _Timer:
        left, interval = signal.getitimer(kind)
        return cls(kind, left, interval, left > 0)


def _timers() -> tuple[_Timer, ...]:
    return tuple(_Timer.read(kind) for kind in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF))


def _set_timers(timers: tuple[_Timer, ...]) -> None:
    for timer in timers:
        if _Timer.read(timer.kind) != timer:
            signal.setitimer(timer.kind, timer.left, timer.interval)


def _umask() -> int:
    mask = os.umask(0o077)  # It can only be read by setting it; what is made meanwhile is private.
    os.umask(mask)
    return mask


def _raising_filters() -> list[Any]:
    return [line for line in warnings.filters if line[0] == "error"]


def _set_raising_filters(values: list[Any]) -> None:
    for raising in _raising_filters():
        if raising not in values:
            warnings.filters.remove(raising)  # type: ignore[attr-defined]
    for raising in reversed(values):
        if raising not in warnings.filters:
            warnings.filters.insert(0, raising)  # type: ignore[attr-defined]


_STREAMS = ("stdin", "stdout", "stderr", "excepthook", "unraisablehook")


def _streams() -> tuple[Any, ...]:
    return (*(getattr(sys, name) for name in _STREAMS), threading.excepthook)


def _set_streams(values: tuple[Any, ...]) -> None:
    *streams, threading.excepthook = values
    for name, value in zip(_STREAMS, streams, strict=True):
        setattr(sys, name, value)


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
    "torch's precisions": _Setting(_precisions, _set_precisions),
    **{f"torch's {name}": _of_cuda_matmul(name) for name in _REDUCTIONS},
    **{f"torch's {kind} attention": _of_attention(kind) for kind in ("flash", "mem_efficient", "math", "cudnn")},
    "torch's use of oneDNN": _Setting(
        lambda: (torch.backends.mkldnn.enabled, torch.backends.mkldnn.deterministic),
        lambda flags: torch.backends.mkldnn.set_flags(*flags),
    ),
    "torch's denormal numbers": _Setting(_flushes_denormals, torch.set_flush_denormal),
    "torch's detection of anomalies": _Setting(
        lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        lambda flags: torch.autograd.set_detect_anomaly(*flags),
    ),
    "torch's global hooks": _Setting(_global_hooks, _set_global_hooks),
    "functions of classes or modules": _Setting(patches, set_patches),
    "torch's threads": _Setting(torch.get_num_threads, torch.set_num_threads),
    "cuDNN's flags": _Setting(_cudnn, _set_cudnn),
    "torch's random state": _Setting(_torch_random, _set_torch_random),
    "NumPy's random state": _Setting(_numpy_random, _set_numpy_random),
    "NumPy's error handling": _Setting(np.geterr, lambda kinds: np.seterr(**kinds)),
    "Python's random state": _Setting(random.getstate, random.setstate),
    "the working directory": _Setting(os.getcwd, os.chdir),
    "the environment": _Setting(_environment, _set_environment),
    "the umask": _Setting(_umask, os.umask),
    "the locale": _Setting(lambda: locale.setlocale(locale.LC_ALL), lambda name: locale.setlocale(locale.LC_ALL, name)),
    "signal handlers": _Setting(
        lambda: {number: signal.getsignal(number) for number in signal.valid_signals()}, _set_handlers
    ),
    "the pipe of signals": _Setting(_wakeup, _set_wakeup),
    "blocked signals": _Setting(
        lambda: signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        lambda blocked: signal.pthread_sigmask(signal.SIG_SETMASK, blocked),
    ),
    "timers": _Setting(_timers, _set_timers),
    "reports of crashes": _Setting(
        faulthandler.is_enabled,
        lambda are_on: faulthandler.enable(sys.__stderr__ or 2) if are_on else faulthandler.disable(),
    ),
    "Python's streams and hooks": _Setting(_streams, _set_streams),
    "Python's tracing": _Setting(sys.gettrace, sys.settrace),
    "Python's profiling": _Setting(sys.getprofile, sys.setprofile),
    "Python's garbage collector": _Setting(gc.isenabled, lambda is_on: gc.enable() if is_on else gc.disable()),
    "Python's recursion limit": _Setting(sys.getrecursionlimit, sys.setrecursionlimit),
    "warnings that raise": _Setting(_raising_filters, _set_raising_filters),
    "the level up to which nothing is logged": _Setting(lambda: logging.root.manager.disable, logging.disable),
    "the timeout of sockets": _Setting(socket.getdefaulttimeout, socket.setdefaulttimeout),
}
