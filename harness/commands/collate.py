"""Make rankings, collapse flags and the report again: from a sweep's journal, or only from a table.csv.

    lethe collate results/tradeoff
    lethe collate results/published/emso_main_table.csv

A sweep's folder is also copied to MLflow: runs that MLflow lacks are added, and nothing is added twice.

Exit codes: 0 done, 1 a file or MLflow cannot be written, 2 the path holds neither results nor a table to rank.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.analysis.analysis import Analysis
from harness.analysis.collapse import flag
from harness.analysis.ranking import rank, rank_names
from harness.analysis.shown import shown_table
from harness.analysis.table import read_table
from harness.base.paths import folder_argument, path_argument
from harness.base.storage import reading
from harness.base.terminal import tell
from harness.commands.command import Command, print_ranking
from harness.errors import DataError
from harness.library import read_folder
from harness.records.mlflow import copy_sweep, failure_of, place_of
from harness.reporting.files import write, write_tables, written_files
from harness.reporting.point_tags import point_tags
from harness.reporting.sections.outcome import answer_markdown
from harness.reporting.text_tables import ranking_table, table_console


class CollateCommand(Command):
    """`lethe collate`."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add what is read, and where the files go."""
        parser.add_argument("path", type=path_argument, help="a sweep's results folder, or a table.csv")
        about = "write the files here (default: a results folder into itself, a table.csv nowhere)"
        parser.add_argument("--out", type=folder_argument, help=about)

    def run(self, arguments: argparse.Namespace) -> int:
        """Print the ranking of a results folder or a table.csv, and write the files."""
        path, out = arguments.path, arguments.out
        with reading(path, "a results folder or a table"):
            exists = path.exists()
        if not exists:
            raise DataError(f"{path} does not exist. Give a sweep's results folder (results/tradeoff) or a table.csv.")
        if path.is_dir():
            analysis = Analysis(read_folder(path))
            written = write(analysis, out or path)
            print_ranking(analysis)
        else:
            written = _collate_table(path, out)
        for file in written:
            tell(file)
        return 0 if out or not path.is_dir() else _copy_to_mlflow(analysis, path.resolve())


def _copy_to_mlflow(analysis: Analysis, folder: Path) -> int:
    """Write to MLflow what it lacks of a sweep, and return the exit code."""
    tags = point_tags(analysis.ranked.table, analysis.attacks)
    try:
        copy_sweep(folder, analysis.results, tags, written_files(folder), answer_markdown(analysis))
    except Exception as error:
        reason = failure_of(error, folder.parent)
        tell(f"{reason} Fix that and run this again: it continues where it stopped.", is_error=True)
        return 1
    tell(f"MLflow at {place_of(folder.parent)} holds what the journal of {folder.name} holds.")
    return 0


def _collate_table(path: Path, out: Path | None) -> list[Path]:
    """Rank a table alone, with its collapse flags computed again unless it has their classes; return the files."""
    stated, info = read_table(path)
    has_classes = stated["collapse_class"].any()
    ranked = rank(stated if has_classes else flag(stated, info), info)
    shown = shown_table(ranked)
    table_console().print(ranking_table(shown))
    if not has_classes:
        both = stated.merge(ranked.ranking, on=["model", "variant"], suffixes=("", "_ours"))
        ranks = []
        for name in rank_names(ranked.info):
            if name in stated.columns:
                pairs = zip(both[name], both[f"{name}_ours"], strict=True)
                ranks += [theirs == ours for theirs, ours in pairs if theirs]
        flags = ranked.table["collapsed"].eq(stated["collapsed"])[stated["collapsed"].notna()]
        for what, same in (("ranks", ranks), ("collapse flags", list(flags))):
            if same:
                tell(f"{sum(same)} of the {len(same)} {what} that the file states agree with these.")
    return write_tables(shown, path.stem, out) if out else []


main = CollateCommand()
