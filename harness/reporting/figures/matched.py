"""The figure of the answer: what each method pays where all erase equally much, with its interval and letters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import AbstractPathEffect, withStroke

from harness.analysis.matched.comparison import MatchedRow, MatchedTable
from harness.contracts import Metric
from harness.reporting.figures.colours import text_colour
from harness.reporting.figures.style import (
    FAINT,
    HOLLOW,
    INK,
    REFERENCE_STYLES,
    SOFT,
    Styles,
    axis_title,
    use_log_scale,
    without_mathtext,
)
from harness.specs import ORIGINAL, RETRAINED

_DASHES = {ORIGINAL: (0, (1, 2)), RETRAINED: (0, (5, 2))}
_STROKE: list[AbstractPathEffect] = [withStroke(linewidth=2.5, foreground="white")]
_ROW_INCHES = 0.27
_TITLE_CHARACTERS, _LEGEND_CHARACTERS = 34, 42
"""Of a line above a panel; of the legend's, for each column of panels."""
_TINY = 7.5
"""Points of the letters and of what was not reached."""


def matched_figure(tables: Sequence[MatchedTable], table: pd.DataFrame, of_variant: Styles) -> Figure | None:
    """Return a panel for each level of the first erasure metric, a row of them for each model; None without any.

    Args:
        tables: The matched comparison.
        table: The sweep's table, for what the original and the retrained model have.
        of_variant: The colour and marker of each variant that has a point; a tuned one may have none.
    """
    first = next((matched.limit.metric.name for matched in tables if matched.limit.is_erasure), None)
    drawn = [matched for matched in tables if matched.limit.is_erasure and matched.limit.metric.name == first]
    if not any(row.numbers for matched in drawn for row in matched.rows):
        return None
    models = list(dict.fromkeys(matched.model for matched in drawn))
    of_models = [[matched for matched in drawn if matched.model == model] for model in models]
    columns, most = max(map(len, of_models)), max(len(matched.rows) for matched in drawn)
    size = (3.1 * columns + 0.4, len(models) * (_ROW_INCHES * most + 1.05) + 0.55)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(len(models), columns, squeeze=False, sharex="row")
    for row_of_axes, of_model in zip(axes, of_models, strict=True):
        references = _references(table, of_model[0].model, of_model[0].limit.reported[0])
        for ax, matched in zip(row_of_axes, of_model, strict=False):
            _draw_level(ax, matched, references, of_variant)
            text = f"{matched.model}: {matched.limit.text}" if len(models) > 1 else matched.limit.text
            title = fill(without_mathtext(text), _TITLE_CHARACTERS)
            ax.set_title(title, loc="left", fontsize=9, fontweight="bold", color=INK)
        for ax in row_of_axes[len(of_model) :]:
            ax.set_axis_off()
    _legend(figure, drawn, table, columns * _LEGEND_CHARACTERS)
    return figure


def _references(table: pd.DataFrame, model: str, metric: Metric) -> dict[str, float]:
    """Return what the original and the retrained model have, where it is known."""
    of_model = table[table["model"] == model]
    means = {name: float(of_model.loc[of_model["method"] == name, metric.name].mean()) for name in REFERENCE_STYLES}
    return {name: value for name, value in means.items() if math.isfinite(value)}


def _draw_level(ax: Axes, matched: MatchedTable, references: Mapping[str, float], of_variant: Styles) -> None:
    metric = matched.limit.reported[0]
    for name, value in references.items():
        ax.axvline(value, color=REFERENCE_STYLES[name][2], linewidth=0.9, linestyle=_DASHES[name], zorder=1)
    for y, row in enumerate(matched.rows):
        if row.numbers:
            _draw_row(ax, y, row, *of_variant[row.variant])
        else:
            at: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "va": "center", "fontsize": _TINY}
            ax.annotate("not reached", (0.02, y), color=SOFT, **at).set_path_effects(_STROKE)
    _dress(ax, matched.rows, metric, of_variant)


def _dress(ax: Axes, rows: Sequence[MatchedRow], metric: Metric, of_variant: Styles) -> None:
    if math.isinf(metric.high):
        use_log_scale(ax)
    ax.set_yticks(range(len(rows)), [without_mathtext(row.label) for row in rows], fontsize=8.5)
    for label, row in zip(ax.get_yticklabels(), rows, strict=True):
        label.set_color(text_colour(of_variant[row.variant][0]) if row.variant in of_variant else SOFT)
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.margins(x=0.12)
    ax.set_xlabel(axis_title(metric), fontsize=9, color=INK)
    ax.grid(axis="x", color="#eeeeee", linewidth=0.8)
    ax.set_axisbelow(True)
    ax.tick_params(which="both", labelsize=8, color=FAINT, length=2)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.spines["bottom"].set_color(FAINT)


def _draw_row(ax: Axes, y: int, row: MatchedRow, colour: str, marker: str) -> None:
    value, low, high = row.numbers[1]
    if math.isfinite(low) and math.isfinite(high):
        ax.plot([low, high], [y, y], color=colour, linewidth=2.2, alpha=0.45, zorder=2, solid_capstyle="butt")
    style = HOLLOW if row.collapsed else {"color": colour, "markeredgecolor": "white", "markeredgewidth": 0.7}
    ax.plot(value, y, marker, markersize=6.5, zorder=4, **style)
    right = high if math.isfinite(high) else value
    at: dict[str, Any] = {"xytext": (6, 0), "textcoords": "offset points", "va": "center", "fontsize": _TINY}
    ax.annotate(f"{row.cells[0].text} {row.cells[0].letters}".strip(), (right, y), color=INK, **at)


def _legend(figure: Figure, drawn: Sequence[MatchedTable], table: pd.DataFrame, width: int) -> None:
    handles = []
    for name in (ORIGINAL, RETRAINED):
        if (table["method"] == name).any():
            colour = REFERENCE_STYLES[name][2]
            handles.append(
                Line2D([], [], color=colour, linewidth=0.9, linestyle=_DASHES[name], label=name.capitalize())
            )
    if any(row.collapsed for matched in drawn for row in matched.rows):
        handles.append(Line2D([], [], marker="o", linestyle="", markersize=6, label="collapsed", **HOLLOW))
    figure.legend(
        handles=handles,
        title=fill("Bars: 95 % interval. Methods that share a letter cannot be told apart.", width),
        title_fontsize=8,
        loc="outside lower center",
        ncols=3,
        frameon=False,
        fontsize=8.5,
        labelcolor=INK,
    )
