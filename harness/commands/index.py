"""Write one page, index.html, that links the reports of all sweeps in a results folder.

    lethe index

Exit codes: 0 written; 1 it cannot be written, or a sweep in it cannot be read; 2 the folder holds no sweep's results.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.base.files import write_whole
from harness.base.terminal import tell
from harness.commands.command import Command, add_results_argument
from harness.errors import DataError, LetheError
from harness.library import read_folder, sweeps_in
from harness.records.tuned import unfinished_studies
from harness.reporting.index import IndexEntry, index_page


class IndexCommand(Command):
    """`lethe index`."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the results folder."""
        add_results_argument(parser)

    def run(self, arguments: argparse.Namespace) -> int:
        """Write `index.html` into a results folder, and print where it is."""
        entries = index_entries(arguments.results)
        tell(write_whole(arguments.results / "index.html", index_page(entries), "the index"))
        faults = [entry.fault for entry in entries if entry.fault]
        for fault in faults:
            tell(fault, is_error=True)
        return 1 if faults else 0


def index_entries(results: Path) -> list[IndexEntry]:
    """Return what the index says of every sweep in a results folder, by name.

    Raises:
        DataError: The folder holds no sweep's results.
    """
    entries = []
    for folder in sweeps_in(results):
        read, fault, searches_left = None, "", 0
        try:
            read = read_folder(folder)
            searches_left = len(unfinished_studies(read))
        except LetheError as error:
            fault = str(error)
        has_report, has_picture = (folder / "report.html").exists(), (folder / "tradeoff.png").exists()
        entries.append(IndexEntry(folder.name, read, fault, searches_left, has_report, has_picture))
    if not entries:
        raise DataError(
            f"{results} holds no sweep's results. Run one first (python -m harness.sweep sweeps/tradeoff.yaml), or "
            "name the folder with --results."
        )
    return entries


main = IndexCommand()
