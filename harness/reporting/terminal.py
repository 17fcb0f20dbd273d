"""The ranking as a table for the terminal: what a sweep ends with, within 100 columns."""

from __future__ import annotations

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.reporting.facts import Facts
from harness.reporting.layout import NOTHING, RANK_TITLES, ModelTable, Row, model_tables
from harness.reporting.recitation import said_first
from harness.reporting.summary import caption
from harness.specs import REFERENCE_ROWS

WIDTH = 100
_STYLES = {"best": "bold", "second": "underline", "": ""}


def console() -> Console:
    """Return a console that has room for the table, in a pipe too."""
    found = Console()
    return found if found.is_terminal else Console(width=WIDTH)


def ranking_table(table: pd.DataFrame, ranking: pd.DataFrame, facts: Facts) -> Table:
    """Return every model's ranked rows, best first, below its reference rows; collapsed ones in red.

    Above it stands what must be read before any rank.

    Shown are the metrics of the trade-off figure; with several seeds their means alone.
    """
    tables = model_tables(table, ranking, facts)
    shown = Table(
        box=SIMPLE_HEAD,
        show_edge=False,
        collapse_padding=True,
        title=Text("\n".join(said_first(table, facts))) or None,
        title_style="bold",
        title_justify="left",
        caption=caption(table),
        caption_justify="left",
    )
    shown.add_column("Method", max_width=28, overflow="fold")
    for metric in tables[0].metrics if tables else ():
        if _is_shown(metric.name):
            shown.add_column(metric.title, justify="right")
    for title in RANK_TITLES:
        shown.add_column(title, justify="center")
    shown.add_column("State")
    for each in tables:
        if len(tables) > 1:
            shown.add_row(Text(each.model, style="bold"))
        references = [row for row in each.rows() if row.variant in REFERENCE_ROWS]
        for row in [*references, *each.best_first]:
            shown.add_row(*_cells(each, row), style="red" if row.collapsed else None)
        shown.add_section()
    return shown


def _is_shown(name: str) -> bool:
    return name in ("ma", "perplexity", "mauve") or name.startswith("el_")


def _cells(table: ModelTable, row: Row) -> list[Text]:
    name = f"{row.label}, {row.strength}" if row.strength else row.label
    numbers = [
        Text(cell.text.split(" ±")[0], style=_STYLES[cell.mark])
        for metric, cell in zip(table.metrics, row.cells, strict=True)
        if _is_shown(metric.name)
    ]
    ranks = [Text("" if rank == NOTHING else rank) for rank in row.ranks]
    note = row.note if row.note and not row.collapsed else row.verdict
    return [Text(name), *numbers, *ranks, Text(note)]
