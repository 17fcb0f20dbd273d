"""Who pays least: the matched comparison as a figure, as tables, and as files."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from harness.analysis.matched.comparison import MatchedTable
from harness.analysis.tradeoff.curves import styles
from harness.base.csv_text import csv_text
from harness.reporting.figures.matched import matched_figure
from harness.reporting.section import Section
from harness.reporting.summary import LETTERS
from harness.reporting.template import text_file

INTERPOLATED = "Interpolated: between two neighbours of one trajectory (the original is strength 0), never beyond."
_ROW_COLUMNS = ("model", "limit", "variant", "how", "setting", "matched_metric", "matched")
_COLUMNS = (*_ROW_COLUMNS, "metric", "value", "low", "high", "letters", "collapsed", "budget", "note")


class Matched(Section):
    """What each method pays where all erase equally much, and what it erases where all pay equally much."""

    stems = ("matched",)

    @cached_property
    def figures(self) -> dict[str, Figure]:
        """A panel for each level; none where nothing is compared."""
        points = self.analysis.points
        figure = matched_figure(self.analysis.matched, points, styles(points))
        return {"matched": figure} if figure else {}

    def files(self) -> dict[str, str]:
        """Return the tables as Markdown and CSV."""
        tables = self.analysis.matched
        if not tables:
            return {}
        question = self.analysis.results.plan.question
        return {"matched.md": matched_markdown(tables, question), "matched.csv": csv_text(matched_frame(tables))}

    def context(self) -> dict[str, Any]:
        """Return the notes on the tables."""
        return {"letters_mean": LETTERS, "interpolated": INTERPOLATED}


def matched_frame(tables: Sequence[MatchedTable]) -> pd.DataFrame:
    """Return one row for every limit, variant and reported metric; without numbers where it was not reached."""
    rows = []
    for table in tables:
        for row in table.rows:
            matched, collapsed = (row.numbers[0][0], row.collapsed) if row.numbers else (None, None)
            limit = table.limit
            of_row = (table.model, limit.text, row.variant, row.how, row.setting, limit.metric.name, matched)
            for index, metric in enumerate(limit.reported):
                numbers = row.numbers[index + 1] if row.numbers else (None, None, None)
                letters = row.cells[index].letters if row.cells else ""
                rows.append((*of_row, metric.name, *numbers, letters, collapsed, row.budget, row.note))
    return pd.DataFrame(rows, columns=_COLUMNS)


def matched_sentences(tables: Sequence[MatchedTable], model: str) -> list[str]:
    """Return a sentence for each level of the first erasure metric: who pays least there, and who pays as little."""
    of_model = [table for table in tables if table.model == model and table.limit.is_erasure]
    sentences = []
    for table in of_model:
        reached = [row for row in table.rows if row.cells and not row.collapsed]
        if table.limit.metric.name != of_model[0].limit.metric.name or not table.rows:
            continue
        if not reached:
            sentences.append(f"{table.limit.text}: no method gets there without collapsing.")
            continue
        first, *others = reached
        metric, cell = table.limit.reported[0], first.cells[0]
        alike = [row.label for row in others if set(row.cells[0].letters) & set(cell.letters)]
        clause = f"; no significant difference from {', '.join(alike)}" if alike else ""
        interval = f" ({cell.interval})" if cell.interval else ""
        sentences.append(
            f"{table.limit.text}: {first.label} pays least, {metric.title} {cell.text}{interval}, {first.how}{clause}."
        )
    return sentences


def matched_markdown(tables: Sequence[MatchedTable], question: str) -> str:
    """Return the matched comparison of every model, under the sweep's question."""
    return text_file("matched.md.j2", tables=tables, question=question, letters=LETTERS, interpolated=INTERPOLATED)
