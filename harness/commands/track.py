"""Fills MLflow in from a sweep's journal: what it lacks, and nothing twice.

    lethe track results/tradeoff

Exit codes: 0 MLflow holds what the journal holds, 1 it does not, for the reason that is told.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.base.paths import folder_argument
from harness.base.terminal import tell
from harness.commands.command import Command
from harness.errors import DataError, LetheError
from harness.library import load_results
from harness.records.tracking.live import only_tracking, reason_of
from harness.records.tracking.tracker import Tracker
from harness.reporting.files import written_files
from harness.reporting.point_tags import point_tags


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=folder_argument, help="a sweep's results: results/tradeoff")


def _run(arguments: argparse.Namespace) -> int:
    """Write to MLflow what it lacks of a sweep: runs, numbers, and the report with its tables and figures."""
    folder = arguments.folder
    tell(f"MLflow at {_track(folder.resolve())} holds what the journal of {folder} holds.")
    return 0


def _track(folder: Path) -> str:
    """Write what MLflow lacks of a sweep, and return where it is."""
    outcome = load_results(folder)
    tracker = Tracker(folder.parent)
    try:
        with only_tracking(folder):
            tracker.sync(outcome.results, point_tags(outcome.ranked.table))
            tracker.finish(written_files(folder))
    except LetheError:
        raise
    except Exception as error:
        raise DataError(
            f"{reason_of(error, tracker.place)} Mend that and run this again: it goes on where it ended."
        ) from error
    return tracker.place


main = Command("track", __doc__, _add_arguments, _run, error_code=1)
