"""The figure of the answer: what each method pays where all erase equally much, with its interval and letters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from textwrap import fill
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import AbstractPathEffect, withStroke

from harness.analysis.matched.comparison import MatchedRow, MatchedTable
from harness.contracts import Metric
from harness.reporting.figures import style
from harness.reporting.figures.colours import text_colour
from harness.specs import ORIGINAL, RETRAINED

_DASHES = {ORIGINAL: style.DOTTED, RETRAINED: (0, (5, 2))}
_STROKE: list[AbstractPathEffect] = [withStroke(linewidth=2.5, foreground="white")]
_ROW_INCHES = 0.27
_TITLE_CHARACTERS, _LEGEND_CHARACTERS = 34, 42
"""Of a line above a panel; of the legend's, for each column of panels."""
_TINY = 7.5
"""Points of the letters and of what was not reached."""


def matched_figure(tables: Sequence[MatchedTable], table: pd.DataFrame, of_variant: style.Styles) -> Figure | None:
    """Return a panel for each level of the first erasure metric, a row of them for each model; None without any.

    Args:
        tables: The matched comparison.
        table: The sweep's table, for what the original and the retrained model have.
        of_variant: The colour and marker of each variant that has a point; a tuned one may have none.
    """
    erasing = [matched for matched in tables if matched.limit.is_erasure]
    drawn = [matched for matched in erasing if matched.limit.metric.name == erasing[0].limit.metric.name]
    if not any(row.numbers for matched in drawn for row in matched.rows):
        return None
    by_model: dict[str, list[MatchedTable]] = {}
    for matched in drawn:
        by_model.setdefault(matched.model, []).append(matched)
    columns, most = max(map(len, by_model.values())), max(len(matched.rows) for matched in drawn)
    size = (3.1 * columns + 0.4, len(by_model) * (_ROW_INCHES * most + 1.05) + 0.55)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(len(by_model), columns, squeeze=False, sharex="row")
    for row_of_axes, (model, of_model) in zip(axes, by_model.items(), strict=True):
        for ax, matched in zip(row_of_axes, of_model, strict=False):
            _draw_references(ax, table[table["model"] == model], matched.limit.reported[0])
            _draw_level(ax, matched, of_variant)
            text = f"{model}: {matched.limit.text}" if len(by_model) > 1 else matched.limit.text
            style.panel_title(ax, fill(text, _TITLE_CHARACTERS), fontsize=9)
        for ax in row_of_axes[len(of_model) :]:
            ax.set_axis_off()
    handles = []
    for name in (ORIGINAL, RETRAINED):
        if (table["method"] == name).any():
            look: dict[str, Any] = {"color": style.REFERENCE_STYLES[name][2], "linestyle": _DASHES[name]}
            handles.append(Line2D([], [], linewidth=0.9, label=name.capitalize(), **look))
    if any(row.collapsed for matched in drawn for row in matched.rows):
        handles.append(style.collapsed_handle())
    note = "Bars: 95 % interval. Methods that share a letter do not differ significantly."
    style.legend_below(figure, handles, fill(note, columns * _LEGEND_CHARACTERS), columns=3, fontsize=8.5)
    return figure


def _draw_references(ax: Axes, of_model: pd.DataFrame, metric: Metric) -> None:
    """Draw a line at what the original and the retrained model have, where it is known."""
    for name, (_, _, colour) in style.REFERENCE_STYLES.items():
        value = float(of_model.loc[of_model["method"] == name, metric.name].mean())
        if math.isfinite(value):
            ax.axvline(value, color=colour, linewidth=0.9, linestyle=_DASHES[name], zorder=1)


def _draw_level(ax: Axes, matched: MatchedTable, of_variant: style.Styles) -> None:
    rows, metric = matched.rows, matched.limit.reported[0]
    for y, row in enumerate(rows):
        if row.numbers:
            _draw_row(ax, y, row, *of_variant[row.variant])
            text = f"{row.cells[0].text} {row.cells[0].letters}".strip()
            if not row.is_at_limit:
                text += f" at {matched.limit.metric.title} {row.matched.text}"
            right = row.numbers[1][2] if math.isfinite(row.numbers[1][2]) else row.numbers[1][0]
            beside: dict[str, Any] = {"xytext": (6, 0), "textcoords": "offset points", "va": "center"}
            ax.annotate(text, (right, y), color=style.INK, fontsize=_TINY, **beside)
        else:
            at: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "va": "center", "fontsize": _TINY}
            ax.annotate(row.how, (0.02, y), color=style.SOFT, **at).set_path_effects(_STROKE)
    if math.isinf(metric.high):
        style.use_log_scale(ax)
    ax.set_yticks(range(len(rows)), [style.without_mathtext(row.label) for row in rows], fontsize=8.5)
    for label, row in zip(ax.get_yticklabels(), rows, strict=True):
        label.set_color(text_colour(of_variant[row.variant][0]) if row.variant in of_variant else style.SOFT)
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.margins(x=0.12)
    ax.set_xlabel(style.axis_title(metric), fontsize=9, color=style.INK)
    ax.grid(axis="x", color=style.GRID, linewidth=0.8)
    ax.set_axisbelow(True)
    ax.tick_params(which="both", labelsize=8, color=style.FAINT, length=2)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.spines["bottom"].set_color(style.FAINT)


def _draw_row(ax: Axes, y: int, row: MatchedRow, colour: str, marker: str) -> None:
    value, low, high = row.numbers[1]
    if math.isfinite(low) and math.isfinite(high):
        ax.plot([low, high], [y, y], color=colour, linewidth=2.2, alpha=0.45, zorder=2, solid_capstyle="butt")
    ax.plot(value, y, marker, markersize=6.5, zorder=4, **style.point_style(colour, is_collapsed=row.collapsed))
