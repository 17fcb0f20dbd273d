"""A published table beside ours: in the report, as Markdown, and for the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from harness.analysis.cells import NOTHING, number
from harness.analysis.published.comparison import ComparedCell, ComparedTable
from harness.reporting.section import Section
from harness.reporting.template import text_file
from harness.reporting.text_tables import result_table

VERDICTS = {True: "inside", False: "OUTSIDE", None: ""}


class Published(Section):
    """Each cell beside the published one, where the sweep reproduces a table."""

    stems = ("published",)
    needs_points = True

    def files(self) -> dict[str, str]:
        """Return the tables as Markdown."""
        tables = self.analysis.published
        return {"published.md": published_markdown(tables, self.analysis.results.plan.question)} if tables else {}

    def context(self) -> dict[str, Any]:
        """Return how cells are printed."""
        return _PRINTED


def figure_text(cell: ComparedCell, value: float) -> str:
    """Return one figure of a cell as printed; a flag is `yes` or `no`."""
    if cell.metric is None:
        return NOTHING if math.isnan(value) else "yes" if value else "no"
    return number(value, cell.metric)


def difference_text(cell: ComparedCell) -> str:
    """Return the difference with its sign; a dash where it is not known, and for a flag."""
    if cell.metric is None or math.isnan(cell.difference):
        return NOTHING
    return f"{'+' if cell.difference >= 0 else ''}{number(cell.difference, cell.metric)}"


def tolerance_text(cell: ComparedCell) -> str:
    """Return the tolerance."""
    if cell.metric is None or math.isnan(cell.tolerance):
        return NOTHING
    return f"±{number(cell.tolerance, cell.metric)}"


def marks(cell: ComparedCell, table: ComparedTable) -> str:
    """Return the letters of what keeps a cell from being compared."""
    return ",".join(table.notes[obstacle] for obstacle in cell.obstacles)


def heading(table: ComparedTable) -> str:
    """Return which model's figures are beside which."""
    return f"{table.model} beside {table.published_model} of {table.title}"


def published_markdown(tables: Sequence[ComparedTable], question: str) -> str:
    """Return every model's table in the published layout."""
    return text_file("published.md.j2", tables=tables, question=question, **_PRINTED)


_PRINTED = {"heading": heading, "figure_text": figure_text, "difference_text": difference_text, "marks": marks}
"""How templates print a table and its cells."""


def published_table(table: ComparedTable) -> Table:
    """Return a table for the terminal, of the metrics of the trade-off figure and the collapse flag."""
    terminal = _terminal(table, "Each cell: ours; below it the difference and the published figure.")
    terminal.add_column("")
    shown = []
    for index, cell in enumerate(table.rows[0].cells):
        if cell.metric is None or cell.metric.axis:
            shown.append(index)
            terminal.add_column(cell.title, justify="right")
    for row in table.rows:
        ours, theirs = [Text(row.label)], [Text("")]
        for index in shown:
            cell = row.cells[index]
            ours.append(Text(f"{figure_text(cell, cell.ours)} {marks(cell, table)}".strip()))
            theirs.append(Text(f"{difference_text(cell)} {figure_text(cell, cell.published)}"))
        terminal.add_row(*ours, style="red" if row.collapsed else None)
        terminal.add_row(*theirs, style="dim")
    return terminal


def verified_table(table: ComparedTable) -> Table:
    """Return a table for the terminal with a line for each cell: both figures, the tolerance, and the verdict."""
    terminal = _terminal(table)
    for title in ("Row", "Metric", "Ours", "Published", "Difference", "Tolerance", "Verdict"):
        terminal.add_column(title, justify="left" if title in ("Row", "Metric", "Verdict") else "right")
    for row in table.rows:
        label = f"{row.label} {row.strength}".strip()
        for cell in row.cells:
            verdict = VERDICTS[cell.is_inside] or f"not compared: {marks(cell, table)}"
            figures = [figure_text(cell, cell.ours), figure_text(cell, cell.published)]
            texts = [label, cell.title, *figures, difference_text(cell), tolerance_text(cell), verdict]
            terminal.add_row(*map(Text, texts), style="red" if cell.is_inside is False else None)
            label = ""
        terminal.add_section()
    return terminal


def _terminal(table: ComparedTable, *about: str) -> Table:
    notes = [f"{letter}: {obstacle}" for obstacle, letter in table.notes.items()]
    return result_table(heading(table), "\n".join([*about, "Not to be compared:", *notes] if notes else about))
