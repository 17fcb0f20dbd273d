"""Threads that a plugin leaves behind: its trial fails, and the process ends all the same."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import thread as pools
from contextlib import contextmanager
from typing import NoReturn

from harness.errors import TrialError
from harness.execution.guard.interruption import INTERRUPTION

_GRACE_SECONDS = 1.0
"""In which a thread that is about to end may do so."""


@contextmanager
def no_thread_left(plugin: str) -> Iterator[None]:
    """Run a plugin inside, or a method up to where it gives out a model, `plugin` being its name for people.

    Raises:
        TrialError: A thread that it started still runs, beside what is measured next, and would keep the process from
            ending.
    """
    before = set(_keeping_alive())
    yield
    until = time.monotonic() + _GRACE_SECONDS
    for left in set(_keeping_alive()) - before:
        left.join(max(0.0, until - time.monotonic()))
        if left.is_alive():
            raise TrialError(
                f"{plugin} left a thread behind{_runs(left)}, which would go on beside what is measured and keep the "
                "process from ending: join it before you yield or return, or start it with daemon=True."
            )


def _runs(thread: threading.Thread) -> str:
    """Return which code a thread runs; its name is the plugin's, and may be anything."""
    from harness.execution.guard.redaction import position

    code = getattr(getattr(thread, "_target", None), "__code__", None) or type(thread).run.__code__
    where = position(code, code.co_firstlineno)
    return f" ({where})" if where else ""


def _keeping_alive() -> list[threading.Thread]:
    """Return the threads that Python waits for before it ends; not those of pools, which it ends by itself."""
    of_pools = getattr(pools, "_threads_queues", {})
    ours = threading.current_thread(), threading.main_thread()
    return [
        thread
        for thread in threading.enumerate()
        if not thread.daemon and thread not in ours and thread not in of_pools
    ]


def leave(exit_code: int) -> NoReturn:
    """End the process, also where a plugin's thread would go on or something of it is beyond a good end."""
    if not _keeping_alive() and not INTERRUPTION.is_broken:
        sys.exit(exit_code)
    if not INTERRUPTION.is_broken:  # Ray's own would wait for what is dead.
        atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)
