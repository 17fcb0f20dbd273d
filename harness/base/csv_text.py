"""The one way to CSV and back: no text cell is a formula to a spreadsheet, and each is read as it was."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd
from pandas.api.types import is_numeric_dtype

_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")
"""What spreadsheets compute, by OWASP's list; after apostrophes too, so that one more can be taken away again."""
_TRUTHS = ("collapsed", "ranked", "control", "frontier", "recited")
_LISTS = {"targets": "; ", "collapse_reason": " and "}
"""Columns whose cells hold several names, and what stands between two of them in text."""


def joined_lists(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table whose cells of several names are text, as in its CSV: `mauve and perplexity`."""
    texts = {name: table[name].map(between.join) for name, between in _LISTS.items() if name in table.columns}
    return table.assign(**texts)


def split_lists(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table that was read as text with tuples of names again."""
    lists = {}
    for name, between in _LISTS.items():
        if name in table.columns:
            lists[name] = table[name].map(lambda text, between=between: tuple(filter(None, text.split(between))))
    return table.assign(**lists)


def csv_text(table: pd.DataFrame) -> str:
    """Return a table as CSV: full precision, `true` and `false`, an empty cell for what is missing."""
    table = joined_lists(table)
    columns = {}
    for name in table.columns:
        values = [*table[name]]
        if name in _TRUTHS:
            values = [{True: "true", False: "false"}.get(value, "") for value in values]
        is_text = not (is_numeric_dtype(table[name]) or str(name).startswith("rank_"))  # A rank is `=2` in a tie.
        if name in _TRUTHS or is_text:
            # As objects: a column of another type would have 7 beside an empty cell as 7.0.
            columns[name] = pd.Series([escape(value) for value in values], dtype=object, index=table.index)
    return table.assign(**columns).to_csv(index=False, lineterminator="\n")


def escape(cell: Any) -> Any:
    """Return a cell as it is written: text that a spreadsheet would compute begins with an apostrophe, no number does.

    Example:
        >>> escape("=1+1"), escape("-x"), escape("-1.5"), escape(-1.5), escape("a=b")
        ("'=1+1", "'-x", '-1.5', -1.5, 'a=b')
    """
    return f"'{cell}" if isinstance(cell, str) and _is_formula(cell) else cell


def unescape(cell: str) -> str:
    """Return a cell as it was before `escape`.

    Example:
        >>> [unescape(escape(cell)) for cell in ("=1", "'=1", "'-1", "it's")]
        ['=1', "'=1", "'-1", "it's"]
    """
    return cell[1:] if cell.startswith("'") and _is_formula(cell[1:]) else cell


def _is_formula(cell: str) -> bool:
    if not _FORMULA.match(cell):
        return False
    try:
        float(cell)
    except ValueError:
        return True
    return cell != cell.strip() or "_" in cell
