"""What a trial failed with, whatever a plugin raised."""

from __future__ import annotations

import threading

from harness.errors import TrialError
from harness.execution.interruption import INTERRUPTION, Interrupted, TimeLimitExceeded


def failure(error: BaseException, exceeded: str) -> Exception:
    """Return what a trial failed with as an error of its own; what is to end the whole sweep is raised again.

    Args:
        error: What the trial raised, whatever it is: a plugin may raise `SystemExit` or worse.
        exceeded: What to say where it ran longer than it may.
    """
    INTERRUPTION.check()
    is_ctrl_c = isinstance(error, KeyboardInterrupt) and not INTERRUPTION.takes_signals
    if isinstance(error, Interrupted) or (is_ctrl_c and threading.current_thread() is threading.main_thread()):
        raise error
    if isinstance(error, Exception):
        return error
    if isinstance(error, TimeLimitExceeded):
        INTERRUPTION.heard()
        return TrialError(exceeded)
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return TrialError(f"a plugin tried to end the process ({said}). It may return, or raise an Exception.")
