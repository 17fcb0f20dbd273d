"""Ranking of a table.csv, comparison with a published table, and copies to MLflow."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from harness.analysis.analysis import Analysis
from harness.analysis.collapse import flag
from harness.analysis.ranking import head, rank, rank_names
from harness.analysis.table import read_table
from harness.base.messages import console, tell
from harness.errors import DataError
from harness.library import load_results
from harness.records.mlflow import copy_sweep, failure_of, place_of
from harness.records.published import published_conditions
from harness.reporting.files import write_tables, written_files
from harness.reporting.point_tags import point_tags
from harness.reporting.sections.main_table import ranking_table
from harness.reporting.summary import answer_markdown


def copy_to_mlflow(analysis: Analysis, folder: Path) -> int:
    """Write the missing runs of a sweep to MLflow, and return the exit code."""
    tags = point_tags(analysis.ranked.table, analysis.attacks)
    try:
        copy_sweep(folder, analysis.results, tags, written_files(folder), answer_markdown(analysis))
    except Exception as error:
        reason = failure_of(error, folder.parent)
        tell(f"{reason} Fix that and run this again: it continues where it stopped.", is_error=True)
        return 1
    tell(f"MLflow at {place_of(folder.parent)} holds what the journal of {folder.name} holds.")
    return 0


def collate_table(path: Path, out: Path | None) -> list[Path]:
    """Rank a table; collapse flags are computed unless it has their classes. Return the files."""
    stated, info = read_table(path)
    has_classes = stated["collapse_class"].any()
    ranked = rank(stated if has_classes else flag(stated, info), info)
    console().print(ranking_table(ranked, head(ranked)))
    if not has_classes:
        both = stated.merge(ranked.ranking, on=["model", "variant"], suffixes=("", "_ours"))
        ranks = []
        for name in set(rank_names(ranked.info)) & set(stated.columns):
            pairs = zip(both[name], both[f"{name}_ours"], strict=True)
            ranks += [theirs == ours for theirs, ours in pairs if theirs]
        flags = ranked.table["collapsed"].eq(stated["collapsed"])[stated["collapsed"].notna()]
        for what, same in (("ranks", ranks), ("collapse flags", list(flags))):
            if same:
                tell(f"{sum(same)} of the {len(same)} {what} that the file states agree with these.")
    return write_tables(ranked, path.stem, out) if out else []


def complete_tables(folder: Path) -> pd.DataFrame:
    """Return the published table next to ours; all its rows must be in the results."""
    outcome = load_results(folder)
    plan = outcome.results.plan
    if plan.reproduces is None:
        raise DataError(
            f"the sweep '{plan.sweep}' reproduces no published table. If it should, add to its sweep file reproduces: "
            f"NAME, one of {', '.join(published_conditions())}, and run it again: nothing is measured twice."
        )
    frame = outcome.analysis.published
    names = frame["label"] + " on " + frame["model"]
    lacking = frame["lacking"].ne("")
    missing = list(dict.fromkeys(names[lacking] + ": " + frame["lacking"][lacking]))
    if missing:
        present = ", ".join(dict.fromkeys(names[~lacking]))
        raise DataError(
            f"{folder} lacks rows of the published table:\n  " + "\n  ".join(missing) + "\n"
            f"It has: {present or 'none'}. Add what is missing to the sweep file, or run the sweep again."
        )
    return frame
