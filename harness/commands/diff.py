"""Tells what differs between the results of two sweeps: settings, versions, and numbers, point by point.

    lethe diff results/tradeoff other/results/tradeoff
    lethe diff results/before results/after --csv differences.csv

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
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from harness.analysis.differences import Difference, Differences, NumberPair, differences
from harness.base.csv_text import csv_text
from harness.base.files import write_whole
from harness.base.messages import printable
from harness.base.paths import folder_argument, path_argument
from harness.base.terminal import tell
from harness.commands.command import Command
from harness.library import refuse_without_results
from harness.records.journal import Journal
from harness.records.results import Results, read_results
from harness.reporting.text_tables import table_console

_MOST_ROWS = 40
_MOST_CHARACTERS = 40


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", type=folder_argument, help="a sweep's results: results/tradeoff")
    parser.add_argument("b", type=folder_argument, help="those of another, or of the same sweep elsewhere")
    parser.add_argument("--csv", type=path_argument, metavar="FILE", help="write every difference and number here")


def _run(arguments: argparse.Namespace) -> int:
    """Print what differs between two results folders."""
    found = differences(_results(arguments.a), _results(arguments.b))
    if arguments.csv:
        write_whole(arguments.csv, csv_text(pd.DataFrame(_lines(found))), "the differences")
    tell(f"A: {arguments.a}", f"B: {arguments.b}")
    for table in _tables(found):
        table_console().print()
        table_console().print(table)
    table_console().print()
    tell(_summary(found))
    if arguments.csv:
        tell(arguments.csv)
    return 0 if found.is_same else 1


def _results(folder: Path) -> Results:
    refuse_without_results(folder)
    journal = Journal(folder / "journal")
    return read_results(journal.read_plan(), journal)


def _tables(found: Differences) -> Iterator[Table]:
    """Yield a table of each kind of differences that there are."""
    for title, listed in (("Settings", found.settings), ("Versions", found.versions)):
        if listed:
            yield _table(title, ("What", "A", "B", "Where"), [_cells(each) for each in listed])
    for title, points in (("Points in A alone", found.only_in_a), ("Points in B alone", found.only_in_b)):
        if points:
            yield _table(title, ("Point",), [(str(point),) for point in points])
    unequal = [pair for pair in found.numbers if pair.verdict != "identical"]
    if unequal:
        by_verdict = sorted(unequal, key=lambda pair: pair.verdict == "within noise")
        heads = ("Point", "Metric", "A", "B", "B − A", "")
        yield _table("Numbers", heads, [_number_cells(pair) for pair in by_verdict])


def _cells(difference: Difference) -> tuple[str, ...]:
    points = difference.points
    where = "" if not points else str(points[0]) if len(points) == 1 else f"{len(points)} points"
    return difference.what, _cut(difference.a), _cut(difference.b), where


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 1]}…"


def _number_cells(pair: NumberPair) -> tuple[str, ...]:
    values = (f"{pair.a:.6g}", f"{pair.b:.6g}", f"{pair.difference:+.3g}")
    return str(pair.point), pair.metric, *values, pair.note or pair.verdict


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Return the first rows as a table, with a sentence on how many more there are."""
    left_out = len(rows) - _MOST_ROWS
    caption = f"and {left_out:,} more: --csv FILE writes all of them." if left_out > 0 else ""
    table = Table(
        box=SIMPLE_HEAD,
        show_edge=False,
        title=Text(title, style="bold"),
        title_justify="left",
        caption=Text(caption) if caption else None,
        caption_justify="left",
    )
    for head in heads:
        is_number = head in ("A", "B", "B − A") and "Metric" in heads
        table.add_column(head, justify="right" if is_number else "left", overflow="fold")
    for row in rows[:_MOST_ROWS]:
        table.add_row(*(Text(printable(cell)) for cell in row))
    return table


def _summary(found: Differences) -> str:
    """Return one sentence for each kind of things that were compared."""
    counts = Counter(pair.verdict for pair in found.numbers)
    verdicts = ", ".join(f"{count:,} {name}" for name, count in counts.most_common())
    numbers = f"{len(found.numbers):,} numbers of points in both: {verdicts}." if found.numbers else "No point in both."
    apart = len(found.only_in_a) + len(found.only_in_b)
    others = (
        f"{len(found.settings):,} settings and {len(found.versions):,} versions differ; {apart:,} points are in one "
        "alone."
    )
    within = " Within noise is less than what its metric's evaluator says that one seed cannot tell from none."
    if found.is_same:
        return f"Nothing differs: {len(found.numbers):,} numbers are the same to the last bit."
    return f"{others} {numbers}{within if counts['within noise'] else ''}"


def _lines(found: Differences) -> Iterator[dict[str, Any]]:
    """Yield a row of the CSV for each difference, and for each number that both have."""
    heads = ("kind", "model", "variant", "seed", "at", "repeat", "what", "a", "b", "difference", "verdict", "note")
    empty: dict[str, Any] = dict.fromkeys(heads, "")
    for kind, listed in (("setting", found.settings), ("version", found.versions)):
        for each in listed:
            values = {**empty, "kind": kind, "what": each.what, "a": each.a, "b": each.b, "verdict": "differs"}
            for point in each.points or (None,):
                yield {**values, **(asdict(point) if point else {})}
    for verdict, points in (("only in A", found.only_in_a), ("only in B", found.only_in_b)):
        for point in points:
            yield {**empty, "kind": "point", **asdict(point), "verdict": verdict}
    for pair in found.numbers:
        values = {"a": pair.a, "b": pair.b, "difference": pair.difference, "verdict": pair.verdict, "note": pair.note}
        yield {**empty, "kind": "number", **asdict(pair.point), "what": pair.metric, **values}


main = Command("diff", __doc__, _add_arguments, _run)
