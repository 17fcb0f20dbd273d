"""Prints what each sequence, prompt and question has of a point's metrics, as CSV: a table for each kind of items."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from harness.base.paths import folder_argument
from harness.base.terminal import lost_output, tell
from harness.commands.command import Command
from harness.errors import DataError, StorageError

if TYPE_CHECKING:
    from pandas import DataFrame


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=folder_argument, help="a sweep's results: results/tradeoff")
    parser.add_argument("--point", required=True, help="the point's id, as table.csv has it (point_id)")


def _run(arguments: argparse.Namespace) -> int:
    from harness.base.csv_text import csv_text
    from harness.library import load_results

    of_point = load_results(arguments.folder).items(arguments.point)
    if of_point.empty:
        raise DataError(
            f"the point {arguments.point} keeps no items: it was measured before Lethe kept them, or by nothing that "
            f"has any. Remove its trial's file from {arguments.folder}/journal and run the sweep again to have them."
        )
    tables: dict[tuple[str, ...], DataFrame] = {}
    for metric, rows in of_point.groupby("metric", sort=False):
        table = tables.setdefault(tuple(rows["item"]), rows[["item", "cluster"]].reset_index(drop=True))
        table[str(metric)] = rows["value"].to_numpy()
    tell("\n".join(map(csv_text, tables.values())), end="")
    if why := lost_output():
        raise StorageError(f"the items could not be printed whole: {why}. Print them to another place.")
    return 0


main = Command("items", __doc__, _add_arguments, _run)
