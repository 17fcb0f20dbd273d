"""What a trial failed with, whatever a plugin raised."""

from __future__ import annotations

import threading

from harness.errors import TrialError
from harness.execution.guard.interruption import INTERRUPTION, Interrupted, TimeLimitExceeded
from harness.execution.guard.redaction import failure_for_report
from harness.execution.guard.time_limits import exceeded
from harness.specs import TrialSpec


def failure(error: BaseException, spec: TrialSpec) -> Exception:
    """Return the error that a trial failed with; raise again what must end the whole sweep.

    Args:
        error: What the trial raised, whatever it is: a plugin may raise `SystemExit` or worse.
        spec: The trial.
    """
    INTERRUPTION.check()
    # Python's own Ctrl-C has no arguments and is no subclass.
    is_ctrl_c = type(error) is KeyboardInterrupt and not error.args and not INTERRUPTION.takes_signals
    if isinstance(error, Interrupted) or (is_ctrl_c and threading.current_thread() is threading.main_thread()):
        raise error
    if isinstance(error, Exception):
        return error
    if isinstance(error, TimeLimitExceeded):
        INTERRUPTION.heard()
        return TrialError(exceeded(spec))
    said, _ = failure_for_report(error, spec.samples)
    ended = TrialError(f"a plugin tried to end the process. It may return, or raise an Exception. {said}")
    ended.__cause__ = error
    return ended
