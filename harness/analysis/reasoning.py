"""Reasoning before and after: each row's accuracies, and how they changed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from harness.analysis.cells import NOTHING, number
from harness.analysis.metrics import MetricInfo, metrics_in
from harness.analysis.seeds import mean_and_interval, ranked_rows, strengths
from harness.analysis.table import STANDARD_ERROR
from harness.contracts import Metric
from harness.specs import ORIGINAL, REFERENCE_ROWS, UNSEEN_ROWS


@dataclass(frozen=True)
class Accuracy:
    """One accuracy of one row, over its seeds."""

    mean: float
    error: float
    """Half the 95 % interval over several seeds; for one seed the task's standard error; NaN without either."""
    change: float
    """Against the original model's mean; NaN without one."""


@dataclass(frozen=True)
class Answers:
    """What one row, a reference or a ranked variant, answered on every task."""

    variant: str
    label: str
    strength: str
    collapsed: bool
    accuracies: tuple[Accuracy, ...]


def answers(table: pd.DataFrame, info: MetricInfo) -> dict[str, list[Answers]]:
    """Return each model's rows, the references first; empty if the sweep measured no reasoning task."""
    tasks = metrics_in(info, "reasoning")
    table = table[~table["method"].isin(UNSEEN_ROWS)]
    if not tasks or not len(table):
        return {}
    is_reference = table["method"].isin(REFERENCE_ROWS)
    shown = pd.concat([table[is_reference], ranked_rows(table[~is_reference])])
    return {str(model): _answers_of(rows, tasks) for model, rows in shown.groupby("model", sort=False)}


def lines(rows: Sequence[Answers], tasks: Sequence[Metric]) -> list[list[str]]:
    """Return a model's rows as cells, below a line of titles: `0.812 ± 0.031 (−0.012)`."""
    cells = [["Method", "Strength", *(task.title for task in tasks)]]
    for row in rows:
        texts = [f"{row.label} †" if row.collapsed else row.label, row.strength]
        for accuracy in row.accuracies:
            change = "" if row.variant == ORIGINAL else f" ({signed(accuracy.change)})"
            texts.append(f"{number(accuracy.mean)} ± {number(accuracy.error)}{change}")
        cells.append(texts)
    return cells


def signed(change: float) -> str:
    """Return a change of an accuracy with its sign; a dash if there is none to speak of.

    Example:
        >>> signed(0.0123), signed(-0.25), signed(float("nan"))
        ('+0.012', '−0.250', '–')
    """
    return NOTHING if math.isnan(change) else f"{change:+.3f}".replace("-", "−")


def _answers_of(rows: pd.DataFrame, tasks: Sequence[Metric]) -> list[Answers]:
    originals = rows[rows["method"] == ORIGINAL]
    answered = []
    for variant, seeds in rows.groupby("variant", sort=False):
        first = seeds.iloc[0]
        accuracies = []
        for task in tasks:
            before, _ = mean_and_interval(list(originals[task.name]))
            mean, error = mean_and_interval(list(seeds[task.name]))
            own = STANDARD_ERROR.format(task.name)
            if len(seeds) == 1 and own in seeds.columns:
                error = float(seeds[own].iloc[0])
            accuracies.append(Accuracy(mean, error, mean - before))
        strength = f"{first['strength_name']} {strengths(list(seeds['strength']))}".strip()
        collapsed = bool(seeds["collapsed"].eq(True).any())
        answered.append(Answers(str(variant), str(first["label"]), strength, collapsed, tuple(accuracies)))
    return sorted(answered, key=lambda row: row.variant not in REFERENCE_ROWS)
