"""One frame in every target: numbers, intervals, marks, signs, and texts that would be read as markup."""

import io
import math

import pandas as pd
import pytest
from rich.cells import cell_len
from rich.console import Console

from harness.contracts import Metric
from harness.reporting.render import Column, render

ABOUT = {"better": "lower", "unit": "", "source": ""}
EL = Metric(name="el", title="EL_3", low=0, high=1, group="erasure", **ABOUT)
PERPLEXITY = Metric(name="p", title="Perplexity", low=1, high=math.inf, group="generation", **ABOUT)
COLUMNS = [
    Column("model", "Model", "heading"), Column("needs", "", "group"), Column("label", "Method"),
    Column("el", "EL_3", "number", EL, "lower", group="Memorization"),
    Column("p", "Perplexity", "number", PERPLEXITY, group="Generation"),
    Column("rank", "Average", "rank", group="Ranking"),
]  # fmt: skip
FRAME = pd.DataFrame(
    {
        "model": ["one", "one", "one", "two", "two", "two"],
        "needs": ["", "w/ MM", "w/ MM", "w/ MM", "w/o REF", "w/o REF"],
        "label": ["Original", "A<b>|_&$", "遺忘", "red\x1b[31m", "D", "E"],
        "el": [0.9, 0.25, 0.5, 0.1, 0.05, math.nan],
        "el_low": [0.8, 0.2, math.nan, 0.05, 0.01, math.nan],
        "el_high": [1.0, 0.3, math.nan, 0.15, 0.1, math.nan],
        "p": [5.0, math.inf, 6.0, 7.125, 3.2e7, math.nan],
        "rank": ["", "1", "=2", "=2", "", ""],
        "rank_low": ["", "1", "1", "", "", ""],
        "rank_high": ["", "2", "3", "", "", ""],
        "collapsed": [False, False, False, False, True, None],
        "over_erased": [False, False, False, True, None, None],
        "compared": [False, True, True, True, True, True],
    }
)


def line_of(text, word):
    [line] = [line for line in text.splitlines() if word in line]
    return line


def test_html_has_marks_intervals_and_escaped_texts():
    html = render(FRAME, COLUMNS, "html")
    row = line_of(html, "A&lt;b&gt;|_&amp;$")
    assert '<strong>0.250</strong><br><span class="interval">0.200–0.300</span>' in row
    assert 'data-title="Perplexity ↓">∞</td>' in row, "a phone shows a title next to each number"
    assert '<td class="rank" data-title="Average">1<br><span class="interval">1–2</span></td>' in row
    assert "<u>0.500</u></td>" in line_of(html, "遺忘")
    assert 'class="collapsed top"' in line_of(html, ">D †<")
    assert line_of(html, ">E<").count(">–</td>") == 3
    assert ("\x1b" in html, "‡" in line_of(html, "red")) == (False, True)
    assert '<th class="model" colspan="5">two</th>' in html
    assert '">EL<sub>3</sub>&nbsp;<span class="arrow">↓</span>' in html
    assert "<li>Perplexity: , from 1, lower is better; </li>" in html, "what a column means is a tap away"


def test_markdown_keeps_texts_in_their_cells():
    markdown = render(FRAME, COLUMNS, "markdown")
    assert {line.replace(r"\|", "").count("|") for line in markdown.splitlines()} == {6}
    assert line_of(markdown, r"A&lt;b>\|\_&$").startswith("| w/ MM | A")
    assert "| **0.250**<br><sub>0.200–0.300</sub> | ∞ | 1<br><sub>1–2</sub> |" in markdown
    assert [mark for mark in ("<u>0.500</u>", "| D † |", "‡ | 0.100") if mark not in markdown] == []
    assert markdown.splitlines()[1] == "| --- | --- | --: | --: | :-: |"


def test_latex_has_the_papers_layout():
    latex = render(FRAME, COLUMNS, "latex")
    assert r"\textit{w/ MM} & A$<$b$>$|\_\&\$ & \textbf{0.250} & $\infty$ & 1 \\" in latex
    assert r" &  & {\scriptsize 0.200--0.300} &  & {\scriptsize 1--2} \\" in latex
    assert r"\cellcolor[rgb]{1,0.7,0.7} D & 0.050 & 3.2e+07 & N/A" in latex
    marks = (r"\underline{0.500}", r"\multicolumn{5}{l}{\textbf{two}} \\", r"EL$_{3}$ $\downarrow$")
    assert [mark for mark in marks if mark not in latex] == []
    assert "\x1b" not in latex


def test_the_terminal_shows_styles_and_no_control_characters():
    file, plain = io.StringIO(), io.StringIO()
    console = Console(file=file, width=100, force_terminal=True, color_system="standard", legacy_windows=False)
    console.print(render(FRAME, COLUMNS, "terminal"))
    text = file.getvalue()
    assert ("\x1b[1m0.250\x1b[0m" in text, r"red\x1b[31m ‡" in text) == (True, True)
    assert ("\x1b[4m" in line_of(text, "0.500"), "\x1b[31m" in line_of(text, "D †")) == (True, True)
    assert "(0.200–0.300)" in line_of(text, "A<b>|_&$")
    Console(file=plain, width=100).print(render(FRAME, COLUMNS, "terminal"))
    assert len({cell_len(line) for line in plain.getvalue().splitlines() if line.strip()}) == 1, "columns in line"


def test_no_mark_is_given_to_the_only_row_and_equal_numbers_share_theirs():
    columns = [Column("label", "Method"), Column("x", "X", "number", better="higher")]
    assert "**" not in render(pd.DataFrame({"label": ["a", "b"], "x": [0.5, math.nan]}), columns, "markdown")
    alike = render(pd.DataFrame({"label": ["a", "b", "c"], "x": [0.5, 0.5, 0.1]}), columns, "markdown")
    assert (alike.count("**0.500**"), "<u>" in alike) == (2, False)
    printed = render(pd.DataFrame({"label": list("abcd"), "x": [0.5001, 0.4999, 0.1, 0.1001]}), columns, "markdown")
    assert (printed.count("**0.500**"), "<u>" in printed) == (2, False), "as printed"
    headed = pd.DataFrame({"label": list("abcd"), "m": [*"yyzz"], "x": [0.5, 0.4, 0.5, 0.6]})
    assert render(headed, [Column("m", "M", "heading"), *columns], "markdown").count("**0.500**") == 1


def test_nearest_to_an_aim_is_best():
    frame = pd.DataFrame({"x": [0.9, 0.45], "x_aim": 0.5})
    assert "**0.450**" in render(frame, [Column("x", "AUC", "number", better="nearest")], "markdown")


FORMATS = [
    ("number", 0.61549, "0.615"), ("number", -math.inf, "−∞"), ("change", -0.25, "−0.250"), ("change", 0.0001, "0.000"),
    ("ratio", 1.268, "×1.27"), ("percent", 0.0167, "1.7 %"), ("percent", 0.5, "50 %"), ("count", 12345, "12,345"),
    ("number", False, "no"), ("seconds", 130.0, "2 min 10 s"), ("bytes", 912_680_550, "870 MiB"), ("rank", "=2", "=2"),
    ("number", None, "–"), ("text", None, ""),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value", "text"), FORMATS)
def test_formats(kind, value, text):
    frame = pd.DataFrame({"x": pd.Series([value], dtype=object)})
    assert render(frame, [Column("x", "X", kind)], "markdown").splitlines()[-1] == f"| {text} |"
