"""Compare a sweep's results with the published table that it reproduces, cell by cell.

    lethe verify results/paper_main_table

Exit codes: 0 every cell is compared and lies within its tolerance; 1 a cell lies outside, or cannot be compared because
the sweep measured something else; 2 there is nothing to verify: no results, no published table, or rows are missing.
Published figures of a collapsed model are set aside: only its collapse flag is compared.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.analysis.published.comparison import ComparedTable
from harness.base.paths import path_argument
from harness.base.terminal import tell
from harness.commands.command import Command
from harness.errors import DataError, LetheError
from harness.library import load_results
from harness.records.published import published_conditions
from harness.reporting.sections.published import verified_table
from harness.reporting.text_tables import table_console


class VerifyCommand(Command):
    """`lethe verify`."""

    input_errors = (LetheError,)

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the sweep's folder."""
        parser.add_argument("folder", type=path_argument, help="a sweep's results: results/paper_main_table")

    def run(self, arguments: argparse.Namespace) -> int:
        """Print each cell of a published table beside ours, and whether it lies within its tolerance."""
        cells = []
        for table in _complete_tables(arguments.folder):
            table_console().print(verified_table(table))
            table_console().print()
            cells += table.cells
        inside = sum(cell.is_inside is True for cell in cells)
        outside = sum(cell.is_inside is False for cell in cells)
        set_aside = sum(cell.is_set_aside for cell in cells)
        unlike = len(cells) - inside - outside - set_aside
        tell(f"{inside + outside} of {len(cells)} cells can be compared: {inside} inside, {outside} outside.")
        if set_aside:
            tell(f"{set_aside} are set aside: the published figures say nothing there.")
        if not inside + outside:
            tell("Nothing is verified: no cell can be compared, for the reasons above.")
        elif unlike:
            tell(f"The table is not verified: {unlike} of its cells cannot be compared, for the reasons above.")
        return 0 if inside and not outside + unlike else 1


def _complete_tables(folder: Path) -> list[ComparedTable]:
    """Return the compared tables of a results folder, if it has every row of the published one."""
    outcome = load_results(folder)
    plan = outcome.results.plan
    if plan.reproduces is None:
        raise DataError(
            f"the sweep '{plan.sweep}' reproduces no published table. If it should, add to its sweep file reproduces: "
            f"NAME, one of {', '.join(published_conditions())}, and run it again: nothing is measured twice."
        )
    missing, present = [], []
    for table in outcome.analysis.published:
        for row in table.rows:
            name = f"{row.label} on {table.model}"
            if row.lacking:
                missing.append(f"{name}: {row.lacking}")
            else:
                present.append(name)
    if missing:
        raise DataError(
            f"{folder} lacks rows of the published table:\n  " + "\n  ".join(missing) + "\n"
            f"It has: {', '.join(present) or 'none'}. Add what is missing to the sweep file, or run the sweep again."
        )
    return outcome.analysis.published


main = VerifyCommand()
