"""Print the values that each sequence, prompt and question has in a point's metrics, as one CSV table a kind of item.

    lethe items results/tradeoff --point 3fa2

Exit codes: 0 all of them are printed, 1 the output is incomplete, 2 there is no such point, or it has no items.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from harness.base.paths import folder_argument
from harness.base.terminal import lost_output, tell
from harness.commands.command import Command
from harness.errors import DataError, StorageError

if TYPE_CHECKING:
    from pandas import DataFrame


class ItemsCommand(Command):
    """`lethe items`."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the sweep's folder and the point."""
        parser.add_argument("folder", type=folder_argument, help="a sweep's results: results/tradeoff")
        parser.add_argument("--point", required=True, help="the point's id, as in table.csv (point_id)")

    def run(self, arguments: argparse.Namespace) -> int:
        """Print a table of each kind of items: a row an item, a column a metric."""
        from harness.base.csv_text import csv_text
        from harness.library import load_results

        of_point = load_results(arguments.folder).items(arguments.point)
        if of_point.empty:
            raise DataError(
                f"the point {arguments.point} keeps no items: either it was measured before Lethe kept them, or none "
                f"of its metrics has any. To get them, remove its trial's file from {arguments.folder}/journal and run "
                "the sweep again."
            )
        tables: dict[tuple[str, ...], DataFrame] = {}
        for metric, rows in of_point.groupby("metric", sort=False):
            table = tables.setdefault(tuple(rows["item"]), rows[["item", "cluster"]].reset_index(drop=True))
            table[str(metric)] = rows["value"].to_numpy()
        tell("\n".join(map(csv_text, tables.values())), end="")
        if why := lost_output():
            raise StorageError(f"the items could not be printed whole: {why}. Print them to another place.")
        return 0


main = ItemsCommand()
