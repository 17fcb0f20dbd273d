"""Writes one page that links the reports of all sweeps in a results folder.

lethe index
"""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.base.files import write_whole
from harness.base.terminal import tell
from harness.commands.command import Command, add_results_argument
from harness.errors import DataError, LetheError
from harness.records.journal import Journal
from harness.records.results import read_results
from harness.records.tuned import unfinished_studies
from harness.reporting.index import IndexEntry, index_page


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_results_argument(parser)


def _run(arguments: argparse.Namespace) -> int:
    """Write `index.html` into a results folder, and print where it is."""
    results = arguments.results
    entries = index_entries(results)
    tell(write_whole(results / "index.html", index_page(entries), "the index"))
    faults = [entry.fault for entry in entries if entry.fault]
    for fault in faults:
        tell(fault, is_error=True)
    return 1 if faults else 0


def index_entries(results: Path) -> list[IndexEntry]:
    """Return what the index says of every sweep in a results folder, by name.

    Raises:
        DataError: The folder holds no sweep's results.
    """
    journals = [Journal(path.parent) for path in sorted(results.glob("*/journal/plan.json"))]
    if not journals:
        raise DataError(
            f"{results} holds no sweep's results. Run one first (python -m harness.sweep sweeps/tradeoff.yaml), or "
            "name the folder with --results."
        )
    entries = []
    for journal in journals:
        folder, fault, read = journal.folder.parent, "", None
        try:
            read = read_results(journal.read_plan(), journal)
        except LetheError as error:
            fault = str(error)
        has_report, has_picture = ((folder / name).exists() for name in ("report.html", "tradeoff.png"))
        searches_left = len(unfinished_studies(read)) if read else 0
        entries.append(IndexEntry(folder.name, read, fault, searches_left, has_report, has_picture))
    return entries


main = Command("index", __doc__, _add_arguments, _run)
