"""Reasoning before and after: each model's accuracies as grouped bars, and their change as a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from harness.contracts import Metric
from harness.reporting.aggregate import mean_and_interval, ranked_rows, strengths
from harness.reporting.curves import styles
from harness.reporting.figures import FAINT, INK, RED, without_mathtext
from harness.reporting.layout import NOTHING, number
from harness.reporting.metric_info import MetricInfo, metrics_in
from harness.specs import ORIGINAL, REFERENCE_ROWS, RETRAINED, UNSEEN_ROWS

_REFERENCE_COLOURS = {ORIGINAL: "#111111", RETRAINED: "#9a9a9a"}


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
        shares = [f"{number(accuracy.mean)} ± {number(accuracy.error)}" for accuracy in row.accuracies]
        changes = ["" if row.variant == ORIGINAL else f" ({signed(accuracy.change)})" for accuracy in row.accuracies]
        label = f"{row.label} †" if row.collapsed else row.label
        cells.append([label, row.strength, *map("".join, zip(shares, changes, strict=True))])
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
    before = {task.name: mean_and_interval(list(originals[task.name]))[0] for task in tasks}
    answered = []
    for variant, seeds in rows.groupby("variant", sort=False):
        first = seeds.iloc[0]
        accuracies = tuple(_accuracy(seeds, task.name, before[task.name]) for task in tasks)
        strength = f"{first['strength_name']} {strengths(list(seeds['strength']))}".strip()
        collapsed = bool(seeds["collapsed"].eq(True).any())
        answered.append(Answers(str(variant), str(first["label"]), strength, collapsed, accuracies))
    return sorted(answered, key=lambda row: row.variant not in REFERENCE_ROWS)


def _accuracy(seeds: pd.DataFrame, name: str, before: float) -> Accuracy:
    mean, half = mean_and_interval(list(seeds[name]))
    own = f"{name}_stderr"
    if len(seeds) == 1 and own in seeds.columns:
        half = float(seeds[own].iloc[0])
    return Accuracy(mean, half, mean - before)


def bars(table: pd.DataFrame, info: MetricInfo) -> Figure | None:
    """Return a panel of grouped bars for each model: a group for each task, a bar for each row; None without tasks.

    Source: EMSO paper, section 4.2 (a radar there; its legend has the means).
    """
    by_model, tasks = answers(table, info), metrics_in(info, "reasoning")
    if not by_model:
        return None
    figure = Figure(figsize=(11.0, 2.7 * len(by_model) + 0.9), layout="constrained")
    axes = list(figure.subplots(len(by_model), 1, squeeze=False, sharex=True).flat)
    colours = {variant: colour for variant, (colour, _) in styles(table).items()} | _REFERENCE_COLOURS
    for ax, (model, rows) in zip(axes, by_model.items(), strict=True):
        _draw_bars(ax, rows, colours)
        ax.set_title(without_mathtext(model), loc="left", fontsize=10, fontweight="bold", color=INK)
    axes[-1].set_xticks(range(len(tasks)), [task.title for task in tasks], fontsize=9.5, color=INK)
    _bar_legend(figure, by_model, colours)
    return figure


def _draw_bars(ax: Axes, rows: Sequence[Answers], colours: dict[str, str]) -> None:
    width = 0.84 / len(rows)
    for index, row in enumerate(rows):
        at = [task - 0.42 + width * (index + 0.5) for task in range(len(row.accuracies))]
        heights = [accuracy.mean for accuracy in row.accuracies]
        errors = [0.0 if math.isnan(accuracy.error) else accuracy.error for accuracy in row.accuracies]
        style: dict[str, Any] = {"color": colours[row.variant]}
        if row.collapsed:
            style = {"color": "white", "edgecolor": RED, "hatch": "////", "linewidth": 0.8}
        ax.bar(at, heights, width * 0.9, yerr=errors, error_kw={"elinewidth": 0.8, "ecolor": FAINT}, zorder=2, **style)
        if row.collapsed:
            ax.plot(at, [0.02] * len(at), "o", color=colours[row.variant], markersize=3.2, zorder=3)
    if rows[0].variant == ORIGINAL:
        for task, accuracy in enumerate(rows[0].accuracies):
            across, dots = [task - 0.45, task + 0.45], (0, (1, 2))
            ax.plot(across, [accuracy.mean] * 2, color=INK, linewidth=0.8, linestyle=dots, zorder=3)
    ax.set_ylim(0, 1.04)
    ax.set_ylabel("accuracy", fontsize=9.5, color=INK)
    ax.grid(axis="y", color="#eeeeee", linewidth=0.8)
    ax.set_axisbelow(True)
    ax.tick_params(length=0, labelsize=8.5, labelcolor=INK)
    ax.spines[["top", "right"]].set_visible(False)


def _bar_legend(figure: Figure, by_model: dict[str, list[Answers]], colours: dict[str, str]) -> None:
    named = {row.variant: row.label for rows in by_model.values() for row in rows}
    handles = [Patch(color=colours[variant], label=without_mathtext(label)) for variant, label in named.items()]
    if any(row.collapsed for rows in by_model.values() for row in rows):
        handles.append(Patch(facecolor="white", edgecolor=RED, hatch="////", label="collapsed"))
    figure.legend(
        handles=handles,
        title="Dotted: the original model. Whiskers: one standard error, or the 95 % interval over several seeds.",
        title_fontsize=8,
        loc="outside lower center",
        ncols=min(len(handles), 10),
        frameon=False,
        fontsize=9,
        labelcolor=INK,
    )
