"""What models recite, where nothing was erased: a column for each set of texts, a row for each metric."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from harness.analysis.cells import NOTHING, Cell, interval_cell
from harness.analysis.evidence import Evidence
from harness.analysis.ranking import RankedTable
from harness.base.messages import printable
from harness.contracts import Metric
from harness.specs import HOLDOUT, ORIGINAL, REFERENCE_ROWS, RETRAINED, STAND_IN

COLUMNS = {
    ORIGINAL: "Forget set",
    RETRAINED: "Retrained model",
    HOLDOUT: "Unseen texts",
    STAND_IN: "Validation texts",
}
"""What each reference row was measured on, and by whom if not by the original."""


@dataclass(frozen=True)
class RecitationTable:
    """One model's part."""

    model: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Metric, tuple[Cell, ...]], ...]
    """Each metric with a cell for each column: a mean over seeds and its 95 % interval."""


def recitation_tables(ranked: RankedTable) -> list[RecitationTable]:
    """Return the reference rows of every model, with all that was measured of them but reasoning tasks."""
    metrics = [metric for metric in ranked.info.values() if metric.group != "reasoning"]
    by_model = ranked.table.groupby("model", sort=False)
    return [_table(str(model), rows, metrics, ranked.evidence) for model, rows in by_model]


def _table(model: str, rows: pd.DataFrame, metrics: Sequence[Metric], evidence: Evidence) -> RecitationTable:
    of_references = {kind: rows[rows["method"] == kind] for kind in REFERENCE_ROWS}
    measured = {kind: seeds for kind, seeds in of_references.items() if len(seeds)}
    return RecitationTable(
        model,
        tuple(COLUMNS[kind] for kind in measured),
        tuple((metric, tuple(_cell(seeds, metric, evidence) for seeds in measured.values())) for metric in metrics),
    )


def _cell(seeds: pd.DataFrame, metric: Metric, evidence: Evidence) -> Cell:
    mean = float(seeds[metric.name].mean(skipna=False))
    return interval_cell(mean, *evidence.interval(seeds, metric), metric)


def terminal_table(tables: Sequence[RecitationTable], caption: str) -> Table:
    """Return the tables for the terminal, with a column for what any of them measured; intervals in brackets."""
    names = list(dict.fromkeys(name for table in tables for name in table.columns))
    shown = Table(box=SIMPLE_HEAD, show_edge=False, caption=Text(printable(caption)), caption_justify="left")
    shown.add_column("Metric")
    for name in names:
        shown.add_column(Text(name), justify="right")
    for table in tables:
        if len(tables) > 1:
            shown.add_row(Text(printable(table.model), style="bold"))
        for metric, cells in table.rows:
            by_name = dict(zip(table.columns, cells, strict=True))
            texts = [_text(by_name[name]) if name in by_name else NOTHING for name in names]
            shown.add_row(Text(printable(metric.title)), *map(Text, texts))
        shown.add_section()
    return shown


def _text(cell: Cell) -> str:
    return f"{cell.text} ({cell.interval})" if cell.interval else cell.text
