"""The figure of reasoning before and after: each model's accuracies as grouped bars."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from harness.analysis.metrics import MetricInfo, metrics_in
from harness.analysis.reasoning import Answers, answers
from harness.analysis.tradeoff.curves import styles
from harness.reporting.figures import style
from harness.specs import ORIGINAL, RETRAINED

_COLLAPSED_BAR: dict[str, Any] = {"facecolor": "white", "edgecolor": style.RED, "hatch": "////"}
_REFERENCE_COLOURS = {ORIGINAL: "#111111", RETRAINED: "#9a9a9a"}


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
        style.panel_title(ax, model)
    axes[-1].set_xticks(range(len(tasks)), [task.title for task in tasks], fontsize=9.5, color=style.INK)
    rows = [row for of_model in by_model.values() for row in of_model]
    handles = []
    for variant, label in {row.variant: row.label for row in rows}.items():
        handles.append(Patch(color=colours[variant], label=style.without_mathtext(label)))
    if any(row.collapsed for row in rows):
        handles.append(Patch(**_COLLAPSED_BAR, label="collapsed"))
    note = "Dotted: the original model. Whiskers: one standard error, or the 95 % interval over several seeds."
    style.legend_below(figure, handles, note, columns=10)
    return figure


def _draw_bars(ax: Axes, rows: Sequence[Answers], colours: dict[str, str]) -> None:
    width = 0.84 / len(rows)
    for index, row in enumerate(rows):
        at, heights, errors = [], [], []
        for task, accuracy in enumerate(row.accuracies):
            at.append(task - 0.42 + width * (index + 0.5))
            heights.append(accuracy.mean)
            errors.append(0.0 if math.isnan(accuracy.error) else accuracy.error)
        look: dict[str, Any] = {"color": colours[row.variant]}
        if row.collapsed:
            look = {**_COLLAPSED_BAR, "linewidth": 0.8}
        whiskers = {"elinewidth": 0.8, "ecolor": style.FAINT}
        ax.bar(at, heights, width * 0.9, yerr=errors, error_kw=whiskers, zorder=2, **look)
        if row.collapsed:
            ax.plot(at, [0.02] * len(at), "o", color=colours[row.variant], markersize=3.2, zorder=3)
    if rows[0].variant == ORIGINAL:
        for task, accuracy in enumerate(rows[0].accuracies):
            across = [task - 0.45, task + 0.45]
            ax.plot(across, [accuracy.mean] * 2, color=style.INK, linewidth=0.8, linestyle=style.DOTTED, zorder=3)
    ax.set_ylim(0, 1.04)
    ax.set_ylabel("accuracy", fontsize=9.5, color=style.INK)
    ax.grid(axis="y", color=style.GRID, linewidth=0.8)
    ax.set_axisbelow(True)
    ax.tick_params(length=0, labelsize=8.5, labelcolor=style.INK)
    ax.spines[["top", "right"]].set_visible(False)
