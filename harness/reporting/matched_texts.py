"""The matched comparison as Markdown, and as a frame for CSV."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from harness.reporting.comparison import MatchedTable
from harness.reporting.layout import ARROWS, NOTHING
from harness.reporting.texts import LETTERS, markdown_cell, markdown_escape

INTERPOLATED = "Interpolated: between two neighbours of one trajectory (the original is strength 0), never beyond."
COLUMNS = (
    *("model", "limit", "variant", "how", "setting", "matched_metric", "matched", "metric", "value", "low", "high"),
    *("letters", "collapsed", "budget", "note"),
)


def matched_frame(tables: Sequence[MatchedTable]) -> pd.DataFrame:
    """Return one row for every limit, variant and reported metric; without numbers where it was not reached."""
    rows = []
    for table in tables:
        for row in table.rows:
            about = {
                "model": table.model,
                "limit": table.limit.text,
                "variant": row.variant,
                "how": row.how,
                "setting": row.setting,
                "matched_metric": table.limit.metric.name,
                "matched": row.numbers[0][0] if row.numbers else None,
                "collapsed": row.collapsed if row.numbers else None,
                "budget": row.budget,
                "note": row.note,
            }
            for index, metric in enumerate(table.limit.reported):
                value, low, high = row.numbers[index + 1] if row.numbers else (None, None, None)
                letters = row.cells[index].letters if row.cells else ""
                rows.append(
                    {**about, "metric": metric.name, "value": value, "low": low, "high": high, "letters": letters}
                )
    return pd.DataFrame(rows, columns=COLUMNS)


def matched_markdown(tables: Sequence[MatchedTable], question: str) -> str:
    """Return the matched comparison of every model, under the sweep's question."""
    parts = [f"# {markdown_escape(question)}"]
    for table in tables:
        titles = [f"{metric.title} {ARROWS[metric.better]}" for metric in table.limit.reported]
        tuned = any(row.budget for row in table.rows)
        columns = ["Method", "Setting", table.limit.metric.title, *titles, *["Budget"] * tuned, ""]
        rule = ["---", "---", *["--:"] * (len(titles) + 1), *["---"] * tuned, "---"]
        lines = [
            [
                markdown_escape(row.label) + (" †" if row.collapsed else ""),
                markdown_escape(row.setting or NOTHING),
                markdown_cell(row.matched) or NOTHING,
                *([markdown_cell(cell) for cell in row.cells] or [NOTHING] * len(titles)),
                *[row.budget] * tuned,
                markdown_escape(f"{row.how}: {row.note}" if row.note else "" if row.how == "measured" else row.how),
            ]
            for row in table.rows
        ]
        body = "\n".join("| " + " | ".join(line) + " |" for line in [columns, rule, *lines])
        parts += [f"## {markdown_escape(table.model)}, {markdown_escape(table.limit.text)}", body]
    return "\n\n".join([*parts, f"{LETTERS} † collapsed. {INTERPOLATED}"]) + "\n"
