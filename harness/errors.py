"""What ends a run: errors for people, which name what was wrong, where and what to do, and signals."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from types import FrameType

MOST_LISTED = 100
"""Faults in one message; a list of a thousand wrong values has as many."""


class LetheError(Exception):
    """The root: catch it to catch all that Lethe itself raises."""


@dataclass(frozen=True, order=True)
class Fault:
    """One thing wrong with a sweep file."""

    path: str
    """Where, in dots: `methods.emso.epochs`."""
    reason: str
    """What is wrong, what is allowed and the nearest right name, as one sentence or two."""
    origin: str = ""
    """Where that was written: `line 12` of the file, or `--set`; '' where nothing was."""


class Faults(list[Fault]):
    """All that is wrong, collected so that it is told at once."""

    def add(self, path: str, reason: str) -> None:
        """Append the fault of a setting."""
        self.append(Fault(path, reason))


class ConfigError(LetheError):
    """A sweep file with faults; its text lists them, the first hundred of very many."""

    def __init__(self, file: str, faults: Sequence[Fault]) -> None:
        self.file = file
        self.faults = tuple(faults)
        count = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
        listed, more = faults[:MOST_LISTED], len(faults) - MOST_LISTED
        width = max((len(fault.path) for fault in listed), default=0)
        margin = max((len(fault.origin) + 2 for fault in listed if fault.origin), default=0)
        lines = [f"  {fault.origin:<{margin}}{fault.path:<{width}}  {fault.reason}" for fault in listed]
        lines += [f"  and {more} more."] if more > 0 else []
        super().__init__("\n".join([f"{file} has {count}:", *lines]))


class DataError(LetheError):
    """A text file, array or data set that cannot be used as it is."""


class ModelError(LetheError):
    """A checkpoint or tokenizer that cannot be loaded."""


class PluginError(LetheError):
    """A method or evaluator that is unknown, broken, or defined twice."""


class StorageError(LetheError):
    """A file or folder that cannot be written: a full or read-only disk, a missing right, something in its place."""


class TrialError(LetheError):
    """An erasure or a measurement that cannot go on."""

    log: tuple[str, ...] = ()
    """Lines from other processes' logs, as a failure's record may keep them."""


class WorkerDiedError(TrialError):
    """The death of one of the processes, or of their machine, that a trial needs: tried again, it may end well."""


class ExecutorError(LetheError):
    """What runs the trials broke: the sweep ends, and what is measured is kept."""


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """Return the sentence for an unknown name, with the nearest known one.

    Example:
        >>> unknown("method", "emsoo", ["emso", "gradient_ascent"])
        "no method is called 'emsoo'. Did you mean 'emso'? Known: emso, gradient_ascent."
    """
    names = sorted(known)
    return f"no {kind} is called '{name}'.{did_you_mean(name, names)} Known: {', '.join(names)}."


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """Return a question with the known name that is nearest to an unknown one; '' if none is near.

    Example:
        >>> did_you_mean("sweeep", ["sweep", "audit"])
        " Did you mean 'sweep'?"
    """
    near = get_close_matches(name, known, n=1)
    return f" Did you mean '{near[0]}'?" if near else ""


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, a scheduler or `kill`, and a terminal that was closed."""


class Interrupted(KeyboardInterrupt):
    """A signal that asks the sweep to end."""

    def __init__(self, signal_number: int) -> None:
        super().__init__()
        self.exit_code = 128 + signal_number


def take_signals() -> None:
    """Have each of the signals raise `Interrupted`; one that is ignored, as under nohup, stays ignored."""
    for signum in SIGNALS:
        if signal.getsignal(signum) is not signal.SIG_IGN:
            signal.signal(signum, _interrupt)


@contextmanager
def signals_kept() -> Iterator[None]:
    """Put the handlers of the signals back at the end: a library that starts inside may have replaced them."""
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
