"""The meta-evaluation of metrics as files and for the terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from harness.analysis.cells import number
from harness.analysis.meta.evaluation import JudgedMetric, MetaEvaluation
from harness.analysis.meta.published import PublishedMetric, published_metrics
from harness.analysis.meta.robustness import LEAST_UTILITY
from harness.base.messages import printable
from harness.reporting.template import text_file
from harness.reporting.text_tables import result_table

CIRCULAR = "by construction"
"""What stands for the AUC of a metric that compares a model with the models that it would tell apart."""


def meta_markdown(evaluation: MetaEvaluation, provenance: Mapping[str, Any], question: str) -> str:
    """Return meta.md: the table, the public study's figures beside it, and where the numbers come from."""
    rows = [{"row": row, "cells": _markdown_cells(row)} for row in evaluation.rows]
    return text_file(
        "meta.md.j2",
        evaluation=evaluation,
        rows=rows,
        published=_beside(evaluation),
        provenance=provenance,
        question=question,
        least_utility=LEAST_UTILITY,
    )


def meta_table(evaluation: MetaEvaluation) -> Table:
    """Return the table for the terminal, without intervals of R and Q."""
    table = result_table(
        f"{evaluation.models} models with the forget set, {evaluation.models} without, {evaluation.points} erased",
        "AUC: of models, with its 95 % interval. R, Q: what relearning and rounding leave of the metric. Points: that "
        f"keep {LEAST_UTILITY:.0%} of the utility and that the metric itself calls erased.",
    )
    table.add_column("Metric", overflow="fold")
    for head in ("AUC", "95 %", "by text", "R", "Q", "HM(R, Q)", "Overall", "Points"):
        table.add_column(head, justify="right")
    for row in evaluation.rows:
        auc, kept = row.faithfulness.models, row.robustness
        values = (kept.relearning.value, kept.rounding.value, kept.both.value, row.overall)
        cells = [_auc_text(row), _interval(auc.low, auc.high), number(row.faithfulness.texts.value)]
        cells += [*map(number, values), str(kept.rounded_points)]
        table.add_row(Text(printable(row.metric.title)), *cells)
    return table


def _auc_text(row: JudgedMetric) -> str:
    return CIRCULAR if row.is_circular else number(row.faithfulness.models.value)


def _interval(low: float, high: float) -> str:
    return "" if math.isnan(low) else f"{number(low)}–{number(high)}"


def _markdown_cells(row: JudgedMetric) -> list[str]:
    kept = row.robustness
    auc = [_auc_text(row)] if row.is_circular else [_cell(row.faithfulness.models)]
    cells = [*auc, _cell(row.faithfulness.texts), *map(_cell, (kept.relearning, kept.rounding, kept.both))]
    every, one_sided = row.of_all_points, row.one_sided
    cells += [number(row.overall), f"{kept.relearned_points}, {kept.rounded_points}", str(kept.unmoved_points)]
    cells += [number(mean.value) for mean in (every.relearning, every.rounding, every.both)]
    return cells + [number(mean.value) for mean in (one_sided.relearning, one_sided.rounding, one_sided.both)]


def _cell(estimate: Any) -> str:
    """Return a number with its interval below it."""
    interval = _interval(estimate.low, estimate.high)
    return number(estimate.value) + (f" <sub>{interval}</sub>" if interval else "")


def _beside(evaluation: MetaEvaluation) -> list[tuple[JudgedMetric, PublishedMetric]]:
    """Return our rows that the public study has too, with its figures."""
    published = published_metrics()
    return [(row, published[row.metric.name]) for row in evaluation.rows if row.metric.name in published]
