"""A command, from its start to the end of its process."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import NoReturn

from harness.base.terminal import lasting_streams, lost_output, tell
from harness.execution.guard.interruption import SIGNALS
from harness.execution.guard.threads import leave


def run_command(main: Callable[[], int]) -> NoReturn:
    """Call `main` and end the process with the exit code that it returns, whatever becomes of its terminal."""
    with lasting_streams():
        exit_code = main()
        if why := lost_output():
            tell(f"What was printed is not whole: {why}.", is_error=True)
        for signum in SIGNALS:  # All is done: a signal ends the process, and Python says nothing of it.
            if signal.getsignal(signum) is not signal.SIG_IGN:
                signal.signal(signum, signal.SIG_DFL)
        leave(exit_code)
