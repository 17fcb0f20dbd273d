"""Errors for people, and signals."""

import signal
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from types import FrameType


class LetheError(Exception):
    """Base of all errors that Lethe raises."""


@dataclass(frozen=True, order=True)
class Fault:
    """One fault of a sweep file."""

    path: str
    """Dotted path: `methods.emso.epochs`."""
    reason: str
    """One or two sentences: what is wrong, what is allowed, the nearest right name."""
    origin: str = ""
    """`line 12` of the file, or `--set`; '' where nothing was written."""


class Faults(list[Fault]):
    """Collected faults, reported at once."""

    def add(self, path: str, reason: str) -> None:
        """Append the fault of a setting."""
        self.append(Fault(path, reason))


class ConfigError(LetheError):
    """A sweep file with faults."""

    def __init__(self, file: str, faults: Sequence[Fault]) -> None:
        self.file = file
        self.faults = tuple(faults)
        count = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
        width = max((len(fault.path) for fault in faults), default=0)
        margin = max((len(fault.origin) + 2 for fault in faults if fault.origin), default=0)
        lines = [f"  {fault.origin:<{margin}}{fault.path:<{width}}  {fault.reason}" for fault in faults]
        super().__init__("\n".join([f"{file} has {count}:", *lines]))


class DataError(LetheError):
    """A text file, array or data set that cannot be used."""


class ModelError(LetheError):
    """A checkpoint or tokenizer that cannot be loaded."""


class PluginError(LetheError):
    """A method or evaluator that is unknown, broken, or defined twice."""


class StorageError(LetheError):
    """A file or folder that cannot be written."""


class TrialError(LetheError):
    """An erasure or a measurement that cannot go on."""

    log: tuple[str, ...] = ()
    """Lines from other processes' logs."""


class WorkerDiedError(TrialError):
    """Death of a worker process or its machine; a retry may succeed."""


class ExecutorError(LetheError):
    """Failure of the executor: the sweep ends, and measurements are kept."""


def unknown(kind: str, name: str, known_names: Iterable[str]) -> str:
    """Return the sentence for an unknown name, with the nearest known one.

    Example:
        >>> unknown("method", "emsoo", ["emso", "gradient_ascent"])
        "no method is called 'emsoo'. Did you mean 'emso'? Known: emso, gradient_ascent."
    """
    names = sorted(known_names)
    return f"no {kind} is called '{name}'.{did_you_mean(name, names)} Known: {', '.join(names)}."


def did_you_mean(name: str, known_names: Sequence[str]) -> str:
    """Return a question with the nearest known name, or the one with these initials; '' if none is near.

    Example:
        >>> did_you_mean("sweeep", ["sweep", "audit"]), did_you_mean("lr", ["lora", "learning_rate"])
        (" Did you mean 'sweep'?", " Did you mean 'learning_rate'?")
    """
    abbreviated = [known for known in known_names if name.lower() == "".join(word[:1] for word in known.split("_"))]
    near = abbreviated or get_close_matches(name, known_names, n=1)
    return f" Did you mean '{near[0]}'?" if near else ""


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, a scheduler or `kill`, and a closed terminal."""


class Interrupted(KeyboardInterrupt):
    """A signal that asks the sweep to end."""

    def __init__(self, signal_number: int) -> None:
        super().__init__()
        self.exit_code = 128 + signal_number


def take_signals() -> None:
    """Make each signal raise `Interrupted`, unless it is ignored (nohup)."""
    for signum in SIGNALS:
        if signal.getsignal(signum) is not signal.SIG_IGN:
            signal.signal(signum, _interrupt)


@contextmanager
def signals_kept() -> Iterator[None]:
    """Restore the signal handlers at the end, since libraries may replace them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {signum: signal.getsignal(signum) for signum in SIGNALS}
    try:
        yield
    finally:
        for signum, handler in handlers.items():
            signal.signal(signum, handler)


def _interrupt(signum: int, _: FrameType | None) -> None:
    raise Interrupted(signum)
