"""Conversion of tables to CSV and back."""

import pandas as pd
from pandas.api.types import is_numeric_dtype

_TRUTHS = ("collapsed", "over_erased", "broken", "ranked", "control", "frontier", "recited", "is_reference")
# The column with several names in a cell, and their separator.
_LIST, _BETWEEN = "collapse_reason", " and "


def joined_lists(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with names joined as text: `mauve and perplexity`."""
    return table.assign(**{_LIST: table[_LIST].map(_BETWEEN.join)}) if _LIST in table else table


def split_lists(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with joined names as tuples again."""
    if _LIST not in table:
        return table
    return table.assign(**{_LIST: table[_LIST].map(lambda text: tuple(filter(None, text.split(_BETWEEN))))})


def csv_text(table: pd.DataFrame) -> str:
    """Return a table as CSV: full precision, `true` and `false`, empty cells for missing values."""
    table = joined_lists(table)
    columns = {}
    for name in table.columns:
        values = [*table[name]]
        if name in _TRUTHS:
            values = [{True: "true", False: "false"}.get(value, "") for value in values]
        is_text = not (is_numeric_dtype(table[name]) or str(name).startswith("rank_"))  # A rank is `=2` in a tie.
        if name in _TRUTHS or is_text:
            # As objects: a column of another type would write 7 as 7.0 next to an empty cell.
            columns[name] = pd.Series(values, dtype=object, index=table.index)
    return table.assign(**columns).to_csv(index=False, lineterminator="\n")
