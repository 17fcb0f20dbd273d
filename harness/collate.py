"""Turns results into rankings and collapse flags again: from a sweep's journal, or from a table.csv.

python -m harness.collate results/tradeoff
python -m harness.collate results/published/emso_main_table.csv
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from harness.errors import DataError, LetheError
from harness.records.journal import Journal
from harness.reporting.collapse import flag
from harness.reporting.facts import Facts, known_facts, metric_facts
from harness.reporting.ranking import RANKS, rank
from harness.reporting.table import read_table, table
from harness.reporting.terminal import console, ranking_table
from harness.reporting.write import write, write_tables

MISSING = "does not exist. Give a sweep's results folder (results/tradeoff) or a table.csv."


def main(argv: Sequence[str] | None = None) -> int:
    """Print the ranking of a results folder or a table.csv, and write the files; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m harness.collate", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("path", type=Path, help="a sweep's results folder, or a table.csv")
    parser.add_argument("--out", type=Path, help="write the files here (a table.csv alone writes none otherwise)")
    options = parser.parse_args(argv)
    try:
        if not options.path.exists():
            raise DataError(f"{options.path} {MISSING}")
        written = (_folder if options.path.is_dir() else _csv)(options.path, options.out)
    except LetheError as error:
        print(error, file=sys.stderr)
        return 2
    for path in written:
        print(path)
    return 0


def _folder(path: Path, out: Path | None) -> list[Path]:
    """Make everything again from the journal of a results folder."""
    journal = Journal(path / "journal")
    plan = journal.read_plan()
    records = {spec.trial_id: journal.read(spec.trial_id) for spec in plan.trials}
    written = write(plan, records, out or path)
    _show(table(plan, records), metric_facts(plan, records))
    return written


def _csv(path: Path, out: Path | None) -> list[Path]:
    """Rank a table alone; its collapse flags are set anew unless it has their classes."""
    given = read_table(path)
    found = given if given["collapse_class"].any() else flag(given)
    facts = known_facts(found.columns)
    ranking = _show(found, facts)
    _compare(given, found, ranking)
    return write_tables(found, ranking, facts, path.stem, out) if out else []


def _show(found: pd.DataFrame, facts: Facts) -> pd.DataFrame:
    ranking = rank(found, facts)
    console().print(ranking_table(found, ranking, facts))
    return ranking


def _compare(given: pd.DataFrame, found: pd.DataFrame, ranking: pd.DataFrame) -> None:
    """Say how far the ranks and flags that a published table states agree with ours."""
    names = [name for name in RANKS if name in given.columns]
    both = given.merge(ranking, on=["model", "variant"], suffixes=("", "_ours"))
    ranks = [one == ours for name in names for one, ours in zip(both[name], both[f"{name}_ours"], strict=True) if one]
    flags = found["collapsed"].eq(given["collapsed"])[given["collapsed"].notna()]
    for what, same in (("ranks", ranks), ("collapse flags", list(flags))):
        if same and given is not found:
            print(f"{sum(same)} of the {len(same)} {what} that the file states agree with these.")


if __name__ == "__main__":
    raise SystemExit(main())
