"""The main table as Markdown and as LaTeX, in the paper's layout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.reporting.layout import ARROWS, NOTHING, RANK_TITLES, Cell, ModelTable, Row, split_title

_LATEX = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{"±": r"$\pm$", "–": "--", "↓": r"$\downarrow$", "↑": r"$\uparrow$", "<": r"$<$", ">": r"$>$"},
}
_RED = r"\cellcolor[rgb]{1,0.7,0.7}"


def latex_escape(text: str) -> str:
    r"""Return `text` so that LaTeX prints it as it stands.

    Example:
        >>> latex_escape("full_em & 50 % ± 1")
        'full\\_em \\& 50 \\% $\\pm$ 1'
    """
    return "".join(_LATEX.get(character, character) for character in text)


def markdown_escape(text: str) -> str:
    r"""Return `text` so that it stays in its cell and is not read as Markdown or HTML.

    Example:
        >>> markdown_escape("full_em | <b>")
        'full\\_em \\| &lt;b>'
    """
    marks = {character: f"\\{character}" for character in "\\`*_[]|"}
    return "".join({**marks, "<": "&lt;", "\n": " "}.get(character, character) for character in text)


def markdown(tables: Sequence[ModelTable], title: str, caption: str) -> str:
    """Return the main table of every model, under the sweep's question."""
    parts = [f"# {markdown_escape(title)}", markdown_escape(caption)]
    for table in tables:
        heads = ["", "Method", "Strength", *(f"{_plain(m.title)} {ARROWS[m.better]}" for m in table.metrics)]
        columns = [*heads, *RANK_TITLES]
        rule = ["---"] * 3 + ["--:"] * (len(columns) - 3)
        lines = [columns, rule, *_markdown_rows(table)]
        body = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        parts += [f"## {markdown_escape(table.model)}", body]
    if not tables:
        parts.append("No point has been measured yet.")
    notes = "**Best**, <u>second best</u> among what has not collapsed. † collapsed: shown, not ranked."
    return "\n\n".join([*parts, notes]) + "\n"


def _plain(title: str) -> str:
    name, subscript = split_title(title)
    return markdown_escape(name) + (f"<sub>{subscript}</sub>" if subscript else "")


def _markdown_rows(table: ModelTable) -> Iterator[list[str]]:
    for section in table.sections:
        for index, row in enumerate(section.rows):
            note = f" † *{markdown_escape(row.note or 'collapsed')}*" if row.collapsed else ""
            note = note or (f" *({markdown_escape(row.note)})*" if row.note else "")
            cells = [_markdown_cell(cell) for cell in row.cells]
            first = section.title if index == 0 else ""
            yield [first, markdown_escape(row.label) + note, markdown_escape(row.strength), *cells, *row.ranks]


def _markdown_cell(cell: Cell) -> str:
    return {"best": f"**{cell.text}**", "second": f"<u>{cell.text}</u>"}.get(cell.mark, cell.text)


def latex(tables: Sequence[ModelTable], caption: str) -> str:
    """Return a `table*` that needs the packages booktabs and colortbl, and no other."""
    metrics = tables[0].metrics if tables else ()
    columns = len(metrics) + 5
    heads = [f"{_latex_title(m.title)} {latex_escape(ARROWS[m.better])}" for m in metrics]
    groups, rules, start = [], [], 3
    for title, width in [*(tables[0].groups() if tables else []), ("Ranking", len(RANK_TITLES))]:
        groups.append(rf"\multicolumn{{{width}}}{{c}}{{\textbf{{{title}}}}}")
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
        " & ".join(["", "Method", *heads, *RANK_TITLES]) + r" \\",
        *(line for table in tables for line in _latex_rows(table, columns)),
        r"\bottomrule",
        r"\end{tabular}",
        rf"\caption{{{latex_escape(caption)} The best and the second-best results are \textbf{{bold}} and "
        rf"\underline{{underlined}}; collapsed models are {_inline_red('red')} and not ranked.}}",
        r"\end{table*}",
    ]
    return "\n".join(lines) + "\n"


def _inline_red(word: str) -> str:
    return rf"\colorbox[rgb]{{1,0.7,0.7}}{{{word}}}"


def _latex_title(title: str) -> str:
    name, subscript = split_title(title)
    return latex_escape(name) + (f"$_{{{subscript}}}$" if subscript else "")


def _latex_rows(table: ModelTable, columns: int) -> Iterator[str]:
    yield r"\midrule"
    yield rf"\multicolumn{{{columns}}}{{l}}{{\textbf{{{latex_escape(table.model)}}}}} \\"
    for section in table.sections:
        yield rf"\cmidrule{{2-{columns}}}"
        for index, row in enumerate(section.rows):
            title = rf"\textit{{{latex_escape(section.title)}}}" if section.title and index == 0 else ""
            yield " & ".join([title, _latex_label(row), *map(_latex_cell, row.cells), *_latex_ranks(row)]) + r" \\"


def _latex_label(row: Row) -> str:
    return (_RED + " " if row.collapsed else "") + latex_escape(row.label)


def _latex_cell(cell: Cell) -> str:
    text = latex_escape(cell.text)
    return {"best": rf"\textbf{{{text}}}", "second": rf"\underline{{{text}}}"}.get(cell.mark, text)


def _latex_ranks(row: Row) -> list[str]:
    return ["N/A" if rank == NOTHING else latex_escape(rank) for rank in row.ranks]
