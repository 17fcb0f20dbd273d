"""Show what differs between the results of two sweeps, or two points: settings, versions, and numbers.

    lethe diff results/tradeoff other/results/tradeoff
    lethe diff tradeoff:gradient_difference@1 tradeoff:emso@2
    lethe diff results/before results/after --csv differences.csv

A point is named by its id as in table.csv (point_id), by a unique beginning of that id, or as SWEEP:VARIANT@STRENGTH.

Exit codes: 0 nothing differs, to the last bit; 1 something does; 2 one of the two cannot be read.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
from rich.table import Table
from rich.text import Text

from harness.analysis.differences import Differences, differences
from harness.base.csv_text import csv_text
from harness.base.files import write_whole
from harness.base.messages import printable
from harness.base.paths import named_argument, path_argument
from harness.base.terminal import tell
from harness.commands.command import Command, add_results_argument
from harness.errors import DataError
from harness.library import find_point, read_folder, refuse_without_results
from harness.records.point_names import points_called
from harness.reporting.text_tables import result_table, table_console

_MOST_ROWS = 40
_MOST_CHARACTERS = 200
_NOISE = (
    " Within noise: the 95 % interval of the difference, paired over the same items, holds zero, or the difference is "
    "less than what the metric's evaluator says that a single seed cannot distinguish from zero."
)
_CPU = "The CPUs are of different kinds: what is trained differs in its last bits, and so in the digits of erased rows."


class DiffCommand(Command):
    """`lethe diff`."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the two results, and a file for all that differs."""
        parser.add_argument("a", type=named_argument, help="a sweep's results, results/tradeoff, or a point")
        parser.add_argument("b", type=named_argument, help="what it is compared with: results of a sweep, or a point")
        add_results_argument(parser)
        parser.add_argument("--csv", type=path_argument, metavar="FILE", help="write every difference and number here")

    def run(self, arguments: argparse.Namespace) -> int:
        """Print what differs between two results folders, or two points."""
        names = (arguments.a, arguments.b)
        is_point = [not Path(name).exists() and "/" not in name for name in names]
        if is_point[0] != is_point[1]:
            raise DataError(f"there is no folder '{names[is_point.index(True)]}'. Name two folders, or two points.")
        points = [find_point(name, arguments.results) for name in names if is_point[0]]
        folders = [folder for folder, _ in points] or [Path(name) for name in names]
        for folder in folders:
            refuse_without_results(folder)
        a, b = (read_folder(folder) for folder in folders)
        pair = None
        if points:
            [point_a], [point_b] = points_called(points[0][1], a.measured), points_called(points[1][1], b.measured)
            pair = point_a, point_b
        compared = differences(a, b, pair)
        if arguments.csv:
            write_whole(arguments.csv, csv_text(pd.DataFrame(_csv_rows(compared))), "the differences")
        for side, name, kinds in zip("AB", names, compared.cpus, strict=True):
            ran_on = f" (on {', '.join(kinds)})" if kinds else ""
            tell(f"{side}: {name}{ran_on}")
        if len(set(compared.cpus)) > 1 and all(compared.cpus):
            tell(_CPU)
        for table in _difference_tables(compared):
            table_console().print()
            table_console().print(table)
        table_console().print()
        count = len(compared.numbers)
        if compared.is_same:
            tell(f"Nothing differs: {count:,} numbers are the same to the last bit.")
        else:
            apart = len(compared.only_in_a) + len(compared.only_in_b)
            others = f"{len(compared.settings):,} settings and {len(compared.versions):,} versions differ"
            counts = Counter(pair.verdict for pair in compared.numbers)
            verdicts = ", ".join(f"{number:,} {verdict}" for verdict, number in counts.most_common())
            numbers = f"{count:,} numbers of points in both: {verdicts}." if count else "No point is in both."
            tell(f"{others}; {apart:,} points are in one alone. {numbers}{_NOISE if counts['within noise'] else ''}")
        if arguments.csv:
            tell(arguments.csv)
        return 0 if compared.is_same else 1


def _difference_tables(compared: Differences) -> Iterator[Table]:
    for title, listed in (("Settings", compared.settings), ("Versions", compared.versions)):
        rows = []
        for difference in listed:
            where = str(difference.points[0]) if len(difference.points) == 1 else f"{len(difference.points)} points"
            rows.append((difference.what, difference.a, difference.b, where if difference.points else ""))
        yield from _shortened_table(title, ("What", "A", "B", "Where"), rows)
    for title, points in (("Points in A alone", compared.only_in_a), ("Points in B alone", compared.only_in_b)):
        yield from _shortened_table(title, ("Point",), [(str(point),) for point in points])
    apart, within_noise = [], []
    for pair in compared.numbers:
        digits = f"{pair.a:.6g}", f"{pair.b:.6g}", f"{pair.difference:+.3g}"
        values = [each.replace("inf", "∞") for each in digits]
        row = str(pair.point), pair.metric, *values, pair.note or pair.verdict
        if pair.verdict == "within noise":
            within_noise.append(row)
        elif pair.verdict != "identical":
            apart.append(row)
    yield from _shortened_table("Numbers", ("Point", "Metric", "A", "B", "B − A", ""), apart + within_noise)


def _shortened_table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[Table]:
    """Yield the first rows as a table, with a sentence on how many more there are; nothing if there are none."""
    if not rows:
        return
    left_out = len(rows) - _MOST_ROWS
    caption = f"and {left_out:,} more: --csv FILE writes all of them." if left_out > 0 else ""
    table = result_table(title, caption)
    for head in heads:
        is_number = head in ("A", "B", "B − A") and "Metric" in heads
        table.add_column(head, justify="right" if is_number else "left", overflow="fold")
    for row in rows[:_MOST_ROWS]:
        cells = []
        for head, text in zip(heads, row, strict=True):
            is_cut = head in ("A", "B") and len(text) > _MOST_CHARACTERS
            cells.append(Text(printable(f"{text[: _MOST_CHARACTERS - 1]}…" if is_cut else text)))
        table.add_row(*cells)
    yield table


def _csv_rows(compared: Differences) -> Iterator[dict[str, Any]]:
    """Yield a row of the CSV for each difference, and for each number that both have."""
    heads = ("kind", "model", "variant", "seed", "at", "repeat", "what", "a", "b", "difference", "verdict", "note")
    empty: dict[str, Any] = dict.fromkeys(heads, "")
    for kind, listed in (("setting", compared.settings), ("version", compared.versions)):
        for each in listed:
            row = empty | {"kind": kind, "what": each.what, "a": each.a, "b": each.b, "verdict": "differs"}
            if not each.points:
                yield row
            for point in each.points:
                yield row | asdict(point)
    for verdict, points in (("only in A", compared.only_in_a), ("only in B", compared.only_in_b)):
        for point in points:
            yield empty | asdict(point) | {"kind": "point", "verdict": verdict}
    for pair in compared.numbers:
        row = empty | asdict(pair.point) | {"kind": "number", "what": pair.metric, "a": pair.a, "b": pair.b}
        yield row | {"difference": pair.difference, "verdict": pair.verdict, "note": pair.note}


main = DiffCommand()
