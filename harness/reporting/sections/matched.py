"""Who pays least: how sure that is, and the matched comparison as tables and as files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from harness.analysis.curves import styles
from harness.analysis.matched.comparison import MatchedTable
from harness.analysis.matched.verdicts import VerdictTable, verdict_clause
from harness.base.csv_text import csv_text
from harness.reporting.figures.answer.price_curves import price_figure
from harness.reporting.figures.answer.verdicts import verdict_figure
from harness.reporting.section import Section
from harness.reporting.summary import LETTERS
from harness.reporting.template import text_file

INTERPOLATED = (
    "Interpolated: where the trajectory meets the limit, between two measured neighbours (the original is strength 0), "
    "never beyond. Measured: the point lies beyond the limit, and is compared with no other. A tuned method has not "
    "reached a limit either if its nearest measured point is off by more than 2 % of the original's number."
)
VERDICTS_MEAN = (
    "Verdicts compare with the reference, over all limits of the page at once (Holm): better or worse where the ratio "
    "differs significantly from 1, equivalent where it lies within {margin} significantly, else undecided."
)
ONE_RUN = (
    "One training seed: nothing is called better or worse. The intervals are over items: they say what other texts "
    "would have given, not what another training run would."
)
_ROW_COLUMNS = ("model", "limit", "variant", "how", "setting", "matched_metric", "matched")
_METRIC_COLUMNS = (*_ROW_COLUMNS, "metric", "value", "low", "high", "letters", "collapsed", "budget", "note")
_PRICE_COLUMNS = ("price", "price_low", "price_high", "ratio", "ratio_low", "ratio_high", "verdict")
_COLUMNS = (*_METRIC_COLUMNS, "at_limit", "reach", *_PRICE_COLUMNS)


class Matched(Section):
    """What each method pays where all erase equally much, and what it erases where all pay equally much."""

    stems = ("matched", "verdicts", "price")

    @cached_property
    def figures(self) -> dict[str, Figure]:
        """How sure the answer is, and what each level costs; none where nothing is compared."""
        price = price_figure(self.analysis.price_curves, styles(self.analysis.points))
        return {**self._verdicts(is_tall=False), **({"price": price} if price else {})}

    @cached_property
    def tall_figures(self) -> dict[str, Figure]:
        """The panels of the verdicts below one another."""
        return self._verdicts(is_tall=True)

    def _verdicts(self, *, is_tall: bool) -> dict[str, Figure]:
        margin, of_variant = self.analysis.results.plan.compare.margin, styles(self.analysis.points)
        figure = verdict_figure(self.analysis.verdicts, margin, of_variant, is_tall=is_tall)
        return {"verdicts": figure} if figure else {}

    def files(self) -> dict[str, str]:
        """Return the tables as Markdown and CSV."""
        tables = self.analysis.matched
        if not tables:
            return {}
        question = self.analysis.results.plan.question
        verdicts, margin = self.analysis.verdicts, self.analysis.results.plan.compare.margin
        return {
            "matched.md": matched_markdown(tables, verdicts, margin, question),
            "matched.csv": csv_text(matched_frame(tables, verdicts)),
        }

    def context(self) -> dict[str, Any]:
        """Return the tables with their verdicts, and the notes on them."""
        margin = self.analysis.results.plan.compare.margin
        return _context(self.analysis.matched, self.analysis.verdicts, margin)


def _context(tables: Sequence[MatchedTable], verdicts: Sequence[VerdictTable], margin: float) -> dict[str, Any]:
    has_verdicts = has_letters = False
    for of_metric in verdicts:
        has_verdicts |= any(judged.verdict for judged in of_metric.rows)
    said = ONE_RUN if any(of_metric.has_one_replicate for of_metric in verdicts) else ""
    if has_verdicts:
        said = VERDICTS_MEAN.format(margin=f"{margin:.0%}")
    for table in tables:
        for row in table.rows:
            has_letters |= any(cell.letters for cell in row.cells)
    return {
        "letters_mean": LETTERS if has_letters else "",
        "tables": _with_verdicts(tables, verdicts),
        "interpolated": INTERPOLATED,
        "ratio_text": ratio_text,
        "verdicts_mean": said,
    }


def matched_frame(tables: Sequence[MatchedTable], verdicts: Sequence[VerdictTable]) -> pd.DataFrame:
    """Return one row for every limit, variant and reported metric; without numbers where it was not reached."""
    by_table = {(id(of_metric.matched), of_metric.metric.name): of_metric for of_metric in verdicts}
    unknown = (None, None, None)
    rows = []
    for table in tables:
        for row in table.rows:
            matched, collapsed = (row.numbers[0][0], row.collapsed) if row.numbers else (None, None)
            limit = table.limit
            of_row = (table.model, limit.text, row.variant, row.how, row.setting, limit.metric.name, matched)
            for index, metric in enumerate(limit.reported):
                numbers = row.numbers[index + 1] if row.numbers else unknown
                letters = row.cells[index].letters if row.cells else ""
                price = row.prices[metric.name].number_and_interval if metric.name in row.prices else unknown
                of_metric = by_table.get((id(table), metric.name))
                judged = of_metric.of(row) if of_metric else None
                against = (judged.ratio, judged.verdict or "") if judged else (unknown, "")
                of_metric_there = (metric.name, *numbers, letters, collapsed, row.budget, row.note)
                prices = (row.is_at_limit, row.reach, *price, *against[0], against[1])
                rows.append((*of_row, *of_metric_there, *prices))
    return pd.DataFrame(rows, columns=_COLUMNS)


def matched_sentences(verdicts: Sequence[VerdictTable], model: str, margin: float) -> list[str]:
    """Return what may be said of a model's methods at each level of the first erasure metric; the same is said once."""
    of_model = [table for table in verdicts if table.matched.model == model]
    limits_by_clause: dict[str, list[str]] = {}
    for table in of_model:
        if (table.matched.limit.metric, table.metric) == (of_model[0].matched.limit.metric, of_model[0].metric):
            limits_by_clause.setdefault(verdict_clause(table, margin), []).append(table.matched.limit.text)
    return [f"{'; '.join(limits)}{clause}." for clause, limits in limits_by_clause.items()]


def _with_verdicts(
    tables: Sequence[MatchedTable], verdicts: Sequence[VerdictTable]
) -> list[tuple[MatchedTable, VerdictTable | None]]:
    """Return each table with its verdicts by the first metric that it reports; None where there are none."""
    first: dict[int, VerdictTable] = {}
    for of_metric in verdicts:
        first.setdefault(id(of_metric.matched), of_metric)
    return [(table, first.get(id(table))) for table in tables]


def ratio_text(numbers: tuple[float, float, float]) -> str:
    """Return a ratio and its interval: `×1.27 (1.19–1.36)`; '' where it is not known.

    Example:
        >>> ratio_text((1.268, 1.19, math.inf)), ratio_text((2.0, math.nan, math.nan)), ratio_text((math.nan,) * 3)
        ('×1.27 (1.19–∞)', '×2.00', '')
    """
    value, low, high = (f"{each:.2f}".replace("inf", "∞") for each in numbers)
    if math.isnan(numbers[0]):
        return ""
    return f"×{value}" + ("" if math.isnan(numbers[1]) else f" ({low}–{high})")


def matched_markdown(
    tables: Sequence[MatchedTable],
    verdicts: Sequence[VerdictTable],
    margin: float,
    question: str,
) -> str:
    """Return the matched comparison of every model, under the sweep's question."""
    context = _context(tables, verdicts, margin)
    return text_file("matched.md.j2", question=question, **context)
