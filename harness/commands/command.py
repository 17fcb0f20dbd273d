"""What every verb shares: its parser, what becomes of an error or a signal, and the end of its process."""

from __future__ import annotations

import argparse
import gc
import signal
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NoReturn

from harness.base.interruption import SIGNALS, Interrupted, take_signals
from harness.base.paths import folder_argument
from harness.base.terminal import lasting_streams, lost_output, tell
from harness.errors import ConfigError, DataError, LetheError, ModelError, PluginError

if TYPE_CHECKING:
    from harness.analysis.analysis import Analysis


class Command(ABC):
    """A verb of `lethe`: one module, whose docstring is the verb's help (its first paragraph and its exit codes)."""

    input_errors: ClassVar[tuple[type[LetheError], ...]] = (ConfigError, DataError, ModelError, PluginError)
    """Errors in what the verb was given: exit code 2. All others end with 1."""
    interrupted: ClassVar[str] = ""
    """What a verb that handles signals prints after one; '' for a verb that a signal simply ends."""

    @abstractmethod
    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the verb's arguments."""

    @abstractmethod
    def run(self, arguments: argparse.Namespace) -> int:
        """Run the verb and return its exit code."""

    def __call__(self, argv: Sequence[str] | None = None) -> int:
        """Parse the arguments, run the verb and return its exit code; an error of Lethe is printed as a sentence."""
        arguments = self.parser().parse_args(argv)
        if self.interrupted:
            take_signals()
        try:
            return self.run(arguments)
        except LetheError as error:
            tell(error, *getattr(error, "__notes__", ()), is_error=True)
            return 2 if isinstance(error, self.input_errors) else 1
        except Interrupted as error:
            tell(f"\nInterrupted. {self.interrupted}", *getattr(error, "__notes__", ()), is_error=True)
            return error.exit_code

    def parser(self) -> argparse.ArgumentParser:
        """Return the parser of the verb's arguments."""
        module = sys.modules[type(self).__module__]
        help_text, marker, exit_codes = str(module.__doc__).partition("Exit codes:")
        parser = argparse.ArgumentParser(
            prog=f"lethe {module.__name__.rpartition('.')[2]}",
            description=help_text.partition("\n\n")[0],
            epilog=marker + exit_codes,
        )
        self.add_arguments(parser)
        return parser


POINT_HELP = "its id as in table.csv, a unique beginning of the id, or SWEEP:VARIANT@STRENGTH"
"""What an argument that names a point says of itself."""


def add_results_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--results`, the folder of all sweeps' results, or of one."""
    about = "folder with the results of all sweeps, or of one (default: %(default)s)"
    parser.add_argument("--results", type=folder_argument, default=Path("results"), help=about)


def add_set_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--set`, which changes settings of a sweep file."""
    about = "change a setting of the file: seeds=[0,1] (repeatable)"
    parser.add_argument("--set", action="append", default=[], metavar="PATH=VALUE", help=about)


def print_ranking(analysis: Analysis) -> None:
    """Print a sweep's ranking, and the published tables that it reproduces."""
    from harness.reporting.sections.published import published_table
    from harness.reporting.text_tables import attacks_on_terminal, ranking_table, table_console

    table_console().print(ranking_table(analysis.shown_table))
    for attacked in analysis.attacks if analysis.results.plan.erases else ():
        table_console().print(attacks_on_terminal(attacked))
    for table in analysis.published:
        table_console().print(published_table(table))


def run_command(main: Callable[[], int]) -> NoReturn:
    """Call `main` and end the process with the exit code that it returns, even if its terminal is gone."""
    with lasting_streams():
        exit_code = main()
        if why := lost_output():
            tell(f"The printed output is incomplete: {why}.", is_error=True)
        for signum in SIGNALS:  # From here on a signal ends the process, and Python prints nothing about it.
            if signal.getsignal(signum) is not signal.SIG_IGN:
                signal.signal(signum, signal.SIG_DFL)
        gc.freeze()  # Else Python looks through every imported module for cycles before it ends, for a second or two.
        sys.exit(exit_code)
