"""A published table beside ours: in the report, as Markdown, and for the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from harness.analysis.cells import NOTHING, number
from harness.analysis.published.comparison import ComparedCell, ComparedTable
from harness.reporting.markdown import markdown_escape
from harness.reporting.section import Section

VERDICTS = {True: "inside", False: "OUTSIDE", None: ""}
OURS_THEN_PUBLISHED = "Each cell: ours, the published figure, and the difference."


class Published(Section):
    """Each cell beside the published one, where the sweep reproduces a table."""

    template = "published.html.j2"
    stems = ("published",)
    needs_points = True

    def files(self) -> dict[str, str]:
        """Return the tables as Markdown."""
        tables = self.analysis.published
        return {"published.md": published_markdown(tables, self.analysis.results.plan.question)} if tables else {}

    def context(self) -> dict[str, Any] | None:
        """Return the tables, and how their cells are printed."""
        if not self.analysis.published:
            return None
        return {
            "published": self.analysis.published,
            "heading": heading,
            "figure_text": figure_text,
            "difference_text": difference_text,
            "marks": marks,
        }


def figure_text(cell: ComparedCell, value: float) -> str:
    """Return one figure of a cell as printed; of a flag `yes` or `no`."""
    if cell.metric is None:
        return NOTHING if math.isnan(value) else "yes" if value else "no"
    return number(value, cell.metric)


def difference_text(cell: ComparedCell) -> str:
    """Return the difference with its sign; a dash where it cannot be told, and of a flag."""
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
    """Return whose figures stand beside whose."""
    return f"{table.model} beside {table.published_model} of {table.title}"


def published_markdown(tables: Sequence[ComparedTable], question: str) -> str:
    """Return every model's table in the published layout."""
    parts = [f"# {markdown_escape(question)}", f"{OURS_THEN_PUBLISHED} † collapsed here."]
    for table in tables:
        heads = ["", "Strength", *(markdown_escape(cell.title) for cell in table.rows[0].cells)]
        lines = [heads, ["---"] * 2 + ["--:"] * (len(heads) - 2)]
        for row in table.rows:
            cells = [
                f"{figure_text(cell, cell.ours)}<br>{figure_text(cell, cell.published)}<br>{difference_text(cell)}"
                + (f" <sup>{marks(cell, table)}</sup>" if cell.obstacles else "")
                for cell in row.cells
            ]
            label = markdown_escape(row.label) + (" †" if row.collapsed else "")
            lines.append([label, markdown_escape(row.strength), *cells])
        parts += [f"## {markdown_escape(heading(table))}", "\n".join("| " + " | ".join(line) + " |" for line in lines)]
        if table.notes:
            notes = [f"- {letter}: {markdown_escape(obstacle)}" for obstacle, letter in table.notes.items()]
            parts += ["Not to be compared:", "\n".join(notes)]
    return "\n\n".join(parts) + "\n"


def published_table(table: ComparedTable) -> Table:
    """Return a table for the terminal, of the metrics of the trade-off figure and the collapse flag."""
    shown = [index for index, cell in enumerate(table.rows[0].cells) if cell.metric is None or cell.metric.axis]
    terminal = _terminal(table, "Each cell: ours; below it the difference and the published figure.")
    terminal.add_column("")
    for index in shown:
        terminal.add_column(table.rows[0].cells[index].title, justify="right")
    for row in table.rows:
        cells = [row.cells[index] for index in shown]
        ours = [f"{figure_text(cell, cell.ours)} {marks(cell, table)}".strip() for cell in cells]
        theirs = [f"{difference_text(cell)} {figure_text(cell, cell.published)}" for cell in cells]
        terminal.add_row(Text(row.label), *map(Text, ours), style="red" if row.collapsed else None)
        terminal.add_row("", *map(Text, theirs), style="dim")
    return terminal


def verified_table(table: ComparedTable) -> Table:
    """Return a table for the terminal with a line for each cell: both figures, the tolerance, and the verdict."""
    terminal = _terminal(table)
    for title in ("Row", "Metric"):
        terminal.add_column(title)
    for title in ("Ours", "Published", "Difference", "Tolerance"):
        terminal.add_column(title, justify="right")
    terminal.add_column("Verdict")
    for row in table.rows:
        for number_of_cell, cell in enumerate(row.cells):
            label = f"{row.label} {row.strength}".strip() if number_of_cell == 0 else ""
            verdict = VERDICTS[cell.is_inside] or f"not compared: {marks(cell, table)}"
            figures = [figure_text(cell, cell.ours), figure_text(cell, cell.published)]
            texts = [label, cell.title, *figures, difference_text(cell), tolerance_text(cell), verdict]
            terminal.add_row(*map(Text, texts), style="red" if cell.is_inside is False else None)
        terminal.add_section()
    return terminal


def _terminal(table: ComparedTable, *about: str) -> Table:
    notes = [f"{letter}: {obstacle}" for obstacle, letter in table.notes.items()]
    below = "\n".join([*about, *(["Not to be compared:", *notes] if notes else [])])
    return Table(
        box=SIMPLE_HEAD,
        show_edge=False,
        title=Text(heading(table), style="bold"),
        title_justify="left",
        caption=Text(below) if below else None,
        caption_justify="left",
    )
