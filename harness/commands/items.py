"""Print the values that each sequence, prompt and question has in a point's metrics, as one CSV table a kind of item.

    lethe items tradeoff:emso@3
    lethe items 3fa2 --results other/results

A point is named by its id as in table.csv (point_id), by a unique beginning of that id, or as SWEEP:VARIANT@STRENGTH.
Of a perplexity an item has the logarithm, its mean negative log-likelihood of a token: the column is called
perplexity_log. No text has an AUC of its own: what is printed of one are pseudo-values, of which the mean is the AUC,
so that one alone may lie below 0 or above 1. They stand in a table of their own, unseen texts below the forget set.

Exit codes: 0 all of them are printed, 1 the output is incomplete, 2 there is no such point, or it has no items.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from harness.base.terminal import lost_output, tell
from harness.commands.command import POINT_HELP, Command, add_results_argument
from harness.errors import DataError, StorageError

if TYPE_CHECKING:
    from pandas import DataFrame


class ItemsCommand(Command):
    """`lethe items`."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the point, and where results are."""
        parser.add_argument("point", help=POINT_HELP)
        add_results_argument(parser, or_one=True)

    def run(self, arguments: argparse.Namespace) -> int:
        """Print a table of each kind of items: a row an item, a column a metric."""
        from harness.base.csv_text import csv_text
        from harness.library import find_point, load_results

        folder, point_id = find_point(arguments.point, arguments.results)
        of_point = load_results(folder).items(point_id)
        if of_point.empty:
            raise DataError(
                f"the point {point_id} keeps no items: either it was measured before Lethe kept them, or none "
                f"of its metrics has any. To get them, remove its trial's file from {folder}/journal and run "
                "the sweep again."
            )
        tables: dict[tuple[str, ...], DataFrame] = {}
        for (metric, quantity), rows in of_point.groupby(["metric", "quantity"], sort=False):
            column = metric if quantity == "value" else f"{metric}_{quantity}"
            table = tables.setdefault(tuple(rows["item"]), rows[["item", "cluster"]].reset_index(drop=True))
            table[column] = rows["value"].to_numpy()
        tell("\n".join(map(csv_text, tables.values())), end="")
        if why := lost_output():
            raise StorageError(f"the items could not be printed whole: {why}. Print them to another place.")
        return 0


main = ItemsCommand()
