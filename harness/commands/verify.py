"""Holds a sweep's results against the published table that it reproduces, cell by cell.

    lethe verify results/paper_main_table

Exit codes: 0 every cell is compared and lies within its tolerance, 1 one lies outside, or cannot be compared because
the sweep measured something else, 2 there is nothing to verify: no results, no published table, or rows are missing.
Set aside are published figures that nothing can be held against: those of a collapsed model, whose flag is compared.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.analysis.published.comparison import ComparedTable
from harness.base.paths import path_argument
from harness.base.terminal import tell
from harness.commands.command import Command
from harness.errors import DataError
from harness.library import load_results
from harness.records.published import published_conditions
from harness.reporting.sections.published import verified_table
from harness.reporting.text_tables import table_console


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=path_argument, help="a sweep's results: results/paper_main_table")


def _run(arguments: argparse.Namespace) -> int:
    """Print each cell of a published table beside ours, and whether it lies within its tolerance."""
    folder = arguments.folder
    tables = _whole_tables(folder)
    for table in tables:
        table_console().print(verified_table(table))
        table_console().print()
    cells = [cell for table in tables for cell in table.cells]
    inside, outside = (sum(cell.is_inside is which for cell in cells) for which in (True, False))
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


def _whole_tables(folder: Path) -> list[ComparedTable]:
    """Return the tables of a results folder, sure to have every row of the published one."""
    outcome = load_results(folder)
    plan = outcome.results.plan
    if plan.reproduces is None:
        raise DataError(
            f"the sweep '{plan.sweep}' reproduces no published table. Where it does, its sweep file says "
            f"reproduces: NAME, one of {', '.join(published_conditions())}; run it again after adding that, which "
            "measures nothing twice."
        )
    tables = outcome.analysis.published
    lacking = [f"{row.label} on {table.model}: {row.lacking}" for table in tables for row in table.rows if row.lacking]
    if lacking:
        others = [f"{row.label} on {table.model}" for table in tables for row in table.rows if not row.lacking]
        raise DataError(
            f"{folder} lacks rows of the published table:\n  " + "\n  ".join(lacking) + "\n"
            f"There are: {', '.join(others) or 'none'}. Add what is missing to the sweep file, or run the sweep again."
        )
    return tables


main = Command("verify", __doc__, _add_arguments, _run, error_code=2)
