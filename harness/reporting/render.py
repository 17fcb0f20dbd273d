"""Tables of frames, for a page, Markdown, LaTeX and the terminal: all formats of numbers, marks and alignment."""

import html
import math
import textwrap
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import chain, groupby
from operator import attrgetter
from typing import Any, Literal, NamedTuple, overload

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from harness.analysis.metrics import NOTHING, arrow, duration_text, number, split_title
from harness.base.messages import printable
from harness.contracts import Metric

Kind = Literal[
    "text", "note", "code", "group", "heading", "rank",
    "number", "change", "ratio", "percent", "count", "seconds", "bytes",
]  # fmt: skip
Mark = Literal["", "best", "second"]
MAX_PRINTED = 160
"""Characters of a table that fit side by side on A4, landscape, in print's small letters."""
_LEFT = ("text", "note", "code", "group", "heading")
_MARKDOWN = str.maketrans({character: f"\\{character}" for character in "\\`*_[]|"} | {"<": "&lt;", "\n": " "})
_LATEX = str.maketrans(
    {character: f"\\{character}" for character in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"$<$", ">": r"$>$"}
    | {"±": r"$\pm$", "∞": r"$\infty$", "–": "--", "−": "$-$", "×": r"$\times$", "\n": " "}
    | {"↓": r"$\downarrow$", "↑": r"$\uparrow$", "→": r"$\rightarrow$", "†": r"$\dagger$", "‡": r"$\ddagger$"}
)
_RED = r"\cellcolor[rgb]{1,0.7,0.7} "


class Column(NamedTuple):
    """A column of a rendered table."""

    name: str
    """Column of the frame; `name_low` and `name_high`, where present, are its interval."""
    title: str
    kind: Kind = "text"
    """`note` wraps; `group` is printed where it changes, below a rule; `heading` in a row of its own."""
    metric: Metric | None = None
    """Sets the number format and the title's arrow."""
    better: Literal["lower", "higher", "nearest"] | None = None
    """Direction of the marks: best bold, second underlined; `nearest` to `name_aim`."""
    group: str = ""
    """Title above this and the adjacent columns."""


class _Row(NamedTuple):
    """A row as printed, not escaped yet."""

    above: str
    """Heading in a row of its own."""
    opens: bool
    """Whether a group begins here."""
    is_collapsed: bool
    is_over_erased: bool
    cells: list[tuple[str, str, Mark]]
    """Text, interval and mark of each column."""


def markdown_escape(text: object) -> str:
    """Escape a text for a Markdown table cell."""
    return str(text).translate(_MARKDOWN)


def latex_escape(text: str) -> str:
    """Escape a text for LaTeX."""
    return text.translate(_LATEX)


def fill_template(package: str, template: str, *, is_html: bool = False, **parts: Any) -> str:
    """Return a package's template with its parts filled in."""
    return _environment(package, is_html).get_template(template).render(parts)


def fill_html(name: str, **parts: Any) -> Markup:
    """Return one of the report's templates with its parts filled in and escaped."""
    return Markup(fill_template("harness.reporting", f"templates/{name}.html.j2", is_html=True, **parts))


@cache
def _environment(package: str, is_html: bool) -> Environment:
    blocks: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True, "keep_trailing_newline": True}
    loader = PackageLoader(package, "")
    environment = Environment(loader=loader, autoescape=is_html, undefined=StrictUndefined, **blocks)
    environment.filters["markdown"] = markdown_escape
    return environment


@overload
def render(frame: pd.DataFrame, columns: Sequence[Column], to: Literal["html"]) -> Markup: ...
@overload
def render(frame: pd.DataFrame, columns: Sequence[Column], to: Literal["markdown", "latex"]) -> str: ...
@overload
def render(frame: pd.DataFrame, columns: Sequence[Column], to: Literal["terminal"]) -> Table: ...
def render(frame: pd.DataFrame, columns: Sequence[Column], to: str) -> str | Table:
    """Return a frame as a table.

    A row whose `collapsed` is True is red, or has a †; one whose `over_erased` is True has a ‡. Neither is marked as
    best; nor is one whose `compared` is False.
    """
    headings = [column for column in columns if column.kind == "heading"]
    columns = [column for column in columns if column.kind != "heading"]
    names = [column.name for column in headings]
    marks = {column.name: _marks(frame, column, names) for column in columns if column.better is not None}
    is_divided = to == "latex" or any(frame[name].nunique() > 1 for name in names)
    rows: list[_Row] = []
    previous: dict[Any, Any] = {}
    for place, row in enumerate(frame.to_dict("records")):
        above = [str(row[name]) for name in names if row[name] != previous.get(name)]
        groups = [column.name for column in columns if column.kind == "group"]
        opens = bool(groups) and (bool(above) or any(row[name] != previous.get(name) for name in groups))
        cells: list[tuple[str, str, Mark]] = []
        for column in columns:
            text, interval = cell_texts(row, column)
            mark = marks[column.name][place] if column.name in marks else ""
            cells.append(("" if column.kind == "group" and not opens else text, interval, mark))
        states = row.get("collapsed") is True, row.get("over_erased") is True
        rows.append(_Row(", ".join(above) if is_divided else "", opens, *states, cells))
        previous = row
    rendered: str | Table = _TARGETS[to](columns, rows)
    return rendered


def _marks(frame: pd.DataFrame, column: Column, headings: Sequence[str]) -> list[Mark]:
    costs = frame[column.name].astype(float)
    if column.better == "nearest":
        costs = (costs - frame[f"{column.name}_aim"].astype(float)).abs().round(12)
    elif column.better == "higher":
        costs = -costs
    texts = [cell_texts(row, column)[0] for row in frame.to_dict("records")]
    costs = costs.groupby([*(frame[name] for name in headings), pd.Series(texts, frame.index)]).transform("min")
    for name, excluded in (("collapsed", True), ("over_erased", True), ("compared", False)):
        if name in frame.columns:
            costs = costs.mask(frame[name].eq(excluded))
    below = costs.groupby([frame[name] for name in headings] or costs.isna() | costs.notna())
    mark_by_rank: dict[float, Mark] = {1.0: "best", 2.0: "second"}
    return [mark_by_rank.get(rank, "") for rank in below.rank(method="min").mask(below.transform("count") < 2)]


def cell_texts(row: Mapping[Any, Any], column: Column) -> tuple[str, str]:
    """Return a cell and its interval, not escaped; '' without an interval."""
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
            return text if text.strip("+−0.") else text[1:]  # A rounded 0 has no sign.
        case "ratio":
            return f"×{value:.2f}".replace("inf", "∞")
        case "percent":
            return f"{100 * value:.1f} %" if 0 < value < 0.0995 else f"{100 * value:.0f} %"
        case "count":
            return f"{int(value):,}"
        case "seconds":
            return duration_text(float(value))
        case "bytes":
            return f"{value / 2**30:.1f} GiB" if value >= 2**30 else f"{value / 2**20:.0f} MiB"
        case "rank":
            return str(value) or NOTHING
    return printable(str(value)).replace("\n", " ")


def _first_text(columns: Sequence[Column]) -> int:
    return next((place for place, column in enumerate(columns) if column.kind in ("text", "code")), 0)


def _signs(row: _Row) -> str:
    return (" †" if row.is_collapsed else "") + (" ‡" if row.is_over_erased else "")


def _title(column: Column, to: str) -> str:
    name, subscript = split_title(column.title) if column.metric else (column.title, "")
    title = str(_ESCAPES[to](name)) + (_STYLES[to]["subscript"].format(subscript) if subscript else "")
    return title + (_STYLES[to]["arrow"].format(_ESCAPES[to](arrow(column.metric))) if column.metric else "")


def _printed(columns: Sequence[Column], row: _Row, to: str) -> list[str]:
    printed, first = [], _first_text(columns)
    for place, (text, interval, mark) in enumerate(row.cells):
        cell = _ESCAPES[to](text)
        cell = _STYLES[to].get(mark or columns[place].kind, "{}").format(cell) if cell else ""
        cell += _ESCAPES[to](_signs(row)) if place == first and to != "latex" else ""
        printed.append(cell + (_STYLES[to].get("interval", "").format(_ESCAPES[to](interval)) if interval else ""))
    return printed


def _describe_metric(metric: Metric) -> str:
    limits = f"from {metric.low:g}" if math.isinf(metric.high) else f"{metric.low:g} to {metric.high:g}"
    return f"{metric.title}: {metric.unit}, {limits}, {metric.better} is better; {metric.source}"


def _html(columns: Sequence[Column], rows: Sequence[_Row]) -> Markup:
    heads: list[tuple[str, Markup, str]] = []
    for place, column in enumerate(columns):
        kind = {"note": "wrap", "rank": "rank", "group": "group"}.get(column.kind, "")
        kind = kind or ("" if column.kind in _LEFT else "number")
        names = f"{kind} stick" if place == _first_text(columns) else kind
        plain = f"{column.title} {arrow(column.metric)}" if column.metric else column.title
        heads.append((names.strip(), Markup(_title(column, "html")), plain.strip()))
    spans = _spans(columns) if any(column.group for column in columns) else []
    cells = [(row, map(Markup, _printed(columns, row, "html"))) for row in rows]
    classes = ["dense"] * bool(spans) + ["many"] * (_printed_width(columns, rows) > MAX_PRINTED)
    about: dict[str, Any] = {"metrics": [_describe_metric(column.metric) for column in columns if column.metric]}
    return fill_html("table", heads=heads, spans=spans, rows=cells, classes=" ".join(classes), **about)


def _printed_width(columns: Sequence[Column], rows: Sequence[_Row]) -> float:
    """Return the characters of a table's columns side by side, each as wide as its longest word."""
    width = 0.0
    for at, column in enumerate(columns):
        words = " ".join([column.title, *(row.cells[at][0] for row in rows)]).split()
        intervals = [6 / 7 * len(row.cells[at][1]) for row in rows]  # They are printed smaller.
        width += 1 + max(chain(map(len, words), intervals), default=0)
    return width


def _spans(columns: Sequence[Column]) -> list[tuple[str, int]]:
    return [(group, len(list(members))) for group, members in groupby(columns, key=attrgetter("group"))]


def _markdown(columns: Sequence[Column], rows: Sequence[_Row]) -> str:
    rules = ["---" if column.kind in _LEFT else ":-:" if column.kind == "rank" else "--:" for column in columns]
    lines = [[_title(column, "markdown") for column in columns], rules]
    for row in rows:
        if row.above:
            lines.append([f"**{markdown_escape(row.above)}**", *[""] * (len(columns) - 1)])
        lines.append(_printed(columns, row, "markdown"))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _latex(columns: Sequence[Column], rows: Sequence[_Row]) -> str:
    first, width = _first_text(columns), len(columns)
    kinds = ["l" if column.kind in _LEFT else "c" for column in columns]
    lines = [f"\\begin{{tabular}}{{{''.join(kinds)}}}", r"\toprule"]
    if any(column.group for column in columns):
        tops, rules, at = [], "", 1
        for group, span in _spans(columns):
            text = rf"\multicolumn{{{span}}}{{c}}{{\textbf{{{latex_escape(group)}}}}}"
            tops.append(text if group else " & " * (span - 1))
            rules += rf"\cmidrule(lr){{{at}-{at + span - 1}}}" if group else ""
            at += span
        lines += [f"{' & '.join(tops)} \\\\", rules]
    lines.append(f"{' & '.join(_title(column, 'latex') for column in columns)} \\\\")
    if rows and not rows[0].above:
        lines.append(r"\midrule")
    for row in rows:
        if row.above:
            lines += [r"\midrule", rf"\multicolumn{{{width}}}{{l}}{{\textbf{{{latex_escape(row.above)}}}}} \\"]
        if row.opens:
            lines.append(rf"\cmidrule{{2-{width}}}")
        line = _printed(columns, row, "latex")
        for place, column in enumerate(columns):
            line[place] = "N/A" if column.kind == "rank" and row.cells[place][0] == NOTHING else line[place]
        line[first] = (_RED if row.is_collapsed else "") + line[first] + (r" $\ddagger$" if row.is_over_erased else "")
        lines.append(f"{' & '.join(line)} \\\\")
        intervals = [rf"{{\scriptsize {latex_escape(interval)}}}" if interval else "" for _, interval, _ in row.cells]
        lines += [f"{' & '.join(intervals)} \\\\"] if any(intervals) else []
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _terminal(columns: Sequence[Column], rows: Sequence[_Row]) -> Table:
    first, table = _first_text(columns), Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for place, column in enumerate(columns):
        look: dict[str, Any] = {"justify": "center" if column.kind == "rank" else "right", "overflow": "ellipsis"}
        look |= {"justify": "left", "overflow": "fold", "max_width": 36} if column.kind in _LEFT else {}
        # A number's title wraps before a note does.
        title = textwrap.fill(printable(column.title), 36 if column.kind in _LEFT else 12, break_long_words=False)
        table.add_column(Text(title), min_width=11 if place == first else None, **look)
    for row in rows:
        if row.above:
            table.add_section()
            table.add_row(Text(printable(row.above), style="bold"))
        line = []
        for place, (text, interval, mark) in enumerate(row.cells):
            style = {"best": "bold", "second": "underline"}.get(mark, "")
            more = (_signs(row) if place == first else "") + (f" ({interval})" if interval else "")
            line.append(Text.assemble((text, style), more))
        table.add_row(*line, style="red" if row.is_collapsed else None)
    return table


_TARGETS: Mapping[str, Any] = {"html": _html, "markdown": _markdown, "latex": _latex, "terminal": _terminal}
_ESCAPES: Mapping[str, Any] = {"html": html.escape, "markdown": markdown_escape, "latex": latex_escape}
_STYLES: Mapping[str, Mapping[str, str]] = {
    "html": {"best": "<strong>{}</strong>", "second": "<u>{}</u>", "code": "<code>{}</code>",
             "interval": '<br><span class="interval">{}</span>', "arrow": '&nbsp;<span class="arrow">{}</span>',
             "subscript": "<sub>{}</sub>"},
    "markdown": {"best": "**{}**", "second": "<u>{}</u>", "subscript": "<sub>{}</sub>",
                 "interval": "<br><sub>{}</sub>", "arrow": " {}"},
    "latex": {"best": r"\textbf{{{}}}", "second": r"\underline{{{}}}", "group": r"\textit{{{}}}",
              "subscript": "$_{{{}}}$", "arrow": " {}"},
}  # fmt: skip
