"""How templates are filled: pages of HTML, and files of Markdown and LaTeX, in which every text stays a text."""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from harness.analysis.cells import number, split_title
from harness.analysis.metrics import arrow

_MARKDOWN = str.maketrans({character: f"\\{character}" for character in "\\`*_[]|"} | {"<": "&lt;", "\n": " "})
_LATEX = str.maketrans(
    {character: f"\\{character}" for character in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"$<$", ">": r"$>$"}
    | {"±": r"$\pm$", "–": "--", "↓": r"$\downarrow$", "↑": r"$\uparrow$", "→": r"$\rightarrow$"}
)
_LATEX_MARKS = {
    "block_start_string": "<%",
    "block_end_string": "%>",
    "variable_start_string": "<<",
    "variable_end_string": ">>",
}
"""Of a LaTeX template: braces are LaTeX's own."""


def markdown_escape(text: object) -> str:
    """Return a text so that it stays in its cell and is not read as Markdown or HTML."""
    return str(text).translate(_MARKDOWN)


def latex_escape(text: str) -> str:
    """Return `text` so that LaTeX prints it as it stands."""
    return text.translate(_LATEX)


def html_templates() -> Environment:
    """Return the templates of pages; they escape what they are filled with."""
    return _templates(autoescape=True)


def text_file(template: str, **context: Any) -> str:
    """Return a file of Markdown or LaTeX; its template escapes each text with the filter of that name."""
    marks = _LATEX_MARKS if template.endswith(".tex.j2") else {}
    return _templates(keep_trailing_newline=True, **marks).get_template(template).render(context)


@cache
def _loader() -> PackageLoader:
    return PackageLoader("harness.reporting", "templates")


def _templates(**options: Any) -> Environment:
    environment = Environment(
        loader=_loader(), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, **options
    )
    environment.globals.update(arrow=arrow, number=number, split_title=split_title)
    environment.filters.update(markdown=markdown_escape, latex=latex_escape)
    return environment
