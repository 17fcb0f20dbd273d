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
from harness.reporting.figures.style import FAINT, INK, RED, without_mathtext
from harness.specs import ORIGINAL, RETRAINED

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
