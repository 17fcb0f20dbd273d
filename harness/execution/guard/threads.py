"""The end of the process, which comes also where a plugin left a thread behind."""

from __future__ import annotations

import atexit
import gc
import os
import sys
import threading
from concurrent.futures import thread as pools
from typing import NoReturn

from harness.execution.guard.interruption import INTERRUPTION


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
