"""Signals that end a sweep: each is raised in the main thread, as Ctrl-C is, so that `finally` writes the report."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

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
