"""The main table as Markdown, as LaTeX in the paper's layout, and for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from harness.analysis.cells import NOTHING, Cell, split_title
from harness.analysis.layout import RANK_TITLES, ModelTable, TableRow
from harness.analysis.metrics import arrow
from harness.analysis.shown import ShownTable
from harness.base.messages import printable
from harness.base.terminal import console as terminal_console
from harness.reporting.markdown import LETTERS, markdown_cell, markdown_escape, with_mark
from harness.reporting.recitation_table import RecitationTable, recitation_tables
from harness.reporting.summary import caption
from harness.specs import REFERENCE_ROWS

_LATEX = str.maketrans(
    {character: f"\\{character}" for character in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"$<$", ">": r"$>$"}
    | {"±": r"$\pm$", "–": "--", "↓": r"$\downarrow$", "↑": r"$\uparrow$", "→": r"$\rightarrow$"}
)
_RED = "[rgb]{1,0.7,0.7}"
_TERMINAL_WIDTH = 100
_TERMINAL_STYLES = {"best": "bold", "second": "underline", "": ""}


def latex_escape(text: str) -> str:
    """Return `text` so that LaTeX prints it as it stands."""
    return text.translate(_LATEX)


def markdown(tables: Sequence[ModelTable], title: str, caption: str) -> str:
    """Return the main table of every model, under the sweep's question."""
    parts = [f"# {markdown_escape(title)}", markdown_escape(caption)]
    for table in tables:
        heads = [f"{_markdown_title(metric.title)} {arrow(metric)}" for metric in table.metrics]
        columns = ["", "Method", "Strength", *heads, *map(markdown_escape, table.rank_titles)]
        rule = ["---"] * 3 + ["--:"] * (len(columns) - 3)
        body = "\n".join("| " + " | ".join(line) + " |" for line in [columns, rule, *_markdown_rows(table)])
        parts += [f"## {markdown_escape(table.model)}", body]
    if not tables:
        parts.append("No point has been measured yet.")
    notes = "**Best**, <u>second best</u> among what is ranked. † collapsed: shown, not ranked."
    return "\n\n".join([*parts, f"{notes} {about_evidence(tables)}".strip()]) + "\n"


def about_evidence(tables: Sequence[ModelTable]) -> str:
    """Return what letters mean, and which metrics are not made of items; '' where nothing was compared by items."""
    if not any(cell.letters for table in tables for row in table.rows() for cell in row.cells):
        return ""
    whole = [metric.title for metric in tables[0].metrics if not metric.items]
    have, them = ("have", "them") if len(whole) > 1 else ("has", "it")
    without = f" {' and '.join(whole)} {have} no items: only several seeds give {them} an interval." if whole else ""
    return LETTERS + without


def _markdown_title(title: str) -> str:
    name, subscript = split_title(title)
    return markdown_escape(name) + (f"<sub>{subscript}</sub>" if subscript else "")


def _markdown_rows(table: ModelTable) -> Iterator[list[str]]:
    for section in table.sections:
        title = section.title
        for row in section.rows:
            note = f" *({markdown_escape(row.note)})*" if row.note else ""
            if row.collapsed:
                note = f" † *{markdown_escape(row.note or 'collapsed')}*"
            cells = [markdown_cell(cell) for cell in row.cells]
            yield [title, markdown_escape(row.label) + note, markdown_escape(row.strength), *cells, *row.ranks]
            title = ""


def latex(tables: Sequence[ModelTable], caption: str) -> str:
    """Return a `table*` that needs the packages booktabs and colortbl, and no other."""
    metrics, metric_groups = (tables[0].metrics, tables[0].groups()) if tables else ((), [])
    rank_titles = tables[0].rank_titles if tables else RANK_TITLES
    columns = len(metrics) + len(rank_titles) + 2
    heads = [f"{_latex_title(metric.title)} {latex_escape(arrow(metric))}" for metric in metrics]
    groups, rules, start = [], [], 3
    for title, width in [*metric_groups, ("Ranking", len(rank_titles))]:
        groups.append(rf"\multicolumn{{{width}}}{{c}}{{\textbf{{{latex_escape(title)}}}}}")
        rules.append(rf"\cmidrule(lr){{{start}-{start + width - 1}}}")
        start += width
    lines = [
        r"% \usepackage{booktabs} and \usepackage{colortbl}",
        r"\begin{table*}[ht]",
        r"\centering\footnotesize\setlength{\tabcolsep}{4pt}",
        rf"\begin{{tabular}}{{ll{'c' * (columns - 2)}}}",
        r"\toprule",
        " & ".join(["", "", *groups]) + r" \\",
        "".join(rules),
        " & ".join(["", "Method", *heads, *map(latex_escape, rank_titles)]) + r" \\",
        *(line for table in tables for line in _latex_rows(table, columns)),
        r"\bottomrule",
        r"\end{tabular}",
        rf"\caption{{{latex_escape(caption)} The best and the second-best results are \textbf{{bold}} and "
        rf"\underline{{underlined}}; collapsed models are \colorbox{_RED}{{red}} and not ranked.}}",
        r"\end{table*}",
    ]
    return "\n".join(lines) + "\n"


def _latex_title(title: str) -> str:
    name, subscript = split_title(title)
    return latex_escape(name) + (f"$_{{{subscript}}}$" if subscript else "")


def _latex_rows(table: ModelTable, columns: int) -> Iterator[str]:
    yield r"\midrule"
    yield rf"\multicolumn{{{columns}}}{{l}}{{\textbf{{{latex_escape(table.model)}}}}} \\"
    for section in table.sections:
        yield rf"\cmidrule{{2-{columns}}}"
        title = rf"\textit{{{latex_escape(section.title)}}}" if section.title else ""
        for row in section.rows:
            label = (rf"\cellcolor{_RED} " if row.collapsed else "") + latex_escape(row.label)
            cells = [
                with_mark(cell, latex_escape(cell.text), r"\textbf{{{}}}", r"\underline{{{}}}")
                + (f"$^{{{cell.letters}}}$" if cell.letters else "")
                for cell in row.cells
            ]
            ranks = ["N/A" if rank == NOTHING else latex_escape(rank) for rank in row.ranks]
            yield " & ".join([title, label, *cells, *ranks]) + r" \\"
            if any(cell.interval for cell in row.cells):
                bounds = [rf"{{\scriptsize {latex_escape(cell.interval)}}}" for cell in row.cells]
                yield " & ".join(["", "", *bounds, *[""] * len(ranks)]) + r" \\"
            title = ""


def table_console() -> Console:
    """Return a console that has room for the table, in a pipe too."""
    return terminal_console(_TERMINAL_WIDTH)


def ranking_table(shown: ShownTable) -> RenderableType:
    """Return every model's ranked rows, best first, below its reference rows; collapsed ones in red.

    Above it stands what must be read before any rank. Where nothing was erased it is what the models recite.

    Shown are the metrics of the trade-off figure, without their intervals.
    """
    ranked = shown.whole
    if ranked.is_of_references and len(ranked.table):
        told = _recitation_table(recitation_tables(ranked), caption(ranked.table))
        return Group(Text(printable("\n".join(ranked.said_first)), style="bold"), told)
    tables = shown.tables
    terminal_table = Table(
        box=SIMPLE_HEAD,
        show_edge=False,
        collapse_padding=True,
        title=Text(printable("\n".join(ranked.said_first))) or None,
        title_style="bold",
        title_justify="left",
        caption=Text(f"{caption(ranked.table)} {shown.note}".strip()),
        caption_justify="left",
    )
    terminal_table.add_column("Method", max_width=28, overflow="fold")
    for metric in tables[0].metrics if tables else ():
        if metric.axis is not None:
            terminal_table.add_column(Text(printable(metric.title)), justify="right")
    for title in tables[0].rank_titles if tables else RANK_TITLES:
        terminal_table.add_column(Text(title), justify="center")
    terminal_table.add_column("State")
    for table in tables:
        if len(tables) > 1:
            terminal_table.add_row(Text(printable(table.model), style="bold"))
        references = [row for row in table.rows() if row.variant in REFERENCE_ROWS]
        for row in [*references, *table.best_first]:
            terminal_table.add_row(*_terminal_cells(table, row), style="red" if row.collapsed else None)
        terminal_table.add_section()
    return terminal_table


def _terminal_cells(table: ModelTable, row: TableRow) -> list[Text]:
    name = f"{row.label}, {row.strength}" if row.strength else row.label
    numbers = [
        Text(cell.text, style=_TERMINAL_STYLES[cell.mark])
        for metric, cell in zip(table.metrics, row.cells, strict=True)
        if metric.axis is not None
    ]
    ranks = [Text("" if rank == NOTHING else rank) for rank in row.ranks]
    note = row.note if row.note and not row.collapsed else row.verdict
    return [Text(printable(name)), *numbers, *ranks, Text(printable(note))]


def _recitation_table(tables: Sequence[RecitationTable], caption: str) -> Table:
    """Return the tables for the terminal, with a column for what any of them measured; intervals in brackets."""
    names = list(dict.fromkeys(name for table in tables for name in table.columns))
    terminal = Table(box=SIMPLE_HEAD, show_edge=False, caption=Text(printable(caption)), caption_justify="left")
    terminal.add_column("Metric")
    for name in names:
        terminal.add_column(Text(name), justify="right")
    for table in tables:
        if len(tables) > 1:
            terminal.add_row(Text(printable(table.model), style="bold"))
        for metric, cells in table.rows:
            by_name = dict(zip(table.columns, cells, strict=True))
            texts = [_with_interval(by_name[name]) if name in by_name else NOTHING for name in names]
            terminal.add_row(Text(printable(metric.title)), *map(Text, texts))
        terminal.add_section()
    return terminal


def _with_interval(cell: Cell) -> str:
    return f"{cell.text} ({cell.interval})" if cell.interval else cell.text
