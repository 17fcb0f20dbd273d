"""Threads that a plugin leaves behind: its trial fails, and the process ends all the same."""

from __future__ import annotations

import atexit
import gc
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
"""How long a thread that is about to end may take."""


@contextmanager
def no_thread_left(plugin: str) -> Iterator[None]:
    """Run a plugin inside, or a method until it yields a model; `plugin` is its name for people.

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
            from harness.execution.guard.redaction import position

            # Where its code is; a thread's name is the plugin's, and may be anything.
            code = getattr(getattr(left, "_target", None), "__code__", None) or type(left).run.__code__
            where = position(code, code.co_firstlineno)
            raise TrialError(
                f"{plugin} left a thread behind{f' ({where})' if where else ''}, which would go on beside what is "
                "measured and keep the process from ending: join it before you yield or return, or start it with "
                "daemon=True."
            )


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
    """End the process, even if a plugin's thread would go on or the process cannot end in good order."""
    if not _keeping_alive() and not INTERRUPTION.is_broken:
        gc.freeze()  # Else Python looks through every imported module for cycles before it ends, for a second or two.
        sys.exit(exit_code)
    if not INTERRUPTION.is_broken:  # Ray's exit handlers would wait for dead processes.
        atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)
