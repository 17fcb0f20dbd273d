"""The figure of the answer: what each method pays where all erase equally much, with its interval and letters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
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
from harness.reporting.figures.answer.panels import TINY, annotate_line, dress_lines, panel_grid
from harness.specs import ORIGINAL, RETRAINED

_DASHES = {ORIGINAL: style.DOTTED, RETRAINED: (0, (5, 2))}
_STROKE: list[AbstractPathEffect] = [withStroke(linewidth=2.5, foreground="white")]
_LEGEND_CHARACTERS = 42
"""Of a line of the legend, for each column of panels."""


def matched_figure(
    tables: Sequence[MatchedTable], table: pd.DataFrame, of_variant: style.Styles, *, is_tall: bool = False
) -> Figure | None:
    """Return a panel for each level of the first erasure metric, a row of them for each model; None without any.

    Args:
        tables: The matched comparison.
        table: The sweep's table, for what the original and the retrained model have.
        of_variant: The colour and marker of each variant that has a point; a tuned one may have none.
        is_tall: Whether each panel has a row of its own.
    """
    drawn: list[MatchedTable] = []
    has_numbers = has_collapsed = has_letters = False
    for matched in tables:
        if matched.limit.is_erasure and (not drawn or matched.limit.metric.name == drawn[0].limit.metric.name):
            drawn.append(matched)
            for row in matched.rows:
                has_numbers |= bool(row.numbers)
                has_collapsed |= row.collapsed
                has_letters |= any(cell.letters for cell in row.cells)
    if not has_numbers:
        return None
    draws = [partial(_draw_level, matched=matched, table=table, of_variant=of_variant) for matched in drawn]
    figure, columns = panel_grid(drawn, draws, share_x=True, is_tall=is_tall)
    handles = []
    for name in (ORIGINAL, RETRAINED):
        if (table["method"] == name).any():
            look: dict[str, Any] = {"color": style.REFERENCE_STYLES[name][2], "linestyle": _DASHES[name]}
            handles.append(Line2D([], [], linewidth=0.9, label=name.capitalize(), **look))
    if has_collapsed:
        handles.append(style.collapsed_handle())
    note = "Bars: 95 % interval. Methods that share a letter do not differ significantly."
    note = note if has_letters else "Bars: 95 % interval over items; nothing is tested."
    style.legend_below(
        figure, handles, fill(note, columns * _LEGEND_CHARACTERS), columns=min(3, 2 * columns), fontsize=8.5
    )
    return figure


def _draw_references(ax: Axes, of_model: pd.DataFrame, metric: Metric) -> None:
    """Draw a line at what the original and the retrained model have, where it is known."""
    for name, (_, _, colour) in style.REFERENCE_STYLES.items():
        value = float(of_model.loc[of_model["method"] == name, metric.name].mean())
        if math.isfinite(value):
            ax.axvline(value, color=colour, linewidth=0.9, linestyle=_DASHES[name], zorder=1)


def _draw_level(ax: Axes, matched: MatchedTable, table: pd.DataFrame, of_variant: style.Styles) -> None:
    rows, metric = matched.rows, matched.limit.reported[0]
    _draw_references(ax, table[table["model"] == matched.model], metric)
    for y, row in enumerate(rows):
        if not row.numbers:
            at: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "va": "center", "fontsize": TINY}
            ax.annotate(row.how, (0.02, y), color=style.SOFT, **at).set_path_effects(_STROKE)
            continue
        _draw_row(ax, y, row, *of_variant[row.variant])
        text = f"{row.cells[0].text} {row.cells[0].letters}".strip()
        if not row.is_at_limit:
            text += f" at {matched.limit.metric.title} {row.matched.text}"
        right = row.numbers[1][2] if math.isfinite(row.numbers[1][2]) else row.numbers[1][0]
        annotate_line(ax, text, right, y)
    if math.isinf(metric.high):
        style.use_log_scale(ax)
    dress_lines(ax, rows, of_variant, style.axis_title(metric))
    ax.grid(axis="x", color=style.GRID, linewidth=0.8)
    ax.set_axisbelow(True)


def _draw_row(ax: Axes, y: int, row: MatchedRow, colour: str, marker: str) -> None:
    value, low, high = row.numbers[1]
    if math.isfinite(low) and math.isfinite(high):
        ax.plot([low, high], [y, y], color=colour, linewidth=2.2, alpha=0.45, zorder=2, solid_capstyle="butt")
    ax.plot(value, y, marker, markersize=6.5, zorder=4, **style.point_style(colour, is_collapsed=row.collapsed))
