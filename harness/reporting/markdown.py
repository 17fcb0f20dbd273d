"""What all Markdown tables have in common."""

from __future__ import annotations

from harness.analysis.cells import Cell

LETTERS = "Methods that share a letter in a column cannot be told apart (paired tests over the same items, Holm)."
_MARKDOWN = str.maketrans({character: f"\\{character}" for character in "\\`*_[]|"} | {"<": "&lt;", "\n": " "})


def markdown_escape(text: str) -> str:
    """Return `text` so that it stays in its cell and is not read as Markdown or HTML."""
    return text.translate(_MARKDOWN)


def markdown_cell(cell: Cell) -> str:
    """Return a number with its mark, its letters, and its interval below."""
    letters = f"<sup>{cell.letters}</sup>" if cell.letters else ""
    interval = f"<br><sub>{cell.interval}</sub>" if cell.interval else ""
    return with_mark(cell, cell.text, "**{}**", "<u>{}</u>") + letters + interval


def with_mark(cell: Cell, text: str, best: str, second: str) -> str:
    """Return a number's text in the frame of its mark."""
    return {"best": best, "second": second, "": "{}"}[cell.mark].format(text)
