"""Turns results into rankings and collapse flags again: from a sweep's journal, or from a table.csv.

python -m harness.collate results/tradeoff
python -m harness.collate results/published/emso_main_table.csv
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from harness.analysis.analysis import Analysis
from harness.analysis.collapse import flag
from harness.analysis.ranking import RankedTable, rank, rank_names
from harness.analysis.shown import shown_table
from harness.analysis.table import read_table
from harness.base.paths import folder_argument, path_argument
from harness.base.storage import reading
from harness.base.terminal import tell
from harness.commands.command import Command
from harness.errors import DataError
from harness.records.journal import Journal
from harness.records.results import read_results
from harness.reporting.files import write, write_tables
from harness.reporting.sections.published import published_table
from harness.reporting.text_tables import ranking_table, table_console


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", type=path_argument, help="a sweep's results folder, or a table.csv")
    parser.add_argument(
        "--out", type=folder_argument, help="write the files here (a table.csv alone writes none otherwise)"
    )


def _run(arguments: argparse.Namespace) -> int:
    """Print the ranking of a results folder or a table.csv, and write the files."""
    with reading(arguments.path, "a results folder or a table"):
        exists = arguments.path.exists()
    if not exists:
        raise DataError(
            f"{arguments.path} does not exist. Give a sweep's results folder (results/tradeoff) or a table.csv."
        )
    written = (_folder if arguments.path.is_dir() else _csv)(arguments.path, arguments.out)
    for path in written:
        tell(path)
    return 0


def _folder(path: Path, out: Path | None) -> list[Path]:
    """Make everything again from the journal of a results folder."""
    journal = Journal(path / "journal")
    results = read_results(journal.read_plan(), journal)
    analysis = Analysis(results)
    written = write(analysis, out or path)
    table_console().print(ranking_table(analysis.shown_table))
    for table in analysis.published:
        table_console().print(published_table(table))
    return written


def _csv(path: Path, out: Path | None) -> list[Path]:
    """Rank a table alone; its collapse flags are computed again unless it has their classes."""
    stated, info = read_table(path)
    has_classes = stated["collapse_class"].any()
    ranked = rank(stated if has_classes else flag(stated, info), info)
    shown = shown_table(ranked)
    table_console().print(ranking_table(shown))
    if not has_classes:
        _compare(stated, ranked)
    return write_tables(shown, path.stem, out) if out else []


def _compare(stated: pd.DataFrame, ours: RankedTable) -> None:
    """Say how far the ranks and flags that a published table states agree with ours."""
    names = [name for name in rank_names(ours.info) if name in stated.columns]
    both = stated.merge(ours.ranking, on=["model", "variant"], suffixes=("", "_ours"))
    ranks = [
        theirs == own for name in names for theirs, own in zip(both[name], both[f"{name}_ours"], strict=True) if theirs
    ]
    flags = ours.table["collapsed"].eq(stated["collapsed"])[stated["collapsed"].notna()]
    for what, same in (("ranks", ranks), ("collapse flags", list(flags))):
        if same:
            tell(f"{sum(same)} of the {len(same)} {what} that the file states agree with these.")


main = Command("collate", __doc__, _add_arguments, _run)
