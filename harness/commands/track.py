"""Copy a sweep's journal to MLflow: what MLflow lacks, and nothing twice.

    lethe track results/tradeoff

Exit codes: 0 MLflow holds what the journal holds; 1 it does not, and the message says why.
"""

from __future__ import annotations

import argparse

from harness.base.paths import folder_argument
from harness.base.terminal import tell
from harness.commands.command import Command
from harness.errors import DataError, LetheError
from harness.library import load_results
from harness.records.tracking.live import only_tracking, reason_of
from harness.records.tracking.tracker import Tracker
from harness.reporting.files import written_files
from harness.reporting.point_tags import point_tags
from harness.reporting.sections.outcome import answer_markdown


class TrackCommand(Command):
    """`lethe track`."""

    input_errors = ()

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the sweep's folder."""
        parser.add_argument("folder", type=folder_argument, help="a sweep's results: results/tradeoff")

    def run(self, arguments: argparse.Namespace) -> int:
        """Write to MLflow what it lacks of a sweep: runs, numbers, and the report with its tables and figures."""
        folder = arguments.folder.resolve()
        outcome = load_results(folder)
        tracker = Tracker(folder.parent)
        try:
            with only_tracking(folder):
                tracker.sync(outcome.results, point_tags(outcome.ranked.table, outcome.analysis.attacks))
                tracker.finish(written_files(folder), answer_markdown(outcome.analysis))
        except LetheError:
            raise
        except Exception as error:
            reason = reason_of(error, tracker.place)
            raise DataError(f"{reason} Fix that and run this again: it continues where it stopped.") from error
        tell(f"MLflow at {tracker.place} holds what the journal of {arguments.folder} holds.")
        return 0


main = TrackCommand()
