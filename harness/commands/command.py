"""What every verb has in common: its parser, what becomes of an error, and the end of its process."""

from __future__ import annotations

import argparse
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from harness.base.paths import folder_argument
from harness.base.terminal import lasting_streams, lost_output, tell
from harness.errors import ExecutorError, LetheError, StorageError, TrialError
from harness.execution.guard.interruption import SIGNALS
from harness.execution.guard.threads import leave

_FAILURES = (StorageError, TrialError, ExecutorError)
"""What went wrong on the way; every other error is about what the command was given."""


@dataclass(frozen=True)
class Command:
    """A verb of `lethe`, to be called with its arguments; it returns the exit code."""

    name: str
    about: str | None
    """The module's docstring: its first line is the description, and its last paragraph tells the exit codes."""
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    error_code: int | None = None
    """The exit code of every error; None: 1 for what went wrong on the way, 2 for what the command was given."""

    def __call__(self, argv: Sequence[str] | None = None) -> int:
        """Run the command; an error of Lethe is one sentence and an exit code."""
        arguments = self.parser().parse_args(argv)
        try:
            return self.run(arguments)
        except LetheError as error:
            tell(error, is_error=True)
            return self.error_code or (1 if isinstance(error, _FAILURES) else 2)

    def parser(self) -> argparse.ArgumentParser:
        """Return the parser of its arguments."""
        description, _, rest = (self.about or "").partition("\n")
        exit_codes = rest[rest.find("Exit codes:") :] if "Exit codes:" in rest else None
        parser = argparse.ArgumentParser(prog=f"lethe {self.name}", description=description, epilog=exit_codes)
        self.add_arguments(parser)
        return parser


def add_results_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--results`, the folder of all sweeps' results."""
    parser.add_argument(
        "--results", type=folder_argument, default=Path("results"), help="folder of all sweeps' results"
    )


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
