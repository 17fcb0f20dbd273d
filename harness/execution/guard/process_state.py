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
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, ClassVar, Protocol

import numpy as np
import torch

from harness.execution.guard.interruption import is_importing
from harness.execution.guard.patched_code import patches, set_patches


class _Setting(Protocol):
    def read(self) -> Any:
        """Return its value, which `==` compares."""

    def write(self, value: Any) -> object:
        """Make this its value."""


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
        """Return the names of what differs from this state now."""
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


@dataclass(frozen=True)
class _Functions:
    """What one function reads and another one writes."""

    read: Callable[[], Any]
    write: Callable[[Any], object]


class _Attributes:
    """Attributes of one object."""

    def __init__(self, owner: Any, *names: str) -> None:
        self._owner, self._names = owner, names

    def read(self) -> list[Any]:
        return [getattr(self._owner, name) for name in self._names]

    def write(self, values: list[Any]) -> None:
        for name, value in zip(self._names, values, strict=True):
            setattr(self._owner, name, value)


class _InferenceMode:
    read = staticmethod(torch.is_inference_mode_enabled)
    _entered: ClassVar[list[Any]] = []
    """Inference modes are left in the order they were entered. These stay entered, so that no other is left early."""

    def write(self, is_on: bool) -> None:
        mode = torch.inference_mode(is_on)
        mode.__enter__()
        self._entered.append(mode)


class _Autocast:
    _kinds = ("cpu", "cuda")

    def _depth(self) -> int:
        torch.autocast_increment_nesting()
        return torch.autocast_decrement_nesting()

    def read(self) -> tuple[Any, ...]:
        modes = [(torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in self._kinds]
        return modes, torch.is_autocast_cache_enabled(), self._depth()

    def write(self, values: tuple[Any, ...]) -> None:
        modes, caches, depth = values
        for kind, (is_on, dtype) in zip(self._kinds, modes, strict=True):
            torch.set_autocast_enabled(kind, is_on)
            torch.set_autocast_dtype(kind, dtype)
        torch.set_autocast_cache_enabled(caches)
        # Only on leaving the outermost context are rounded weights forgotten: one that was never left would keep
        # those of the first step for all the training that follows.
        while self._depth() > depth:
            torch.autocast_decrement_nesting()
        while self._depth() < depth:
            torch.autocast_increment_nesting()
        torch.clear_autocast_cache()


class _TorchRandom:
    def read(self) -> list[bytes]:
        gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
        return [state.numpy().tobytes() for state in [torch.get_rng_state(), *gpus]]

    def write(self, states: list[bytes]) -> None:
        cpu, *gpus = (torch.frombuffer(bytearray(state), dtype=torch.uint8) for state in states)
        torch.set_rng_state(cpu)
        for number, state in enumerate(gpus):
            torch.cuda.set_rng_state(state, number)


class _NumpyRandom:
    def _is_mersenne(self) -> bool:
        return isinstance(np.random.mtrand.get_bit_generator(), np.random.MT19937)

    def read(self) -> tuple[Any, ...]:
        if not self._is_mersenne():  # Another generator was put behind `np.random`: its state has another form.
            return (type(np.random.mtrand.get_bit_generator()).__name__,)
        kind, keys, *rest = np.random.get_state(legacy=True)
        return kind, np.asarray(keys).tobytes(), *rest

    def write(self, state: tuple[Any, ...]) -> None:
        kind, keys, *rest = state
        if not self._is_mersenne():
            np.random.mtrand.set_bit_generator(np.random.MT19937())
        np.random.set_state((kind, np.frombuffer(keys, dtype=np.uint32), *rest))


class _Precisions:
    _backends = (  # Parents first: setting one also sets those below it.
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

    def read(self) -> tuple[Any, ...]:
        matmul = cudnn = None
        with suppress(RuntimeError):  # Torch refuses if the newer settings are ones that the older cannot express.
            matmul = torch.get_float32_matmul_precision()
        with suppress(RuntimeError):
            cudnn = torch.backends.cudnn.allow_tf32
        return matmul, cudnn, [backend.fp32_precision for backend in self._backends]

    def write(self, values: tuple[Any, ...]) -> None:
        matmul, cudnn, newer = values
        if matmul is not None:
            torch.set_float32_matmul_precision(matmul)
        if cudnn is not None:
            torch.backends.cudnn.allow_tf32 = cudnn
        for backend, value in zip(self._backends, newer, strict=True):
            backend.fp32_precision = value


class _GlobalHooks:
    """Torch's hooks on all modules and optimisers, each dictionary of them as a tuple."""

    _modules = (sys.modules["torch.nn.modules.module"], sys.modules["torch.optim.optimizer"])

    def read(self) -> dict[tuple[ModuleType, str], Any]:
        hooks = {}
        for module in self._modules:
            for name, held in vars(module).items():
                if name.startswith("_global_"):
                    hooks[module, name] = tuple(held.items()) if isinstance(held, dict) else held
        return hooks

    def write(self, values: Mapping[tuple[ModuleType, str], Any]) -> None:
        for (module, name), value in values.items():
            held = getattr(module, name)
            if isinstance(held, dict):  # Others hold the same dictionary.
                held.clear()
                held.update(value)
            else:
                setattr(module, name, value)


class _Environment:
    def __init__(self) -> None:
        self._of_imports: set[str] = set()
        """Variables that were set while a module was imported: a library may need them as long as it is there."""
        sys.addaudithook(self._note)

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "os.putenv" and is_importing():
            self._of_imports.add(os.fsdecode(arguments[0]))

    def read(self) -> dict[str, str]:
        return {name: value for name, value in os.environ.items() if name not in self._of_imports}

    def write(self, values: Mapping[str, str]) -> None:
        for name in self.read().keys() - values.keys():
            del os.environ[name]
        for name, value in values.items():
            if os.environ.get(name) != value and name not in self._of_imports:
                os.environ[name] = value


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


class _SignalHandlers:
    def read(self) -> dict[int, Any]:
        return {number: signal.getsignal(number) for number in signal.valid_signals()}

    def write(self, handlers: Mapping[int, Any]) -> None:
        for number, handler in handlers.items():
            # Python cannot restore a handler that C code set, and sets handlers in the main thread only.
            if handler is not None and _is_main_thread() and signal.getsignal(number) != handler:
                signal.signal(number, handler)


class _SignalPipe:
    """The pipe that signals are written to. Python cannot read it, only replace it, so it is put back."""

    def read(self) -> int:
        pipe = signal.set_wakeup_fd(-1) if _is_main_thread() else -1
        self.write(pipe)
        return pipe

    def write(self, pipe: int) -> None:
        if _is_main_thread():
            signal.set_wakeup_fd(pipe, warn_on_full_buffer=False)


@dataclass(frozen=True)
class _Timer:
    left: float = field(compare=False)
    interval: float
    is_on: bool


class _Timers:
    _kinds = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)

    def _timer(self, kind: int) -> _Timer:
        left, interval = signal.getitimer(kind)
        return _Timer(left, interval, left > 0)

    def read(self) -> list[_Timer]:
        return [self._timer(kind) for kind in self._kinds]

    def write(self, timers: list[_Timer]) -> None:
        for kind, timer in zip(self._kinds, timers, strict=True):
            if self._timer(kind) != timer:
                signal.setitimer(kind, timer.left, timer.interval)


class _Umask:
    write = staticmethod(os.umask)

    def read(self) -> int:
        mask = os.umask(0o077)  # Reading it requires setting it; files made meanwhile are private.
        os.umask(mask)
        return mask


class _RaisingFilters:
    def read(self) -> list[Any]:
        return [line for line in warnings.filters if line[0] == "error"]

    def write(self, values: list[Any]) -> None:
        for raising in self.read():
            if raising not in values:
                warnings.filters.remove(raising)  # type: ignore[attr-defined]
        for raising in reversed(values):
            if raising not in warnings.filters:
                warnings.filters.insert(0, raising)  # type: ignore[attr-defined]


_REDUCTIONS = (
    "allow_fp16_reduced_precision_reduction",
    "allow_bf16_reduced_precision_reduction",
    "allow_fp16_accumulation",
)

_SHARED: Mapping[str, _Setting] = {
    # Inference mode comes first: entering or leaving it sets the grad mode too.
    "torch's inference mode": _InferenceMode(),
    "torch's grad mode": _Functions(torch.is_grad_enabled, torch.set_grad_enabled),
    "torch's default dtype": _Functions(torch.get_default_dtype, torch.set_default_dtype),
    "torch's default device": _Functions(
        torch.get_default_device,
        # None stands for the CPU: any default device slows down every call of torch.
        lambda device: torch.set_default_device(None if device.type == "cpu" else device),
    ),
    "torch's autocast": _Autocast(),
    "torch's deterministic algorithms": _Functions(
        lambda: (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ),
        lambda flags: torch.use_deterministic_algorithms(flags[0], warn_only=flags[1]),
    ),
    "torch's precisions": _Precisions(),
    **{f"torch's {name}": _Attributes(torch.backends.cuda.matmul, name) for name in _REDUCTIONS},
    **{
        f"torch's {kind} attention": _Functions(
            getattr(torch.backends.cuda, f"{kind}_sdp_enabled"), getattr(torch.backends.cuda, f"enable_{kind}_sdp")
        )
        for kind in ("flash", "mem_efficient", "math", "cudnn")
    },
    "torch's use of oneDNN": _Attributes(torch.backends.mkldnn, "enabled", "deterministic"),
    "torch's denormal numbers": _Functions(lambda: sys.float_info.min / 2 == 0.0, torch.set_flush_denormal),
    "torch's detection of anomalies": _Functions(
        lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        lambda flags: torch.autograd.set_detect_anomaly(*flags),
    ),
    "torch's global hooks": _GlobalHooks(),
    "functions of classes or modules": _Functions(patches, set_patches),
    "torch's threads": _Functions(torch.get_num_threads, torch.set_num_threads),
    "cuDNN's flags": _Attributes(torch.backends.cudnn, "enabled", "benchmark", "deterministic"),
    "torch's random state": _TorchRandom(),
    "NumPy's random state": _NumpyRandom(),
    "NumPy's error handling": _Functions(np.geterr, lambda kinds: np.seterr(**kinds)),
    "Python's random state": _Functions(random.getstate, random.setstate),
    "the working directory": _Functions(os.getcwd, os.chdir),
    "the environment": _Environment(),
    "the umask": _Umask(),
    "the locale": _Functions(
        lambda: locale.setlocale(locale.LC_ALL), lambda name: locale.setlocale(locale.LC_ALL, name)
    ),
    "signal handlers": _SignalHandlers(),
    "the pipe of signals": _SignalPipe(),
    "blocked signals": _Functions(
        lambda: signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        lambda blocked: signal.pthread_sigmask(signal.SIG_SETMASK, blocked),
    ),
    "timers": _Timers(),
    "reports of crashes": _Functions(
        faulthandler.is_enabled,
        lambda are_on: faulthandler.enable(sys.__stderr__ or 2) if are_on else faulthandler.disable(),
    ),
    "Python's streams and hooks": _Attributes(sys, "stdin", "stdout", "stderr", "excepthook", "unraisablehook"),
    "Python's hook for threads": _Attributes(threading, "excepthook"),
    "Python's tracing": _Functions(sys.gettrace, sys.settrace),
    "Python's profiling": _Functions(sys.getprofile, sys.setprofile),
    "Python's garbage collector": _Functions(gc.isenabled, lambda is_on: gc.enable() if is_on else gc.disable()),
    "Python's recursion limit": _Functions(sys.getrecursionlimit, sys.setrecursionlimit),
    "warnings that raise": _RaisingFilters(),
    "the level up to which nothing is logged": _Functions(lambda: logging.root.manager.disable, logging.disable),
    "the timeout of sockets": _Functions(socket.getdefaulttimeout, socket.setdefaulttimeout),
}
