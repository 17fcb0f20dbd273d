"""The main table as Markdown, as LaTeX in the paper's layout, and for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from harness.analysis.attacks.excess import AttackTable
from harness.analysis.cells import NOTHING, Cell, interval_cell
from harness.analysis.layout import GROUP_TITLE, RANK_TITLES, ModelTable, TableRow
from harness.analysis.metrics import mean_over
from harness.analysis.ranking import RankedTable
from harness.analysis.shown import ShownTable
from harness.base.terminal import console as terminal_console
from harness.contracts import Metric
from harness.reporting.summary import GROUP_LETTERS, LETTERS, caption
from harness.reporting.template import text_file
from harness.specs import HOLDOUT, ORIGINAL, REFERENCE_ROWS, RETRAINED, STAND_IN

_READ_BY = {ORIGINAL: "Forget set", RETRAINED: "Retrained model", HOLDOUT: "Unseen texts", STAND_IN: "Validation texts"}
"""What each reference row was measured on, and by whom if not by the original."""
_TERMINAL_WIDTH = 100
_TERMINAL_STYLES = {"best": "bold", "second": "underline", "": ""}


def markdown(tables: Sequence[ModelTable], question: str, caption: str) -> str:
    """Return the main table of every model, under the sweep's question."""
    about = {"evidence": about_evidence(tables), "rank_groups": about_groups(tables)}
    return text_file("table.md.j2", tables=tables, question=question, caption=caption, **about)


def latex(tables: Sequence[ModelTable], caption: str) -> str:
    """Return a `table*` that needs the packages booktabs and colortbl, and no other."""
    about = {"caption": caption, "rank_groups": about_groups(tables)}
    return text_file("table.tex.j2", tables=tables, first=_first_table(tables), **about)


def _first_table(tables: Sequence[ModelTable]) -> ModelTable:
    """Return the table whose columns all have; one without metrics if nothing is measured."""
    return tables[0] if tables else ModelTable("", (), RANK_TITLES, (), ())


def about_evidence(tables: Sequence[ModelTable]) -> str:
    """Return what letters mean, and which metrics are not made of items; '' where no number has an interval."""
    cells = [cell for table in tables for row in table.rows() for cell in row.cells]
    said = [LETTERS] if any(cell.letters for cell in cells) else []
    whole = [metric for metric in tables[0].metrics if not metric.items] if tables else []
    if whole and any(cell.interval for cell in cells):
        have, them, its = ("have", "them", "their") if len(whole) > 1 else ("has", "it", "its")
        source = f"only several seeds give {them} an interval"
        if all(metric.noise for metric in whole):
            source = f"of one seed {its} interval is the noise of the metric, as declared; of several it is over seeds"
        said.append(f"{' and '.join(metric.title for metric in whole)} {have} no items: {source}.")
    return " ".join(said)


def about_groups(tables: Sequence[ModelTable]) -> str:
    """Return what the brackets behind ranks and the letters of rank groups mean; '' where there are none."""
    return GROUP_LETTERS if any(GROUP_TITLE in table.rank_titles for table in tables) else ""


@dataclass(frozen=True)
class RecitationTable:
    """What one model recites, where nothing was erased: a row for each metric, a column for each set of texts."""

    model: str
    columns: Sequence[str]
    rows: Sequence[tuple[Metric, Mapping[str, Cell]]]
    """Each metric with a cell for each column: a mean over seeds and its 95 % interval."""


def recitation_tables(ranked: RankedTable) -> list[RecitationTable]:
    """Return the reference rows of every model, with all that was measured of them but reasoning tasks."""
    tables = []
    for model, of_model in ranked.table.groupby("model", sort=False):
        measured = [method for method in REFERENCE_ROWS if (of_model["method"] == method).any()]
        rows = []
        for metric in [metric for metric in ranked.info.values() if metric.group != "reasoning"]:
            cells = {}
            for method in measured:
                seeds = of_model[of_model["method"] == method]
                mean = mean_over(seeds, metric)
                cells[_READ_BY[method]] = interval_cell(mean, *ranked.evidence.interval(seeds, metric), metric)
            rows.append((metric, cells))
        tables.append(RecitationTable(str(model), [_READ_BY[method] for method in measured], rows))
    return tables


def table_console() -> Console:
    """Return a console that has room for the table, in a pipe too."""
    return terminal_console(_TERMINAL_WIDTH)


def result_table(title: str, caption: str) -> Table:
    """Return an empty table for the terminal, below its title and above its caption."""
    return Table(
        box=SIMPLE_HEAD,
        show_edge=False,
        title=Text(title) or None,
        title_style="bold",
        title_justify="left",
        caption=Text(caption) or None,
        caption_justify="left",
    )


def ranking_table(shown: ShownTable) -> RenderableType:
    """Return every model's ranked rows, best first, below its reference rows; collapsed ones in red.

    Above it stands what must be read before any rank. Where nothing was erased it is what the models recite.

    Shown are the metrics of the trade-off figure, without their intervals.
    """
    ranked, tables = shown.whole, shown.tables
    said_first = "\n".join(ranked.said_first)
    if ranked.is_of_references and len(ranked.table):
        return Group(Text(said_first, style="bold"), _recited_on_terminal(ranked))
    first = _first_table(tables)
    drawn = [index for index, metric in enumerate(first.metrics) if metric.axis is not None]
    notes = [caption(ranked.table), about_groups(tables), shown.note]
    terminal = result_table(said_first, " ".join(filter(None, notes)))
    terminal.collapse_padding = True
    terminal.add_column("Method", min_width=14, max_width=28, overflow="fold")
    for index in drawn:
        terminal.add_column(Text(first.metrics[index].title), justify="right")
    for title in first.rank_titles:
        terminal.add_column(Text(title), justify="center")
    terminal.add_column("State")
    for table in tables:
        if len(tables) > 1:
            terminal.add_row(Text(table.model, style="bold"))
        references = [row for row in table.rows() if row.variant in REFERENCE_ROWS]
        for row in [*references, *table.best_first]:
            terminal.add_row(*_terminal_cells(row, drawn), style="red" if row.state else None)
        terminal.add_section()
    return terminal


def _terminal_cells(row: TableRow, drawn: Sequence[int]) -> list[Text]:
    cells = [Text(f"{row.label}, {row.strength}" if row.strength else row.label)]
    for index in drawn:
        cells.append(Text(row.cells[index].text, style=_TERMINAL_STYLES[row.cells[index].mark]))
    for rank in row.ranks:
        cells.append(Text("" if rank == NOTHING else rank))
    return [*cells, Text(row.note if row.note and not row.collapsed else row.verdict)]


def _recited_on_terminal(ranked: RankedTable) -> Table:
    """Return what the models recite, with a column for what any of them measured; intervals in brackets."""
    tables = recitation_tables(ranked)
    names = dict.fromkeys(name for table in tables for name in table.columns)
    terminal = result_table("", caption(ranked.table))
    terminal.add_column("Metric")
    for name in names:
        terminal.add_column(Text(name), justify="right")
    for table in tables:
        if len(tables) > 1:
            terminal.add_row(Text(table.model, style="bold"))
        for metric, cells in table.rows:
            texts = [Text(metric.title)]
            for name in names:
                cell = cells.get(name, Cell(NOTHING, ""))
                texts.append(Text(f"{cell.text} ({cell.interval})" if cell.interval else cell.text))
            terminal.add_row(*texts)
        terminal.add_section()
    return terminal


def attacks_on_terminal(table: AttackTable) -> Table:
    """Return one model's rows under every attack, without their intervals; above them what comes back."""
    what = "beyond what they bring back from the retrained model" if table.has_retrained else "as measured"
    at = f"{table.model}, {table.target}" if table.target else table.model
    said = " ".join([f"{at}: what attacks bring back, {what}.", *table.sentences])
    terminal = result_table(said, "")
    terminal.add_column("Method", max_width=28, overflow="fold")
    for metric in table.metrics:
        terminal.add_column(Text(metric.attack), justify="right")
    for row in table.rows:
        name = Text(f"{row.label}, {row.strength}" if row.strength else row.label)
        terminal.add_row(name, *(Text(cell.text) for cell in row.cells), style="red" if row.collapsed else None)
    return terminal
