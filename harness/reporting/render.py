"""Tables of frames, for a page, Markdown, LaTeX, CSV and the terminal.

The format of numbers, intervals, marks and alignment are decided here and nowhere else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, overload

import pandas as pd
from markupsafe import Markup, escape
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from harness.analysis.cells import NOTHING, duration_text, number, split_title
from harness.analysis.metrics import arrow
from harness.base.csv_text import csv_text
from harness.base.messages import printable
from harness.contracts import Metric

Kind = Literal[
    "text", "note", "code", "group", "heading", "rank",
    "number", "change", "ratio", "percent", "count", "flag", "seconds", "bytes",
]  # fmt: skip
Mark = Literal["", "best", "second"]
_LEFT = ("text", "note", "code", "group", "heading")
_MARKDOWN = str.maketrans({character: f"\\{character}" for character in "\\`*_[]|"} | {"<": "&lt;", "\n": " "})
_LATEX = str.maketrans(
    {character: f"\\{character}" for character in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"$<$", ">": r"$>$"}
    | {"±": r"$\pm$", "∞": r"$\infty$", "–": "--", "−": "$-$", "×": r"$\times$", "\n": " "}
    | {"↓": r"$\downarrow$", "↑": r"$\uparrow$", "→": r"$\rightarrow$", "†": r"$\dagger$", "‡": r"$\ddagger$"}
)
_RED = r"\cellcolor[rgb]{1,0.7,0.7} "


@dataclass(frozen=True)
class Column:
    """A column of a rendered table."""

    name: str
    """The frame's. `name_low` and `name_high` are its interval, where the frame has them."""
    title: str
    kind: Kind = "text"
    """`note` wraps, `group` is printed where it changes, below a rule, and `heading` in a row of its own if there are
    several."""
    metric: Metric | None = None
    """Decides the number format, and gives the title its arrow."""
    better: Literal["lower", "higher", "nearest"] | None = None
    """Which numbers are marked, the best bold and the second underlined; of `nearest` those nearest to `name_aim`."""
    group: str = ""
    """The title above this and the columns next to it."""


def markdown_escape(text: object) -> str:
    """Return a text so that it stays in its cell and is not read as Markdown or HTML."""
    return str(text).translate(_MARKDOWN)


def latex_escape(text: str) -> str:
    """Return a text so that LaTeX prints it as it stands."""
    return text.translate(_LATEX)


@overload
def render(frame: pd.DataFrame, columns: Sequence[Column], to: Literal["html"]) -> Markup: ...
@overload
def render(frame: pd.DataFrame, columns: Sequence[Column], to: Literal["markdown", "latex", "csv"]) -> str: ...
@overload
def render(frame: pd.DataFrame, columns: Sequence[Column], to: Literal["terminal"]) -> Table: ...
def render(frame: pd.DataFrame, columns: Sequence[Column], to: str) -> str | Table:
    """Return a frame as a table.

    A row whose `collapsed` is True is red, or has a †, and one whose `over_erased` is True has a ‡. Neither is marked
    as best; nor is one whose `compared`, if the frame has that column, is False.

    Args:
        frame: A row for each of the table's.
        columns: In the order in which they are printed.
        to: `html`, `markdown` and `latex` (a tabular, which needs booktabs and colortbl) are text, `csv` has the
            numbers themselves, and `terminal` is a table that a console prints.
    """
    if to == "csv":
        names = [name for column in columns for name in (column.name, f"{column.name}_low", f"{column.name}_high")]
        flags = [name for name in ("collapsed", "over_erased") if name not in names]
        return csv_text(frame[[name for name in (*names, *flags) if name in frame.columns]])
    headings = [column for column in columns if column.kind == "heading"]
    columns = [column for column in columns if column.kind != "heading"]
    names = [column.name for column in headings]
    marks = {column.name: _marks(frame, column, names) for column in columns if column.better is not None}
    rows: list[tuple[str, Mapping[str, Any], list[tuple[str, str, Mark]]]] = []
    before: dict[str, Any] = {}
    for place, row in enumerate(frame.to_dict("records")):
        named = {str(name): value for name, value in row.items()}
        cells: list[tuple[str, str, Mark]] = []
        above = [str(row[column.name]) for column in headings if row[column.name] != before.get(column.name)]
        named["opens"] = bool(above)
        for column in columns:
            text, interval = cell_texts(named, column)
            if column.kind == "group":
                named["opens"] |= row[column.name] != before.get(column.name)
                text = text if named["opens"] else ""
            mark = marks[column.name][place] if column.name in marks else ""
            cells.append((text, interval, mark))
        rows.append((", ".join(above), named, cells))
        before = named
    if to != "latex" and all(frame[column.name].nunique() < 2 for column in headings):
        rows = [("", named, cells) for _, named, cells in rows]
    rendered: str | Table = _TARGETS[to](columns, rows)
    return rendered


def _marks(frame: pd.DataFrame, column: Column, headings: Sequence[str]) -> list[Mark]:
    """Return each row's mark among the rows below the same headings."""
    costs = frame[column.name].astype(float)
    if column.better == "nearest":
        costs = (costs - frame[f"{column.name}_aim"].astype(float)).abs()
    elif column.better == "higher":
        costs = -costs
    for name, excluded in (("collapsed", True), ("over_erased", True), ("compared", False)):
        if name in frame.columns:
            costs = costs.mask(frame[name].eq(excluded))
    below = costs.round(12).groupby([frame[name] for name in headings] or costs.isna() | costs.notna())
    named: dict[float, Mark] = {1.0: "best", 2.0: "second"}
    ranks = below.rank(method="min").mask(below.transform("count") < 2)
    return [named.get(rank, "") for rank in ranks]


def cell_texts(row: Mapping[Any, Any], column: Column) -> tuple[str, str]:
    """Return a cell and its interval as they are printed, not escaped; '' without an interval."""
    value, low, high = (row.get(f"{column.name}{end}") for end in ("", "_low", "_high"))
    if _is_missing(low) or _is_missing(high) or low == "":
        return _text(value, column), ""
    ends = _text(low, column).removeprefix("×"), _text(high, column).removeprefix("×")
    return _text(value, column), (" to " if {*"−+"} & {*"".join(ends)} else "–").join(ends)


def _is_missing(value: Any) -> bool:
    return value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value))


def _text(value: Any, column: Column) -> str:
    if _is_missing(value):
        return "" if column.kind in _LEFT else NOTHING
    match column.kind:
        case "number" if isinstance(value, bool):
            return "yes" if value else "no"
        case "number":
            return number(float(value), column.metric).replace("-", "−")
        case "change":
            text = f"{value:+.3f}".replace("-", "−").replace("inf", "∞")
            return text if text.strip("+−0.") else text[1:]  # What rounds to 0 has no sign.
        case "ratio":
            return f"×{value:.2f}".replace("inf", "∞")
        case "percent":
            return f"{100 * value:.1f} %" if 0 < value < 0.0995 else f"{100 * value:.0f} %"
        case "count":
            return f"{int(value):,}"
        case "flag":
            return "yes" if value else "no"
        case "seconds":
            return duration_text(float(value))
        case "bytes":
            return f"{value / 2**30:.1f} GiB" if value >= 2**30 else f"{value / 2**20:.0f} MiB"
        case "rank":
            return str(value) or NOTHING
    return printable(str(value)).replace("\n", " ")


def _signs(row: Mapping[str, Any], *, has_red: bool = False) -> str:
    """Return what stands behind the first text of a row."""
    collapsed = "" if has_red or row.get("collapsed") is not True else " †"
    return collapsed + (" ‡" if row.get("over_erased") is True else "")


def _first_text(columns: Sequence[Column]) -> int:
    return next((place for place, column in enumerate(columns) if column.kind in ("text", "code")), 0)


def _html(columns: Sequence[Column], rows: Sequence[tuple[str, Mapping[str, Any], Any]]) -> Markup:
    first, classes = _first_text(columns), []
    for place, column in enumerate(columns):
        kind = {"note": "wrap", "rank": "rank", "group": "group"}.get(column.kind, "")
        kind = kind or ("" if column.kind in _LEFT else "number")
        names = " ".join(filter(None, [kind, "stick" if place == first else ""]))
        classes.append(Markup(f' class="{names}"') if names else "")
    spans = Markup("").join(Markup('<th colspan="{}">{}</th>').format(width, group) for group, width in _spans(columns))
    heads = Markup("").join(
        Markup("<th{}{}>{}</th>").format(kind, _hover(column.metric), _html_title(column))
        for kind, column in zip(classes, columns, strict=True)
    )
    has_groups = any(column.group for column in columns)
    top = Markup('<thead class="two"><tr>{}</tr>\n<tr>').format(spans) if has_groups else Markup("<thead><tr>")
    lines = [Markup('<div class="scroll">\n<table{}>').format(Markup(' class="dense"') if has_groups else "")]
    lines += [top + heads + Markup("</tr></thead>"), Markup("<tbody>")]
    for above, row, cells in rows:
        if above:
            lines.append(Markup('<tr><th class="model" colspan="{}">{}</th></tr>').format(len(columns), above))
        names = "collapsed" if row.get("collapsed") is True else ""
        names += " top" if row["opens"] and not above and any(column.kind == "group" for column in columns) else ""
        line = Markup("<tr{}>").format(Markup(f' class="{names.strip()}"') if names else "")
        for place, (column, (text, interval, mark)) in enumerate(zip(columns, cells, strict=True)):
            tag = {"best": "strong", "second": "u"}.get(mark, "code" if column.kind == "code" and text else "")
            cell = Markup("<{0}>{1}</{0}>").format(Markup(tag), text) if tag else escape(text)
            cell += _signs(row) if place == first else ""
            cell += Markup('<br><span class="interval">{}</span>').format(interval) if interval else ""
            line += Markup("<td{}>{}</td>").format(classes[place], cell)
        lines.append(line + Markup("</tr>"))
    return Markup("\n").join([*lines, Markup("</tbody>\n</table>\n</div>\n")])


def _hover(metric: Metric | None) -> Markup:
    return (
        Markup(' title="{}"').format(f"{metric.title}: {metric.meaning}") if metric and metric.meaning else Markup("")
    )


def _html_title(column: Column) -> Markup:
    if column.metric is None:
        return escape(column.title)
    name, subscript = split_title(column.title)
    title = escape(name) + (Markup("<sub>{}</sub>").format(subscript) if subscript else "")
    return title + Markup('&nbsp;<span class="arrow">{}</span>').format(arrow(column.metric))


def _spans(columns: Sequence[Column]) -> list[tuple[str, int]]:
    """Return the titles above several columns, each with the number of its columns."""
    spans: list[tuple[str, int]] = []
    for column in columns:
        if spans and spans[-1][0] == column.group:
            spans[-1] = column.group, spans[-1][1] + 1
        else:
            spans.append((column.group, 1))
    return spans


def _markdown(columns: Sequence[Column], rows: Sequence[tuple[str, Mapping[str, Any], Any]]) -> str:
    first, titles = _first_text(columns), []
    for column in columns:
        name, subscript = split_title(column.title) if column.metric else (column.title, "")
        sub = f"<sub>{subscript}</sub>" if subscript else ""
        titles.append(f"{markdown_escape(name)}{sub}{f' {arrow(column.metric)}' if column.metric else ''}")
    rules = ["---" if column.kind in _LEFT else ":-:" if column.kind == "rank" else "--:" for column in columns]
    lines = [titles, rules]
    for above, row, cells in rows:
        if above:
            lines.append([f"**{markdown_escape(above)}**", *[""] * (len(columns) - 1)])
        line = []
        for place, (text, interval, mark) in enumerate(cells):
            cell = f"`{text}`" if columns[place].kind == "code" and text.isidentifier() else markdown_escape(text)
            cell = {"best": f"**{cell}**", "second": f"<u>{cell}</u>"}.get(mark, cell)
            cell += _signs(row) if place == first else ""
            line.append(f"{cell}<br><sub>{interval}</sub>" if interval else cell)
        lines.append(line)
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _latex(columns: Sequence[Column], rows: Sequence[tuple[str, Mapping[str, Any], Any]]) -> str:
    first, width, titles = _first_text(columns), len(columns), []
    for column in columns:
        name, subscript = split_title(column.title) if column.metric else (column.title, "")
        sign = f" {arrow(column.metric)}" if column.metric else ""
        titles.append(f"{latex_escape(name)}{f'$_{{{subscript}}}$' if subscript else ''}{latex_escape(sign)}")
    kinds = ["l" if column.kind in _LEFT else "c" for column in columns]
    lines = [f"\\begin{{tabular}}{{{''.join(kinds)}}}", r"\toprule"]
    if any(column.group for column in columns):
        tops, rules, at = [], [], 1
        for group, span in _spans(columns):
            text = rf"\multicolumn{{{span}}}{{c}}{{\textbf{{{latex_escape(group)}}}}}"
            tops.append(text if group else " & " * (span - 1))
            rules += [rf"\cmidrule(lr){{{at}-{at + span - 1}}}"] if group else []
            at += span
        lines += [f"{' & '.join(tops)} \\\\", "".join(rules)]
    lines.append(f"{' & '.join(titles)} \\\\")
    if rows and not rows[0][0]:
        lines.append(r"\midrule")
    for above, row, cells in rows:
        if above:
            lines += [r"\midrule", rf"\multicolumn{{{width}}}{{l}}{{\textbf{{{latex_escape(above)}}}}} \\"]
        if row["opens"] and any(column.kind == "group" for column in columns):
            lines.append(rf"\cmidrule{{2-{width}}}")
        line = []
        for place, (text, _, mark) in enumerate(cells):
            cell = latex_escape("N/A" if columns[place].kind == "rank" and text == NOTHING else text)
            cell = {"best": rf"\textbf{{{cell}}}", "second": rf"\underline{{{cell}}}"}.get(mark, cell)
            if columns[place].kind == "group" and cell:
                cell = rf"\textit{{{cell}}}"
            if place == first:
                cell = (_RED if row.get("collapsed") is True else "") + cell + latex_escape(_signs(row, has_red=True))
            line.append(cell)
        lines.append(f"{' & '.join(line)} \\\\")
        intervals = [rf"{{\scriptsize {latex_escape(interval)}}}" if interval else "" for _, interval, _ in cells]
        lines += [f"{' & '.join(intervals)} \\\\"] if any(intervals) else []
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _terminal(columns: Sequence[Column], rows: Sequence[tuple[str, Mapping[str, Any], Any]]) -> Table:
    first, table = _first_text(columns), Table(box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    for place, column in enumerate(columns):
        justify: Literal["left", "center", "right"] = "left" if column.kind in _LEFT else "right"
        justify = "center" if column.kind == "rank" else justify
        is_long = column.kind in _LEFT
        least, most = (14 if place == first else None), (28 if is_long else None)
        overflow: Literal["fold", "ellipsis"] = "fold" if is_long else "ellipsis"
        table.add_column(Text(printable(column.title)), justify=justify, overflow=overflow, min_width=least, max_width=most)
    for above, row, cells in rows:
        if above:
            table.add_section()
            table.add_row(Text(printable(above), style="bold"))
        line = []
        for place, (text, interval, mark) in enumerate(cells):
            style = {"best": "bold", "second": "underline"}.get(mark, "")
            more = (_signs(row) if place == first else "") + (f" ({interval})" if interval else "")
            line.append(Text.assemble((printable(text), style), more))
        table.add_row(*line, style="red" if row.get("collapsed") is True else None)
    return table


_TARGETS: Mapping[str, Any] = {"html": _html, "markdown": _markdown, "latex": _latex, "terminal": _terminal}
